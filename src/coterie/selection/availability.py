"""When users can be reached: the models that selection, planning and simulation draw from.

Every model of dropout keeps each user's long-run share of absence, `dropout[i]`: what differs is *when* the
absences fall. So schemes can be compared across models at equal availability.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values import AvailabilityLog, BoolArray, FloatArray, IntArray
from coterie.values.checks import check_probabilities, check_probability, frozen_integers


class AvailabilityModel(Protocol):
    """Says who is available, round after round."""

    @property
    def users(self) -> int:
        """The number of users."""
        ...

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in round 0, 1, 2 … without end."""
        ...


def draw_dropout(choices: float | Sequence[float], users: int, rng: np.random.Generator) -> FloatArray:
    """Draw each user's dropout probability uniformly from one or a few (the paper's "Modeling dropouts").

    >>> draw_dropout([0.1, 0.5], users=4, rng=np.random.default_rng(1)).tolist()
    [0.1, 0.5, 0.5, 0.5]
    """
    probabilities = check_probabilities(np.atleast_1d(choices), "dropout")
    if len(probabilities) == 0:
        raise UsageError("no dropout probability was given to draw from")
    return rng.choice(probabilities, size=users)


@dataclass(frozen=True, eq=False)
class _Dropout:
    """What the models of dropout share: each user's long-run share of absence."""

    dropout: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "dropout", check_probabilities(self.dropout, "dropout"))

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.dropout)


@dataclass(frozen=True, eq=False)
class IndependentDropout(_Dropout):
    """User i is away with probability `dropout[i]`, independently of everyone and of every other round.

    >>> IndependentDropout([0.0, 1.0]).sample(np.random.default_rng(0)).tolist()
    [True, False]
    """

    def sample(self, rng: np.random.Generator) -> BoolArray:
        """Return who is available in one round."""
        return rng.random(len(self.dropout)) >= self.dropout

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in each round."""
        while True:
            yield self.sample(rng)


@dataclass(frozen=True)
class RedrawnDropout:
    """Independent dropout whose probabilities are drawn anew, from a few values, each time it is started.

    Averages over trials are then averages over populations as well.

    >>> model = RedrawnDropout((0.0, 1.0), users=3)
    >>> next(model.rounds(np.random.default_rng(0))).tolist()
    [False, False, False]
    """

    choices: tuple[float, ...]
    users: int

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in each round, for one draw of the probabilities."""
        return IndependentDropout(draw_dropout(self.choices, self.users, rng)).rounds(rng)


@dataclass(frozen=True, eq=False)
class DailyCycle(_Dropout):
    """Absence that follows the clock in the user's time zone.

    With D = `rounds_per_day` and the zone z_i, in days,

        P(user i away in round t) = p_i + swing · min(p_i, 1 - p_i) · cos(2π (t/D - z_i)).

    >>> model = DailyCycle([0.5, 0.5], zones=[0.0, 0.5], rounds_per_day=2, swing=1.0)
    >>> rounds = model.rounds(np.random.default_rng(0))
    >>> [next(rounds).tolist() for _ in range(3)]
    [[False, True], [True, False], [False, True]]
    """

    zones: ArrayLike
    rounds_per_day: int = 24
    swing: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.swing, "the swing of the daily cycle")
        if self.rounds_per_day < 1:
            raise UsageError(f"a day has {self.rounds_per_day} rounds; give at least 1")
        if np.shape(self.zones) != np.shape(self.dropout):
            raise UsageError("give one time zone per user")

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in each round."""
        dropout, zones = self.dropout, np.asarray(self.zones)
        amplitude = self.swing * np.minimum(dropout, 1.0 - dropout)
        for round_ in count():
            phase = 2 * np.pi * (round_ / self.rounds_per_day - zones)
            yield rng.random(len(dropout)) >= dropout + amplitude * np.cos(phase)


@dataclass(frozen=True, eq=False)
class MarkovOnOff(_Dropout):
    """Absence that lasts: a user who is away comes back with probability 1/`absence` in each round.

    A present user leaves with probability p_i / ((1 - p_i) · absence), so that it is away a share p_i of all
    rounds; where that would pass one, absences are longer.

    >>> model = MarkovOnOff([0.0, 1.0], absence=5.0)
    >>> next(model.rounds(np.random.default_rng(0))).tolist()
    [True, False]
    """

    absence: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.absence >= 1:
            raise UsageError(f"an absence lasts {self.absence} rounds on average; give at least 1")

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in each round, beginning in the long-run state."""
        dropout = self.dropout
        # Rates in the ratio p : 1 - p keep the share; the larger one is capped at certainty.
        leaving, returning = dropout / self.absence, (1.0 - dropout) / self.absence
        scale = np.divide(1.0, np.maximum(1.0 - dropout, leaving), where=dropout < 1, out=np.ones_like(dropout))
        available = rng.random(len(dropout)) >= dropout
        while True:
            yield available
            draw = rng.random(len(dropout))
            available = np.where(available, draw >= leaving * scale, draw < returning * scale)


@dataclass(frozen=True, eq=False)
class CorrelatedGroups(_Dropout):
    """Users of one group (a site, a network) fall out together: each round a group is out with one probability.

    User i is away if its group is out, or by itself with (p_i - outage)/(1 - outage); needs p_i ≥ outage.

    >>> model = CorrelatedGroups([0.5] * 4, groups=[0, 0, 1, 1], outage=0.5)
    >>> rounds = model.rounds(np.random.default_rng(1))
    >>> [next(rounds).tolist() for _ in range(2)]
    [[True, True, True, True], [True, True, False, False]]
    """

    groups: ArrayLike
    outage: float

    def __post_init__(self) -> None:
        super().__post_init__()
        groups: IntArray = frozen_integers(self.groups, np.int64, "groups of users")
        object.__setattr__(self, "groups", groups)
        check_probability(self.outage, "the outage of a group")
        lowest = float(np.min(self.dropout, initial=1.0))
        if self.outage > lowest or self.outage == 1.0:
            raise UsageError(
                f"groups out in {self.outage} of the rounds cannot have a user who is away in only {lowest}; "
                "lower the outage or raise the dropout"
            )
        if len(groups) != self.users:
            raise UsageError(f"{len(groups)} groups were given for {self.users} users; give one group per user")
        if len(groups) and groups.min() < 0:
            raise UsageError(f"group {groups.min()} is negative; number the groups from 0")

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who is available in each round."""
        dropout, groups = self.dropout, np.asarray(self.groups)
        alone = (dropout - self.outage) / (1.0 - self.outage)
        count_ = int(groups.max(initial=-1)) + 1
        while True:
            out = rng.random(count_) < self.outage
            yield (rng.random(len(dropout)) >= alone) & ~out[groups]


@dataclass(frozen=True, eq=False)
class Replay:
    """A recorded log, round by round, and again from its start when it ends.

    >>> model = Replay(AvailabilityLog(np.array([[True, False], [True, True]])))
    >>> rounds = model.rounds(np.random.default_rng(0))
    >>> [next(rounds).tolist() for _ in range(3)]
    [[True, False], [True, True], [True, False]]
    """

    log: AvailabilityLog

    @property
    def users(self) -> int:
        """The number of users."""
        return self.log.users

    def rounds(self, rng: np.random.Generator) -> Iterator[BoolArray]:
        """Yield who was online in each recorded round."""
        del rng
        while True:
            yield from self.log.online
