"""The privacy-preserving family B of Algorithm 1: explicit for small cases, implicit for every case."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.values import BatchPlan, IntArray

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
