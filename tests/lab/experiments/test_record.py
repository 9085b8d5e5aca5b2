"""A record holds what was written, whatever a crash did to its last line."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.experiments.folder import RecordFile, RoundRow, read_record

ROW = RoundRow(
    step=1, round=0, outcome="committed", available=9, asked=4, included=4, lost_batches=0, training_loss=1.5,
    accuracy=0.5, loss=2.0, strong=4, fairness_gap=0.0, fairness_gap_completed=0.0, cardinality=4.0, skipped=0,
    seconds=0.1,
)  # fmt: skip


HEAD = {"spec": {}, "seed": 1, "users": 9, "parameters": 3, "aggregation": "plain"}


def written(folder, rows):
    """Write a record with so many rows."""
    file = RecordFile(folder / "record.jsonl")
    file.path.unlink(missing_ok=True)
    file.start(HEAD)
    for step in range(1, rows + 1):
        file.add(replace(ROW, step=step, round=step - 1))
    return file


def test_a_record_comes_back(tmp_path):
    """Head and rows are read as they were written."""
    record = read_record(written(tmp_path, 3).path)
    assert record.head["seed"] == 1
    assert [row.step for row in record.rows] == [1, 2, 3]
    assert record.rows[0] == ROW


@given(rows=st.integers(1, 4), data=st.data())
def test_a_cut_off_last_line_is_left_out(rows, data, tmp_path_factory):
    """Wherever a crash cuts the last line, everything before it stands."""
    file = written(tmp_path_factory.mktemp("record"), rows)
    whole = file.path.read_bytes()
    last = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    file.path.write_bytes(whole[: data.draw(st.integers(last, len(whole) - 2))])
    assert len(read_record(file.path).rows) == rows - 1
    file.repair()
    file.add(replace(ROW, step=rows))
    assert len(read_record(file.path).rows) == rows


def test_users_stand_in_a_row_only_where_there_are_any(tmp_path):
    """Names of liars and of users who diverged come back; a row without any is written as one always was."""
    file = written(tmp_path, 1)
    assert "liars" not in file.path.read_text()
    row = replace(ROW, step=2, liars=("ann", "bob"), diverged=("cem",))
    file.add(row)
    assert read_record(file.path).rows == (ROW, row)
    assert row.digest == hashlib.sha256(file.path.read_bytes().splitlines()[-1]).hexdigest()
    file.add(replace(row, liars=(5,)))
    with pytest.raises(UsageError, match=r"line 4: liars is \[5\]"):
        read_record(file.path)


def test_a_digest_is_of_the_line_as_it_stands(tmp_path):
    """The head's and the rows' digests are those of the file's lines, whoever computes them."""
    file = written(tmp_path, 2)
    lines = [hashlib.sha256(line).hexdigest() for line in file.path.read_bytes().splitlines()]
    record = read_record(file.path)
    assert [record.digest, *(row.digest for row in record.rows)] == lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: ["{}", *lines[1:]], "is not a run's record"),
        (lambda lines: [], "is not a run's record"),
        (lambda lines: [lines[0], "nonsense", lines[2]], "line 2: not JSON"),
        (lambda lines: [lines[0], json.dumps({"step": 1}), lines[2]], "line 2: not a round's row"),
        (lambda lines: [lines[0], "5", lines[2]], "line 2: not a round's row"),
        (lambda lines: [lines[0].replace('"spec": {}, ', ""), *lines[1:]], "line 1: spec is None"),
        (lambda lines: [lines[0].replace('"seed": 1', '"seed": "1"'), *lines[1:]], "line 1: seed is '1'"),
        (lambda lines: [lines[0], lines[1].replace('"strong": 4', '"strong": "4"')], "line 2: strong is '4'"),
        (lambda lines: [lines[0], lines[1].replace('"loss": 2.0', '"loss": NaN')], "line 2: loss is nan"),
        (lambda lines: [lines[0], "[" * 100_000], "line 2: not JSON"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path, change, message):
    """Anything else than a record is refused, and the line named."""
    file = written(tmp_path, 2)
    lines = change(file.path.read_text().splitlines())
    file.path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(UsageError, match=message):
        read_record(file.path)


def test_a_missing_record_is_refused(tmp_path):
    """A path without a file is named."""
    with pytest.raises(UsageError, match=r"nothing\.jsonl cannot be read"):
        read_record(tmp_path / "nothing.jsonl")
