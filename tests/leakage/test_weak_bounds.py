"""Which few points are dependent, against the ranks of all subsets."""

from itertools import combinations

import numpy as np
import pytest
from flint import nmod_mat

from coterie.leakage.elimination import Echelon
from coterie.leakage.weak_level import DegenerateError, dependent_sets, null_rows, quotients

PRIME = 2**31 - 1


def dependent(points, prime):
    """All dependent sets of as many points as dimensions, by their ranks."""
    size = points.shape[1]
    return {
        chosen
        for chosen in combinations(range(len(points)), size)
        if nmod_mat(points[list(chosen)].tolist(), prime).rank() < size
    }


@pytest.mark.parametrize("prime", [101, PRIME])
@pytest.mark.parametrize("dimensions", [2, 3, 4, 5])
def test_every_dependent_set_is_inside_one_that_is_found(prime, dimensions):
    """Planted and accidental dependences are all covered, unless smaller ones make the search refuse."""
    rng = np.random.default_rng(dimensions)
    covered = 0
    for _ in range(25):
        points = rng.integers(1, prime, size=(9, dimensions))
        points[7] = (3 * points[1] + (5 * points[2] if dimensions > 2 else 0)) % prime
        if dimensions > 3:
            points[7] = (points[7] + points[range(3, dimensions)].sum(axis=0)) % prime
        try:
            found = [set(group.tolist()) for group in dependent_sets(points, prime, lambda: False)]
        except DegenerateError:
            assert prime == 101
            continue
        for chosen in dependent(points, prime):
            assert any(set(chosen) <= group for group in found)
            covered += 1
    assert covered >= 10


def test_a_smaller_dependent_set_is_refused():
    """Two parallel points among three dimensions leave nothing to conclude."""
    points = np.array([[1, 2, 3], [2, 4, 6], [1, 5, 7], [1, 1, 9]])
    with pytest.raises(DegenerateError):
        list(dependent_sets(points, PRIME, lambda: False))
    with pytest.raises(DegenerateError):
        list(dependent_sets(np.array([[0, 2, 3], [2, 4, 6], [1, 5, 7]]), PRIME, lambda: False))


def test_no_time_means_no_sets():
    """The search ends where the time does."""
    points = np.random.default_rng(0).integers(1, PRIME, size=(12, 5))
    points[11] = points[:4].sum(axis=0) % PRIME
    assert list(dependent_sets(points, PRIME, lambda: True)) == []
    assert len(list(dependent_sets(points, PRIME, lambda: False))) == 1


def test_null_rows_vanish_on_the_row_space():
    """Every row of the form is orthogonal to the projected null-space basis."""
    rng, form = np.random.default_rng(0), Echelon(PRIME)
    for _ in range(20):
        form.add_column()
    sets = [np.flatnonzero(rng.random(20) < 0.4) for _ in range(12)]
    for members in sets:
        form.add(members)
    rows = null_rows(form, 3, rng)
    assert rows.shape == (20, 3)
    assert all((rows[members].sum(axis=0) % PRIME == 0).all() for members in sets)


def test_division_by_zero_is_infinity():
    """above / below modulo the prime; the prime itself stands for infinity."""
    above, below = np.array([[3, 4, 5], [1, 0, 6]]), np.array([[1, 2, 0], [3, 5, 4]])
    ratios = quotients(above, below, 7)
    assert ratios.tolist() == [[3, 2, 7], [5, 0, 5]]
