"""Which examples a client sees in which step of a round."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.training.data.federation import Federation
from coterie.training.settings import LocalTraining
from coterie.values import IntArray

_ORDER = 1
"""Apart from the keys of dropout, which come from (seed, round, user) alone."""


def orders(federation: Federation, settings: LocalTraining, user: int, round_: int, seed: int) -> IntArray:
    """Return a user's examples as places in the federation's, in the order of each epoch: epochs × examples.

    A shuffled order is a function of (seed, round, user).
    """
    own = federation.of(user)
    if not settings.shuffled:
        return np.broadcast_to(own, (settings.epochs, len(own)))
    rng = np.random.default_rng((seed, round_, user, _ORDER))
    return np.stack([rng.permutation(own) for _ in range(settings.epochs)])


def minibatches(
    federation: Federation, settings: LocalTraining, user: int, round_: int, seed: int
) -> Iterator[IntArray]:
    """Yield a user's minibatches of a round in order; an epoch's last one holds what is left."""
    for order in orders(federation, settings, user, round_, seed):
        for start in range(0, len(order), settings.minibatch):
            yield order[start : start + settings.minibatch]


@dataclass(frozen=True, eq=False)
class Timetable:
    """The minibatches of several users side by side, filled up to equal size with examples that count nothing.

    `places[c, s, b]` is an example and `real[c, s, b]` says whether it counts; users with fewer steps have rows
    without any real example at the end.
    """

    places: IntArray
    real: NDArray[np.float32]

    @property
    def steps(self) -> int:
        """The most steps of any user."""
        return int(self.places.shape[1])

    @property
    def active(self) -> NDArray[np.float32]:
        """Users × steps: 1 where the user takes the step, 0 where it has finished before."""
        return self.real[:, :, 0]

    @property
    def counted(self) -> NDArray[np.float32]:
        """Users × steps: the number of examples that count."""
        total: NDArray[np.float32] = self.real.sum(axis=2)
        return total


def timetable(
    federation: Federation, settings: LocalTraining, users: IntArray, round_: int, seed: int
) -> Timetable:
    """Return the timetable of some users in a round."""
    steps = settings.steps(int(np.max(federation.starts[users + 1] - federation.starts[users], initial=0)))
    places = np.zeros((len(users), steps, settings.minibatch), dtype=np.int64)
    real = np.zeros(places.shape, dtype=np.float32)
    for client, user in enumerate(users.tolist()):
        own = orders(federation, settings, user, round_, seed)
        size, taken = own.shape[1], settings.steps(own.shape[1])
        places[client] = own[0, 0]
        row, counts = (table[client, :taken].reshape(settings.epochs, -1) for table in (places, real))
        row[:, :size], counts[:, :size] = own, 1.0
    return Timetable(places, real)
