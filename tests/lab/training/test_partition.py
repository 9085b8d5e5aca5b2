"""A partition says which examples each user holds, refuses to leave a user without, and survives a file."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.training import Partition, read_partition, write_partition

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


GOOD = {"format": "coterie partition", "version": 1, "examples": 4, "users": [[3, 0], [1]]}


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=6))
def test_round_trip(tmp_path_factory, parts):
    """A partition comes back as it was, also after white space was changed; its file is plain JSON."""
    path = tmp_path_factory.getbasetemp() / "partition.json"
    partition = Partition.from_users(10, parts)
    write_partition(partition, path)
    assert read_partition(path) == partition
    raw = json.loads(path.read_text())
    assert raw["users"] == parts
    path.write_text(json.dumps(raw, indent=2))
    assert read_partition(path) == partition


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "coterie plan"}, "is not a partition"),
        ({"version": 2}, "has the version 2; this Coterie reads version 1"),
        ({"version": None}, "has the version None"),
        ({"examples": 0}, "user 0 has the example 3"),
        ({"examples": -1}, '"examples" is -1'),
        ({"examples": True}, '"examples" is True'),
        ({"examples": "4"}, "\"examples\" is '4'"),
        ({"examples": None}, '"examples" is None'),
        ({"users": None}, '"users" must be a list'),
        ({"users": []}, "at least one user"),
        ({"users": [[0], []]}, "user 1 has no data"),
        ({"users": [[0], 1]}, "user 1 must have a list"),
        ({"users": [[0], [0.5]]}, "user 1 must have a list"),
        ({"users": [[0], [True]]}, "user 1 must have a list"),
        ({"users": [[0], [-1]]}, "user 1 must have a list"),
        ({"users": [[0], [2**63]]}, "user 1 must have a list"),
        ({"users": [[0], [4]]}, "user 1 has the example 4, which is not one of the 4"),
        ({"extra": 1}, "unknown field 'extra'"),
    ],
)
def test_wrong_content_is_refused(tmp_path, change, message):
    """A file that is no partition is refused with its name and the reason."""
    path = tmp_path / "partition.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(UsageError, match=f"partition.json.*{message}"):
        read_partition(path)


@pytest.mark.parametrize(
    "data", [b"", b"[" * 100_000, b"\xff\xfe", b'{"format": "coterie partition"', b"[1]", b"3"]
)
def test_what_is_no_partition_file_is_refused(tmp_path, data):
    """Any other bytes are the caller's error, never a traceback from inside."""
    path = tmp_path / "partition.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"partition.json is not"):
        read_partition(path)


def test_paths_are_explained(tmp_path):
    """A missing file, and a folder that is not there, are named."""
    with pytest.raises(UsageError, match="there is no such file"):
        read_partition(tmp_path / "none.json")
    with pytest.raises(UsageError, match="its folder does not exist"):
        write_partition(Partition.from_users(1, [[0]]), tmp_path / "none" / "partition.json")
