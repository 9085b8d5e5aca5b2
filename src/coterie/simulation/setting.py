"""What to simulate: schemes, also by their names, users, rounds, and who is lost, leaves and joins."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coterie.errors import UsageError
from coterie.selection import AvailabilityModel, BatchSelector, PlanSelector, Selector
from coterie.values import BatchPlan
from coterie.values.checks import check_count, check_parameters, check_probability

_UNSEALED = " unsealed"
"""Ends the name of a scheme that has no seal."""


def selector_name(scheme: str) -> str:
    """Return the name of a scheme's selector, which is the same with and without the seal."""
    return scheme.removesuffix(_UNSEALED)


@dataclass(frozen=True)
class Scheme:
    """A selector under a name; `sealed` says what the server learns when a chosen user is lost mid-round.

    Sealed, an incomplete batch is left out as a whole. Unsealed (and in schemes without batches), the sum of
    the survivors comes out, which splits the batch.
    """

    name: str
    selector: Selector
    sealed: bool = True

    @classmethod
    def named(cls, name: str, selector_of: Callable[[str], Selector]) -> "Scheme":
        """Return a scheme by its name, such as "T6" or "T6 unsealed"; `selector_of` gives the selector of "T6".

        >>> from coterie.selection import RandomSelector
        >>> Scheme.named("random unsealed", lambda name: RandomSelector(per_round=len(name)))
        Scheme(name='random unsealed', selector=RandomSelector(per_round=6), sealed=False)
        """
        return cls(name, selector_of(selector_name(name)), sealed=not name.endswith(_UNSEALED))

    def unsealed(self) -> "Scheme":
        """Return the same scheme without the seal, under a name that says so."""
        return Scheme(f"{self.name}{_UNSEALED}", self.selector, sealed=False)


@dataclass(frozen=True)
class Simulation:
    """What to simulate. `availability` may know more users than take part at first: they join later."""

    users: int
    per_round: int
    rounds: int
    schemes: tuple[Scheme, ...]
    availability: AvailabilityModel
    seed: int = 0
    lost: float = 0.0
    """Probability that a chosen user is lost before the round ends."""
    leaving: float = 0.0
    """Probability that a user leaves for good, per round."""
    joining: float = 0.0
    """Newcomers per round, on average."""

    def __post_init__(self) -> None:
        check_parameters(self.users, self.per_round)
        check_count(self.rounds, "the number of rounds")
        check_probability(self.lost, "the probability to be lost mid-round")
        check_probability(self.leaving, "the probability to leave")
        room_for_newcomers(self.joining, self.rounds)
        if self.availability.users < self.users:
            raise UsageError(
                f"availability is known for {self.availability.users} users, fewer than the {self.users} users"
            )
        if not self.schemes:
            raise UsageError("no scheme was given to simulate")
        names = [scheme.name for scheme in self.schemes]
        if len(set(names)) != len(names):
            raise UsageError(f"a scheme is given twice: {', '.join(names)}")


def room_for_newcomers(joining: float, rounds: int) -> int:
    """Return how many newcomers a simulation should be ready for: twice as many as are expected."""
    if not (joining >= 0 and math.isfinite(joining)):
        raise UsageError(f"newcomers per round are {joining}; give a number from 0 up")
    return round(2 * joining * rounds)


MOST_LEVELS = 3


def default_names(users: int, per_round: int) -> list[str]:
    """Return the schemes to compare unless others are named: three without batches, and the largest three T.

    T divides N and K where such a T exists (T = K is what `partition` does already); else K/2, K/3 and K/4,
    or K itself.

    >>> default_names(120, 12), default_names(100, 15), default_names(101, 10)
    (['random', 'weighted', 'partition', 'T6', 'T4', 'T3'], ['random', 'weighted', 'partition', 'T5'], \
['random', 'weighted', 'partition', 'T5', 'T3', 'T2'])
    """
    check_parameters(users, per_round)
    common = math.gcd(users, per_round)
    levels = [level for level in range(min(common, per_round - 1), 1, -1) if common % level == 0]
    levels = levels or sorted({per_round // parts for parts in (2, 3, 4)} - {0, 1}, reverse=True)
    levels = levels or [level for level in (per_round,) if level > 1]
    return ["random", "weighted", "partition", *(f"T{level}" for level in levels[:MOST_LEVELS])]


def schemes_of(
    selectors: Iterable[tuple[str, Selector]], plan: BatchPlan | None, users: int, per_round: int, lost: float
) -> tuple[Scheme, ...]:
    """Return the schemes of selectors by name, and of a plan, which must be one of these users.

    Where users can be lost, those with batches come sealed and unsealed.
    """
    if plan is not None and plan.users != users:
        raise UsageError(f"the plan is one of {plan.users} users, not of {users}; give its number of users")
    of_plan = [] if plan is None else [("plan", BatchSelector(plan, per_round))]
    schemes = []
    for name, selector in (*selectors, *of_plan):
        schemes.append(Scheme(name, selector))
        if lost > 0 and isinstance(selector, PlanSelector):
            schemes.append(schemes[-1].unsealed())
    return tuple(schemes)
