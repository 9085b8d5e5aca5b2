"""Selectors: who takes part in a round."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from coterie.errors import UsageError
from coterie.selection.plans import Family, even_cuts
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray
from coterie.values.checks import check_count, check_parameters, check_probability

NO_BATCHES: IntArray = np.zeros(0, dtype=np.int64)


class Selector(Protocol):
    """Chooses a round's cohort, or says with None that the round is skipped.

    `available[i]` says whether user i can be reached, `counts[i]` in how many rounds it took part before (the
    paper's f_i). A selector keeps nothing between rounds: the same arguments and generator, the same cohort.
    """

    def choose(self, available: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return the cohort, or None if the round must be skipped."""
        ...


@runtime_checkable
class PlanSelector(Selector, Protocol):
    """A selector of whole batches: its rounds can be sealed, and it can go on with another plan."""

    @property
    def plan(self) -> BatchPlan:
        """The batches that its cohorts are unions of."""
        ...

    def over(self, plan: BatchPlan) -> "PlanSelector":
        """Return the same selector for another plan, as when users joined or left."""
        ...


Order: TypeAlias = Callable[[IntArray, np.random.Generator], FloatArray]
"""Turns how often candidates were served into keys; those with the smallest keys are taken."""


def least_served(served: IntArray, rng: np.random.Generator) -> FloatArray:
    """Take the least-served candidates first, ties at random: the row with the smallest total frequency."""
    return served + rng.random(len(served))


def one_least_served(served: IntArray, rng: np.random.Generator) -> FloatArray:
    """Take one least-served candidate, the others uniformly: Algorithm 2 with λ = 1, to the letter."""
    keys = rng.random(len(served))
    if len(served):
        keys[np.argmin(least_served(served, rng))] = -1.0
    return keys


def uniform(served: IntArray, rng: np.random.Generator) -> FloatArray:
    """Take candidates uniformly at random: Algorithm 2 with λ = 0."""
    return rng.random(len(served))


def _smallest(keys: FloatArray, count: int) -> IntArray:
    """Return the indices of the `count` smallest keys, in no particular order."""
    return np.argpartition(keys, count - 1)[:count] if count < len(keys) else np.arange(len(keys))


@dataclass(frozen=True)
class RandomSelector:
    """K users uniformly among the available ones; skipped if fewer are available (K-uniform selection)."""

    per_round: int

    def __post_init__(self) -> None:
        check_count(self.per_round, "the number of users per round K")

    def choose(self, available: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return K of the available users."""
        users = np.flatnonzero(available)
        if len(users) < self.per_round:
            return None
        return Cohort(np.sort(self._draw(users, counts, rng)), NO_BATCHES)

    def _draw(self, users: IntArray, counts: IntArray, rng: np.random.Generator) -> IntArray:
        """Return K of the users, each set of K equally likely."""
        del counts
        return rng.choice(users, self.per_round, replace=False, shuffle=False)


class WeightedRandomSelector(RandomSelector):
    """The K available users that took part least often, ties at random (random weighted selection)."""

    def _draw(self, users: IntArray, counts: IntArray, rng: np.random.Generator) -> IntArray:
        return users[_smallest(least_served(counts[users], rng), self.per_round)]


@dataclass(frozen=True)
class BernoulliSelector:
    """Each available user on its own with one probability: the i.i.d. selection of app:random-selection.

    >>> BernoulliSelector.expecting(users=100, per_round=10, dropout=0.5)
    BernoulliSelector(probability=0.2)
    """

    probability: float

    def __post_init__(self) -> None:
        check_probability(self.probability, "the probability to select a user")

    @classmethod
    def expecting(cls, users: int, per_round: int, dropout: float) -> "BernoulliSelector":
        """Return the selector with Bern(K / (N(1-p))), which takes K users on average; needs K < N(1-p)."""
        check_parameters(users, per_round)
        reachable = users * (1 - dropout)
        if not per_round < reachable:
            raise UsageError(
                f"{per_round} users per round are too many for {users} users of whom "
                f"{reachable:g} are available on average; ask for fewer"
            )
        return cls(per_round / reachable)

    def choose(self, available: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return the users whose coin fell; None if nobody's did."""
        del counts
        users = np.flatnonzero(available)
        chosen = users[rng.random(len(users)) < self.probability]
        return Cohort(chosen, NO_BATCHES) if len(chosen) else None


@dataclass(frozen=True)
class BatchSelector:
    """Multi-RoundSecAgg: whole available batches only, as many as fit into `per_round` users.

    `order` is the reading of Algorithm 2: `least_served` (the authors' code, fairest), `one_least_served`
    (the text) or `uniform` (λ = 0, for equal dropout). A round is skipped if the available batches do not
    fill a cohort (a row of the family), that is, if another batch of the plan would still fit. Batches of
    different sizes are taken one after the other in that order, passing over those that no longer fit; if that
    leaves room, the larger ones are taken first. `spare` more batches are asked where they are
    available, so that enough are left when some are lost on the way. With `least_users`, a row that is not full is
    taken too if it has so many users.

    >>> from coterie.selection.plans import consecutive
    >>> selector = BatchSelector(consecutive(users=8, privacy=2), per_round=4)
    >>> available = np.array([True, True, True, False, True, True, True, True])
    >>> served = np.array([5, 5, 0, 0, 3, 3, 4, 4])
    >>> selector.choose(available, served, np.random.default_rng(0)).users.tolist()
    [4, 5, 6, 7]
    """

    plan: BatchPlan
    per_round: int
    order: Order = least_served
    spare: int = 0
    least_users: int | None = None

    def __post_init__(self) -> None:
        if self.spare < 0:
            raise UsageError(f"spare is {self.spare}; give the number of batches to ask beyond K, 0 or more")
        check_parameters(self.plan.users, self.per_round, self.plan.privacy)
        Family(self.plan, self.per_round)  # refuses a plan of which some batch can never take part

    @cached_property
    def _kinds(self) -> tuple[IntArray, IntArray]:
        """The batch sizes that occur, ascending, and how many batches have each."""
        return np.unique(self.plan.sizes, return_counts=True)

    def over(self, plan: BatchPlan) -> "BatchSelector":
        """Return the same selector for another plan."""
        return replace(self, plan=plan)

    def choose(self, available: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return a union of whole available batches."""
        whole = self.plan.whole(np.asarray(available, dtype=np.bool_))
        chosen = self.choose_batches(whole, self._served(whole, counts), rng)
        if chosen is None:
            return None
        if self.spare:
            rest = np.setdiff1d(whole, chosen, assume_unique=True)
            more = rest[_smallest(self.order(self._served(rest, counts), rng), self.spare)]
            chosen = np.sort(np.concatenate((chosen, more)))
        return Cohort(self.plan.users_of(chosen), chosen)

    def choose_batches(self, whole: IntArray, served: IntArray, rng: np.random.Generator) -> IntArray | None:
        """Choose among the `whole` batches, which were `served` so often; None if they do not fill a row."""
        sizes, counts = self._kinds
        keys = self.order(served, rng)
        if len(sizes) == 1:
            needed = min(self.per_round // int(sizes[0]), int(counts[0]))
            row = np.sort(whole[_smallest(keys, needed)]) if len(whole) > needed else whole
            return row if len(row) == needed or self._enough(row) else None
        row = self._fill(whole[np.argsort(keys)])
        if self._full(row):
            return row
        # In the wanted order small batches can leave room that only a larger one would have filled.
        larger_first = self._fill(whole[np.lexsort((keys, -self.plan.sizes[whole]))])
        return larger_first if self._full(larger_first) or self._enough(larger_first) else None

    def _enough(self, row: IntArray) -> bool:
        """Return whether a row that is not full may be taken."""
        return (
            self.least_users is not None and len(row) > 0 and int(self.plan.sizes[row].sum()) >= self.least_users
        )

    def _fill(self, ordered: IntArray) -> IntArray:
        """Take batches of different sizes in order, passing over those that no longer fit."""
        batch_sizes = self.plan.sizes[ordered]
        taken = int(np.searchsorted(np.cumsum(batch_sizes), self.per_round, side="right"))
        room = self.per_round - int(batch_sizes[:taken].sum())
        chosen = [ordered[:taken]]
        while len(fitting := taken + np.flatnonzero(batch_sizes[taken:] <= room)):
            chosen.append(ordered[fitting[:1]])
            room -= int(batch_sizes[fitting[0]])
            taken = int(fitting[0]) + 1
        return np.sort(np.concatenate(chosen))

    def _full(self, row: IntArray) -> bool:
        """Return whether no other batch of the plan would still fit."""
        room = self.per_round - int(self.plan.sizes[row].sum())
        sizes, counts = self._kinds
        in_row = np.searchsorted(np.sort(self.plan.sizes[row]), sizes, side="right")
        still_fits = (np.diff(in_row, prepend=0) < counts) & (sizes <= room)
        return not still_fits.any()

    def _served(self, batches: IntArray, counts: IntArray) -> IntArray:
        """Return how often each batch took part: as often as its least-served user (ℓ_min of Algorithm 2).

        Users of a batch took part together, so one speaks for all, unless batches merged: then there are at
        least 2T users, and the least-served of them counts.
        """
        served = counts[self.plan.members[self.plan.starts[batches]]]
        merged = np.flatnonzero(self.plan.sizes[batches] >= 2 * self.plan.privacy)
        if len(merged):
            sizes = self.plan.sizes[batches[merged]]
            everyone = counts[self.plan.members_of(batches[merged])]
            served[merged] = np.minimum.reduceat(everyone, np.cumsum(sizes) - sizes)
        return served


def user_partition(users: int, per_round: int) -> BatchSelector:
    """Return the user-partition baseline: ⌈N/K⌉ groups of at most K users, one whole group a round.

    >>> user_partition(users=120, per_round=12).plan
    BatchPlan(120 users, 10 batches of 12, privacy 12)
    """
    check_parameters(users, per_round)
    groups = -(-users // per_round)
    plan = BatchPlan(users, users // groups, np.arange(users), even_cuts(users, groups))
    return BatchSelector(plan, per_round)
