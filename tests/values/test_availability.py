"""Availability logs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie import AvailabilityLog, UsageError

records = stn.arrays(np.bool_, st.tuples(st.integers(1, 6), st.integers(1, 5)))


@given(records)
def test_dropout_is_the_share_of_rounds_missed(online):
    """A user's dropout is the share of the recorded rounds in which it was not online."""
    log = AvailabilityLog(online)
    assert (log.rounds, log.users) == online.shape
    expected = [float(np.count_nonzero(~online[:, user])) / log.rounds for user in range(log.users)]
    assert log.dropout.tolist() == pytest.approx(expected)
    assert log.dropout.dtype == np.float64


@given(records, st.data())
def test_window_slices_the_rounds(online, data):
    """A window has the rows of its rounds and the same names."""
    log = AvailabilityLog(online, tuple(f"user {user}" for user in range(online.shape[1])))
    start = data.draw(st.integers(0, log.rounds - 1))
    stop = data.draw(st.integers(start + 1, log.rounds))
    window = log.window(start, stop)
    assert np.array_equal(window.online, online[start:stop])
    assert window.names == log.names


@pytest.mark.parametrize("online", [[], [True], [[]], np.zeros((0, 3)), np.zeros((2, 2, 2))])
def test_a_record_has_rounds_and_users(online):
    """What has no rounds or no users is refused."""
    with pytest.raises(UsageError, match="rounds and users"):
        AvailabilityLog(online)


@pytest.mark.parametrize("online", [[[0, 2]], [[0.5, 1.0]], [[float("nan"), 1.0]]])
def test_a_record_holds_only_yes_and_no(online):
    """A number other than 0 and 1 is refused, not taken for yes."""
    with pytest.raises(UsageError, match="only 0 and 1"):
        AvailabilityLog(online)
    assert AvailabilityLog([[0, 1]]).online.tolist() == [[False, True]]


def test_frozen():
    """Nothing in a record can be changed, and the caller's array stays the caller's own."""
    online = np.ones((2, 2), dtype=np.bool_)
    log = AvailabilityLog(online)
    online[0, 0] = False
    assert log.online.all()
    for array in (log.online[0], log.dropout):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_names():
    """One distinct name per user, or none."""
    with pytest.raises(UsageError, match="1 names"):
        AvailabilityLog(np.ones((1, 2), dtype=np.bool_), ("a",))
