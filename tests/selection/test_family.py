"""The family of Algorithm 1, counted and written out."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from coterie import BatchPlan, UsageError
from coterie.selection import Family, consecutive, merge


@given(batches=st.integers(1, 7), privacy=st.integers(1, 4), data=st.data())
@settings(deadline=None)
def test_the_explicit_family_is_algorithm_1(batches, privacy, data):
    """For T dividing N and K the rows are those that the pseudocode writes, C(N/T, K/T) of them."""
    per_row = data.draw(st.integers(1, batches))
    family = Family(consecutive(batches * privacy, privacy), per_row * privacy)
    written = reference.algorithm_1(batches * privacy, per_row * privacy, privacy)
    assert family.size == len(written) == comb(batches, per_row)
    np.testing.assert_array_equal(family.matrix(), written)
    assert family.cohort_sizes == (per_row * privacy, per_row * privacy)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7), data=st.data())
@settings(deadline=None)
def test_rows_of_uneven_batches_are_the_maximal_unions(sizes, data):
    """Rows are exactly the sets of whole batches to which none can be added; size and bounds agree with them."""
    per_round = data.draw(st.integers(max(sizes), sum(sizes)))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    family = Family(BatchPlan(sum(sizes), 1, np.arange(sum(sizes)), starts), per_round)
    rows = reference.maximal_unions(sizes, per_round)
    assert sorted(family.rows()) == sorted(rows)
    assert family.size == len(rows)
    totals = [sum(sizes[b] for b in row) for row in rows]
    assert family.cohort_sizes == (min(totals), max(totals))
    assert family.batches_per_row == (min(map(len, rows)), max(map(len, rows)))


def test_sizes_of_real_populations_are_counted_not_listed():
    """The family of ten million users is counted exactly; writing it out is refused."""
    family = Family(consecutive(10**7, 10), 10_000)
    assert family.size == comb(10**6, 1000)
    with pytest.raises(UsageError, match="too many to write out"):
        family.matrix()


def test_a_batch_that_cannot_fit_is_refused():
    """A plan with a batch larger than K is refused, with both numbers."""
    with pytest.raises(UsageError, match="a batch of 6 users does not fit into 5 users per round"):
        Family(merge(consecutive(9, 3), [0, 1]), 5)
