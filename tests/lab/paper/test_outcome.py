"""Rows and claims from hand-made records: means, spreads, differences and every kind of claim."""

from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.lab.paper.definition import Claim, Experiment, Setting
from coterie.lab.paper.outcome import Cell, final_accuracy, simulated_outcome, training_outcome
from support.paper.tiny import read_tiny

SIMULATED = Experiment(
    name="measured",
    title="Measured",
    source="",
    kind="measures",
    schemes=("a", "b", "c"),
    settings=(Setting("first", paper={"a": 1.0}), Setting("second")),
)


def record_of(values):
    """A record with these values in both settings."""
    cells = {scheme: {"value": value, "spread": 0.1, "trials": 7} for scheme, value in values.items()}
    return {"values": {"first": cells, "second": cells}}


def held(claim, **values):
    """Whether a claim holds of values."""
    (judgement,) = simulated_outcome(replace(SIMULATED, claims=(claim,)), record_of(values)).claims
    return judgement.held


def test_rows_have_our_number_the_papers_and_the_difference():
    """Where the paper gives no number there is no difference either."""
    rows = simulated_outcome(SIMULATED, record_of({"a": 1.5, "b": 2, "c": 3})).rows
    assert [(row.label, row.measure) for row in rows[:2]] == [("a", "first"), ("b", "first")]
    assert (rows[0].ours, rows[0].spread, rows[0].runs, rows[0].paper, rows[0].difference) == (1.5, 0.1, 7, 1, 0.5)
    assert (rows[1].paper, rows[1].difference) == (None, None)
    assert len(rows) == 6


@pytest.mark.parametrize(
    ("claim", "yes", "no"),
    [
        (Claim("", lowest="b"), {"a": 2, "b": 1, "c": 3}, {"a": 2, "b": 2, "c": 3}),
        (Claim("", schemes=("a", "b"), above="c"), {"a": 2, "b": 3, "c": 1}, {"a": 2, "b": 1, "c": 1}),
        (Claim("", schemes=("a",), level="c", within=0.5), {"a": 1, "b": 0, "c": 1.5}, {"a": 1, "b": 0, "c": 1.6}),
        (Claim("", schemes=("a", "b"), below=2), {"a": 1, "b": 1.9, "c": 9}, {"a": 1, "b": 2, "c": 0}),
        (Claim("", schemes=("a", "b"), least=2), {"a": 2, "b": 3, "c": 0}, {"a": 2, "b": 1.9, "c": 9}),
        (Claim("", schemes=("a", "b", "c"), falling=True), {"a": 3, "b": 3, "c": 1}, {"a": 3, "b": 1, "c": 2}),
    ],
)
def test_every_kind_of_claim_holds_and_fails(claim, yes, no):
    """Each kind is judged at and beside its limit."""
    assert held(claim, **yes) is True
    assert held(claim, **no) is False


def test_a_claim_must_hold_in_every_setting_it_speaks_of():
    """One setting against it is enough, unless the claim is about the other only; evidence marks what failed."""
    record = record_of({"a": 2, "b": 1, "c": 3})
    record["values"]["second"] = record_of({"a": 1, "b": 2, "c": 3})["values"]["second"]
    both, first = Claim("", lowest="b"), Claim("", lowest="b", settings=("first",))
    judged = simulated_outcome(replace(SIMULATED, claims=(both, first)), record).claims
    assert [claim.held for claim in judged] == [False, True]
    assert (
        judged[0].evidence
        == "first: b 1.00 ± 0.10, next a 2.00 ± 0.10; second: b 2.00 ± 0.10, next a 1.00 ± 0.10 (no)"
    )


def test_a_difference_within_the_spread_is_said_to_be():
    """A scheme that is above another one by less than the spread is above it, with a word about that."""
    claim = Claim("", schemes=("a",), above="b", settings=("first",))
    for value, near in ((1.05, True), (2.0, False)):
        record = record_of({"a": value, "b": 1.0, "c": 0})
        (judged,) = simulated_outcome(replace(SIMULATED, claims=(claim,)), record).claims
        assert judged.held
        assert judged.evidence.endswith("within the spread") == near
    assert Cell(1, 0).is_near(Cell(1, 0))


@given(st.lists(st.floats(0, 100), min_size=4, max_size=4), st.integers(1, 4))
def test_the_final_accuracy_is_the_mean_of_the_last_evaluations(values, last):
    """Evaluations are taken in the order of rounds, whatever the order of keys, as text or as numbers."""
    curve = {str(10 * place): value for place, value in enumerate(values, start=1)}
    assert final_accuracy({"curve": dict(reversed(curve.items()))}, last) == pytest.approx(fmean(values[-last:]))


def made_records(experiment, accuracy):
    """A record for every run, whose accuracy is a function of setting, scheme and seed."""
    return {
        run.digest: {"curve": {"1": 0.0, "2": value, "3": value}}
        for run in experiment.runs()
        if (value := accuracy(run)) is not None
    }


def test_training_rows_are_means_over_seeds_with_their_deviation(tmp_path):
    """The mean, the standard deviation and the number of runs of each setting and scheme."""
    experiment = read_tiny(tmp_path)
    outcome = training_outcome(experiment, made_records(experiment, lambda run: 40.0 + 10 * run.seed))
    row = outcome.rows[0]
    assert (row.label, row.measure) == ("IID, random", "test accuracy, %")
    assert (row.ours, row.spread, row.runs, row.difference) == (45, stdev([40, 50]), 2, -5)
    assert (outcome.missing, len(outcome.rows)) == (0, 4)


def test_missing_runs_leave_a_claim_unjudged(tmp_path):
    """A claim about a scheme that lacks a seed is neither held nor not; its row shows the runs there are."""
    experiment = read_tiny(tmp_path)
    lacking = ("shards", "T2", 1)
    records = made_records(
        experiment, lambda run: None if (run.setting, run.scheme, run.seed) == lacking else 50.0
    )
    outcome = training_outcome(experiment, records)
    assert outcome.missing == 1
    assert outcome.claims[0].held is None
    assert outcome.claims[0].evidence == "runs of shards are missing: T2"
    assert [row.runs for row in outcome.rows] == [2, 2, 2, 1]


def test_records_of_other_specs_are_not_looked_at(tmp_path):
    """A record counts only for the run whose digest it has."""
    experiment = read_tiny(tmp_path)
    records = made_records(experiment, lambda run: 50.0)
    assert training_outcome(experiment.quick_version(), records).missing == 2


def test_nothing_run_means_nothing_judged(tmp_path):
    """An experiment without records has no rows, and claims that are not judged."""
    outcome = training_outcome(read_tiny(tmp_path), {})
    assert (outcome.rows, outcome.missing, outcome.obstacle) == ((), 8, "")
    assert [claim.held for claim in outcome.claims] == [None]
