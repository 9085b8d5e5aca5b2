"""What researchers run: local training, whole experiments, attacks, and the paper's tables and figures."""
