"""The echelon form modulo a prime, against flint's."""

import flint
import numpy as np
import pytest
from flint import fmpz, nmod_mat
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.leakage import IsolatedUsers
from coterie.leakage.elimination import Echelon, random_primes

PRIMES = st.sampled_from([2, 3, 7, 101, 2**31 - 1])
SETS = st.lists(st.sets(st.integers(0, 6)), max_size=9)


def full_rows(form):
    """The form's rows with every column in its place."""
    rows = np.zeros((form.rank, form.columns), dtype=np.int64)
    rows[np.arange(form.rank), form.pivots] = 1
    rows[:, form.free] = form.dense
    return rows


def same_space(form, rows):
    """Whether the form's rows and the 0/1 rows span the same space."""
    own = full_rows(form).tolist()
    ranks = [nmod_mat(part, form.prime).rank() if part else 0 for part in (own, rows, own + rows)]
    return len(set(ranks)) == 1 and ranks[0] == form.rank


@settings(deadline=None)
@given(SETS, PRIMES, st.randoms(use_true_random=False))
def test_rows_and_exchanges_keep_the_row_space(sets, prime, random):
    """After every row and every exchange of a pivot the form spans what the rows span, and is reduced."""
    form, rows = Echelon(prime), []
    for _ in range(7):
        form.add_column()
    for members in sets:
        rows.append([int(column in members) for column in range(7)])
        before = form.rank
        assert form.add(sorted(members)) == (form.rank > before)
        assert same_space(form, rows)
        filled = np.argwhere(form.dense)
        if len(filled):
            form.exchange(*filled[random.randrange(len(filled))].tolist())
        assert same_space(form, rows)
        assert sorted([*form.pivots, *form.free]) == list(range(7))
        assert form.is_pivot().tolist() == [column in form.pivots for column in range(7)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.integers(-1, 5)), max_size=8))
def test_a_copied_column_is_a_copy(steps):
    """A column added like another one equals it in the rows so far, and a new one is zero there."""
    form, rows, twins = Echelon(101), [], list(range(6))
    for _ in range(6):
        form.add_column()
    for members, like in steps:
        columns = [column for column, twin in enumerate(twins) if twin in members]
        rows.append([int(column in columns) for column in range(form.columns)])
        form.add(columns)
        form.add_column(None if like < 0 else like)
        for row in rows:
            row.append(0 if like < 0 else row[like])
        twins.append(like)
        assert same_space(form, rows)


def test_alone_and_leave():
    """A unit vector of the row space is alone; columns are left for others unless a row lies inside them."""
    form = Echelon(101)
    for _ in range(5):
        form.add_column()
    for members in ([0, 1], [1], [2, 3], [3, 4]):
        form.add(members)
    assert sorted(form.unit_columns().tolist()) == [0, 1]
    twin = form.copy()
    assert twin.leave(np.array([False, False, True, False, False])) is None
    assert not twin.is_pivot()[2]
    row = twin.leave(np.array([False, False, True, False, True]))
    assert np.flatnonzero(full_rows(twin)[row]).tolist() == [2, 4]
    assert same_space(form, full_rows(twin).tolist())


def test_random_primes_are_primes_of_31_bits():
    """Each is a prime between 2^30 and 2^31, and they differ."""
    primes = [prime for prime, _ in zip(random_primes(np.random.default_rng(0)), range(20), strict=False)]
    assert all(2**30 <= prime < 2**31 and fmpz(prime).is_prime() for prime in primes)
    assert len(set(primes)) > 10


@pytest.mark.parametrize("prime", [2**31 - 1])
def test_entries_stay_residues(prime):
    """Nothing overflows: after many rows all entries lie between 0 and the prime, and the rank is full."""
    rng, form = np.random.default_rng(0), Echelon(prime)
    for _ in range(80):
        form.add_column()
    for _ in range(60):
        form.add(np.flatnonzero(rng.random(80) < 0.5))
    assert form.dense.min() >= 0
    assert form.dense.max() < prime
    assert form.rank == 60


def isolated_over_the_rationals(rows):
    """Return the users whose unit vector lies in the row space: adding it leaves the rank as it is."""
    users = len(rows[0])
    rank = flint.fmpz_mat(rows).rank()
    unit = np.eye(users, dtype=int).tolist()
    return [user for user in range(users) if flint.fmpz_mat([*rows, unit[user]]).rank() == rank]


@given(st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=9))
@settings(deadline=None)
def test_isolated_users_are_those_whose_unit_vector_is_in_the_row_space(sets):
    """After every round the isolated users and the rank are those over the rationals, on small logs."""
    isolated, rows = IsolatedUsers(7), []
    for members in sets:
        isolated.add(sorted(members))
        rows.append([int(user in members) for user in range(7)])
        assert isolated.users.tolist() == isolated_over_the_rationals(rows)
        assert isolated.rank == flint.fmpz_mat(rows).rank()


def test_random_selection_exposes_everyone_at_about_round_n():
    """With 40 users and 8 per round nobody is isolated for long, and everybody soon after 40 rounds."""
    rng = np.random.default_rng(0)
    isolated, shares = IsolatedUsers(40), []
    for _ in range(45):
        isolated.add(rng.choice(40, 8, replace=False))
        shares.append(len(isolated.users))
    assert shares[30] <= 2
    assert shares[-1] == 40
