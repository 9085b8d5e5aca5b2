"""Batch plans: who is in which batch, who joins, merges and leaves, and the cohorts that a plan allows."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.values import AvailabilityLog, BatchPlan, IntArray
from coterie.values.checks import check_probabilities, check_users, frozen, frozen_integers, starts_of

BLOCK = 4096
"""`by_co_availability` compares every user with at most this many others: the work grows as users × block."""


def even_cuts(users: int, count: int) -> IntArray:
    """Cut `users` into `count` runs whose lengths differ by at most one, the longer ones first.

    >>> even_cuts(11, 3).tolist()
    [0, 4, 8, 11]
    """
    size, longer = divmod(users, count)
    index = np.arange(count + 1, dtype=np.int64)
    return index * size + np.minimum(index, longer)


def batch_starts(users: int, privacy: int) -> IntArray:
    """Cut `users` into ⌊users/privacy⌋ batches of at least `privacy` users."""
    if privacy < 1:
        raise UsageError(f"privacy is {privacy}: a batch needs at least one user")
    if privacy > users:
        raise UsageError(f"privacy {privacy} is more than the {users} users; lower it to {users} at most")
    return even_cuts(users, users // privacy)


def _plan(order: IntArray, privacy: int, names: Sequence[str] | None) -> BatchPlan:
    """Cut users in the given order into batches."""
    starts, members = batch_starts(len(order), privacy), frozen(order.astype(np.int32))
    return BatchPlan(len(order), privacy, members, starts, None if names is None else tuple(names))


def consecutive(users: int, privacy: int, names: Sequence[str] | None = None) -> BatchPlan:
    """Put neighbours in the numbering into one batch (the paper's plan).

    >>> [consecutive(7, 3).batch(b).tolist() for b in range(2)]
    [[0, 1, 2, 3], [4, 5, 6]]
    """
    return _plan(np.arange(users, dtype=np.int32), privacy, names)


def shuffled(users: int, privacy: int, rng: np.random.Generator, names: Sequence[str] | None = None) -> BatchPlan:
    """Put users into batches at random."""
    return _plan(rng.permutation(np.arange(users, dtype=np.int32)), privacy, names)


def dealt(users: int, privacy: int, names: Sequence[str] | None = None) -> BatchPlan:
    """Deal users out to the batches like cards: neighbours in the numbering never share a batch.

    Where the numbering goes with the data (a label, a site, the day of joining), every batch has users from all
    over it, and consecutive users would make batches of one kind each.

    >>> [dealt(7, 3).batch(b).tolist() for b in range(2)]
    [[0, 2, 4, 6], [1, 3, 5]]
    """
    batches = len(batch_starts(users, privacy)) - 1
    order = np.concatenate([np.arange(first, users, batches, dtype=np.int32) for first in range(batches)])
    return _plan(order, privacy, names)


def by_availability(dropout: ArrayLike, privacy: int, names: Sequence[str] | None = None) -> BatchPlan:
    """Put users with similar dropout probability into one batch.

    Sorting maximises the expected number of whole batches, Σ_b Π_{i in b} (1 - p_i); where batches differ in
    size, the larger ones take the users who are seldom there. Where availability goes with the data it also
    makes batches homogeneous: `mix` trades some of the gain for variety.

    >>> plan = by_availability([0.5, 0.1, 0.5, 0.1], privacy=2)
    >>> [plan.batch(b).tolist() for b in range(2)]
    [[0, 2], [1, 3]]
    """
    order = np.argsort(-check_probabilities(dropout, "dropout"), kind="stable")
    return _plan(order, privacy, names)


def mix(plan: BatchPlan, share: float, rng: np.random.Generator) -> BatchPlan:
    """Let a share of a plan's users, drawn at random, change places among themselves.

    >>> mix(consecutive(users=100, privacy=10), share=0.3, rng=np.random.default_rng(0))
    BatchPlan(100 users, 10 batches of 10, privacy 10)
    """
    if not 0 <= share <= 1:
        raise UsageError(f"mixing is {share}: give the share of users to place at random, from 0 to 1")
    members = plan.members.copy()
    places = rng.permutation(len(members))[: round(share * len(members))]
    members[np.sort(places)] = members[places]
    return BatchPlan(plan.users, plan.privacy, members, plan.starts, plan.names)


def by_co_availability(log: AvailabilityLog, privacy: int) -> BatchPlan:
    """Put users that were online in the same rounds into one batch.

    Greedy: the most available user not yet placed opens a batch; each further member is the one that keeps
    the batch whole in most recorded rounds (the more available one at a tie). Beyond `BLOCK` users, blocks of
    users of similar availability are planned one by one.

    >>> day, night = [True, False, True, False], [False, True, False, True]
    >>> plan = by_co_availability(AvailabilityLog(np.array([day, night, day, night]).T), privacy=2)
    >>> [plan.batch(b).tolist() for b in range(2)]
    [[0, 2], [1, 3]]
    """
    words = _pack(log)
    uptime = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    by_uptime = np.argsort(-uptime, kind="stable")
    starts = batch_starts(log.users, privacy)
    per_block = max(1, BLOCK // int(starts[1]))
    order = np.empty(log.users, dtype=np.int32)
    for block in range(0, len(starts) - 1, per_block):
        bounds = starts[block : block + per_block + 1]
        users = by_uptime[bounds[0] : bounds[-1]]
        order[bounds[0] : bounds[-1]] = users[_grow(words[users], uptime[users], np.diff(bounds))]
    return _plan(order, privacy, log.names)


def _pack(log: AvailabilityLog) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """Return a row of 64-bit words per user with a bit per recorded round."""
    bits = np.packbits(log.online, axis=0).T
    padded = np.zeros((log.users, -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64)


def _grow(words: np.ndarray[tuple[int, int], np.dtype[np.uint64]], uptime: IntArray, sizes: IntArray) -> list[int]:
    """Order users, given in falling uptime, batch after batch so that a batch is online together."""
    left = np.arange(len(words))
    order: list[int] = []
    for size in sizes.tolist():
        together = words[left[0]]
        order.append(int(left[0]))
        left = left[1:]
        for _ in range(size - 1):
            overlap = np.bitwise_count(words[left] & together).sum(axis=1, dtype=np.int64)
            best = int(np.argmax(overlap * (len(words[0]) * 64 + 1) + uptime[left]))
            together = together & words[left[best]]
            order.append(int(left[best]))
            left = np.delete(left, best)
    return order


def join(plan: BatchPlan, newcomers: int, names: Sequence[str] | None = None) -> BatchPlan:
    """Add users that never took part, as batches of their own: at least T must come together.

    Their numbers follow those of the plan's users.

    >>> join(consecutive(4, 2), newcomers=3)
    BatchPlan(7 users, 3 batches of 2 to 3, privacy 2)
    """
    if newcomers < plan.privacy:
        raise UsageError(
            f"{newcomers} newcomers cannot form a batch of at least {plan.privacy}; let them wait until "
            f"{plan.privacy} have come"
        )
    if (names is None) != (plan.names is None):
        raise UsageError("name the newcomers exactly when the plan's users are named")
    added = batch_starts(newcomers, plan.privacy)
    return BatchPlan(
        plan.users + newcomers,
        plan.privacy,
        np.concatenate((plan.members, plan.users + np.arange(newcomers))),
        np.concatenate((plan.starts, len(plan.members) + added[1:])),
        None if names is None else (*(plan.names or ()), *names),
    )


def merge(plan: BatchPlan, batches: Iterable[int]) -> BatchPlan:
    """Let whole batches go on as one; the merged batch comes last, the others keep their order.

    >>> merge(consecutive(6, 2), [0, 2])
    BatchPlan(6 users, 2 batches of 2 to 4, privacy 2)
    """
    merged = np.unique(frozen_integers(list(batches), np.int64, "batches to merge"))
    if len(merged) < 2 or merged[0] < 0 or merged[-1] >= len(plan):  # noqa: PLR2004 - one batch is no merger
        raise UsageError(f"merge at least two of the batches 0 … {len(plan) - 1}, not {merged.tolist()}")
    stay = np.delete(np.arange(len(plan)), merged)
    members = np.concatenate((plan.members_of(stay), plan.users_of(merged)))
    starts = starts_of((*plan.sizes[stay], plan.sizes[merged].sum()))
    return BatchPlan(plan.users, plan.privacy, members, starts, plan.names)


def leave(plan: BatchPlan, users: ArrayLike) -> BatchPlan:
    """Take users out for good: their batches retire whole, because the rest going on would single them out.

    >>> plan = leave(consecutive(6, 2), [3])
    >>> plan, plan.retired.tolist()
    (BatchPlan(6 users, 2 batches of 2, privacy 2), [2, 3])
    """
    leaving = frozen_integers(users, np.int64, "users who leave")
    check_users(leaving, plan.users)
    return keep(plan, np.setdiff1d(np.arange(len(plan)), plan.batch_of[leaving]))


def keep(plan: BatchPlan, batches: IntArray) -> BatchPlan:
    """Return the plan with these batches only; all others retire.

    >>> keep(consecutive(6, 2), np.array([0, 2]))
    BatchPlan(6 users, 2 batches of 2, privacy 2)
    """
    starts = starts_of(plan.sizes[batches])
    return BatchPlan(plan.users, plan.privacy, plan.members_of(batches), starts, plan.names)


LARGEST_MATRIX = 10_000_000
"""`Family.matrix` refuses to write out more entries than this: it is for looking and for tests."""


@dataclass(frozen=True)
class Family:
    """All cohorts that a plan allows with at most `per_round` users: every row takes as many batches as fit.

    A row is a union of whole batches to which no further batch can be added without passing `per_round`. With
    batches of one size T these are the paper's rows: any K/T of the N/T batches. The paper's example:

    >>> from coterie.selection.plans import consecutive
    >>> family = Family(consecutive(users=8, privacy=2), per_round=4)
    >>> family.size
    6
    >>> family.matrix()
    array([[1, 1, 1, 1, 0, 0, 0, 0],
           [1, 1, 0, 0, 1, 1, 0, 0],
           [1, 1, 0, 0, 0, 0, 1, 1],
           [0, 0, 1, 1, 1, 1, 0, 0],
           [0, 0, 1, 1, 0, 0, 1, 1],
           [0, 0, 0, 0, 1, 1, 1, 1]], dtype=uint8)

    Sizes that differ (here batches of 4, 3 and 3 users) make cohorts that differ:

    >>> Family(consecutive(users=10, privacy=3), per_round=6).cohort_sizes
    (4, 6)
    """

    plan: BatchPlan
    per_round: int

    def __post_init__(self) -> None:
        if len(self.plan) == 0:
            raise UsageError("the plan has no batches, so no cohort can be formed")
        largest = int(self.plan.sizes.max())
        if largest > self.per_round:
            raise UsageError(
                f"a batch of {largest} users does not fit into {self.per_round} users per round; "
                f"ask for at least {largest} per round or a lower privacy level"
            )

    @cached_property
    def _compositions(self) -> tuple[IntArray, IntArray, IntArray]:
        """Batch sizes, how many batches have each, and per kind of row how many of each it takes.

        Rows differ only by which batches of a size they take, so kinds of rows are few even where rows are
        beyond counting: with two sizes, at most one kind per number of larger batches.
        """
        sizes, counts = np.unique(self.plan.sizes, return_counts=True)
        smallest, spare = int(sizes[0]), int(counts[0])
        kinds = []
        for larger in product(*(range(int(n) + 1) for n in np.minimum(counts, self.per_round // sizes)[1:])):
            room = self.per_round - int(np.dot(larger, sizes[1:]))
            if room < 0:
                continue
            kind = (min(spare, room // smallest), *larger)
            room -= kind[0] * smallest
            if all(taken == n or size > room for taken, n, size in zip(kind, counts, sizes, strict=True)):
                kinds.append(kind)
        return sizes, counts, np.array(kinds)

    @property
    def size(self) -> int:
        """The number of rows R; C(N/T, K/T) where T divides N and K."""
        _, counts, kinds = self._compositions
        return sum(
            math.prod(math.comb(int(n), int(taken)) for n, taken in zip(counts, kind, strict=True))
            for kind in kinds
        )

    @property
    def cohort_sizes(self) -> tuple[int, int]:
        """The fewest and the most users in a row."""
        sizes, _, kinds = self._compositions
        totals = kinds @ sizes
        return int(totals.min()), int(totals.max())

    @property
    def batches_per_row(self) -> tuple[int, int]:
        """The fewest and the most batches in a row; both K/T where T divides N and K."""
        counts = self._compositions[2].sum(axis=1)
        return int(counts.min()), int(counts.max())

    def rows(self) -> list[tuple[int, ...]]:
        """Return every row as the tuple of its batches (small cases only)."""
        if self.size * self.plan.users > LARGEST_MATRIX:
            raise UsageError(
                f"the family has {self.size} rows of {self.plan.users} users: too many to write out; "
                "selectors and `Family.size` never need it"
            )
        sizes = self.plan.sizes
        low, high = self.batches_per_row
        rows = []
        for count in range(low, high + 1):
            for row in combinations(range(len(self.plan)), count):
                room = self.per_round - int(sizes[list(row)].sum())
                left = np.delete(sizes, row)
                if 0 <= room < left.min(initial=room + 1):
                    rows.append(row)
        return rows

    def matrix(self) -> NDArray[np.uint8]:
        """Return B: a row per cohort, a column per user (small cases only)."""
        rows = self.rows()
        matrix = np.zeros((len(rows), self.plan.users), dtype=np.uint8)
        for line, row in zip(matrix, rows, strict=True):
            line[self.plan.users_of(np.array(row))] = 1
        return matrix
