"""The weak privacy level (remark weaker_T) of a log, as a bracket that can be narrowed at any time.

The level is the least number of users in any non-zero combination of the learned sums. With users of equal
columns merged into classes, that is the least weight of a non-zero vector in the row space of a small matrix.

- A vector found is an upper bound, whatever found it: it is computed again over the integers.
- Arithmetic modulo a prime p proves lower bounds, if the rank modulo p is the rank over the rationals: a
  rational vector of the row space, scaled to integers without a common factor, is a vector modulo p with no
  more entries. So if no vector modulo p is light, none is.
"""

import math
from collections.abc import Callable, Generator, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from coterie.audit.weak.bounds import (
    DegenerateError,
    HittingSet,
    dependent_sets,
    disjoint_forms,
    lightest_pair,
    null_rows,
)
from coterie.audit.weak.elimination import Echelon, RowBasis
from coterie.audit.weak.proofs import Combination
from coterie.values import BoolArray, IntArray

TimeLeft = Callable[[], float]
"""Returns how many seconds may still be spent; nothing is begun when there are none."""

_EXCHANGES = 64  # between two looks at the clock
_ROUNDS_OF_EXCHANGES = 8  # before the costly searches
_PROJECTIONS = 4  # tries to avoid a coincidence
_CHEAP = 10**7  # comparisons: about a second
_SMALL = 80  # classes: up to here the hitting set is tried before the costly projections


class MisleadingPrimeError(Exception):
    """Arithmetic modulo the prime said what is not so over the rationals; another prime is needed."""


class WeakSearch:
    """Narrows the bracket low … high of the weak level for fixed rows.

    `rows` are independent rows at the classes of sizes `sizes`, and `form` is their echelon form, whose rank is
    the rank over the rationals of all learned sets. `low`, `high` and `lightest`, a combination of the rows that
    has `high` users, always hold what is proven so far.

    >>> rows = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=np.uint8)
    >>> form = Echelon(prime=2**31 - 1)
    >>> for _ in range(4):
    ...     form.add_column()
    >>> all(form.add(np.flatnonzero(row)) for row in rows)
    True
    >>> search = WeakSearch(rows, form, np.array([1, 5, 1, 5]), np.random.default_rng(0))
    >>> for _ in search.steps(time_left=lambda: 1.0):
    ...     pass
    >>> search.low, search.high, search.lightest  # the first round minus the second one
    (2, 2, Combination(sets=(0, 1), numerators=(1, -1), denominator=1))
    """

    def __init__(self, rows: NDArray[np.uint8], form: Echelon, sizes: IntArray, rng: np.random.Generator) -> None:
        self._rows = rows
        self._form = form.copy()
        self._sizes = sizes.astype(np.int64)
        self._rng = rng
        self._alone = np.zeros(len(sizes), dtype=np.bool_)
        self._alone[form.unit_columns()] = True
        self._others = np.flatnonzero(~self._alone)
        weights = rows @ self._sizes
        lightest = int(np.argmin(weights))
        self.high, self.lightest = int(weights[lightest]), Combination((lightest,), (1,), 1)
        self.low = int(self._sizes.min())
        self._raise_low(self._others, entries=1)

    @property
    def exact(self) -> bool:
        """Whether the bracket is closed."""
        return self.low == self.high

    def steps(self, time_left: TimeLeft | None = None) -> Iterator[None]:
        """Narrow the bracket until it is closed or no time is left; yield after every piece of work.

        Without a clock, by what is cheap and the same on every machine.
        """
        pieces = self._cheap(lambda: math.inf) if time_left is None else self._pieces(time_left)
        while not self.exact and (time_left is None or time_left() > 0) and next(pieces, True) is None:
            yield

    def _pieces(self, time_left: TimeLeft) -> Iterator[None]:
        costly = yield from self._cheap(time_left)
        problem = HittingSet(self._form.copy(), self._sizes, self._others, self._rng)
        if len(self._others) <= _SMALL:
            yield from self._hitting(problem, time_left, lambda: problem.slow)
        for _ in costly:
            self._exchanges()
            yield
        yield from self._hitting(problem, time_left, lambda: False)

    def _cheap(self, time_left: TimeLeft) -> Generator[None, None, Iterator[int]]:
        """Do what is cheap; return the costly levels that follow."""
        self._offer_alone()
        yield
        self._offer_differences()
        yield
        for _ in range(_ROUNDS_OF_EXCHANGES):
            self._exchanges()
            yield
        costly = chain(self._disjoint_bases(time_left), self._projections(time_left))
        for cost in costly:
            if cost > _CHEAP:
                return chain([cost], costly)
            yield
        return iter(())

    # --- upper bounds ---------------------------------------------------------------------------------------

    def _keep_if_lightest(self, form: Echelon, row: int) -> int:
        """Compute a row of an echelon form exactly; keep it if it is the lightest. Return its weight."""
        combination, support = RowBasis(self._rows, form.pivots).unit(row)
        weight = int(self._sizes[support].sum())
        if weight < self.high:
            self.high, self.lightest = weight, combination
        return weight

    def _offer_alone(self) -> None:
        """A class that is alone in a row is a vector."""
        alone = self._form.unit_columns()
        if len(alone) == 0:
            return
        lightest = alone[np.argmin(self._sizes[alone])]
        if self._sizes[lightest] < self.high:
            self._offer_support(self._mark(np.array([lightest])))

    def _offer_differences(self) -> None:
        """Look at the differences of two rounds: |a| + |b| - 2 |a ∩ b| users."""
        rows = self._rows.astype(np.float64)
        common = (rows * self._sizes) @ rows.T
        own = np.diag(common)
        weights = own[:, None] + own[None, :] - 2 * common
        np.fill_diagonal(weights, np.inf)
        one, other = np.unravel_index(int(np.argmin(weights)), weights.shape)
        if weights[one, other] < self.high:
            self.high, self.lightest = int(weights[one, other]), Combination((int(one), int(other)), (1, -1), 1)

    def _exchanges(self) -> None:
        """Look at the rows of echelon forms under other orders of the columns (information-set decoding)."""
        form = self._form
        for _ in range(_EXCHANGES):
            row = int(self._rng.integers(form.rank))
            candidates = np.flatnonzero(form.dense[row])
            if len(candidates) == 0:
                continue
            form.exchange(row, int(self._rng.choice(candidates)))
            self._offer_lightest_row(form)

    def _offer_lightest_row(self, form: Echelon) -> None:
        weights = (form.dense != 0) @ self._sizes[form.free] + self._sizes[form.pivots]
        lightest = int(np.argmin(weights))
        if weights[lightest] < self.high and self._keep_if_lightest(form, lightest) > weights[lightest]:
            raise MisleadingPrimeError

    # --- lower bounds ---------------------------------------------------------------------------------------

    def _raise_low(self, classes: IntArray, entries: int) -> None:
        """Raise the lower bound: a vector lighter than those found is alone or has more than `entries` entries.

        `classes` hold a lightest of these. (A class that is alone is in no other vector of least support.)
        """
        smallest = np.sort(self._sizes[classes])[: entries + 1]
        self._at_least(int(smallest.sum()) if len(smallest) > entries else self.high)

    def _at_least(self, bound: int) -> None:
        """Take in a lower bound for the vectors in which no class is alone."""
        alone = int(self._sizes[self._alone].min(initial=self.high))
        self.low = max(self.low, min(bound, alone, self.high))

    def _disjoint_bases(self, time_left: TimeLeft) -> Iterator[int]:
        """Look at the combinations of one row, then of two, in forms with disjoint pivots; yield what comes next.

        That is the number of ratios that the next form compares.
        """
        forms = disjoint_forms(self._form, ~self._alone)
        least = len(forms) * int(self._sizes[self._others].min(initial=self.high))
        for form in forms:
            self._offer_lightest_row(form)
        self._at_least(2 * least)
        for form in forms:
            yield form.rank**2 * form.nullity // 2
            pair = lightest_pair(form, self._sizes, lambda: time_left() <= 0)
            if time_left() <= 0:
                return
            if pair is not None and pair[0] < self.high:
                self._offer_support(pair[1])
        self._at_least(3 * least)

    def _projections(self, time_left: TimeLeft) -> Iterator[int]:
        """Prove level by level that no few classes are dependent, or find those that are; yield what comes next.

        That is the number of pairs of points that the next level compares.
        """
        classes = self._without_parallels()
        if classes is None:
            return
        self._raise_low(classes, entries=2)
        for entries in range(3, self._form.nullity + 1):
            yield math.comb(len(classes), entries - 2) * len(classes)
            if not self._no_vector_with(classes, entries, time_left):
                return
            self._raise_low(classes, entries)

    def _without_parallels(self) -> IntArray | None:
        """Keep the lightest of classes whose null-space rows are parallel; offer the lightest two as a vector.

        Two such classes make a vector of two entries, and in any other vector of least support one can stand
        for the other.
        """
        others = self._others
        for _ in range(_PROJECTIONS):
            points = null_rows(self._form, 2, self._rng)[others]
            try:
                groups = [others[members] for members in dependent_sets(points, self._form.prime, lambda: False)]
            except DegenerateError:
                continue
            if all(self._parallel(group) for group in groups):
                break
        else:
            return None
        doubles: list[IntArray] = []
        for group in groups:
            ordered = group[np.argsort(self._sizes[group], kind="stable")]
            doubles.append(ordered[1:])
            if self._sizes[ordered[:2]].sum() < self.high:
                self._offer_support(self._mark(ordered[:2]))
        return np.setdiff1d(others, np.concatenate(doubles)) if doubles else others

    def _parallel(self, group: IntArray) -> bool:
        """Say whether the null-space rows of the classes are multiples of one another."""
        form = self._form
        rows = form.null_rows(group)
        axis = int(np.argmax(rows[0] != 0))
        crossed = rows * rows[0, axis] % form.prime - rows[:, axis, None] * rows[0] % form.prime
        return not crossed.any()

    def _no_vector_with(self, classes: IntArray, entries: int, time_left: TimeLeft) -> bool:
        """Say whether it is proven that no vector has so many entries; offer the one that was found."""
        for _ in range(_PROJECTIONS):
            points = null_rows(self._form, entries, self._rng)[classes]
            try:
                for members in dependent_sets(points, self._form.prime, lambda: time_left() <= 0):
                    if self._offer_support(self._mark(classes[members])):
                        return False
            except DegenerateError:
                continue
            return time_left() > 0
        return False

    def _mark(self, classes: IntArray) -> BoolArray:
        marked = np.zeros(len(self._sizes), dtype=np.bool_)
        marked[classes] = True
        return marked

    def _offer_support(self, support: BoolArray) -> bool:
        """Offer the vector inside a set of classes, if there is one modulo the prime."""
        form = self._form.copy()
        row = form.leave(support)
        if row is None:
            return False
        if self._keep_if_lightest(form, row) > self._sizes[support].sum():
            raise MisleadingPrimeError
        return True

    def _hitting(self, problem: HittingSet, time_left: TimeLeft, enough: Callable[[], bool]) -> Iterator[None]:
        """Close the gap by the smallest set of classes that meets every basis."""
        while len(self._others) and not enough():
            chosen = problem.solve(time_left())
            self._at_least(problem.bound)
            if chosen is not None:
                support = self._mark(chosen)
                if not self._offer_support(support):
                    problem.avoid(support)
                self._at_least(problem.bound)
            yield
