"""A Flower app in plain NumPy that learns to read digits."""
