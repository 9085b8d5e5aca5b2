"""Bracket the weak privacy level (remark weaker_T) of a log, and narrow the bracket at any time.

The level is the least number of users in any non-zero combination of the learned sums. With users of equal
columns merged into classes, that is the least weight of a non-zero vector in the row space of a small matrix.

- A vector found is an upper bound, whatever found it: it is computed again over the integers.
- Arithmetic modulo a prime p proves lower bounds, if the rank modulo p is the rank over the rationals: a
  rational vector of the row space, scaled to integers without a common factor, is a vector modulo p with no
  more entries. So if no vector modulo p is light, none is.

Three ways bound the least weight from below:

- *Projection.* Let X have a row for each column of the log's matrix A, so that the columns of X are a basis of
  A's null space. A vector in A's row space is a linear dependence between the rows of X at its support.
  Dependence survives a projection, so if the rows of X, projected to k random dimensions, have no dependent k
  among them, then X has none, and every vector of the row space has more than k entries.
- *Disjoint bases.* Let I_1 … I_s be disjoint column bases. A vector of weight w has weight at most w / s in one
  of them, I_q. In the echelon form with the pivots I_q it is the combination of as many rows as it has entries in
  I_q. So all combinations of at most j rows of each form hold every vector of fewer than (j + 1) s entries.
- *Hitting sets.* Removing the support of a vector lowers the rank, and removing less than any support does not.
  So the least weight of a vector is that of a 0/1 problem without big numbers: choose columns so that every basis
  has one. The bases are too many to list; one that a choice misses is added, until the choice misses none.
"""

import math
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.leakage.elimination import Echelon, RowBasis
from coterie.leakage.proofs import Combination
from coterie.values import BoolArray, IntArray

Residues: TypeAlias = NDArray[np.int64]

_ADDED = 12  # bases added for every choice that missed one
_LONGEST = 4.0  # seconds in one call: it cannot be interrupted
_SAFETY = 1e-4  # the solver's bound is trusted to this much, of integers that differ by 1
_AT_ONCE = 3  # dimensions in which numpy takes all points at once


# --- projection ---------------------------------------------------------------------------------------------


def null_rows(form: Echelon, dimensions: int, rng: np.random.Generator) -> Residues:
    """Return a row for each column: a null-space basis of the form's row space, projected at random."""
    prime = form.prime
    directions = rng.integers(0, prime, size=(form.nullity, dimensions))
    rows = np.empty((form.columns, dimensions), dtype=np.int64)
    rows[form.free] = directions
    for axis in range(dimensions):
        products = form.dense * directions[:, axis]
        products %= prime
        rows[form.pivots, axis] = -products.sum(axis=1) % prime
    return rows


class DegenerateError(Exception):
    """Chance, or a smaller dependent set, made two projected points coincide; nothing can be concluded."""


def dependent_sets(points: Residues, prime: int, out_of_time: Callable[[], bool]) -> Iterator[IntArray]:
    """Yield sets so that every dependent set of as many points as they have dimensions lies in one of them.

    A set is larger where more points share a direction. A dependent set with fewer points raises
    DegenerateError. When `out_of_time` says so, the work ends, and the sets yielded are not all.

    >>> points = np.array([[1, 1, 1], [1, 2, 4], [1, 3, 2], [1, 5, 4], [1, 3, 0]])
    >>> [members.tolist() for members in dependent_sets(points, 7, lambda: False)]  # three on a line
    [[0, 1, 4]]
    """
    count, dimensions = points.shape
    if dimensions <= _AT_ONCE:
        yield from _collinear(points, prime) if dimensions == _AT_ONCE else _equal(points[None], prime)
        return
    for index in range(count - dimensions + 1):
        if out_of_time():
            return
        rest = _modulo(points[index + 1 :], points[index : index + 1], prime)[0]
        for members in dependent_sets(rest, prime, out_of_time):
            yield np.concatenate(([index], members + index + 1))


def _collinear(points: Residues, prime: int) -> Iterator[IntArray]:
    """Yield the dependent sets of points in three dimensions."""
    # Around point i stand the later ones; the earlier ones are made different from all.
    rest = _modulo(points, points, prime)
    yield from _equal(rest, prime, earlier=np.tri(len(points), dtype=np.bool_))


def _equal(groups: Residues, prime: int, earlier: NDArray[np.bool_] | None = None) -> Iterator[IntArray]:
    """Yield the points of equal direction in each group of points in two dimensions, after the group's number.

    Without `earlier` there is one group, and its number is left out.
    """
    coincide = ~groups.any(axis=2)
    if earlier is not None:
        coincide &= ~earlier
    if coincide.any():
        raise DegenerateError
    directions = quotients(groups[:, :, 0], groups[:, :, 1], prime)
    if earlier is not None:
        directions[earlier] = -1 - np.broadcast_to(np.arange(directions.shape[1]), directions.shape)[earlier]
    order = np.argsort(directions, axis=1, kind="stable")
    in_order = np.take_along_axis(directions, order, axis=1)
    same = in_order[:, 1:] == in_order[:, :-1]
    for group in np.flatnonzero(same.any(axis=1)):
        for run in np.split(order[group], np.flatnonzero(~same[group]) + 1):
            if len(run) > 1:
                yield run if earlier is None else np.concatenate(([group], run))


def _modulo(points: Residues, by: Residues, prime: int) -> Residues:
    """Return the points modulo each of the points `by`: a dimension less, a group for each."""
    if not by[:, 0].all():
        raise DegenerateError
    first, others = by[:, None, :1], by[:, None, 1:]
    left: Residues = points[None, :, 1:] * first % prime
    left -= points[None, :, :1] * others % prime
    left %= prime
    return left


def quotients(above: Residues, below: Residues, prime: int) -> Residues:
    """Return above / below, `prime` for infinity; many inverses for the price of one by running products."""
    infinite = below == 0
    values = np.where(infinite, 1, below).T
    running = np.empty_like(values)
    running[0] = values[0]
    for index in range(1, len(values)):
        running[index] = running[index - 1] * values[index] % prime
    inverse = np.array([pow(int(value), -1, prime) for value in running[-1]], dtype=np.int64)
    inverses = np.empty_like(values)
    for index in range(len(values) - 1, 0, -1):
        inverses[index] = inverse * running[index - 1] % prime
        inverse = inverse * values[index] % prime
    inverses[0] = inverse
    return np.where(infinite, prime, above * inverses.T % prime)


# --- disjoint bases -----------------------------------------------------------------------------------------


def disjoint_forms(form: Echelon, columns: BoolArray) -> list[Echelon]:
    """Return forms of one row space with disjoint pivots among the marked columns: as many as come easily."""
    forms = [form.copy()]
    used = form.is_pivot() & columns
    following = form.copy()
    while used.any() and following.leave(used) is None:
        forms.append(following.copy())
        used |= following.is_pivot() & columns
    return forms


def lightest_pair(form: Echelon, sizes: IntArray, out_of_time: Callable[[], bool]) -> tuple[int, BoolArray] | None:
    """Return the weight and the support of the lightest combination of two rows; None without time or pairs.

    Of a - λb the weight is w(a or b not 0) less the weight of the columns where a = λb ≠ 0: the best λ is the
    ratio a / b that the heaviest columns share.
    """
    rows = np.flatnonzero(form.dense.any(axis=1))
    dense, width = form.dense[rows], sizes[form.free]
    if len(rows) < 2:  # noqa: PLR2004 - a pair
        return None
    filled = dense != 0
    inverse = np.where(filled, quotients(np.ones_like(dense), dense, form.prime), 0)
    best: tuple[int, int, int, int] | None = None
    for one in range(len(rows) - 1):
        if out_of_time():
            return None
        others = slice(one + 1, None)
        ratios = dense[one] * inverse[others] % form.prime
        gains, common = _heaviest(ratios, width)
        weights = (filled[one] | filled[others]) @ width - gains + sizes[form.pivots[rows[others]]]
        other = int(np.argmin(weights))
        weight = int(weights[other] + sizes[form.pivots[rows[one]]])
        if best is None or weight < best[0]:
            best = weight, one, one + 1 + other, int(common[other])
    if best is None:
        return None
    weight, one, other, ratio = best
    support = np.zeros(form.columns, dtype=np.bool_)
    support[form.free] = (dense[one] - ratio * dense[other]) % form.prime != 0
    support[form.pivots[rows[[one, other]]]] = True
    return weight, support


def _heaviest(ratios: IntArray, weights: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each row the most weight that one ratio (not 0) has, and that ratio; 0 and 1 if there is none."""
    order = np.argsort(ratios, axis=1)
    in_order = np.take_along_axis(ratios, order, axis=1)
    begins = np.ones(ratios.shape, dtype=np.bool_)
    begins[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    starts = np.flatnonzero(begins)
    sums = np.add.reduceat(weights[order].ravel(), starts)
    values = in_order.ravel()[starts]
    sums[values == 0] = 0
    row_starts = np.searchsorted(starts, np.arange(len(ratios)) * ratios.shape[1])
    gains = np.maximum.reduceat(sums, row_starts)
    row_of = starts // ratios.shape[1]
    heaviest = np.flatnonzero(sums == gains[row_of])
    common = np.ones(len(ratios), dtype=np.int64)
    common[row_of[heaviest]] = np.maximum(values[heaviest], 1)
    return gains, common


# --- hitting sets -------------------------------------------------------------------------------------------


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

    def avoid(self, columns: BoolArray) -> None:
        """Add bases that have none of the marked columns, which the other columns contain."""
        form = self._form
        form.leave(columns)
        for _ in range(_ADDED):
            self._bases.append(form.is_pivot()[self._columns])
            for row in self._rng.permutation(form.rank):
                outside = np.flatnonzero((form.dense[row] != 0) & ~columns[form.free])
                if len(outside):
                    form.exchange(int(row), int(self._rng.choice(outside)))


# --- the search

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
