"""Exact linear algebra over the rationals on a basis of learned sets: what their combinations give."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.values import IntArray


@dataclass(frozen=True)
class Expression:
    """Weights for the rows of a basis: row k has the weight numerators[k] / denominator, denominator > 0."""

    numerators: tuple[int, ...]
    denominator: int


class RowBasis:
    """Independent 0/1 rows, and as many columns at which they are still independent.

    Systems are solved by p-adic lifting and every answer is multiplied out again over the integers, so that
    what is returned does not rest on the prime that found the rows and columns.

    >>> basis = RowBasis(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]), np.array([0, 1, 2]))
    >>> basis.express(np.array([[1, 0, 0]]))
    [Expression(numerators=(1, -1, 1), denominator=2)]
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

    def express(self, targets: NDArray[Any]) -> list[Expression | None]:
        """Return for each target the combination of the rows that gives it, None if there is none."""
        if len(targets) == 0:
            return []
        if len(self._rows) == 0:
            return [None if target.any() else Expression((), 1) for target in targets]
        weights, denominator = _solved(self._square.transpose(), _integers(targets[:, self._columns].T))
        combined = weights.transpose() * self._all
        expected = _integers(targets) * denominator
        difference = (combined - expected).tolist()
        columns = weights.transpose().tolist()
        return [
            None if any(left) else _reduced([int(weight) for weight in column], denominator)
            for left, column in zip(difference, columns, strict=True)
        ]

    def unit(self, row: int) -> tuple[Expression, list[int]]:
        """Return the combination that is 1 at column `columns[row]`, 0 at the other ones, and all it gives.

        The second part is the combination's entry at every column, times the denominator.
        """
        target = np.zeros((len(self._columns), 1), dtype=np.int64)
        target[row] = 1
        weights, denominator = _solved(self._square.transpose(), _integers(target))
        expression = _reduced([int(weight) for weight in weights.entries()], denominator)
        combined = _integers(np.array([expression.numerators], dtype=object)) * self._all
        return expression, [int(entry) for entry in combined.entries()]

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
        values, denominator = _solved(self._square, _integers(self._rows[:, free]))
        at_free = _integers(others[:, free]) * denominator
        return bool(_integers(others[:, self._columns]) * values == at_free)


def _integers(matrix: NDArray[Any]) -> Any:  # noqa: ANN401
    from flint import fmpz_mat

    rows, columns = matrix.shape
    return fmpz_mat(rows, columns, matrix.ravel().tolist())


def _solved(square: Any, right: Any) -> tuple[Any, int]:  # noqa: ANN401
    """Return X and d with square · X = d · right."""
    from flint import fmpq_mat

    system: Any = fmpq_mat(square)  # flint's types lack the algorithm
    values, denominator = system.solve(fmpq_mat(right), algorithm="dixon").numer_denom()
    return values, int(denominator)


def _reduced(numerators: Sequence[int], denominator: int) -> Expression:
    common = gcd(denominator, *numerators) if denominator > 0 else -gcd(denominator, *numerators)
    return Expression(tuple(number // common for number in numerators), denominator // common)
