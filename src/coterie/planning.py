"""Which privacy level a federation can afford: the trade-off over T for its users' availability."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Protocol

import numpy as np

from coterie.errors import UsageError
from coterie.selection import BatchSelector, Family, by_availability, by_co_availability, consecutive
from coterie.theory import at_least, check_parameters, check_probabilities, participation_rates
from coterie.values import AvailabilityLog, BatchPlan, FloatArray, IntArray

MOST_LEVELS = 30
SIMULATED_ROUNDS = 400
ROUNDS_LIMIT = 1.25
RULE = (
    f"the largest T that needs at most {ROUNDS_LIMIT} times the rounds of random selection and whose fairness "
    "gap is at most K/N, the average user's share of rounds; of two such plans the fairer one"
)


@dataclass(frozen=True)
class Trade:
    """What a plan gives: C, the share of skipped rounds and F, either exact or from a simulation."""

    cardinality: float
    skipped: float
    fairness_gap: float
    exact: bool


class Availability(Protocol):
    """What planning must know of a population: who is reachable, and what a plan gives under that."""

    users: int
    names: tuple[str, ...] | None
    dropout: FloatArray

    def random_cardinality(self, per_round: int) -> float:
        """Return C of random selection, which no plan exceeds."""
        ...

    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan."""
        ...

    def cardinality_after(self, plan: BatchPlan, per_round: int, leaving: float) -> float:
        """Return C once each user has left for good with probability `leaving`, its batch with it."""
        ...


class KnownDropout:
    """Users that drop out independently with known probabilities.

    Exact wherever every cohort has the same number of batches (always when T divides N): C by the
    Poisson-binomial form of Theorem 1, F as the limit that def_fairness asks for. Otherwise simulated.

    >>> population = KnownDropout(np.full(120, 0.3), seed=0)
    >>> round(population.trade(consecutive(120, 6), per_round=12).cardinality, 3)
    8.4
    """

    names: tuple[str, ...] | None = None

    def __init__(self, dropout: FloatArray, seed: int) -> None:
        self.dropout = check_probabilities(dropout, "dropout")
        self.users = len(self.dropout)
        self.seed = seed

    def random_cardinality(self, per_round: int) -> float:
        """Return K times the probability that K users are available."""
        return per_round * at_least(1.0 - self.dropout, per_round)

    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan."""
        whole = self._whole(plan)
        fewest, most = Family(plan, per_round).batches_per_row
        if fewest == most:
            rates = participation_rates(whole, fewest)
            skipped = max(0.0, 1.0 - at_least(whole, fewest))
            return Trade(float(rates @ plan.sizes), skipped, float(np.ptp(rates)), exact=True)
        rng = np.random.default_rng(self.seed)
        rounds = (np.flatnonzero(rng.random(len(whole)) < whole) for _ in range(SIMULATED_ROUNDS))
        return _simulate(plan, per_round, rounds, rng)

    def cardinality_after(self, plan: BatchPlan, per_round: int, leaving: float) -> float:
        """Return C once each user has left for good with probability `leaving`, its batch with it."""
        whole = self._whole(plan) * (1.0 - leaving) ** plan.sizes
        cohort, largest = Family(plan, per_round).cohort_sizes
        if cohort == largest:
            return cohort * at_least(whole, cohort // int(plan.sizes[0]))
        rng = np.random.default_rng(self.seed)
        # Every round draws the year anew: C is an expectation over who left and who is away.
        rounds = (np.flatnonzero(rng.random(len(whole)) < whole) for _ in range(SIMULATED_ROUNDS))
        return _simulate(plan, per_round, rounds, rng).cardinality

    def _whole(self, plan: BatchPlan) -> FloatArray:
        """Return each batch's probability to be whole, Π (1 - p_i)."""
        return np.multiply.reduceat(1.0 - self.dropout[plan.members], plan.starts[:-1])


class RecordedAvailability:
    """Users of whom a log says who was online when; plans are judged by replaying it."""

    def __init__(self, log: AvailabilityLog, seed: int) -> None:
        self.log = log
        self.users = log.users
        self.names = log.names
        self.dropout = log.dropout
        self.seed = seed

    def random_cardinality(self, per_round: int) -> float:
        """Return K times the share of recorded rounds in which K users were online."""
        return per_round * float(np.mean(self.log.online.sum(axis=1) >= per_round))

    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan over the recorded rounds, repeated if they are few."""
        return _simulate(plan, per_round, self._whole_rounds(plan), np.random.default_rng(self.seed))

    def cardinality_after(self, plan: BatchPlan, per_round: int, leaving: float) -> float:
        """Return C once each user has left for good with probability `leaving`, its batch with it."""
        rng = np.random.default_rng(self.seed)
        staying = (1.0 - leaving) ** plan.sizes
        rounds = (whole[rng.random(len(whole)) < staying[whole]] for whole in self._whole_rounds(plan))
        return _simulate(plan, per_round, rounds, rng).cardinality

    def _whole_rounds(self, plan: BatchPlan) -> Iterator[IntArray]:
        recorded = [plan.whole(online) for online in self.log.online]
        passes = -(-SIMULATED_ROUNDS // len(recorded))
        return chain.from_iterable(repeat(recorded, passes))


def _simulate(plan: BatchPlan, per_round: int, rounds: Iterable[IntArray], rng: np.random.Generator) -> Trade:
    """Run the selector over rounds given by their whole batches."""
    selector = BatchSelector(plan, per_round)
    served = np.zeros(len(plan), dtype=np.int64)
    count = skipped = 0
    for whole in rounds:
        chosen = selector.choose_batches(whole, served[whole], rng)
        count += 1
        if chosen is None:
            skipped += 1
        else:
            served[chosen] += 1
    return Trade(
        cardinality=float(served @ plan.sizes) / count,
        skipped=skipped / count,
        fairness_gap=float(np.ptp(served)) / count,
        exact=False,
    )


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
    """Share of the variance of dropout that lies between batches: 1 where each batch's users are alike."""
    churn: Churn | None


PlanMaker = Callable[[int], BatchPlan]
"""Makes the plan of one kind for a privacy level."""


def plan_makers(population: Availability, mixing: float, seed: int) -> dict[str, PlanMaker]:
    """Return the kinds of plan that can be made for a population, by name."""
    names, dropout = population.names, population.dropout
    makers: dict[str, PlanMaker] = {
        "consecutive": lambda privacy: consecutive(population.users, privacy, names),
        "by-availability": lambda privacy: by_availability(dropout, privacy, names=names),
    }
    if isinstance(population, RecordedAvailability):
        log = population.log
        makers["by-co-availability"] = lambda privacy: by_co_availability(log, privacy)
    if mixing:
        makers["mixed"] = lambda privacy: by_availability(
            dropout, privacy, mixing=mixing, rng=np.random.default_rng((seed, privacy)), names=names
        )
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
        wanted = np.unique(np.geomspace(1, len(others), num=room).astype(int)) - 1
        others = [others[index] for index in wanted.tolist()]
    return sorted(dividing.union(others))


def options(
    levels: Iterable[int],
    per_round: int,
    made_from: Availability,
    judged_on: Availability,
    *,
    mixing: float = 0.0,
    churn: float | None = None,
    seed: int = 0,
) -> Iterator[Option]:
    """Yield every kind of plan at every level; plans come from one population and are judged on another.

    The two are the same for known dropout. With a log they are its halves: a plan judged on the rounds that it
    was made from would look better than it is.
    """
    reference = judged_on.random_cardinality(per_round)
    for privacy in levels:
        for kind, make in plan_makers(made_from, mixing, seed).items():
            plan = make(privacy)
            family = Family(plan, per_round)
            trade = judged_on.trade(plan, per_round)
            yield Option(
                privacy=privacy,
                kind=kind,
                batches=len(plan),
                batch_sizes=(int(plan.sizes.min()), int(plan.sizes.max())),
                cohort_sizes=family.cohort_sizes,
                family_size=family.size,
                trade=trade,
                rounds_factor=reference / trade.cardinality if trade.cardinality else math.inf,
                homogeneity=_between_batches(plan, judged_on.dropout),
                churn=None if churn is None else _churn(plan, per_round, judged_on, churn),
            )


def halves(population: Availability) -> tuple[Availability, Availability]:
    """Return what to make plans from and what to judge them on: a log's first and second half of rounds."""
    if not isinstance(population, RecordedAvailability):
        return population, population
    log, middle = population.log, population.log.rounds // 2
    if middle == 0:
        raise UsageError("an availability log of one round cannot show who is online together; record more")
    first, second = log.window(0, middle), log.window(middle, log.rounds)
    return RecordedAvailability(first, population.seed), RecordedAvailability(second, population.seed)


def _between_batches(plan: BatchPlan, values: FloatArray) -> float:
    """Return the share of the variance of `values` that lies between batches."""
    ordered = values[plan.members]
    spread = float(np.var(ordered))
    if spread == 0:
        return 0.0
    means = np.add.reduceat(ordered, plan.starts[:-1]) / plan.sizes
    return float(np.average((means - ordered.mean()) ** 2, weights=plan.sizes)) / spread


def _churn(plan: BatchPlan, per_round: int, population: Availability, rate: float) -> Churn:
    staying = 1.0 - float(check_probabilities([rate], "churn")[0])
    sizes = plan.sizes
    return Churn(
        retired_batches=float(np.mean(1.0 - staying**sizes)),
        stranded_users=float(np.sum(sizes * staying * (1.0 - staying ** (sizes - 1)))),
        cardinality=population.cardinality_after(plan, per_round, rate),
    )


def recommend(candidates: list[Option], users: int, per_round: int) -> tuple[Option, bool]:
    """Return the option that `RULE` picks and True, or the one needing fewest rounds and False if none passes."""
    private = [option for option in candidates if option.privacy > 1] or candidates
    passing = [
        option
        for option in private
        if option.rounds_factor <= ROUNDS_LIMIT and option.trade.fairness_gap <= per_round / users
    ]
    if passing:
        return max(passing, key=lambda option: (option.privacy, -option.trade.fairness_gap)), True
    return min(private, key=lambda option: (option.rounds_factor, -option.privacy)), False


def homogeneity_warning(option: Option) -> str | None:
    """Return a warning if the option's batches hold users of nearly one availability, else None."""
    # Even a random plan has a share (B - 1)/(N - 1) between its batches; half of it all is far from random.
    if option.privacy == 1 or option.homogeneity < 1 / 2:
        return None
    return (
        f"the {option.kind} plan at T={option.privacy} puts users of like availability together: "
        f"{option.homogeneity:.0%} of the differences in dropout lie between batches. If availability goes with "
        "the data (a label, a time zone), each batch sees one kind of data only; --mixing 0.3 places three users "
        "in ten at random."
    )
