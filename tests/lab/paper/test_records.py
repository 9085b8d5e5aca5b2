"""Results on disk survive a cut, and a record belongs to one experiment only."""

import pytest

from coterie import UsageError
from coterie.lab.paper.definition import known_experiments
from coterie.lab.paper.outcome import ResultFile, read_simulated, record_path, write_simulated
from support.paper.committed import INCOMPLETE, RESULTS


@pytest.mark.parametrize("experiment", known_experiments().values(), ids=lambda experiment: experiment.name)
def test_every_committed_record_is_still_found(experiment):
    """The runs that an experiment plans are the runs that are recorded, by digest: none orphaned, none missing.

    A digest is made of the names and values of a spec's fields, so renaming a field would orphan its records.
    """
    path = record_path(experiment, RESULTS)
    if experiment.trains:
        planned = {run.digest for run in experiment.runs()}
        recorded = ResultFile(path).records().keys()
        assert recorded < planned if experiment.name in INCOMPLETE else recorded == planned
    else:
        assert read_simulated(path, experiment.digest) is not None


def test_a_line_that_was_cut_off_is_left_out_and_overwritten(tmp_path):
    """A power cut in the middle of a line costs that line alone, at any byte."""
    results = ResultFile(tmp_path / "runs.jsonl")
    assert results.records() == {}
    results.add({"run": "a", "value": "é"})
    whole = results.path.read_bytes()
    line = b'{"run":"b","value":2}\n'
    for cut in range(len(line)):
        results.path.write_bytes(whole + line[:cut])
        assert results.records() == {"a": {"run": "a", "value": "é"}}
        results.add({"run": "b", "value": 2})
        assert list(results.records()) == ["a", "b"]
        assert results.path.read_bytes() == whole + line


@pytest.mark.parametrize("line", ["{", "[]", '{"value": 1}', "\N{REPLACEMENT CHARACTER}"])
def test_a_bad_line_is_refused_with_its_number(line, tmp_path):
    """What is not a record is named, not skipped: it may be results that were damaged."""
    results = ResultFile(tmp_path / "runs.jsonl")
    results.path.write_text('{"run": "a"}\n' + line + "\n")
    with pytest.raises(UsageError, match="line 2: not the record of a run"):
        results.records()


def test_a_simulated_record_belongs_to_one_digest(tmp_path):
    """Another digest finds nothing; a damaged file is refused."""
    file = tmp_path / "metrics.json"
    assert read_simulated(file, "a") is None
    write_simulated(file, {"values": {}}, "a")
    assert read_simulated(file, "a") == {"experiment": "a", "values": {}}
    assert read_simulated(file, "b") is None
    file.write_text("{")
    with pytest.raises(UsageError, match="not the record of an experiment"):
        read_simulated(file, "a")
