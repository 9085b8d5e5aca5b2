"""An experiment that trains for seconds on the shipped data: two settings, two schemes, two seeds."""

from coterie.lab.paper.definition import Experiment

TINY = """
title = "A tiny experiment"
source = "tbl:tiny"
kind = "training"
schemes = ["random", "T2"]
seeds = [0, 1]
last = 2

[spec]
evaluate_every = 1
data = { source = "mnist-small", users = 20 }
selection = { per_round = 4, dropout = [0.1, 0.2], lost = 0.0 }
training = { model = "logistic", rounds = 3, minibatch = 100 }
aggregation = { protocol = "plain" }

[[settings]]
name = "IID"
spec = { data = { partition = "iid" } }
paper = { random = 50.0 }

[[settings]]
name = "shards"
spec = { data = { partition = "shards" } }

[quick]
schemes = ["random"]
spec = { training = { rounds = 2 } }

[[claims]]
claim = "T = 2 is level with random selection."
schemes = ["T2"]
level = "random"
within = 100.0
"""
RUNS = 8


def write_tiny(folder):
    """Write the tiny experiment's file; return its path."""
    path = folder / "tiny.toml"
    path.write_text(TINY)
    return path


def read_tiny(folder):
    """The tiny experiment."""
    return Experiment.read(write_tiny(folder))


def without_times(records):
    """Records without what differs from run to run."""
    return {
        digest: {key: value for key, value in record.items() if not key.endswith("seconds")}
        for digest, record in records.items()
    }
