"""What happens around a run: who is away, and who is lost in the middle of a round; all of it from the seed."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from coterie.selection import (
    AvailabilityModel,
    DailyCycle,
    IndependentDropout,
    Selector,
    draw_dropout,
    knows_users,
    selector_named,
)
from coterie.values import AvailabilityLog, BoolArray, FloatArray, IntArray

# Each purpose draws from a generator of its own: none disturbs another.
_DROPOUT, _ONLINE, _LOST, _WHEN, _ROUNDING, _PARTITION, _SUM_ROUNDING, _ZONES, _EARLIER, _PLAN = range(10)
_TIME_ZONES = 8
_RECORDED = 200
"""Rounds before the first of which it is known who was online."""


class World:
    """Who is away or lost: a function of the seed and the step, so that a resumed run meets the same users."""

    def __init__(self, seed: int, dropout: FloatArray, lost: float, rounds_per_day: int = 0) -> None:
        """`dropout` is each user's probability to be away, `lost` that to be lost in the middle of a round.

        With `rounds_per_day`, users are away by the clock of time zones that are drawn for them.
        """
        self.dropout = dropout
        self._rng = partial(_rng, seed)
        self._users, self._lost = len(dropout), lost
        self.model: AvailabilityModel = IndependentDropout(dropout)
        """Who is available when."""
        if rounds_per_day:
            zones = self._rng(_ZONES).integers(_TIME_ZONES, size=self._users) / _TIME_ZONES
            self.model = DailyCycle(dropout, zones, rounds_per_day)

    def available(self, start: int) -> Iterator[BoolArray]:
        """Yield who is available in the steps from `start` on."""
        return islice(self.model.rounds(self._rng(_ONLINE)), start, None)

    def selector(self, scheme: str, per_round: int) -> Selector:
        """Return the selector of a scheme, with a plan made for these users where the scheme knows them.

        Who was online together is known from rounds before the first one.
        """
        earlier = islice(self.model.rounds(self._rng(_EARLIER)), _RECORDED)
        return selector_named(
            scheme,
            self._users,
            per_round,
            self.dropout,
            rng=self._rng(_PLAN),
            record=AvailabilityLog(np.stack(list(earlier))) if knows_users(scheme) else None,
        )

    def lost_users(self, step: int) -> BoolArray:
        """Return who is lost between being asked in this step and having sent its vector."""
        return self._rng(_LOST, step).random(self._users) < self._lost

    def lost_at(self, step: int, phases: int) -> IntArray:
        """Return the phase at which each user is lost, if it is; of `phases` the last is that of its vector."""
        return self._rng(_WHEN, step).integers(phases, size=self._users)

    def rounding(self, user: int) -> np.random.Generator:
        """Return the generator of the secret that a user's device rounds by."""
        return self._rng(_ROUNDING, user)

    def sum_rounding_seed(self, step: int) -> int:
        """Return the seed with which a step's plain sum is rounded as the protocols' words are."""
        return int(self._rng(_SUM_ROUNDING, step).integers(2**63))


def drawn_dropout(seed: int, choices: Sequence[float], users: int) -> FloatArray:
    """Return each user's probability to be away, drawn from a few."""
    return draw_dropout(choices, users, _rng(seed, _DROPOUT))


def partition_rng(seed: int) -> np.random.Generator:
    """Return the generator with which examples are given to users."""
    return _rng(seed, _PARTITION)


def _rng(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose])
