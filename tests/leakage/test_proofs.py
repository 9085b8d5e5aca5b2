"""Proofs are checked from the log; false ones are not believed."""

from fractions import Fraction

import numpy as np
import pytest

from coterie import ParticipationLog, UsageError
from coterie.leakage import Combination, FullRank
from coterie.leakage.elimination import RowBasis

LOG = ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1]])


def test_a_combination_is_multiplied_out():
    """The coefficients of the users that are left are exact, and only a unit vector isolates."""
    difference = Combination(sets=(0, 1), numerators=(1, -1), denominator=3)
    assert difference.result(LOG) == {0: Fraction(1, 3), 2: Fraction(-1, 3)}
    assert not difference.isolates(0, LOG)
    assert difference.last_round(LOG) == 2
    assert Combination((0, 1, 2), (1, -1, 1), 2).isolates(0, LOG)
    assert not Combination((0, 1, 2), (1, -1, 1), 2).isolates(1, LOG)
    assert not Combination((0, 1, 2), (1, -1, 1), 1).isolates(0, LOG)


@pytest.mark.parametrize("index", [-1, 4])
def test_sets_that_are_not_in_the_log_are_refused(index):
    """A combination of sums that the server never learned is no proof."""
    with pytest.raises(UsageError, match=f"set {index} is not one of the log's 4 learned sets"):
        Combination((index,), (1,), 1).result(LOG)


def test_full_rank_proves_a_column_of_ones_own():
    """With full rank everyone with a column of its own is isolated by these sets, and not before."""
    assert FullRank(sets=3, prime=101).holds(LOG)
    assert FullRank(sets=3, prime=101).isolates(0, LOG)
    assert not FullRank(sets=3, prime=101).isolates(3, LOG)  # never seen by then
    assert FullRank(sets=4, prime=101).isolates(3, LOG)
    assert not FullRank(sets=2, prime=101).holds(LOG)
    assert not FullRank(sets=3, prime=2).holds(LOG)  # the determinant is even
    pair = ParticipationLog.from_dense([[1, 1, 0], [1, 1, 1]])
    assert FullRank(sets=2, prime=101).holds(pair)
    assert not FullRank(sets=2, prime=101).isolates(0, pair)  # user 1 has the same column
    assert FullRank(sets=2, prime=101).isolates(2, pair)


def test_a_basis_expresses_what_it_spans_and_nothing_else():
    """Targets in the span come with their weights, others with None; an empty basis spans only zero."""
    rows = np.array([[1, 1, 0, 0], [0, 1, 1, 0]])
    basis = RowBasis(rows, np.array([0, 1]))
    targets = np.array([[1, 0, -1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 2, 1, 0]])
    found = basis.express(targets)
    assert found == [Combination((0, 1), (1, -1), 1), None, Combination((), (), 1), Combination((0, 1), (1, 1), 1)]
    assert basis.spans(np.array([[1, 0, -1, 0], [1, 2, 1, 0]]))
    assert not basis.spans(np.array([[1, 0, -1, 0], [0, 0, 0, 1]]))
    assert basis.spans(np.zeros((0, 4), dtype=int))
    empty = RowBasis(np.zeros((0, 3), dtype=int), np.zeros(0, dtype=int))
    assert [one is None for one in empty.express(np.array([[0, 0, 0], [1, 0, 0]]))] == [False, True]
    assert not empty.spans(np.array([[1, 0, 0]]))
    assert basis.express(np.zeros((0, 4), dtype=int)) == []


def test_unit_combinations_have_a_positive_denominator():
    """A pivot's combination is 1 there, 0 at the other pivots, and comes with where it is not 0."""
    rows = np.array([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]])
    basis = RowBasis(rows, np.array([0, 1, 2]))
    for row in range(3):
        combination, support = basis.unit(row)
        assert combination.denominator > 0
        entries = (np.array(combination.numerators) @ rows[list(combination.sets)]).tolist()
        assert entries[:3] == [combination.denominator * int(row == column) for column in range(3)]
        assert support.tolist() == [entry != 0 for entry in entries]
