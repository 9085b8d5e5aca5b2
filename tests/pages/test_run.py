"""The report of a run says what its record and its log say."""

import hashlib
import re
import tomllib
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from coterie.lab.experiments.folder import RecordFile, RunRecord
from coterie.leakage import Evidence, measure, strong_level
from coterie.pages.figures import run_measures, training_curve
from coterie.pages.run import batch_blocks, run_page
from coterie.values import LogBuilder
from support.pages import charts_of
from support.runs import simulated


def page_of(run):
    """The page of a simulated run."""
    return run_page(run, "2025-03-01")


def test_the_digest_is_that_of_the_records_file(tmp_path):
    """The foot's SHA-256 is what `sha256sum` says of the file."""
    run = simulated(rounds=5)
    record = run.record
    file = RecordFile(tmp_path / "rounds.jsonl")
    file.start({name: value for name, value in record.head.items() if name != "format"})
    for row in record.rows:
        file.add(row)
    assert run.digest == hashlib.sha256((tmp_path / "rounds.jsonl").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "run",
    [simulated(), simulated(sealed=False, lost=0.05), simulated(privacy=None, sealed=False, rounds=140)],
    ids=["sealed", "unsealed", "random"],
)
def test_the_verdict_is_judged_by_the_log(run):
    """The level is the log's; a batch counts as split if and only if its users' columns differ."""
    verdict = run.verdict
    assert verdict.strong == strong_level(run.log)
    columns = run.log.to_dense().T
    batches = [] if run.plan is None else [run.plan.batch(batch) for batch in range(len(run.plan))]
    split = sum(len({columns[user].tobytes() for user in batch}) > 1 for batch in batches)
    assert len({breach.batch for breach in verdict.breaches or ()}) == split
    assert run.unfinished == 0


def test_a_round_of_the_log_without_a_row_was_cut_off():
    """Sealed, the level stands; unsealed, nobody can say how private the run is."""
    sealed = simulated(unfinished=(3, 9))
    assert (sealed.unfinished, sealed.verdict.strong) == (2, strong_level(sealed.log))
    assert "2 cut off by a crash" in page_of(sealed)
    unsealed = simulated(unfinished=(3,), sealed=False, lost=0)
    assert not unsealed.verdict.certain
    assert "Nobody can say how private this is" in page_of(unsealed)
    assert "the true level may be lower" in page_of(unsealed)
    assert "the true level may be lower" not in page_of(sealed)


def test_the_curves_are_the_records_rows():
    """Each measure is drawn with the values that the audit gives for the log, T from the first sum on."""
    run = simulated()
    measures = measure(run.log)
    charts = charts_of(page_of(run))
    level, gap, cardinality = (
        charts[title]["lines"][0] for title in ("Privacy level T", "Fairness gap F", "Cardinality C")
    )
    learned = [row.round for row in run.record.rows if row.included]
    assert level["x"][0] == learned[0]
    assert level["y"] == measures.strong[learned[0] :].tolist()
    assert gap["y"] == pytest.approx(measures.fairness_gap.tolist(), rel=1e-5)
    assert cardinality["y"] == pytest.approx(measures.cardinality.tolist(), rel=1e-5)
    assert np.sum(charts["Users and rounds"]["share"]) == len(run.log.members)


def test_a_long_run_keeps_its_page_small():
    """With thousands of users and rounds a page has less than 1.5 megabytes."""
    assert len(page_of(simulated(users=4000, per_round=200, rounds=1500, privacy=10))) < 1_500_000


def test_notes_next_steps_date_and_settings_stand_in_the_page():
    """Notes are text; commands name the run's own folder; the settings are TOML that gives them back."""
    run = simulated(rounds=4, notes=("Resumed <once>.",))
    html = page_of(replace(run, path=Path("runs/the first")))
    assert "Resumed &lt;once&gt;." in html
    assert "coterie audit &#39;runs/the first&#39;" in html
    assert "2025-03-01" in html
    settings = unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", html, re.DOTALL)[1])
    assert tomllib.loads(settings) == run.record.head["spec"]


def test_a_run_that_has_not_begun_has_a_page():
    """No rounds, no measurements: the page says so."""
    run = simulated(rounds=1)
    empty = replace(
        run, record=RunRecord(run.record.head, ()), evidence=Evidence(LogBuilder(120).build()), health=None
    )
    html = page_of(empty)
    assert "No sum is on record" in html
    assert "Neither accuracy nor loss was measured" in html


def test_rounds_without_a_measurement_are_left_out_of_the_curves():
    """Accuracy is drawn at the rounds in which it was measured."""
    accuracy = charts_of(page_of(simulated(rounds=20, evaluate=5)))["Accuracy"]
    assert accuracy["lines"][0]["x"] == [4, 9, 14, 19]


def test_the_worst_batches_are_those_lost_most_often():
    """The table begins with the largest share of lost rounds, and counts add up to the words above it."""
    run = simulated(lost=0.05)
    words, plots, worst, _ = batch_blocks(run.health)
    shares = [row[3] / row[1] for row in worst.rows]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == max(run.health.lost / np.maximum(run.health.asked, 1))
    assert f"{run.health.lost.sum()} times it lost" in words.paragraphs[0]
    parts = dict(plots.plots[0].chart.parts)
    assert sum(parts["lost on the way"]) == run.health.lost.sum()
    assert sum(parts["completed"]) == run.health.completed.sum()


@pytest.mark.parametrize("draw", [training_curve, run_measures])
def test_the_pictures_of_a_run_are_the_same_from_the_same_rows(draw, tmp_path):
    """The same rows give the same SVG; other rows give another; PNG works too."""
    rows = simulated(rounds=12, evaluate=3).record.rows
    changed = (*rows[:-1], replace(rows[-1], accuracy=0.5, cardinality=9.0))
    for name, drawn in (("a.svg", rows), ("b.svg", rows), ("c.svg", changed), ("d.png", rows)):
        draw(drawn, tmp_path / name)
    first, second, third = ((tmp_path / name).read_bytes() for name in ("a.svg", "b.svg", "c.svg"))
    assert first == second != third
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
