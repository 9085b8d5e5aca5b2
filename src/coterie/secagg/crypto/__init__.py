"""Keys, rings, masks and shares: the arithmetic and the secrets, without messages."""
