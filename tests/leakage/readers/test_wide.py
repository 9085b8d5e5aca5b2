"""Logs as wide CSV: a column for each user."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie import ParticipationLog, UsageError
from support.logs import only_log


def wide(tmp_path, content, **options):
    """Read a log from the content of a wide file."""
    path = tmp_path / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return only_log(path, **options)


@settings(deadline=None)
@given(
    stn.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 1)),
    st.integers(0, 5),
)
def test_a_matrix_comes_back(tmp_path_factory, matrix, first):
    """A matrix written out by hand is the log it shows, users and rounds without a result included."""
    names = [f"u{user}" for user in range(matrix.shape[1])]
    lines = [",".join(["round", *names])]
    lines += [",".join(map(str, [first + index, *row])) for index, row in enumerate(matrix.tolist())]
    path = tmp_path_factory.getbasetemp() / "wide.csv"
    path.write_text("\n".join(lines) + "\n")
    expected = ParticipationLog.from_dense(matrix, rounds=range(first, first + len(matrix)), names=names)
    assert only_log(path) == expected


def test_several_rows_of_a_round_are_its_sets_in_any_order(tmp_path):
    """Rows of one round are learned sets of it; rows and the column `round` may stand anywhere."""
    log = wide(tmp_path, "ann,round,bob\n1,4,0\n1,2,1\n0,4,1\n")
    assert [(round_, users.tolist()) for round_, users in log.sets()] == [(2, [0, 1]), (4, [0]), (4, [1])]
    assert (log.first, log.rounds, log.names) == (2, 3, ("ann", "bob"))


def test_more_users_and_rounds_than_the_file_shows(tmp_path):
    """Users and rounds that the file lacks are added where they are given."""
    log = wide(tmp_path, "round,ann,bob\n0,1,1\n", users=4, rounds=9)
    assert (log.users, log.rounds, log.names) == (4, 9, ("ann", "bob", "unseen-1", "unseen-2"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("round,ann,bob\n0,1,1\n1,1,\n", "line 3: the column 'bob' has ''; write 0 or 1"),
        ("round,ann,bob\n0,1,1\n1,11,\n", "line 3: the column 'ann' has '11'"),
        ("round,ann,bob\n0,1,1\n1,1,maybe\n", "line 3: the column 'bob' has 'maybe'"),
        ("round,ann,bob\n0,1,1\n1,1\n", "line 3: the header has 3 fields and this row 2"),
        ("round,ann,bob\n0,1,1\nx,1,1\n", "line 3: the round 'x' is not an integer"),
        ("round,ann,ann\n0,1,1\n", "line 1: the user 'ann' stands there twice"),
        ("round,ann,\n0,1,1\n", "line 1: a user has no name"),
        (
            "round,ann,bob\n0,ann,bob\n",
            "line 1: no column is known to hold the user; .* with --user-column",
        ),
        ("round,ann\n0,1\n100000000,1\n", "line 3: from round 0 to round 100000000"),
    ],
)
def test_bad_wide_files_are_refused(tmp_path, content, message):
    """What is wrong is named with its line and its user."""
    with pytest.raises(UsageError, match=message):
        wide(tmp_path, content)


def test_fewer_users_or_rounds_than_the_file_shows(tmp_path):
    """The numbers given must hold what the file shows."""
    with pytest.raises(UsageError, match="names 2 users, more than the 1 given"):
        wide(tmp_path, "round,ann,bob\n0,1,1\n", users=1)
    with pytest.raises(UsageError, match="2 rounds, more than the 1 given"):
        wide(tmp_path, "round,ann,bob\n0,1,1\n1,0,0\n", rounds=1)
