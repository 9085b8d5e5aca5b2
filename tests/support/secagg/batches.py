"""Users with simulated devices, ready in their batches: what the tests of sealed rounds begin with."""

import numpy as np

from coterie.secagg import (
    DeviceConfiguration,
    IdentityKey,
    Terms,
    TrustServerForIdentities,
    UnsealedClient,
    found_batch,
    simulated_client,
)

SCOPE = "keyboard"
DIMENSION = 40


def configuration(**changes):
    """A device's configuration that takes batches of two and every inner protocol that runs."""
    options = {"scopes": {SCOPE}, "least_privacy": 2, "inner": {"open", "secagg", "secagg+"}}
    return DeviceConfiguration(**{**options, **changes})


def terms(**changes):
    """Terms that fit the configuration."""
    options = {
        "model": b"model",
        "configuration": b"{}",
        "dimension": DIMENSION,
        "clip": 1.0,
        "cohort": 60,
        "weight_cap": 1,
        "min_included": 1,
    }
    return Terms(**{**options, **changes})


def updates(names):
    """An update for each user."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-0.9, 0.9, DIMENSION).astype(np.float32) for name in names}


class Batches:
    """Clients by name, and the charters of their batches."""

    def __init__(self, batches, size, *, privacy=None, inner="open", first=0, prefix="user", **changes):
        names = [[f"{prefix}-{b}-{i}" for i in range(size)] for b in range(batches)]
        self.clients = {
            name: simulated_client(name, configuration(**changes)) for batch in names for name in batch
        }
        self.charters = [
            found_batch(SCOPE, privacy or size, [self.clients[name] for name in batch], inner, first)
            for batch in names
        ]
        self.updates = updates(self.clients)

    def train(self, user, task):
        """A user's update, whatever the task."""
        del task
        return self.updates[user]


class Loners:
    """Unsealed clients by name, and their identity keys."""

    def __init__(self, count, **changes):
        keys = {f"user-{number}": IdentityKey.generate() for number in range(count)}
        self.clients = {
            name: UnsealedClient(name, key, configuration(**changes), TrustServerForIdentities())
            for name, key in keys.items()
        }
        self.identities = {name: key.public for name, key in keys.items()}
        self.updates = updates(self.clients)

    def train(self, user, task):
        """A user's update, whatever the task."""
        del task
        return self.updates[user]
