"""The strong privacy level."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie import ParticipationLog, UsageError
from coterie.leakage import StrongLevel, strong_level
from reference import strong_level_by_definition


def matrices(rounds, users):
    return stn.arrays(np.int64, st.tuples(rounds, users), elements=st.integers(0, 1))


@st.composite
def small_matrices(draw):
    """Up to 5 rounds × 6 users; columns are drawn from a few, so that users share them and levels vary."""
    columns = draw(matrices(st.integers(1, 5), st.integers(1, 6)))
    users = draw(st.lists(st.integers(0, columns.shape[1] - 1), min_size=1, max_size=6))
    return columns[:, users]


@settings(deadline=None, max_examples=200)
@given(small_matrices())
def test_equals_the_definition(matrix):
    """The smallest class of equal non-zero columns is the level of eq. def_privacy, over every z."""
    assert strong_level(ParticipationLog.from_dense(matrix)) == strong_level_by_definition(matrix.tolist())


@pytest.mark.parametrize(
    ("matrix", "level"),
    [
        ([[0, 0, 0]], 3),  # nothing was learned
        ([[1, 1, 1]], 3),
        ([[1, 1, 0]], 2),  # a user never seen is in no sum
        ([[1, 1, 1, 1], [1, 1, 0, 0]], 2),
        ([[1, 1, 0], [0, 1, 1]], 1),
        ([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], 1),
        ([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]], 2),  # the first is the sum of the others
        ([[1, 0], [1, 0]], 1),
    ],
)
def test_hand_made_logs(matrix, level):
    """Levels worked out by hand, by the kernel and by its slow twin."""
    assert strong_level(ParticipationLog.from_dense(matrix)) == level
    assert strong_level_by_definition(matrix) == level


@settings(deadline=None)
@given(matrices(st.integers(0, 12), st.integers(1, 30)))
def test_never_rises_and_classes_are_equal_columns(matrix):
    """After each set the level does not rise, and the classes are the users with equal columns so far."""
    users = matrix.shape[1]
    strong = StrongLevel(users)
    for rounds, row in enumerate(matrix, start=1):
        before = strong.level
        if row.any():
            strong.add(np.flatnonzero(row))
        assert strong.level <= before
        seen = matrix[:rounds]
        equal = (seen[:, :, None] == seen[:, None, :]).all(axis=0)
        active = seen.any(axis=0)
        sizes = np.where(active, equal.sum(axis=0), 0)
        assert strong.class_sizes().tolist() == sizes.tolist()
        assert strong.level == min(sizes[active], default=users)
        assert ((strong.class_of < 0) == ~active).all()
        assert ((strong.class_of[:, None] == strong.class_of[None, :]) == equal)[active].all()
        assert strong.classes == len(set(strong.class_of[active].tolist()))


@given(st.permutations(range(8)), st.permutations(range(3)))
def test_order_means_nothing(users, sets):
    """Neither the order of the sets nor that of the users in them changes the level."""
    learned = [[0, 1, 2, 3, 4], [3, 4, 5, 6], [0, 1, 6]]
    strong = StrongLevel(8)
    for index in sets:
        strong.add([users[user] for user in learned[index]])
    assert strong.level == 1
    assert sorted(strong.class_sizes().tolist()) == [0, 1, 1, 1, 2, 2, 2, 2]


def test_whole_batches_keep_the_level():
    """As long as batches of T come whole, the level is T after any number of rounds."""
    rng = np.random.default_rng(5)
    strong = StrongLevel(120)
    for _ in range(500):
        batches = rng.choice(20, size=2, replace=False)
        strong.add((batches[:, None] * 6 + np.arange(6)).ravel())
    assert strong.level == 6
    assert strong.classes == 20


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "a learned set has no users"),
        ([1, 1], "a user stands twice"),
        ([3], "user 3 is not one of the 3 users"),
        ([-1, 0], "user -1 is not one of the 3 users"),
        ([0.5], "must be integers"),
        ([[0, 1]], "one-dimensional"),
    ],
)
def test_bad_sets_change_nothing(members, message):
    """A set that cannot be is refused, and the level stays."""
    strong = StrongLevel(3)
    with pytest.raises(UsageError, match=message):
        strong.add(members)
    assert strong.level == 3
    assert strong.classes == 0


def test_views_are_read_only():
    """Nobody can change the classes from outside."""
    strong = StrongLevel(3)
    with pytest.raises(ValueError, match="read-only"):
        strong.class_of[0] = 7
    with pytest.raises(UsageError, match="-1 users"):
        StrongLevel(-1)
