"""An experiment is completed from what is there: real training on the shipped data, in seconds."""

from dataclasses import replace

import pytest
import torch

from coterie.lab.experiments.run import Run
from coterie.lab.paper.definition import Quick, known_experiments, merged
from coterie.lab.paper.outcome import ResultFile, outcome_so_far, record_path
from coterie.lab.paper.runs import Machine, complete, train
from support.paper.tiny import RUNS, read_tiny, without_times

CPU = Machine(device="cpu", processes=1)
KNOWN = known_experiments()


def silent(*_):
    """Report to nobody."""


class Stop(Exception):  # noqa: N818 - stands for Ctrl-C
    """Ends an experiment in the middle."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The tiny experiment, its folder, and its records, run without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    experiment = read_tiny(folder)
    complete(experiment, folder, CPU, silent, quick=False)
    return experiment, folder, ResultFile(record_path(experiment, folder)).records()


def test_a_tiny_experiment_learns_and_is_whole(finished):
    """Every run has a record, with its measures and what made it; accuracy is far above chance."""
    experiment, folder, records = finished
    outcome = outcome_so_far(experiment, folder)
    assert (len(records), outcome.missing, outcome.claims[0].held) == (RUNS, 0, True)
    assert outcome.rows[0].ours > 40
    record = next(iter(records.values()))
    assert set(record["curve"]) == {"1", "2", "3"}
    assert {"strong", "cardinality", "fairness_gap", "skipped", "made_with"} <= record.keys()


@pytest.mark.parametrize("after", [1, 5])
def test_interrupted_and_resumed_gives_the_same_records(finished, after, tmp_path):
    """Stopped after any run and taken up again, nothing is run twice and every record is the same."""
    experiment, _, records = finished
    ended = []

    def stop(what, done, total):
        ended.append(what)
        assert total == RUNS
        if done == after:
            raise Stop

    with pytest.raises(Stop):
        complete(experiment, tmp_path, CPU, stop, quick=False)
    results = ResultFile(record_path(experiment, tmp_path))
    assert len(results.records()) == after == len(ended)
    complete(experiment, tmp_path, CPU, lambda what, *_: ended.append(what), quick=False)
    assert len(set(ended)) == RUNS == len(ended)
    assert without_times(results.records()) == without_times(records)


def test_several_processes_give_the_same_records(finished, tmp_path):
    """Runs side by side end in any order and give the same."""
    experiment, _, records = finished
    complete(experiment, tmp_path, replace(CPU, processes=2), silent, quick=False)
    assert without_times(ResultFile(record_path(experiment, tmp_path)).records()) == without_times(records)


def test_a_study_is_what_a_plain_run_gives(finished, tmp_path):
    """The accuracy of every round is that of `coterie run` with the same spec and plain aggregation."""
    experiment, _, records = finished
    planned = next(run for run in experiment.runs(device="cpu") if run.scheme == "T2")
    with Run.start(planned.spec, tmp_path / "run") as run:
        rows = list(run.steps())
    curve = {str(row.step): round(100 * row.accuracy, 2) for row in rows}
    assert curve == records[planned.digest]["curve"]
    assert rows[-1].cardinality == records[planned.digest]["cardinality"]
    asked = []
    train(planned.spec, lambda: asked.append("whether to stop"))
    assert len(asked) == 3


def test_full_size_training_asks_for_a_gpu(tmp_path, monkeypatch):
    """Without one, and with the device left open, nothing is begun, and the outcome says what to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    experiment = read_tiny(tmp_path)
    outcome = complete(experiment, tmp_path / "out", Machine(), silent, quick=False)
    assert (outcome.rows, outcome.missing) == ((), RUNS)
    assert "there is no GPU here" in outcome.obstacle
    assert "--device cpu" in outcome.obstacle
    assert not (tmp_path / "out").exists()
    quick = complete(experiment.quick_version(), tmp_path / "out", Machine(), silent, quick=True)
    assert (quick.obstacle, quick.missing, len(quick.rows)) == ("", 0, 2)


def test_data_that_cannot_be_had_are_an_obstacle(tmp_path, monkeypatch):
    """The outcome names the files that are missing and where they can be had; what was there stays."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody listens there
    mnist = known_experiments()["mnist"].quick_version()
    outcome = complete(mnist, tmp_path, replace(CPU, data=str(tmp_path / "data")), silent, quick=True)
    assert "cannot be fetched" in outcome.obstacle
    assert "train-images-idx3-ubyte" in outcome.obstacle
    assert outcome.missing == 6


@pytest.mark.parametrize("name", ["family", "tradeoff", "threshold", "metrics", "fairness"])
def test_a_simulated_experiment_is_not_run_again_while_its_record_fits(name, tmp_path):
    """The second time nothing is simulated and the outcome is the same; another definition is simulated anew."""
    known = known_experiments()[name]
    small = {"training": {"rounds": 20}, "data": {"users": 120}}
    experiment = replace(known, quick=Quick(trials=2, spec=small)).quick_version()
    calls = []
    first = complete(experiment, tmp_path, CPU, lambda *call: calls.append(call), quick=True)
    count = len(calls)
    assert first.missing == 0
    assert len(first.rows) == len(experiment.settings) * len(experiment.schemes)
    assert complete(experiment, tmp_path, CPU, lambda *call: calls.append(call), quick=True) == first
    assert len(calls) == count
    if name in {"metrics", "tradeoff", "fairness"}:
        longer = replace(experiment, spec=merged(experiment.spec, {"training": {"rounds": 25}}))
        assert outcome_so_far(longer, tmp_path).missing == 1
        complete(longer, tmp_path, CPU, lambda *call: calls.append(call), quick=True)
        assert len(calls) == 2 * count


def simulated(name, folder, **changes):
    """A simulated experiment's values, by setting and scheme, from few trials of few rounds."""
    experiment = replace(KNOWN[name].quick_version(), trials=2, **changes)
    experiment = replace(experiment, spec=merged(experiment.spec, {"training": {"rounds": 60}}))
    outcome = complete(experiment, folder, CPU, silent, quick=True)
    return {(row.measure, row.label): row.ours for row in outcome.rows}


def test_plans_that_know_their_users_are_made_in_every_trial(tmp_path):
    """Batches of like dropout are whole more often than consecutive ones at the same level, whoever is drawn."""
    values = simulated("availability", tmp_path, schemes=("T6", "T6-sorted"))
    assert values["cardinality", "T6-sorted"] > values["cardinality", "T6"]
    assert values["strong", "T6-sorted"] == values["strong", "T6"] == 6


def test_daily_cycles_are_simulated(tmp_path):
    """Batches of users who are online together are whole more often than those of like dropout."""
    values = simulated("daily", tmp_path, schemes=("T12-sorted", "T12-together"))
    assert values["cardinality", "T12-together"] > values["cardinality", "T12-sorted"]


def test_losses_split_batches_only_where_they_are_unsealed(tmp_path):
    """Sealed, the level stays at T; unsealed, single users come out."""
    values = simulated("losses-levels", tmp_path, schemes=("T4", "T4 unsealed"))
    assert (values["strong", "T4"], values["strong", "T4 unsealed"]) == (4, 1)
