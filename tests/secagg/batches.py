"""Users with simulated devices, ready in their batches: what the tests of sealed rounds begin with."""

import numpy as np

from coterie.secagg import DeviceConfiguration, Terms, found_batch, simulated_client

SCOPE = "keyboard"
DIMENSION = 40


def configuration(**changes):
    """A device's configuration that takes batches of two."""
    return DeviceConfiguration(**{"scopes": {SCOPE}, "least_privacy": 2, **changes})


def terms(**changes):
    """Terms that fit the configuration."""
    options = {
        "model": b"model",
        "configuration": b"{}",
        "dimension": DIMENSION,
        "clip": 1.0,
        "cohort": 60,
        "weight_cap": 1,
    }
    return Terms(**{**options, **changes})


class Batches:
    """Clients by name, and the charters of their batches."""

    def __init__(self, batches, size, privacy=None, **changes):
        names = [[f"user-{b}-{i}" for i in range(size)] for b in range(batches)]
        self.clients = {
            name: simulated_client(name, configuration(**changes)) for batch in names for name in batch
        }
        self.charters = [
            found_batch(SCOPE, privacy or size, [self.clients[name] for name in batch]) for batch in names
        ]
        rng = np.random.default_rng(0)
        self.updates = {name: rng.uniform(-0.9, 0.9, DIMENSION).astype(np.float32) for name in self.clients}

    def train(self, user, task):
        """A user's update, whatever the task."""
        del task
        return self.updates[user]
