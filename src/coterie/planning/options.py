"""The options a federation has: every feasible T with every kind of plan, and the one to recommend."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from coterie.planning.population import Population, RecordedAvailability, Trade
from coterie.selection import Family, by_availability, by_co_availability, consecutive, dealt, mix
from coterie.values import BatchPlan
from coterie.values.checks import check_parameters, check_probability

MOST_LEVELS = 30
ROUNDS_LIMIT = 1.25
MOST_SKIPPED = 0.999
"""A plan that skips a larger share of rounds runs none, for people who wait for it."""
CONDITION = (
    f"needs at most {ROUNDS_LIMIT} times the rounds of random selection and whose fairness gap is at most K/N, "
    "the average user's share of rounds"
)
RULE = f"the largest T that {CONDITION}; of two such plans the fairer one"


@dataclass(frozen=True)
class Churn:
    """What is left after a year in which a share of the users leaves for good and nobody joins."""

    retired_batches: float
    """Expected share of batches that lost a member and retired."""
    stranded_users: float
    """Expected number of users who stayed but whose batch retired."""
    cardinality: float
    """C at the end of the year."""


@dataclass(frozen=True)
class Option:
    """One privacy level with one kind of plan, and what it costs."""

    privacy: int
    kind: str
    batches: int
    batch_sizes: tuple[int, int]
    cohort_sizes: tuple[int, int]
    family_size: int
    trade: Trade
    rounds_factor: float
    """Rounds to reach what random selection reaches in one: Theorem 2 depends on rounds as C·J."""
    homogeneity: float
    """How alike a batch's users are in availability: 0 as in a random plan, 1 if they are all the same."""
    churn: Churn | None


PlanMaker = Callable[[int], BatchPlan]
"""Makes the plan of one kind for a privacy level."""


def plan_makers(population: Population, mixing: float, seed: int, *, deal: bool = False) -> dict[str, PlanMaker]:
    """Return the kinds of plan that can be made for a population, by name; `deal`: not of consecutive users."""
    by_number = dealt if deal else consecutive
    makers: dict[str, PlanMaker] = {
        by_number.__name__: lambda privacy: by_number(population.users, privacy, population.names),
        "by-availability": lambda privacy: by_availability(population.dropout, privacy, population.names),
    }
    if isinstance(population, RecordedAvailability):
        log = population.log
        makers["by-co-availability"] = lambda privacy: by_co_availability(log, privacy)
    if mixing:
        sharpest = list(makers.values())[-1]
        makers["mixed"] = lambda privacy: mix(sharpest(privacy), mixing, np.random.default_rng((seed, privacy)))
    return makers


def feasible_levels(users: int, per_round: int, privacy: int | None = None) -> list[int]:
    """Return the privacy levels worth showing: every T that divides N and K, and some others up to about 30.

    A T whose plan is that of a larger T is left out, and so is one whose batches do not fit into K. If a level
    is asked for, it is the only one.

    >>> feasible_levels(120, 12)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    """
    check_parameters(users, per_round, 1 if privacy is None else privacy)
    if privacy is not None:
        return [privacy]
    common = math.gcd(users, per_round)
    dividing = {level for level in range(1, common + 1) if common % level == 0}
    others = [
        level
        for level in range(2, per_round + 1)
        if level not in dividing
        and users // (users // level) == level
        and -(-users // (users // level)) <= per_round
    ]
    room = max(0, MOST_LEVELS - len(dividing))
    if len(others) > room:
        # Evenly on a logarithmic scale: the trade-off moves fastest at small T.
        indices = np.unique(np.geomspace(1, len(others), num=room).astype(int)) - 1
        others = [others[index] for index in indices.tolist()]
    return sorted(dividing.union(others))


def options(
    levels: Iterable[int],
    per_round: int,
    makers: Mapping[str, PlanMaker],
    later: Population,
    churn: float | None = None,
) -> Iterator[Option]:
    """Yield every kind of plan at every level, judged on the users as they were `later`.

    For known dropout they are those that the makers know. Of a log the makers know the first half and `later` is
    the second: on the rounds that a plan was made from it would look better than it is.
    """
    reference = later.random_cardinality(per_round)
    for privacy in levels:
        for kind, make in makers.items():
            plan = make(privacy)
            family = Family(plan, per_round)
            trade = later.trade(plan, per_round)
            yield Option(
                privacy=privacy,
                kind=kind,
                batches=len(plan),
                batch_sizes=(int(plan.sizes.min()), int(plan.sizes.max())),
                cohort_sizes=family.cohort_sizes,
                family_size=family.size,
                trade=trade,
                rounds_factor=reference / trade.cardinality if trade.cardinality else math.inf,
                homogeneity=later.homogeneity(plan),
                churn=None if churn is None else _churn(plan, per_round, later, churn),
            )


def _churn(plan: BatchPlan, per_round: int, population: Population, rate: float) -> Churn:
    staying = 1.0 - check_probability(rate, "the churn")
    sizes = plan.sizes
    return Churn(
        retired_batches=float(np.mean(1.0 - staying**sizes)),
        stranded_users=float(np.sum(sizes * staying * (1.0 - staying ** (sizes - 1)))),
        cardinality=population.cardinality_after(plan, per_round, rate),
    )


def recommend(candidates: list[Option], users: int, per_round: int) -> tuple[Option | None, bool]:
    """Return the option that `RULE` picks and True, or the one needing fewest rounds and False if none passes.

    Nothing is recommended that skips nearly every round, nor T = 1, which hides nobody, unless asked for.
    """
    private = [option for option in candidates if option.privacy > 1] or candidates
    running = [option for option in private if option.trade.skipped < MOST_SKIPPED]
    passing = [
        option
        for option in running
        if option.rounds_factor <= ROUNDS_LIMIT and _fair(option.trade, per_round / users)
    ]
    if passing:
        return max(passing, key=lambda option: (option.privacy, -option.trade.fairness_gap)), True
    return min(running, key=lambda option: (option.rounds_factor, -option.privacy), default=None), False


def _fair(trade: Trade, share: float) -> bool:
    """Return whether F is at most `share`; counts differ by one somewhere in any simulation of few rounds."""
    return trade.fairness_gap <= share + (0.0 if trade.exact else 1.0 / trade.rounds)


def homogeneity_warning(option: Option, mixing: float) -> str | None:
    """Return a warning if users of like availability share the option's batches, else None."""
    if option.privacy == 1 or option.homogeneity < 1 / 2:
        return None
    advice = "--mixing 0.3 places three users in ten at random" if not mixing else "raise --mixing to vary them"
    return (
        f"the {option.kind} plan at T={option.privacy} puts users of like availability together (likeness "
        f"{option.homogeneity:.2f}, where 0 is a random plan's and 1 the highest). If availability goes with the "
        f"data (a label, a time zone), each batch sees one kind of data only; {advice}."
    )
