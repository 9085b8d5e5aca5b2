"""Saved partitions."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.training import Partition, read_partition, write_partition

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
