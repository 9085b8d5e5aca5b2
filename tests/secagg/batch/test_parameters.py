"""How many may collude and be lost, and the threshold that follows."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.secagg import Parameters

SHARES = st.tuples(st.integers(0, 1000), st.integers(0, 1000))


@given(SHARES)
def test_the_shares_leave_room_for_a_threshold(shares):
    """γ + 2δ < 1, or there are no such parameters."""
    colluders, losses = shares
    if colluders + 2 * losses < 1000:
        assert Parameters(colluders, losses) == Parameters(colluders=colluders, losses=losses)
    else:
        with pytest.raises(UsageError, match=r"γ \+ 2δ must stay below 1"):
            Parameters(colluders, losses)


@given(SHARES.filter(lambda shares: shares[0] + 2 * shares[1] < 1000), st.integers(1, 100_000))
def test_two_agreements_share_an_honest_user_and_the_rest_suffices(shares, users):
    """Two sets of t users have more than ⌊γn⌋ in common, and no smaller t has; n - ⌊δn⌋ users reach t."""
    parameters = Parameters(*shares)
    colluding = int(Fraction(shares[0], 1000) * users)
    assert parameters.most_colluding(users) == colluding
    assert parameters.most_lost(users) == int(Fraction(shares[1], 1000) * users)
    threshold = parameters.threshold(users)
    assert threshold == (users + colluding) // 2 + 1
    assert 2 * threshold - users > colluding >= 2 * (threshold - 1) - users
    assert users - parameters.most_lost(users) >= threshold or users < 1000


def test_the_defaults():
    """A fifth collude, three tenths are lost: 61 of 100, 601 of 1000."""
    assert [Parameters().threshold(users) for users in (1, 5, 100, 1000)] == [1, 4, 61, 601]
    assert [Parameters().most_lost(users) for users in (1, 5, 100, 1000)] == [0, 1, 30, 300]


@pytest.mark.parametrize("shares", [(-1, 0), (0, -1), (1.5, 0), (True, 0), (0, 500), (1000, 0)])
def test_what_is_no_share_is_refused(shares):
    """Shares are whole thousandths."""
    with pytest.raises(UsageError):
        Parameters(*shares)
