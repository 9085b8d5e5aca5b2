"""What researchers run: local training, whole experiments, attacks, and the paper's tables and figures.

In: a `Spec`, data, and the TOML files of `experiments/`.
Out: a run's folder, records of attacks, and results beside the paper's numbers.
"""
