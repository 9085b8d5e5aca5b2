"""Who is singled out, round by round, equals exact elimination over the rationals."""

import flint
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.audit import IsolatedUsers


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
