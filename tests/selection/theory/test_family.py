"""Family sizes, against explicit families and against every family there is."""

from itertools import combinations
from math import comb, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.selection.theory import family_size, family_size_bound


def largest_family(users: int, per_round: int, privacy: int) -> int:
    """Try every family of cohorts of K users, as a set of bits; return the most rows at strong privacy ≥ T.

    The strong privacy level of a family is the smallest class of users with identical, non-zero columns.
    """
    cohorts = list(combinations(range(users), per_round))
    families = np.arange(1, 1 << len(cohorts), dtype=np.int64)
    columns = [
        families & sum(1 << row for row, cohort in enumerate(cohorts) if user in cohort) for user in range(users)
    ]
    private = np.ones(len(families), dtype=np.bool_)
    for column in columns:
        alike = sum((column == other).astype(np.int64) for other in columns)
        private &= (column == 0) | (alike >= privacy)
    return int(np.bitwise_count(families[private]).max(initial=0))


CASES = [
    (users, per_round, privacy)
    for users in range(1, 7)
    for per_round in range(1, users + 1)
    for privacy in range(1, per_round + 1)
]


@pytest.mark.parametrize(("users", "per_round", "privacy"), CASES)
def test_no_private_family_is_larger(users: int, per_round: int, privacy: int) -> None:
    """No family of strong privacy T passes the bound; batches reach it wherever T divides N and K."""
    largest = largest_family(users, per_round, privacy)
    bound = family_size_bound(users, per_round, privacy)
    assert largest <= bound
    if users % privacy == 0 and per_round % privacy == 0:
        assert largest == bound == family_size(users, per_round, privacy)


@given(st.integers(1, 500), st.data())
def test_bound_is_the_papers_up_to_half(users: int, data: st.DataObject) -> None:
    """For K ≤ N/2 the bound is C(⌊N/T⌋, ⌊K/T⌋); it is never above the paper's max of C(D, E)."""
    per_round = data.draw(st.integers(1, users))
    privacy = data.draw(st.integers(1, per_round))
    bound = family_size_bound(users, per_round, privacy)
    batches, most = users // privacy, per_round // privacy
    assert bound <= max(comb(batches, chosen) for chosen in range(most + 1))
    if 2 * per_round <= users:
        assert bound == comb(batches, most)


def test_table_of_the_paper() -> None:
    """tbl:codebook_size, except that the exact size for T = 3 is 91390."""
    assert [family_size(120, 12, privacy) for privacy in (12, 6, 4, 3)] == [10, 190, 4060, 91390]
    assert family_size(120, 12, 1) == prod(range(109, 121)) // prod(range(1, 13))


def test_size_is_the_number_of_rows() -> None:
    """N = 8, K = 4, T = 2 has the six rows of the paper's example."""
    assert family_size(8, 4, 2) == len(list(combinations(range(4), 2))) == 6


def test_real_populations_have_exact_sizes() -> None:
    """Sizes beyond any float are still exact integers."""
    assert family_size(10_000_000, 10_000, 10) == comb(1_000_000, 1_000)
