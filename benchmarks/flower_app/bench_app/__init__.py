"""One job for Flower in three ways to add up: plain, by Flower's SecAgg+, and sealed."""
