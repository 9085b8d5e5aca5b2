"""Participation logs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie import LogBuilder, ParticipationLog, UsageError


@st.composite
def logs(draw):
    """Logs with rounds of no, one or several learned sets, beginning at any round, with names or without."""
    users = draw(st.integers(1, 6))
    learned = stn.arrays(np.int64, users, elements=st.integers(0, 1))
    names = draw(st.none() | st.just([f"user {index}" for index in range(users)]))
    builder = LogBuilder(users, names, first=draw(st.integers(-3, 3)))
    for sets in draw(st.lists(st.lists(learned, max_size=3), max_size=6)):
        builder.append(*(np.flatnonzero(row) for row in sets if row.any()))
    return builder.build()


@given(logs())
def test_dense_round_trip(log):
    """The dense matrix with its rows' rounds says all that the log says."""
    dense = log.to_dense()
    assert dense.dtype == np.uint8
    again = ParticipationLog.from_dense(dense, log.row_rounds().tolist(), log.names)
    assert again == log
    assert again.members.dtype == np.int32


@given(logs())
def test_rows_are_sets_and_empty_rounds(log):
    """Sets and rounds come out as they were put in: a row per set, and one for a round without any."""
    dense, row_rounds = log.to_dense(), log.row_rounds()
    sets = [(int(r), np.flatnonzero(row).tolist()) for r, row in zip(row_rounds, dense, strict=True) if row.any()]
    assert [(r, users.tolist()) for r, users in log.sets()] == sets
    by_round = [(r, [users.tolist() for users in learned]) for r, learned in log.by_round()]
    assert [r for r, _ in by_round] == list(range(log.first, log.first + log.rounds))
    assert [(r, users) for r, learned in by_round for users in learned] == sets
    assert log.completed == sum(bool(learned) for _, learned in by_round)
    assert len(log) == log.rounds


@given(logs(), st.integers(-5, 10), st.integers(-5, 10))
def test_window_slices_the_rounds(log, start, stop):
    """A window has the rows of its rounds, under their old numbers."""
    window = log.window(start, stop)
    kept = (log.row_rounds() >= start) & (log.row_rounds() < stop)
    assert np.array_equal(window.to_dense(), log.to_dense()[kept])
    assert np.array_equal(window.row_rounds(), log.row_rounds()[kept])
    assert window.names == log.names


@given(logs(), st.data())
def test_only_slices_the_users(log, data):
    """Only some users: their columns, in the old order; sets that are left without users vanish."""
    kept = data.draw(st.lists(st.integers(0, log.users - 1), unique=True))
    part = log.only(kept)
    columns = log.to_dense()[:, sorted(kept)]
    nonzero = columns.any(axis=1)
    rows = [(r, row.tolist()) for r, row in zip(log.row_rounds()[nonzero], columns[nonzero], strict=True)]
    dense = part.to_dense()
    mine = [(r, row.tolist()) for r, row in zip(part.row_rounds(), dense, strict=True) if row.any()]
    assert mine == rows
    assert (part.users, part.rounds) == (len(kept), log.rounds)
    assert part.names == (None if log.names is None else tuple(log.names[user] for user in sorted(kept)))


@given(stn.arrays(np.int64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=st.integers(0, 1)))
def test_builder_equals_from_dense(dense):
    """Appending the rows one by one builds the log of the matrix."""
    builder = LogBuilder(dense.shape[1])
    for row in dense:
        builder.append(*([np.flatnonzero(row)] if row.any() else []))
    assert builder.build() == ParticipationLog.from_dense(dense)


@given(logs(), logs())
def test_equality_is_that_of_the_content(one, other):
    """Logs are equal if and only if users, names, rounds and learned sets are."""

    def content(log):
        sets = [(round_, learned.tolist()) for round_, learned in log.sets()]
        return log.users, log.names, log.rounds, log.first if log.rounds else None, sets

    assert (one == other) == (content(one) == content(other))
    assert one == one.window(one.first, one.first + one.rounds)
    assert one != "log"


def test_building_goes_on_after_a_build():
    """A built log does not change when the builder goes on."""
    builder = LogBuilder(3)
    builder.append([2, 0])
    log = builder.build()
    builder.append([1])
    assert log.rounds == 1
    assert log.members.tolist() == [0, 2]
    assert builder.build().rounds == 2


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([[]], "no users"),
        ([[0], []], "no users"),
        ([[0, 0]], "twice"),
        ([[3]], "user 3 is not one of the 3 users"),
        ([[0], [-1]], "user -1"),
        ([[0.5]], "integers"),
    ],
)
def test_bad_sets_are_refused_and_change_nothing(sets, message):
    """A round with a set that cannot be is not appended."""
    builder = LogBuilder(3)
    with pytest.raises(UsageError, match=message):
        builder.append(*sets)
    assert builder.build().rounds == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": [0, 2]}, "starts must"),
        ({"starts": [1, 2, 3]}, "starts must"),
        ({"starts": [0, 0, 3]}, "no users"),
        ({"set_rounds": [1, 0]}, "order of their rounds"),
        ({"set_rounds": [0, 2]}, "outside the rounds 0 … 1"),
        ({"first": 1}, "outside the rounds 1 … 2"),
        ({"members": [1, 0, 2]}, "sorted and distinct"),
        ({"members": [0, 0, 2]}, "sorted and distinct"),
        ({"members": [0, 1, 3]}, "user 3"),
        ({"names": ("a", "b")}, "2 names"),
        ({"rounds": -1}, "-1 rounds"),
        ({"users": -1}, "-1 users"),
    ],
)
def test_bad_logs_are_refused(change, message):
    """Arrays that are no log are refused, with the reason."""
    good = {"users": 3, "rounds": 2, "set_rounds": [0, 1], "starts": [0, 2, 3], "members": [0, 1, 0]}
    ParticipationLog(**good)
    with pytest.raises(UsageError, match=message):
        ParticipationLog(**(good | change))


@pytest.mark.parametrize(
    ("matrix", "rounds", "message"),
    [
        ([1, 0], None, "rows and columns"),
        ([[2, 0]], None, "only 0 and 1"),
        ([[1, 0]], [0, 1], "2 rounds were given for 1 rows"),
        ([[0, 0], [1, 0]], [2, 0], "order of their rounds"),
    ],
)
def test_bad_matrices_are_refused(matrix, rounds, message):
    """What is no participation matrix is refused, with the reason."""
    with pytest.raises(UsageError, match=message):
        ParticipationLog.from_dense(matrix, rounds)


def test_frozen():
    """Nothing in a log can be changed."""
    log = ParticipationLog.from_dense([[1, 1, 0]])
    for array in (log.members, log.starts, log.set_rounds, next(log.sets())[1]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        hash(log)
