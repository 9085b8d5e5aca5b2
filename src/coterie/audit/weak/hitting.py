"""The smallest set of columns that meets every column basis: the support of a lightest vector of the row space.

Removing the support of a vector lowers the rank, and removing less than any support does not. So the least
weight of a vector is that of a 0/1 problem without big numbers: choose columns so that every basis has one. The
bases are too many to list; one that a choice misses is added, until the choice misses none.
"""

import math

import numpy as np

from coterie.audit.weak.elimination import Echelon
from coterie.values import BoolArray, IntArray

_ADDED = 12  # bases added for every choice that missed one
_LONGEST = 4.0  # seconds in one call: it cannot be interrupted
_SAFETY = 1e-4  # the solver's bound is trusted to this much, of integers that differ by 1


class HittingSet:
    """The problem with the bases found so far.

    `bound` is a proven lower bound: weights are integers, so the solver's dual bound, lowered by a margin far
    above its tolerances, is rounded up.
    """

    def __init__(self, form: Echelon, sizes: IntArray, columns: IntArray, rng: np.random.Generator) -> None:
        self._form = form
        self._sizes = sizes
        self._columns = columns
        self._rng = rng
        self._bases: list[BoolArray] = [form.is_pivot()[columns]]
        self._seconds = 0.25
        self.bound = int(sizes[columns].min(initial=sizes.sum()))

    @property
    def slow(self) -> bool:
        """Whether the longest time for one call was too short."""
        return self._seconds > _LONGEST

    def solve(self, seconds: float) -> IntArray | None:
        """Return the lightest choice that meets all bases so far; None if `seconds` were too few to be sure."""
        from scipy.optimize import LinearConstraint, milp
        from scipy.sparse import csr_array

        if seconds <= 0:
            return None
        bases = csr_array(np.array(self._bases, dtype=np.float64))
        limit = min(self._seconds, _LONGEST, seconds)
        result = milp(
            self._sizes[self._columns].astype(np.float64),
            integrality=np.ones(len(self._columns)),
            bounds=(0, 1),
            constraints=LinearConstraint(bases, lb=1.0),
            options={"time_limit": limit, "mip_rel_gap": 0.0},
        )
        if result.mip_dual_bound is not None and math.isfinite(result.mip_dual_bound):
            self.bound = max(self.bound, math.ceil(result.mip_dual_bound - _SAFETY))
        if result.status != 0:
            self._seconds *= 2
            if result.x is None:
                return None
        chosen: IntArray = self._columns[result.x > 0.5]  # noqa: PLR2004 - 0 or 1
        return chosen

    def avoid(self, missed: BoolArray) -> None:
        """Add bases that have none of the marked columns, which the other columns contain."""
        form = self._form
        form.leave(missed)
        for _ in range(_ADDED):
            self._bases.append(form.is_pivot()[self._columns])
            for row in self._rng.permutation(form.rank):
                outside = np.flatnonzero((form.dense[row] != 0) & ~missed[form.free])
                if len(outside):
                    form.exchange(int(row), int(self._rng.choice(outside)))
