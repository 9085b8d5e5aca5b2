"""Users with simulated devices, ready in their batches: what the tests of sealed rounds begin with."""

import numpy as np

from coterie.secagg import (
    PROTOCOLS,
    RING_32,
    BatchRules,
    DeviceConfiguration,
    IdentityKey,
    Quantiser,
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
    options = {"scopes": {SCOPE}, "least_privacy": 2, "protocols": set(PROTOCOLS)}
    return DeviceConfiguration(**{**options, **changes})


def quantiser(**changes):
    """A quantiser that fits the configuration: equal weights, 60 users, words of 32 bits."""
    return Quantiser(**{"ring": RING_32, "clip": 1.0, "weight_cap": 1, "cohort": 60, **changes})


def rules(inner="open", **changes):
    """What all batches of a federation have in common; the ring is the largest that the inner protocol adds in."""
    words = quantiser(ring=PROTOCOLS[inner].rings[-1]) if inner in PROTOCOLS else quantiser()
    return BatchRules(**{"scope": SCOPE, "privacy": 2, "quantiser": words, "inner": inner, **changes})


def terms(**changes):
    """Terms that fit the configuration."""
    return Terms(**{"model": b"model", "dimension": DIMENSION, **changes})


def updates(names):
    """An update for each user."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-0.9, 0.9, DIMENSION).astype(np.float32) for name in names}


class Batches:
    """Clients by name, and the charters of their batches.

    `size`, unless `privacy` is given, is also T. `common` holds further rules of all charters, such as their
    quantiser; `changes` are in the configuration of all devices.
    """

    def __init__(
        self, batches, size, *, privacy=None, inner="open", first=0, prefix="user", common=None, **changes
    ):
        names = [[f"{prefix}-{b}-{i}" for i in range(size)] for b in range(batches)]
        self.clients = {
            name: simulated_client(name, configuration(**changes)) for batch in names for name in batch
        }
        self.rules = rules(**{"privacy": privacy or size, "inner": inner, **(common or {})})
        self.charters = [found_batch(self.rules, [self.clients[name] for name in batch], first) for batch in names]
        self.updates = updates(self.clients)

    def train(self, user, task):
        """A user's update, whatever the task."""
        del task
        return self.updates[user]


class Loners:
    """Unsealed clients by name, their identity keys, and the rules of their rounds."""

    def __init__(self, count, *, common=None, **changes):
        self.rules = rules(**{"inner": "secagg", **(common or {})})
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
