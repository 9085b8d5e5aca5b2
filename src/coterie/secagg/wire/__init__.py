"""What travels: messages, their legal order, and the terms of a round."""
