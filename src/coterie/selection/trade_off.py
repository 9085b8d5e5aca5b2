"""Find the privacy level that a federation can afford, given its users' availability.

`plan` tries every feasible T with every kind of plan, measures what each would cost (C, F and skipped rounds)
for a population whose availability is known by probability or from a record, and recommends one.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.selection import (
    BatchSelector,
    Family,
    by_availability,
    by_co_availability,
    consecutive,
    dealt,
    draw_dropout,
    keep,
    mix,
)
from coterie.selection.theory import at_least, participation_rates, poisson_binomial
from coterie.values import AvailabilityLog, BatchPlan, FloatArray, IntArray
from coterie.values.checks import check_parameters, check_probabilities, check_probability
from coterie.values.text import counted

SIMULATED_ROUNDS = 400
SIMULATED_YEARS = 50
MOST_SIMULATED_BATCHES = 1_000_000
"""Of all years together."""


@dataclass(frozen=True)
class Trade:
    """What a plan gives: C, the share of skipped rounds and F, exact or counted over some simulated rounds."""

    cardinality: float
    skipped: float
    fairness_gap: float
    rounds: int = 0
    """How many rounds were simulated; none if the values are exact."""

    @property
    def exact(self) -> bool:
        """Whether the values are exact."""
        return self.rounds == 0


class Population(ABC):
    """What planning must know of the users: who is reachable, and what a plan gives under that."""

    def __init__(self, dropout: FloatArray, names: tuple[str, ...] | None, seed: int) -> None:
        self.users, self.dropout, self.names, self.seed = len(dropout), dropout, names, seed

    @abstractmethod
    def random_cardinality(self, per_round: int) -> float:
        """Return C of random selection."""

    @abstractmethod
    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan."""

    def cardinality_after(self, plan: BatchPlan, per_round: int, leaving: float) -> float:
        """Return C once each user has left for good with probability `leaving`, its batch with it.

        It is the mean over drawn years, of which large populations need fewer: they vary little.
        """
        rng, left = np.random.default_rng(self.seed), _survival(plan, leaving)
        years = max(4, min(SIMULATED_YEARS, MOST_SIMULATED_BATCHES // len(plan)))
        total = 0.0
        for _ in range(years):
            staying = np.flatnonzero(rng.random(len(plan)) < left)
            if len(staying):
                total += self.trade(keep(plan, staying), per_round).cardinality
        return total / years

    @abstractmethod
    def homogeneity(self, plan: BatchPlan) -> float:
        """Return how alike the users of a batch are: 0 as in a random plan, 1 if they are all the same."""


class KnownDropout(Population):
    """Users that drop out independently with known probabilities.

    Exact wherever any k whole batches make a cohort and no k + 1 do (always when T divides N): C by the
    Poisson-binomial form of Theorem 1, F as the limit that def_fairness asks for. Otherwise simulated.

    >>> population = KnownDropout(np.full(120, 0.3), seed=0)
    >>> round(population.trade(BatchPlan(120, 6, np.arange(120), np.arange(0, 121, 6)), 12).cardinality, 3)
    8.4
    """

    def __init__(self, dropout: FloatArray, seed: int) -> None:
        super().__init__(check_probabilities(dropout, "dropout"), None, seed)

    def random_cardinality(self, per_round: int) -> float:
        """Return K times the probability that K users are available."""
        return per_round * at_least(1.0 - self.dropout, per_round)

    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan."""
        whole = self._whole(plan)
        fewest, most = Family(plan, per_round).batches_per_row
        if fewest == most and fewest * int(plan.sizes.max()) <= per_round:
            rates = participation_rates(whole, fewest)
            skipped = max(0.0, 1.0 - at_least(whole, fewest))
            return Trade(float(rates @ plan.sizes), skipped, float(np.ptp(rates)))
        rng = np.random.default_rng(self.seed)
        rounds = (np.flatnonzero(rng.random(len(whole)) < whole) for _ in range(SIMULATED_ROUNDS))
        return _simulate(plan, per_round, rounds, rng)

    def cardinality_after(self, plan: BatchPlan, per_round: int, leaving: float) -> float:
        """Return C once each user has left for good, its batch with it: exact for batches of one size.

        Fewer batches than fit may be left: then a round takes all of them. With batches of one size s, k of
        which fit, σ_b a batch's chance to be left and a_b to be whole,

            C = s (k P(W ≥ k) + Σ_{m<k} m P(m batches are left, and whole)),   W ~ Σ Bern(σ_b a_b).
        """
        if np.ptp(plan.sizes) > 0:
            return super().cardinality_after(plan, per_round, leaving)
        left, whole = _survival(plan, leaving), self._whole(plan)
        size = int(plan.sizes[0])
        most = min(per_round // size, len(plan))
        served = most * at_least(left * whole, most)
        # Π ((1 - σ) + σ a z): the chance that the batches left are m, and all of them whole.
        gone_or_whole = 1.0 - left + left * whole
        if gone_or_whole.all():
            fewer = poisson_binomial(left * whole / gone_or_whole, most)[:most] * np.prod(gone_or_whole)
            served += float(np.arange(most) @ fewer)
        return size * served

    def homogeneity(self, plan: BatchPlan) -> float:
        """Return the share of the differences in dropout that lie between batches, above a random plan's."""
        return _above_chance(plan, _between_batches(plan, self.dropout))

    def _whole(self, plan: BatchPlan) -> FloatArray:
        """Return each batch's probability to be whole, Π (1 - p_i)."""
        return np.multiply.reduceat(1.0 - self.dropout[plan.members], plan.starts[:-1])


class RecordedAvailability(Population):
    """Users of whom a log says who was online when; plans are judged by replaying it."""

    def __init__(self, log: AvailabilityLog, seed: int) -> None:
        super().__init__(log.dropout, log.names, seed)
        self.log = log

    def random_cardinality(self, per_round: int) -> float:
        """Return K times the share of recorded rounds in which K users were online."""
        return per_round * float(np.mean(self.log.online.sum(axis=1) >= per_round))

    def trade(self, plan: BatchPlan, per_round: int) -> Trade:
        """Return C, skipped and F of a plan over the recorded rounds, repeated if they are few."""
        recorded = [plan.whole(online) for online in self.log.online]
        rounds: Iterator[IntArray] = chain.from_iterable(repeat(recorded, -(-SIMULATED_ROUNDS // len(recorded))))
        return _simulate(plan, per_round, rounds, np.random.default_rng(self.seed))

    def homogeneity(self, plan: BatchPlan) -> float:
        """Return how far users of a batch are online together, or equally often, above a random plan's."""
        together = np.mean([_between_batches(plan, online.astype(np.float64)) for online in self.log.online])
        return _above_chance(plan, max(float(together), _between_batches(plan, self.dropout)))


def halves(population: Population) -> tuple[Population, Population]:
    """Return what to make plans from and what to judge them on: a log's first and second half of rounds."""
    if not isinstance(population, RecordedAvailability):
        return population, population
    log, middle = population.log, population.log.rounds // 2
    if middle == 0:
        raise UsageError("an availability log of one round cannot show who is online together; record more")
    first, second = log.window(0, middle), log.window(middle, log.rounds)
    return RecordedAvailability(first, population.seed), RecordedAvailability(second, population.seed)


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
    gap = float(np.ptp(served)) / count
    return Trade(float(served @ plan.sizes) / count, skipped / count, gap, rounds=count)


def _survival(plan: BatchPlan, leaving: float) -> FloatArray:
    """Return each batch's probability to be left when every user leaves with this one."""
    return np.asarray((1.0 - leaving) ** plan.sizes, dtype=np.float64)


def _between_batches(plan: BatchPlan, values: FloatArray) -> float:
    """Return the share of the variance of `values` that lies between batches; 0 if all are equal."""
    ordered = values[plan.members]
    if np.ptp(ordered) == 0:
        return 0.0
    means = np.add.reduceat(ordered, plan.starts[:-1]) / plan.sizes
    return float(np.average((means - ordered.mean()) ** 2, weights=plan.sizes) / np.var(ordered))


def _above_chance(plan: BatchPlan, share: float) -> float:
    """Return how far a share lies above the (B - 1)/(N - 1) that a random plan has, on a scale from 0 to 1."""
    chance = (len(plan) - 1) / max(len(plan.members) - 1, 1)
    return 0.0 if chance >= 1 else float(np.clip((share - chance) / (1.0 - chance), 0.0, 1.0))


# --- options: every feasible T with every kind of plan

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


# --- the call

MOST_USERS = 2_000_000
"""Beyond this many, plans take minutes and gigabytes, and hardly differ."""
LARGEST_JSON_INTEGER = 2**1024
"""Larger family sizes have hundreds of digits; the record then gives only their logarithm."""


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Every option that a federation has, and the recommended one; in a notebook it shows itself as a table.

    `recommended` is None where no plan with T of 2 or more completes a round. `rule_met` says whether it keeps
    `RULE`, or only needs the fewest rounds.
    """

    users: int
    per_round: int
    availability: str
    random_cardinality: float
    """C of random selection, with which the options are compared."""
    options: tuple[Option, ...]
    recommended: Option | None
    rule_met: bool
    warnings: tuple[str, ...] = ()
    seed: int = 0
    makers: dict[str, PlanMaker] = field(default_factory=dict, repr=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of plan among the options."""
        return tuple(self.makers)

    @property
    def plan(self) -> BatchPlan:
        """The recommended plan."""
        if self.recommended is None:
            raise UsageError(self.verdict)
        return self.makers[self.recommended.kind](self.recommended.privacy)

    @property
    def verdict(self) -> str:
        """What is recommended, in a sentence."""
        if self.recommended is None:
            return (
                "No plan with T of 2 or more completes a round: raise the users per round, or find users who are "
                "there more often."
            )
        chosen = f"T = {self.recommended.privacy}, plan {self.recommended.kind}"
        if self.rule_met:
            return f"Recommended: {chosen}."
        return f"No plan to choose from has a T of 2 or more that {CONDITION}. Fewest rounds: {chosen}."

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The options as columns: an array for each measure, ready for a data frame."""
        names = ("privacy", "plan", "batches", "cardinality", "skipped", "fairness_gap")
        rows = [_option_record(option) for option in self.options]
        columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in names}
        columns["rounds_factor"] = np.array(
            [option.rounds_factor for option in self.options]
        )  # also infinite ones
        return columns

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, as it stands in JSON."""
        return {
            "users": self.users,
            "availability": self.availability,
            "per_round": self.per_round,
            "random_cardinality": self.random_cardinality,
            "options": [_option_record(option) for option in self.options],
            "recommended": None if self.recommended is None else _option_record(self.recommended),
            "rule": RULE,
            "rule_met": self.rule_met,
            "warnings": list(self.warnings),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        options = counted(len(self.options), "option")
        return f"TradeOff({counted(self.users, 'user')}, {options}; {self.verdict})"

    def _repr_html_(self) -> str:
        bold = ' style="font-weight:bold"'
        heads = ("T", "plan", "batches", "C", "skipped", "F", "rounds")
        rows = "".join(
            f"<tr{bold if option is self.recommended else ''}>"
            f"<td>{option.privacy}<td>{escape(option.kind)}<td>{option.batches}<td>{option.trade.cardinality:.2f}"
            f"<td>{option.trade.skipped:.0%}<td>{option.trade.fairness_gap:.3f}<td>{option.rounds_factor:.2f}</tr>"
            for option in self.options
        )
        head = "".join(f"<th>{name}" for name in heads)
        return f"<table><tr>{head}</tr>{rows}</table><p>{escape(self.verdict)}</p>"


def plan(
    *,
    per_round: int,
    users: int | None = None,
    dropout: float | Sequence[float] | None = None,
    availability: AvailabilityLog | str | os.PathLike[str] | None = None,
    privacy: int | None = None,
    churn: float | None = None,
    mixing: float = 0.0,
    deal: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TradeOff:
    """Show what each privacy level costs, and recommend one.

    Users are away with the probability `dropout` (one for all, or several from which each user's is drawn with
    `seed`), or as a record of `availability` says (a log, or its file). `privacy` looks at one T only. `churn` is
    the share of users who leave for good within a year. `mixing` adds plans by availability with that share of
    users placed at random. `deal` deals users out to batches like cards, in place of consecutive ones, and
    recommends such a plan only: for users who are numbered in the order of their data. `progress` is told how
    many of how many options are done.

    >>> trade_off = plan(users=120, per_round=12, dropout=0.1)
    >>> trade_off.verdict
    'Recommended: T = 12, plan consecutive.'
    >>> trade_off.plan
    BatchPlan(120 users, 10 batches of 12, privacy 12)
    >>> trade_off.columns["cardinality"][:3].round(2).tolist()
    [12.0, 12.0, 12.0]
    """
    population, description = _population(users, dropout, availability, seed)
    if mixing and np.ptp(population.dropout) == 0 and isinstance(population, KnownDropout):
        raise UsageError(
            f"mixing is {mixing}, but all users are away equally often, so it changes nothing; leave it out"
        )
    earlier, later = halves(population)
    levels = feasible_levels(population.users, per_round, privacy)
    makers = plan_makers(earlier, mixing, seed, deal=deal)
    candidates: list[Option] = []
    for option in options(levels, per_round, makers, later, churn):
        candidates.append(option)
        progress(len(candidates), len(levels) * len(makers))
    # Whoever asks to deal has a reason in the data against batches of like users; the others are for comparison.
    wanted = [option for option in candidates if not deal or option.kind == "dealt"]
    choice, rule_met = recommend(wanted, population.users, per_round)
    warning = None if choice is None else homogeneity_warning(choice, mixing)
    return TradeOff(
        users=population.users,
        per_round=per_round,
        availability=description,
        random_cardinality=later.random_cardinality(per_round),
        options=tuple(candidates),
        recommended=choice,
        rule_met=rule_met,
        warnings=() if warning is None else (warning,),
        seed=seed,
        makers=plan_makers(population, mixing, seed, deal=deal),
    )


def _population(
    users: int | None,
    dropout: float | Sequence[float] | None,
    availability: AvailabilityLog | str | os.PathLike[str] | None,
    seed: int,
) -> tuple[Population, str]:
    """Return what is known of the users, and a description of it."""
    if availability is not None and dropout is None:
        from coterie.leakage.readers import read_availability

        log = availability if isinstance(availability, AvailabilityLog) else read_availability(availability, users)
        if users not in {None, log.users}:
            raise UsageError(f"the record is of {log.users} users, not of {users}; leave users out")
        _check_users(log.users)
        description = "a record" if isinstance(availability, AvailabilityLog) else str(Path(availability))
        return RecordedAvailability(log, seed), f"availability as in {description}"
    if dropout is None or availability is not None:
        raise UsageError("say how often users are away, in one way: by dropout, or by a record of availability")
    if users is None:
        raise UsageError("say how many users there are")
    check_parameters(users, 1)
    _check_users(users)
    population = KnownDropout(draw_dropout(dropout, users, np.random.default_rng(seed)), seed)
    choices = [f"{choice:g}" for choice in np.atleast_1d(dropout)]
    return population, f"dropout {','.join(choices)}{f', drawn with seed {seed}' if len(choices) > 1 else ''}"


def _check_users(users: int) -> None:
    if users > MOST_USERS:
        raise UsageError(
            f"{users} users are more than the {MOST_USERS} that are planned for at once; plan for a part of them: "
            "with more users fewer rounds are skipped, and T, K and the kind of plan stay what they are"
        )


def _option_record(option: Option) -> dict[str, Any]:
    """Return an option as it stands in the JSON record."""
    trade = option.trade
    record: dict[str, Any] = {
        "privacy": option.privacy,
        "plan": option.kind,
        "batches": option.batches,
        "batch_sizes": option.batch_sizes,
        "cohort_sizes": option.cohort_sizes,
        "family_size": option.family_size if option.family_size < LARGEST_JSON_INTEGER else None,
        "family_size_log10": math.log10(option.family_size),
        "cardinality": trade.cardinality,
        "skipped": trade.skipped,
        "fairness_gap": trade.fairness_gap,
        "rounds_factor": option.rounds_factor if math.isfinite(option.rounds_factor) else None,
        "exact": trade.exact,
    }
    if option.churn is not None:
        record["churn"] = asdict(option.churn)
    return record
