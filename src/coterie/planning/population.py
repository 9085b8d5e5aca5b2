"""What a plan gives for a population whose availability is known: by probability, or by a record."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from coterie.errors import UsageError
from coterie.selection import BatchSelector, Family, keep
from coterie.theory import at_least, participation_rates, poisson_binomial
from coterie.values import AvailabilityLog, BatchPlan, FloatArray, IntArray
from coterie.values.checks import check_probabilities

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
