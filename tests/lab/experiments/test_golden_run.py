"""A run of long ago, with all that it kept, is reported, taken up and attacked as it was meant."""

import json
import shutil
from pathlib import Path

import pytest

from coterie import UsageError
from coterie.lab.attacks.attack import attack_run, read_attacked_run
from coterie.lab.experiments.folder import RunFolder, read_record
from coterie.lab.experiments.result import read_run
from coterie.lab.experiments.run import Run
from support.golden import lost_fields

GOLDEN = Path(__file__).parents[2] / "golden" / "experiment"
MEAN = [
    -0.014718625694513321, -0.013617172837257385, -0.014393152669072151, -0.015608180314302444,
    0.01471862941980362, 0.013617172837257385, 0.014393152669072151, 0.015608176589012146,
    -0.004726618528366089, 0.0047266194596886635,
]  # fmt: skip
"""The first mean update: weights for 4 pixels and 2 classes, and 2 biases."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A copy of the run, which a test may change; its data lie beside it, where its spec says."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    monkeypatch.chdir(tmp_path / "golden")
    return Path("run")


def test_kept_aggregates(run):
    """The mean update and whose it is come back, with their types."""
    mean, users = RunFolder(run).aggregate(1)
    assert users.tolist() == [0, 1, 4, 5]
    assert mean.dtype == "float64"
    assert mean.tolist() == MEAN
    mean, users = RunFolder(run).aggregate(2)
    assert (users.tolist(), mean.shape) == ([0, 1, 2, 3], (10,))


def test_the_summary_is_the_one_that_was_written(run):
    """Record and ledger are read as they were meant: today's summary has all fields and numbers of the stored."""
    stored, today = json.loads((run / "summary.json").read_text()), read_run(run).summary()
    assert (stored["rounds"], stored["strong"], stored["cardinality"]) == (2, 1, 4.0)
    assert lost_fields(stored, today) == []
    assert {name: today[name] for name in stored if name != "verdict"} == {
        name: value
        for name, value in stored.items()
        if name != "verdict"  # words may be said better
    }


def test_the_run_is_taken_up(run):
    """Spec, data, ledger, checkpoint and record belong together: a third round follows the two."""
    before = read_record(run / "record.jsonl").rows
    with Run.resume(run, rounds=3) as resumed:
        assert [row.step for row in resumed.steps()] == [3]
    assert read_record(run / "record.jsonl").rows[:2] == before


def test_the_run_is_attacked(run):
    """Today's attack sees both rounds; its record has all fields of the stored one."""
    stored = json.loads((run / "attack" / "attack.json").read_text())
    record = attack_run(read_attacked_run(run)).record()
    assert (record["users"], record["privacy"], record["window"]) == (6, 2, {"first": 1, "last": 2, "rounds": 2})
    assert lost_fields(stored, {"schemes": [record], "out": ""}) == []


@pytest.mark.parametrize("name", ["aggregates/000002.npz", "checkpoints/000002.npz", "checkpoints/000000.npz"])
def test_a_changed_file_is_refused_by_name(run, name):
    """These files have no version of their own: the ledger has their digests, and the record the format."""
    data = bytearray((run / name).read_bytes())
    data[-1] ^= 1
    (run / name).write_bytes(data)
    with pytest.raises(UsageError, match=f"{name} was changed"):
        read_attacked_run(run)


def test_a_run_of_another_format_is_refused(run):
    """The record's format speaks for the whole folder."""
    path = run / "record.jsonl"
    path.write_text(path.read_text().replace('"format": 2', '"format": 9'))
    for read in (read_run, read_attacked_run, Run.resume):
        with pytest.raises(UsageError, match="is not a run's record of format 2"):
            read(run)
