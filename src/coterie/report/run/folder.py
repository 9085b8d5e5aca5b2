"""A run's folder turned into its report: the page, and the same curves as pictures."""

from pathlib import Path

import numpy as np

from coterie.experiment.folder import RunFolder
from coterie.experiment.record import read_record
from coterie.ledger import Ledger, State
from coterie.report.figures import can_draw, run_measures, training_curve
from coterie.report.page.html import can_render, write_page
from coterie.report.run.health import BatchHealth
from coterie.report.run.page import run_page
from coterie.values import BatchPlan


def write_run_report(path: Path) -> list[Path]:
    """Write report.html and the figures of the run in a folder; return what was written.

    Without the packages of coterie[report] there is nothing to draw with, and nothing is written.
    """
    folder = RunFolder(path)
    record = read_record(folder.record.path)
    written = []
    if can_draw() and record.rows:
        folder.figures.mkdir(exist_ok=True)
        for name, draw in (("training", training_curve), ("measures", run_measures)):
            draw(record.rows, folder.figures / f"{name}.png")
            written.append(folder.figures / f"{name}.png")
    if can_render():
        with Ledger.open(folder.ledger, read_only=True) as ledger:
            sealed = record.head["spec"]["aggregation"]["sealed"] and record.head["aggregation"] != "plain"
            health = None if ledger.plan is None else _health(ledger, ledger.plan)
            page = run_page(record, ledger.log(), ledger.plan, health, _notes(ledger), sealed=sealed)
        write_page(page, folder.report)
        written.append(folder.report)
    return written


def _health(ledger: Ledger, plan: BatchPlan) -> BatchHealth:
    asked, completed, lost = (np.zeros(len(plan), dtype=np.int64) for _ in range(3))
    for round_ in ledger.rounds():
        if round_.cohort is None or round_.plan != ledger.plan_number:
            continue
        batches = round_.cohort.batches
        asked[batches] += 1
        broken = np.isin(batches, list(round_.lost))
        lost[batches[broken]] += 1
        if round_.state is State.COMMITTED:
            completed[batches[~broken]] += 1
    return BatchHealth(asked, completed, lost)


def _notes(ledger: Ledger) -> list[str]:
    """Tell of every round that gave no result, and why."""
    return [
        f"Round {round_.number} was {round_.state}: {round_.reason or 'the process was stopped'}."
        for round_ in ledger.rounds()
        if round_.state in (State.ABANDONED, State.UNFINISHED)
    ]
