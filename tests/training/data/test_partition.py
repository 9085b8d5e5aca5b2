"""A partition says which examples each user holds, and refuses what would leave a user without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.training import Partition

PARTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=6)


@settings(deadline=None)
@given(PARTS)
def test_users_get_their_examples_in_their_order(parts):
    """Every user's examples come back as given, shared and repeated ones too; sizes are theirs."""
    partition = Partition.from_users(10, parts)
    assert [partition.of(user).tolist() for user in range(len(partition))] == parts
    assert partition.sizes.tolist() == [len(part) for part in parts]
    assert partition.indices.dtype == np.int64
    assert not partition.indices.flags.writeable


@settings(deadline=None)
@given(PARTS, st.lists(st.integers(0, 3), min_size=10, max_size=10))
def test_the_histogram_counts_labels(parts, labels):
    """A cell is the number of the user's examples with the label, counted one by one."""
    counts = Partition.from_users(10, parts).label_counts(labels, classes=4)
    assert counts.tolist() == [[[labels[i] for i in part].count(label) for label in range(4)] for part in parts]


@settings(deadline=None)
@given(PARTS, st.integers(0, 2**32))
def test_shuffling_changes_who_has_what_and_nothing_else(parts, seed):
    """The same parts are there afterwards, whole and in order; the same chance gives the same partition."""
    partition = Partition.from_users(10, parts)
    shuffled = partition.shuffled(np.random.default_rng(seed))
    assert sorted(shuffled.of(user).tolist() for user in range(len(shuffled))) == sorted(parts)
    assert shuffled == partition.shuffled(np.random.default_rng(seed))


def test_equality_is_by_content():
    """Partitions are equal when their users hold the same examples of as many."""
    partition = Partition.from_users(3, [[0], [1, 2]])
    assert partition == Partition(3, [0, 1, 2], [0, 1, 3])
    assert partition != Partition.from_users(3, [[0, 1], [2]])
    assert partition != Partition.from_users(4, [[0], [1, 2]])
    assert partition != "partition"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one user"),
        ([[0], []], "user 1 has no data; give every user"),
        ([[], [0], []], "user 0 has no data, nor has 1 other;"),
        ([[], [], [], [0]], "user 0 has no data, nor have 2 others;"),
        ([[0], [1, 3]], r"user 1 has the example 3, which is not one of the 3 examples 0 … 2"),
        ([[-1], [1]], "user 0 has the example -1"),
        ([[0.5]], "must be integers"),
    ],
)
def test_what_is_no_partition_is_refused(parts, message):
    """Users without data and examples that are not there are named."""
    with pytest.raises(UsageError, match=message):
        Partition.from_users(3, parts)


@pytest.mark.parametrize("starts", [[], [1, 3], [0, 2], [0, 2, 1, 3]])
def test_starts_must_cover_the_indices(starts):
    """Starts that do not rise from 0 to the number of indices are refused."""
    with pytest.raises(UsageError, match="starts must rise"):
        Partition(3, [0, 1, 2], starts)


@pytest.mark.parametrize(
    ("labels", "message"), [([0, 1], r"shape \(2,\); the partition is of 3"), ([0, 1, 2], "from 0 to 2")]
)
def test_a_histogram_needs_the_data_sets_labels(labels, message):
    """Too few labels, and labels beyond the classes, are refused."""
    with pytest.raises(UsageError, match=message):
        Partition.from_users(3, [[0]]).label_counts(labels, classes=2)
