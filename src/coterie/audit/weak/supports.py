"""Which few columns are dependent: the supports of the lightest vectors, found level by level by projection.

Let X have a row for each column of the log's matrix A, so that the columns of X are a basis of A's null space.
A vector in A's row space is a linear dependence between the rows of X at its support. Dependence survives a
projection, so if the rows of X, projected to k random dimensions, have no dependent k among them, then X has
none, and every vector of the row space has more than k entries.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from coterie.audit.weak.elimination import Echelon
from coterie.values import IntArray

Residues = NDArray[np.int64]


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


def dependent_sets(points: Residues, prime: int, spent: Callable[[], bool]) -> Iterator[IntArray]:
    """Yield sets so that every dependent set of as many points as they have dimensions lies in one of them.

    A set is larger where more points share a direction. A dependent set with fewer points raises
    DegenerateError. When `spent` says so, the work ends, and the sets yielded are not all.

    >>> points = np.array([[1, 1, 1], [1, 2, 4], [1, 3, 2], [1, 5, 4], [1, 3, 0]])
    >>> [found.tolist() for found in dependent_sets(points, 7, lambda: False)]  # three on a line
    [[0, 1, 4]]
    """
    count, dimensions = points.shape
    if dimensions <= _AT_ONCE:
        yield from _collinear(points, prime) if dimensions == _AT_ONCE else _equal(points[None], prime)
        return
    for index in range(count - dimensions + 1):
        if spent():
            return
        rest = _quotients(points[index + 1 :], points[index : index + 1], prime)[0]
        for found in dependent_sets(rest, prime, spent):
            yield np.concatenate(([index], found + index + 1))


_AT_ONCE = 3
"""In so many dimensions numpy takes all points at once."""


def _collinear(points: Residues, prime: int) -> Iterator[IntArray]:
    """Yield the dependent sets of points in three dimensions."""
    # Around point i stand the later ones; the earlier ones are made different from all.
    rest = _quotients(points, points, prime)
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
    slopes = divided(groups[:, :, 0], groups[:, :, 1], prime)
    if earlier is not None:
        slopes[earlier] = -1 - np.broadcast_to(np.arange(slopes.shape[1]), slopes.shape)[earlier]
    order = np.argsort(slopes, axis=1, kind="stable")
    ordered = np.take_along_axis(slopes, order, axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    for group in np.flatnonzero(same.any(axis=1)):
        for run in np.split(order[group], np.flatnonzero(~same[group]) + 1):
            if len(run) > 1:
                yield run if earlier is None else np.concatenate(([group], run))


def _quotients(points: Residues, by: Residues, prime: int) -> Residues:
    """Return the points modulo each of the points `by`: a dimension less, a group for each."""
    if not by[:, 0].all():
        raise DegenerateError
    first, others = by[:, None, :1], by[:, None, 1:]
    left: Residues = points[None, :, 1:] * first % prime
    left -= points[None, :, :1] * others % prime
    left %= prime
    return left


def divided(above: Residues, below: Residues, prime: int) -> Residues:
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
