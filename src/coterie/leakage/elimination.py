"""Linear algebra on learned sets: modulo a prime, which proposes, and over the rationals, which proves."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.leakage.measures import StrongLevel
from coterie.leakage.proofs import Combination
from coterie.values import BoolArray, IntArray
from coterie.values.checks import learned_set

PRIME = 2**31 - 1
"""Where a measurement is enough and a proof is not asked for."""
LEAST_PRIME, BOUND = 2**30, 2**31
"""Primes are drawn from here: a product of two residues plus a third fits into 64 bits."""


def random_primes(rng: np.random.Generator) -> Iterator[int]:
    """Yield random primes of 31 bits, without end."""
    from flint import fmpz

    while True:
        number = int(rng.integers(LEAST_PRIME, BOUND))
        if fmpz(number).is_prime():
            yield number


class Echelon:
    """The row space of 0/1 rows modulo a prime, as [I | D]: row i is 1 at its pivot and D[i] at the free columns.

    Columns are numbered in the order of `add_column`. A new row costs rank × (columns - rank), a new column
    rank. A column whose row has nothing in D is alone: the row space holds its unit vector (modulo the prime).

    >>> form = Echelon(prime=7)
    >>> for _ in range(3):
    ...     form.add_column()
    >>> form.add([0, 1]), form.add([1, 2]), form.unit_columns().tolist()
    (True, True, [])
    >>> form.add([0, 2]), sorted(form.unit_columns().tolist()), form.add([0, 1, 2])
    (True, [0, 1, 2], False)
    """

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self._dense = np.zeros((8, 16), dtype=np.int64)
        self._pivots = np.zeros(8, dtype=np.int64)
        self._free = np.zeros(16, dtype=np.int64)
        # Where each column stands: its row if it is a pivot, else -1 - its place among the free columns.
        self._place = np.zeros(16, dtype=np.int64)
        self.rank = 0
        self.nullity = 0

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.rank + self.nullity

    @property
    def pivots(self) -> IntArray:
        """The pivot column of each row."""
        return self._pivots[: self.rank]

    @property
    def free(self) -> IntArray:
        """The free columns, in the order of `dense`."""
        return self._free[: self.nullity]

    @property
    def dense(self) -> NDArray[np.int64]:
        """D: the entries of the rows at the free columns."""
        return self._dense[: self.rank, : self.nullity]

    def copy(self) -> "Echelon":
        """Return a form that goes its own way from here."""
        twin = Echelon(self.prime)
        twin.rank, twin.nullity = self.rank, self.nullity
        twin._dense, twin._pivots = self._dense.copy(), self._pivots.copy()
        twin._free, twin._place = self._free.copy(), self._place.copy()
        return twin

    def unit_columns(self) -> IntArray:
        """Return the columns whose unit vector is in the row space."""
        return self.pivots[~self.dense.any(axis=1)]

    def is_pivot(self) -> BoolArray:
        """Say for each column whether it is a pivot."""
        return self._place[: self.columns] >= 0

    def null_rows(self, columns: IntArray) -> NDArray[np.int64]:
        """Return the rows at some columns of the null-space basis that has a vector for each free column."""
        places = self._place[columns]
        rows = np.zeros((len(columns), self.nullity), dtype=np.int64)
        rows[places >= 0] = -self.dense[places[places >= 0]] % self.prime
        rows[places < 0, -1 - places[places < 0]] = 1
        return rows

    def add_column(self, like: int | None = None) -> None:
        """Add a column: a copy of another one, or of zeros."""
        if self.nullity == self._dense.shape[1]:
            self._dense = _widen(self._dense, axis=1)
            self._free = _widen(self._free)
        if self.columns == len(self._place):
            self._place = _widen(self._place)
        position, column = self.nullity, self.columns
        entries = self._dense[: self.rank, position]
        entries[:] = 0
        if like is not None:
            place = self._place[like]
            if place >= 0:
                entries[place] = 1
            else:
                entries[:] = self._dense[: self.rank, -1 - place]
        self._free[position] = column
        self._place[column] = -1 - position
        self.nullity += 1

    def add(self, columns: IntArray | list[int]) -> bool:
        """Add the row that is 1 at `columns`; return whether it raised the rank."""
        if self.nullity == 0:
            return False
        places = self._place[columns]
        row = -self.dense[places[places >= 0]].sum(axis=0)
        row[-1 - places[places < 0]] += 1
        row %= self.prime
        entries = np.flatnonzero(row)
        if len(entries) == 0:
            return False
        position = int(entries[-1])
        row *= pow(int(row[position]), -1, self.prime)
        row %= self.prime
        self._take(position, row)
        return True

    def _take(self, position: int, row: NDArray[np.int64]) -> None:
        """Add a reduced row whose entry at the free column `position`, its pivot to be, is 1."""
        if self.rank == len(self._pivots):
            self._dense = _widen(self._dense, axis=0)
            self._pivots = _widen(self._pivots)
        rank, last = self.rank, self.nullity - 1
        pivot = self._free[position]
        factors = self._dense[:rank, position].copy()
        # The last free column takes the pivot's place, so that the free columns stay side by side.
        self._dense[:rank, position] = self._dense[:rank, last]
        row[position] = row[last]
        moved = self._free[last]
        self._free[position] = moved
        self._place[moved] = -1 - position
        self._place[pivot] = rank
        self._pivots[rank] = pivot
        self._dense[rank, :last] = row[:last]
        self.rank, self.nullity = rank + 1, last
        self._subtract(np.flatnonzero(factors), factors, row[:last])

    def _subtract(self, rows: IntArray, factors: NDArray[np.int64], row: NDArray[np.int64]) -> None:
        """Subtract factors[i] times the row from each of the rows i."""
        if len(rows) == 0 or len(row) == 0:
            return
        block = np.multiply.outer(self.prime - factors[rows], row)
        block += self._dense[rows, : len(row)]
        block %= self.prime
        self._dense[rows, : len(row)] = block

    def exchange(self, row: int, position: int) -> None:
        """Make the free column at `position` the pivot of a row whose entry there is not 0."""
        rank, width = self.rank, self.nullity
        inverse = pow(int(self._dense[row, position]), -1, self.prime)
        fresh = self._dense[row, :width] * inverse % self.prime
        fresh[position] = inverse
        factors = self._dense[:rank, position].copy()
        factors[row] = 0
        self._dense[:rank, position] = 0
        self._dense[row, :width] = 0
        self._subtract(np.flatnonzero(factors), factors, fresh)
        self._dense[row, :width] = fresh
        entering, leaving = self._free[position], self._pivots[row]
        self._free[position], self._pivots[row] = leaving, entering
        self._place[entering], self._place[leaving] = row, -1 - position

    def leave(self, columns: BoolArray) -> int | None:
        """Make as few of the marked columns pivots as possible; return a row inside them, or None if none is.

        None proves that the other columns hold a basis. A row that is returned has its support inside.
        """
        inside = None
        for row in np.flatnonzero(columns[self.pivots]):
            outside = np.flatnonzero((self.dense[row] != 0) & ~columns[self.free])
            if len(outside):
                self.exchange(int(row), int(outside[0]))
            else:
                inside = int(row)
        return inside


class IsolatedUsers:
    """The users whose update alone is a combination of the sums learned so far, modulo a prime.

    User i is isolated if the unit vector e_i lies in the row space of P. In the reduced row echelon form that
    is a row whose only entry is in column i. The form is kept up to date, with one column for all users that
    took part in the same sets so far.

    Modulo a prime this is a measurement for simulations and not a proof: a log exists in which a user is
    isolated over the rationals and not modulo the prime. (`Audit` proves.) If *everyone* is isolated modulo a
    prime, that holds over the rationals too (a non-zero determinant modulo a prime is non-zero).

    >>> isolated = IsolatedUsers(users=3)
    >>> for members in ([0, 1], [1, 2], [0, 2]):
    ...     isolated.add(members)
    ...     print(isolated.users.tolist())
    []
    []
    [0, 1, 2]
    """

    def __init__(self, users: int) -> None:
        self._strong = StrongLevel(users)
        self.everyone = users
        self._form = Echelon(PRIME)

    def add(self, members: ArrayLike) -> None:
        """Take in one more learned set."""
        checked = learned_set(members, self.everyone)
        for parent in self._strong.add(checked).tolist():
            self._form.add_column(parent if parent >= 0 else None)
        self._form.add(np.unique(self._strong.class_of[checked]))

    @property
    def strong_level(self) -> int:
        """The strong privacy level."""
        return self._strong.level

    @property
    def rank(self) -> int:
        """The rank of the learned sets, modulo the prime."""
        return self._form.rank

    @property
    def users(self) -> IntArray:
        """The isolated users."""
        alone = self._form.unit_columns()
        return np.flatnonzero(np.isin(self._strong.class_of, alone[self._strong.sizes[alone] == 1]))


def _widen(array: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
    """Return the array with twice the room along an axis."""
    return np.concatenate((array, np.zeros_like(array)), axis=axis)


class RowBasis:
    """Independent 0/1 rows, and as many columns at which they are still independent.

    Systems are solved by p-adic lifting and every answer is multiplied out again over the integers, so that
    what is returned does not rest on the prime that found the rows and columns. Row k is set k of a combination.

    >>> basis = RowBasis(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]), np.array([0, 1, 2]))
    >>> basis.express(np.array([[1, 0, 0]]))
    [Combination(sets=(0, 1, 2), numerators=(1, -1, 1), denominator=2)]
    """

    def __init__(self, rows: NDArray[Any], columns: IntArray) -> None:
        self._rows = rows
        self._columns = columns

    @cached_property
    def _square(self) -> Any:  # noqa: ANN401 - flint is not typed
        return _integers(self._rows[:, self._columns])

    @cached_property
    def _all(self) -> Any:  # noqa: ANN401
        return _integers(self._rows)

    def express(self, targets: NDArray[Any]) -> list[Combination | None]:
        """Return for each target the combination of the rows that gives it, None if there is none."""
        if len(targets) == 0:
            return []
        if len(self._rows) == 0:
            return [None if target.any() else Combination((), (), 1) for target in targets]
        weights, denominator = _solve(self._square.transpose(), _integers(targets[:, self._columns].T))
        combined = weights.transpose() * self._all
        expected = _integers(targets) * denominator
        difference = (combined - expected).tolist()
        columns = weights.transpose().tolist()
        return [
            None if any(left) else _combination([int(weight) for weight in column], denominator)
            for left, column in zip(difference, columns, strict=True)
        ]

    def unit(self, row: int) -> tuple[Combination, BoolArray]:
        """Return the combination that is 1 at column `columns[row]`, 0 at the others, and where it is not 0."""
        target = np.zeros((len(self._columns), 1), dtype=np.int64)
        target[row] = 1
        weights, denominator = _solve(self._square.transpose(), _integers(target))
        support = np.array([entry != 0 for entry in (weights.transpose() * self._all).entries()], dtype=np.bool_)
        return _combination([int(weight) for weight in weights.entries()], denominator), support

    def spans(self, others: NDArray[Any]) -> bool:
        """Say whether all other rows are combinations of these, by an integer null-space basis of these.

        The vectors are a null-space basis by construction: one per free column, in which it alone of the free
        columns is not 0. A row is in the span if all of them vanish on it.
        """
        free = np.setdiff1d(np.arange(self._rows.shape[1]), self._columns)
        if len(free) == 0 or len(others) == 0:
            return True
        if len(self._rows) == 0:
            return not others.any()
        values, denominator = _solve(self._square, _integers(self._rows[:, free]))
        at_free = _integers(others[:, free]) * denominator
        return bool(_integers(others[:, self._columns]) * values == at_free)


def _integers(matrix: NDArray[Any]) -> Any:  # noqa: ANN401
    from flint import fmpz_mat

    rows, columns = matrix.shape
    return fmpz_mat(rows, columns, matrix.ravel().tolist())


def _solve(square: Any, right: Any) -> tuple[Any, int]:  # noqa: ANN401
    """Return X and d with square · X = d · right."""
    from flint import fmpq_mat

    system: Any = fmpq_mat(square)  # flint's types lack the algorithm
    values, denominator = system.solve(fmpq_mat(right), algorithm="dixon").numer_denom()
    return values, int(denominator)


def _combination(weights: Sequence[int], denominator: int) -> Combination:
    """Return the combination of the rows with these weights, reduced, its denominator positive."""
    common = gcd(denominator, *weights) if denominator > 0 else -gcd(denominator, *weights)
    used = [row for row, weight in enumerate(weights) if weight]
    return Combination(tuple(used), tuple(weights[row] // common for row in used), denominator // common)
