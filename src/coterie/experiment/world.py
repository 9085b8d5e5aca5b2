"""What happens around a run: who is away, and who is lost in the middle of a round; all of it from the seed."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from coterie.selection import AvailabilityModel, IndependentDropout, draw_dropout
from coterie.values import BoolArray, FloatArray, IntArray

# Each purpose draws from a generator of its own: none disturbs another.
_DROPOUT, _ONLINE, _LOST, _WHEN, _ROUNDING, _PARTITION, _SUM_ROUNDING = range(7)


class World:
    """The users' fates: a function of the seed and the step, so that a resumed run meets the same ones."""

    def __init__(self, seed: int, dropout: FloatArray, lost: float) -> None:
        """`dropout` is each user's probability to be away, `lost` that to be lost in the middle of a round."""
        self.dropout = dropout
        self._seed, self._users, self._lost = seed, len(dropout), lost

    def available(self, start: int) -> Iterator[BoolArray]:
        """Yield who is available in the steps from `start` on."""
        model: AvailabilityModel = IndependentDropout(self.dropout)
        return islice(model.rounds(self._rng(_ONLINE)), start, None)

    def lost(self, step: int) -> BoolArray:
        """Return who is lost between being asked in this step and having sent its vector."""
        return self._rng(_LOST, step).random(self._users) < self._lost

    def lost_at(self, step: int, phases: int) -> IntArray:
        """Return the phase at which each user is lost, if it is; the last one is that of its vector."""
        return self._rng(_WHEN, step).integers(phases, size=self._users)

    def rounding(self, user: int) -> np.random.Generator:
        """Return the generator of the secret that a user's device rounds by."""
        return self._rng(_ROUNDING, user)

    def sum_rounding_seed(self, step: int) -> int:
        """Return the seed with which a step's plain sum is rounded as the protocols' words are."""
        return int(self._rng(_SUM_ROUNDING, step).integers(2**63))

    def _rng(self, *purpose: int) -> np.random.Generator:
        return _rng(self._seed, *purpose)


def drawn_dropout(seed: int, choices: Sequence[float], users: int) -> FloatArray:
    """Return each user's probability to be away, drawn from a few."""
    return draw_dropout(choices, users, _rng(seed, _DROPOUT))


def partition_rng(seed: int) -> np.random.Generator:
    """Return the generator with which examples are given to users."""
    return _rng(seed, _PARTITION)


def _rng(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose])
