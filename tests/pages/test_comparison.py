"""Runs that differ only in their seed are one group, and the page gives each group's mean and spread."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie import UsageError
from coterie.pages.comparison import compare, comparison_page, read_runs
from support.browser import visit
from support.pages import DRAWN, charts_of
from support.runs import simulated

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def runs():
    """Three seeds sealed, two unsealed."""
    sealed = [simulated(rounds=20, seed=seed) for seed in SEEDS]
    unsealed = [simulated(rounds=20, seed=seed, sealed=False, aggregation="secagg") for seed in SEEDS[:2]]
    return [replace(run, path=Path(f"runs/{place}")) for place, run in enumerate((*sealed, *unsealed))]


def test_runs_are_grouped_by_everything_but_their_seed(runs):
    """Two settings give two groups, named by what differs, in the order in which they came."""
    comparison = compare(runs)
    assert [len(group.runs) for group in comparison.groups] == [3, 2]
    assert [group.label for group in comparison.groups] == [
        "protocol secagg+, sealed true",
        "protocol secagg, sealed false",
    ]
    assert compare(runs[:3]).groups[0].label == "all runs"


def test_mean_and_spread_are_those_of_numpy(runs):
    """The final values' mean and sample deviation, and at each round the curve's mean and band."""
    group = compare(runs).groups[0]
    final = [run.record.rows[-1].accuracy for run in group.runs]
    spread = group.spread("accuracy")
    assert (spread.mean, spread.deviation) == pytest.approx((np.mean(final), np.std(final, ddof=1)))
    curve = group.curve("accuracy")
    every = np.array([[row.accuracy for row in run.record.rows] for run in group.runs])
    assert curve.y == pytest.approx(every.mean(axis=0))
    assert curve.band[1] == pytest.approx(every.mean(axis=0) + every.std(axis=0, ddof=1))
    assert compare(runs[:1]).groups[0].spread("accuracy").deviation is None


def test_a_group_has_the_lowest_level_of_its_runs_or_none(runs):
    """One run whose level is unknown leaves that of its group unknown."""
    levels = [run.verdict.strong for run in runs[:3]]
    assert compare(runs).groups[0].tables()["strong"] == min(levels)
    broken = simulated(rounds=20, seed=9, sealed=False, aggregation="secagg", unfinished=(3,))
    tables = compare([*runs, broken]).tables()
    assert [group["strong"] for group in tables["groups"]] == [min(levels), None]
    assert tables["verdict"]["tone"] == "warning"


def test_the_page_has_a_curve_for_each_group_and_a_row_for_each_run(runs):
    """Curves, final accuracies and headlines are those of the runs; JSON says the same."""
    comparison = compare(runs)
    html = comparison_page(comparison, "2025-03-01")
    accuracy = charts_of(html)["Accuracy"]
    assert [line["name"] for line in accuracy["lines"]] == [group.label for group in comparison.groups]
    tables = json.loads(json.dumps(comparison.tables()))
    assert [run["out"] for run in tables["runs"]] == [str(run.path) for run in runs]
    for run in runs:
        assert f">{run.path}<" in html
        assert run.verdict.words.headline in html
    assert tables["groups"][0]["accuracy"]["mean"] == pytest.approx(accuracy["lines"][0]["y"][-1], abs=1e-5)
    assert tables["groups"][0]["seeds"] == list(SEEDS)
    assert comparison.headline in html


def test_one_group_reads_as_mean_and_spread_over_seeds(runs):
    """The headline is the accuracy with its spread."""
    assert compare(runs[:3]).headline.endswith("accuracy over 3 seeds")
    assert "within the spread" in compare(runs).answer or "more than the spread" in compare(runs).answer
    assert "nobody knows the spread" in compare([runs[0], runs[3]]).answer


def test_a_run_that_is_named_twice_is_refused(tmp_path):
    """The same folder under two names is one run."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.jsonl").touch()
    with pytest.raises(UsageError, match="is given twice"):
        read_runs([tmp_path / "run", tmp_path / "run" / ".." / "run"])


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_the_page_is_drawn_quietly_and_fits(chromium, runs, tmp_path, width, scheme):
    """Every plot is drawn inside its box; no sideways scrolling, complaint or request."""
    file = tmp_path / "comparison.html"
    file.write_text(comparison_page(compare(runs), "2025-03-01"), encoding="utf-8")
    with visit(chromium, file, width, scheme) as visited:
        assert visited.page.evaluate(DRAWN) == [True] * 4
        assert visited.page.evaluate("document.documentElement.scrollWidth") == width
        assert visited.requests == [file.as_uri()]
        assert visited.complaints == []
