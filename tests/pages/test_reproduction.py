"""The committed records are complete, and what is drawn and tabled from records is what they say."""

import pytest

from coterie.lab.paper.definition import known_experiments
from coterie.lab.paper.outcome import outcome_so_far, record_path
from coterie.pages.reproduction import accuracy_curves, cells, draw, figure_data, value_text
from support.paper.committed import INCOMPLETE, RESULTS
from support.paper.tiny import read_tiny

KNOWN = known_experiments()


@pytest.mark.parametrize("name", KNOWN)
def test_the_committed_records_are_complete(name):
    """No run is missing, at full size, but for those that wait for a GPU, and every claim is judged."""
    outcome = outcome_so_far(KNOWN[name], RESULTS)
    assert (outcome.missing > 0) == (name in INCOMPLETE)
    assert all(claim.held is not None for claim in outcome.claims)


def test_accuracy_curves_have_the_mean_and_a_band_over_seeds(tmp_path):
    """A line is the mean of the runs where all were measured; its band is one standard deviation wide."""
    experiment = read_tiny(tmp_path)
    records = {
        run.digest: {"curve": {"1": 10.0 + 2 * run.seed, "2": 20.0}}
        for run in experiment.runs()
        if run.scheme == "random"
    }
    first, second = accuracy_curves(experiment, records)["panels"]
    assert (first["title"], second["title"]) == ("IID", "shards")
    (line,) = first["lines"]
    assert line == {
        "name": "random", "x": [1, 2], "y": [11, 20], "low": [9.58579, 20], "high": [12.41421, 20],
    }  # fmt: skip


def test_nothing_is_drawn_without_records(tmp_path):
    """An experiment of which nothing has been run has no figure, nor has a table."""
    assert draw(read_tiny(tmp_path), tmp_path / "none") == []
    assert draw(KNOWN["metrics"], tmp_path) == []
    assert figure_data(KNOWN["family"], RESULTS) is None


def test_cells_show_our_number_with_its_spread():
    """Our number and the paper's have the same digits, and a difference its sign, but zero no minus."""
    outcome = outcome_so_far(KNOWN["mnist"], RESULTS)
    assert cells(outcome.rows[3]) == ("IID, T6", "test accuracy, %", "97.72 ± 0.07", "5", "97.72", "+0.00")
    assert value_text(-0.0001, "cardinality", signed=True) == "+0.00"
    assert value_text(10542859559688820, "family size") == "1.05e+16"
    assert record_path(KNOWN["mnist"], RESULTS).name == "mnist.jsonl"
