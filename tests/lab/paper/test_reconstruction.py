"""The reconstruction of updates as an experiment: a run, its record, and what is read from it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.definition import Windows, known_experiments
from coterie.lab.paper.outcome import ResultFile, outcome_so_far
from coterie.lab.paper.reconstruction import attack_windows
from coterie.pages.reproduction import figure_data

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
WINDOWS = Windows(rates=(1e-4,), lengths=(16, 30), count=3, first=0, stride=10)


def small_spec(scheme, partition="shards"):
    """Twelve users with one digit or so each, and a small model, hardly trained."""
    return Spec().changed(
        {
            "data.users": 12,
            "data.partition": partition,
            "data.order": "random",
            "selection.scheme": scheme,
            "selection.per_round": 4,
            "selection.dropout": [0.0],
            "training.rounds": 2,
            "training.model": "logistic",
            "training.minibatch": 500,
            "training.shuffled": False,
            "training.device": "cpu",
            "aggregation.protocol": "plain",
        }
    )


@pytest.fixture(scope="module")
def records():
    """What attacks on two schemes gave."""
    return {scheme: attack_windows(small_spec(scheme), WINDOWS) for scheme in ("random", "T4")}


def test_settled_updates_are_found_under_random_selection_and_not_in_batches(records):
    """Every method finds nearly everybody in a long window; in batches nobody beyond those who are alike."""
    for method, windows in records["random"]["rates"]["0.0001"]["methods"].items():
        assert min(windows["30"]["found"]) >= 11, method
    for windows in records["T4"]["rates"]["0.0001"]["methods"].values():
        assert windows["30"]["beyond"] == [0] * 3
    assert set(records["T4"]["rates"]["0.0001"]["methods"]) == {"least squares", "diagonal drift", "kriging"}


def test_a_record_is_plain_json_with_a_number_for_each_window(records):
    """Errors, users found, histograms of all users, drift and conditioning."""
    rate = json.loads(json.dumps(records["random"]))["rates"]["0.0001"]
    assert 0 < rate["drift"] < 0.1
    assert rate["condition"]["16"] > rate["condition"]["30"] >= 1
    cell = rate["methods"]["kriging"]["16"]
    assert [len(cell[name]) for name in ("mean", "median", "least", "found", "beyond", "chance")] == [3] * 6
    assert sum(cell["histogram"]) == 3 * 12


def test_the_committed_records_hold_what_must_hold():
    """Settled, random selection errs by at most 2e-2 and gives everybody away; batches stay above 0.5."""
    experiment = known_experiments()["reconstruction"]
    outcome = outcome_so_far(experiment, RESULTS)
    assert outcome.missing == 0
    held = {claim.claim: claim.held for claim in outcome.claims}
    assert [held[claim] for claim in held if not claim.startswith("Taken literally")] == [True] * 4
    figure = figure_data(experiment, RESULTS)
    assert len(figure["panels"]) == 20
    assert figure["columns"] == 4


def test_runs_that_differ_in_nothing_are_made_once(tmp_path):
    """Several settings read one record; the windows are part of what names a run."""
    experiment = known_experiments()["reconstruction"]
    digests = {run.digest for run in experiment.runs()}
    assert len(digests) == 2 * len(experiment.schemes)
    other = replace(experiment, windows=WINDOWS)
    assert not digests & {run.digest for run in other.runs()}
    assert ResultFile(tmp_path / "none.jsonl").records() == {}
