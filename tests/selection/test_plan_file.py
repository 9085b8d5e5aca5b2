"""Plans as files."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, UsageError
from coterie.selection import plan_file
from coterie.selection.plan_file import read_plan, write_plan

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(['","', "],[", "=1+1", ""])


@st.composite
def any_plan(draw):
    privacy = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(privacy, privacy + 2), max_size=5))
    users = sum(sizes) + draw(st.integers(0, 2))
    order = np.array(draw(st.permutations(range(users))), dtype=np.int64)
    names = draw(st.none() | st.lists(NAMES, min_size=users, max_size=users, unique=True))
    return BatchPlan(
        users, privacy, order[: sum(sizes)], np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), names
    )


@settings(deadline=None)
@given(plan=any_plan(), step=st.sampled_from([1, 2, 100]))
def test_round_trip(tmp_path_factory, plan, step):
    """A plan comes back as it was, names and retired users too, in whatever pieces it is written."""
    path = tmp_path_factory.getbasetemp() / "plan.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_file, "_BATCHES_WRITTEN", step)
        write_plan(plan, path)
        assert read_plan(path) == plan
        raw = json.loads(path.read_text(encoding="utf-8"))
        assert raw["batches"] == [plan.batch(index).tolist() for index in range(len(plan))]
        assert ("names" in raw) == (plan.names is not None)
        for indent, separators in ((None, None), (None, (" ,", ":")), (2, None)):
            path.write_text(json.dumps(raw, indent=indent, separators=separators), encoding="utf-8")
            assert read_plan(path) == plan


def test_a_line_per_batch(tmp_path):
    """A person can read the file: head, names, then a batch on each line."""
    path = tmp_path / "plan.json"
    write_plan(BatchPlan.from_batches(5, 2, [[0, 1], [4, 2, 3]], names=["ä", 'b"', "c", "d", "e"]), path)
    assert path.read_text(encoding="utf-8").splitlines() == [
        '{"format": "coterie plan", "version": 1, "users": 5, "privacy": 2,',
        '"names": [', '"ä",', '"b\\"",', '"c",', '"d",', '"e"', "],",
        '"batches": [', "[0,1],", "[4,2,3]", "]}",
    ]  # fmt: skip


def test_little_memory(tmp_path):
    """Reading never holds more than a few batches as Python integers, which take most."""
    path = tmp_path / "plan.json"
    plan = BatchPlan(100_000, 10, np.arange(100_000, dtype=np.int32), np.arange(0, 100_001, 10))
    write_plan(plan, path)
    tracemalloc.start()
    again = read_plan(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again == plan
    assert peak < path.stat().st_size + 4 * plan.members.nbytes


GOOD = {"format": "coterie plan", "version": 1, "users": 4, "privacy": 2, "batches": [[0, 1], [2, 3]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "coterie log"}, "has the format 'coterie log'; give a plan"),
        ({"format": 3}, r"is not a plan: .*\$.format"),
        ({"version": 2}, "has the version 2; this Coterie reads version 1"),
        ({"users": "4"}, r"is not a plan: .*\$.users"),
        ({"users": -4}, r"is not a plan: .*\$.users"),
        ({"users": 2**31}, r"is not a plan: .*\$.users"),
        ({"privacy": 0}, "privacy is 0"),
        ({"privacy": 3}, "a batch has 2 users, fewer than the privacy level 3"),
        ({"privacy": 2.5}, r"is not a plan: .*\$.privacy"),
        ({"batches": [[0, 1], [1, 2]]}, "a user is in two batches"),
        ({"batches": [[0, 1], [2, 4]]}, "user 4 is not one of the 4 users"),
        ({"batches": [[0, 1], [2, "x"]]}, r"in its batches, .*\$\[1\]\[1\]"),
        ({"batches": [[0, 1], [2, -3]]}, r"in its batches, .*\$\[1\]\[1\]"),
        ({"batches": [[0, 1], [2, 2**40]]}, r"in its batches, .*\$\[1\]\[1\]"),
        ({"batches": [[0, 1], [2, 3.0]]}, r"in its batches, .*\$\[1\]\[1\]"),
        ({"batches": [[0, 1], [2, True]]}, r"in its batches, .*\$\[1\]\[1\]"),
        ({"batches": [[[0], [1]], [2, 3]]}, r"in its batches, .*\$\[0\]\[0\]"),
        ({"batches": [0, 1]}, r"in its batches, .*\$\[0\]"),
        ({"batches": ["],[", [0, 1]]}, r"in its batches, .*\$\[0\]"),
        ({"batches": None}, "in its batches, Expected `array`"),
        ({"batches": [[]]}, "a batch has 0 users"),
        ({"names": ["a"]}, "1 names were given for 4 users"),
        ({"names": ["a", "a", "b", "c"]}, "same name"),
        ({"names": ["a", 1, "b", "c"]}, r"is not a plan: .*\$.names\[1\]"),
        ({"extra": 1}, "is not a plan: .*unknown field `extra`"),
    ],
)
def test_wrong_content_is_refused(tmp_path, change, message):
    """A file that is no plan is refused with its name, the place and the reason."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(UsageError, match=f"plan.json.*{message}"):
        read_plan(path)


@pytest.mark.parametrize("field", sorted(GOOD))
def test_missing_fields_are_refused(tmp_path, field):
    """Each field must be there."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({name: value for name, value in GOOD.items() if name != field}))
    with pytest.raises(UsageError, match=f"is not a plan: .*missing required field `{field}`"):
        read_plan(path)


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    """However many bytes of the file are there, short of all, it is refused."""
    path = tmp_path / "plan.json"
    write_plan(BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]], names=["a", "b", "ü", "d"]), path)
    data = path.read_bytes()
    for length in range(len(data) - 2):  # the last two are the final brace and the end of the line
        path.write_bytes(data[:length])
        with pytest.raises(UsageError, match="is not JSON, or is cut off"):
            read_plan(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"round,user\n",
        b"\xff\xfe{}",
        b"\0",
        b"[" * 100_000,
        b'{"format": "coterie plan", "version": 1, "x": ' + b"[" * 100_000,
        b'{"format": "\xff", "version": 1}',
    ],
)
def test_what_is_no_json_is_refused(tmp_path, data):
    """Any other bytes are refused as a caller's error, never with a traceback from inside."""
    path = tmp_path / "plan.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"plan.json is not"):
        read_plan(path)


def test_bad_bytes_in_the_batches_are_refused(tmp_path):
    """Bytes that are not UTF-8 are refused inside the batches, too."""
    path = tmp_path / "plan.json"
    path.write_bytes(json.dumps(GOOD | {"batches": ["x"]}).encode().replace(b"x", b"\xff"))
    with pytest.raises(UsageError, match="in its batches"):
        read_plan(path)


def test_missing_files_and_folders_are_explained(tmp_path):
    """A path that cannot be read or written is explained."""
    with pytest.raises(UsageError, match="there is no such file"):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="it is a folder"):
        read_plan(tmp_path)
    with pytest.raises(UsageError, match="its folder does not exist"):
        write_plan(BatchPlan.from_batches(2, 2, [[0, 1]]), tmp_path / "missing" / "plan.json")


def test_a_name_that_is_no_text_is_refused(tmp_path):
    """A lone surrogate cannot be written; the file is not made."""
    with pytest.raises(UsageError, match="is not valid text"):
        write_plan(BatchPlan.from_batches(2, 2, [[0, 1]], names=["a", "\ud800"]), tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []
