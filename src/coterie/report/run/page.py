"""The page of one run: how it learned, what it measured, who took part, and what it guarantees."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.files import write_file
from coterie.lab.experiments.folder import RoundRow, RunFolder
from coterie.lab.experiments.result import RunResult
from coterie.lab.experiments.spec import toml_value
from coterie.report.figures import can_draw, run_measures, training_curve
from coterie.report.page.blocks import (
    Block,
    Commands,
    Details,
    Footer,
    Listing,
    Page,
    Plots,
    Section,
    Table,
    Text,
    evenly,
)
from coterie.report.page.html import can_render, render, write_page
from coterie.report.run.guarantee import assumptions, guaranteed, not_guaranteed
from coterie.report.run.plots import batch_blocks, learning_blocks, measures_plots, users_plot
from coterie.values.text import KeyNumber, counted, number, percent

MOST_ROUNDS = 500
"""Rows of the table of rounds."""
MOST_NOTES = 6
"""Notes that are not folded away."""


def write_run_report(result: RunResult, date: str) -> list[Path]:
    """Write the page of a run, its curves as pictures and its summary; return the files that were written.

    `date` says when the page was made. Without the packages of coterie[report] there is nothing to draw with, and
    only the summary is written.
    """
    folder, rows, paths = RunFolder(result.path), result.record.rows, []
    if can_draw() and rows:
        folder.figures.mkdir(exist_ok=True)
        for name, draw in (("training", training_curve), ("measures", run_measures)):
            draw(rows, folder.figures / f"{name}.png")
            paths.append(folder.figures / f"{name}.png")
    if can_render():
        write_page(run_page(result, date), folder.report)
        paths.append(folder.report)
    write_file(folder.summary, f"{json.dumps(result.summary(), indent=2)}\n".encode())
    return [*paths, folder.summary]


def run_page(result: RunResult, date: str) -> str:
    """Return the report of a run as one HTML file; `date` says when it was made."""
    verdict, rows, tested = result.verdict, result.record.rows, result.tested
    accuracy = [f"The model reached {percent(tested.accuracy or 0.0)} accuracy."] if tested else []
    measures = measures_plots(result.columns, known=verdict.certain) if rows else Text(("No round has ended.",))
    sections = [
        Section("How it learned", learning_blocks(result.columns)),
        Section("Privacy, fairness and use", (measures,)),
        Section("Who took part", _who(result)),
    ]
    if result.health is not None:
        sections.append(Section("How the batches fared", batch_blocks(result.health), printed=False))
    sections += [
        Section("What is guaranteed", (guaranteed(verdict, result.aggregation),)),
        Section("What is not guaranteed", (not_guaranteed(verdict),)),
        Section("The rounds", _rounds(result), printed=False),
        Section("The settings", _settings(result), printed=False),
        Section("What to do next", (_next(result.path),), printed=False),
    ]
    page = Page(
        kind="Run report",
        subject=f"{counted(result.log.users, 'user')}, {counted(result.log.rounds, 'round')}",
        date=date,
        title=verdict.words.headline,
        answer=" ".join((*result.account, *accuracy)),
        tiles=_tiles(result),
        sections=tuple(sections),
        footer=_footer(result),
        tone=verdict.words.tone,
    )
    return render(page)


def _tiles(result: RunResult) -> tuple[KeyNumber, ...]:
    rows, lost = result.record.rows, result.lost_batches
    strong, weak, _ = result.verdict.words.figures
    tiles = [strong]
    if result.tested is not None:
        accuracy = percent(result.tested.accuracy or 0.0)
        tiles.append(KeyNumber("Accuracy", accuracy, f"on the test set, after round {result.tested.round}"))
    results = sum(row.outcome == "committed" for row in rows)
    without = result.log.rounds - results
    meaning = f"of {number(result.log.rounds)}; {number(without)} gave none" if without else "all rounds gave one"
    tiles += [KeyNumber("Rounds with a result", number(results), meaning), weak]
    if rows:
        last, fair = rows[-1], "between the users' shares of rounds; 0 is fair"
        tiles += [
            KeyNumber("Cardinality C", f"{last.cardinality:.2f}", "users in the model per round, on average"),
            KeyNumber("Fairness gap F", f"{last.fairness_gap:.3f}", fair),
        ]
    if result.plan is not None:
        split = "without a seal, a sum of the others remains"
        meaning = "left out whole: the seal held" if result.verdict.sealed else split
        meaning = meaning if lost else "in all rounds"
        tiles.append(KeyNumber("Batches lost on the way", number(lost), meaning))
    return tuple(tiles)


def _who(result: RunResult) -> tuple[Block, ...]:
    log, plan, breaches = result.log, result.plan, result.verdict.breaches
    if not log.users or not log.rounds:
        return (Text(("Nobody yet.",)),)
    if plan is None:
        words = "Users were chosen one by one. Rows are users, columns are rounds."
    elif breaches:
        split = counted(len({breach.batch for breach in breaches}), "batch", "batches")
        words = f"Users of one batch stand together. {split} did not always take part whole."
    else:
        words = "Users of one batch stand together. In every round each batch took part whole or not at all."
    return (Text((words,)), Plots((users_plot(log, plan),)))


def _rounds(result: RunResult) -> tuple[Block, ...]:
    rows, notes = result.record.rows, result.notes
    outcomes = Counter(row.outcome for row in rows)
    text = f"{counted(result.log.rounds, 'round')}: {number(outcomes['committed'])} gave a result"
    if outcomes["skipped"]:
        skipped = number(outcomes["skipped"])
        text += f", {skipped} skipped, because no cohort could be formed from who was available"
    if outcomes["abandoned"]:
        text += f", {number(outcomes['abandoned'])} abandoned on the way"
    if result.unfinished:
        text += f", {number(result.unfinished)} cut off by a crash and tried again under a new number"
    blocks: list[Block] = [Text((text + ".", *notes[:MOST_NOTES]))]
    if len(notes) > MOST_NOTES:
        blocks.append(Details(counted(len(notes) - MOST_NOTES, "more note"), (Text(tuple(notes[MOST_NOTES:])),)))
    if not rows:
        return tuple(blocks)
    places = evenly(len(rows), MOST_ROUNDS).tolist()
    every = len(places) == len(rows)
    caption = "Every round." if every else f"{len(places)} of {number(len(rows))} rounds, evenly spaced."
    columns = ("round", "outcome", "available", "asked", "in the model", "batches lost", "accuracy", "loss", "T",
               "F", "C", "seconds")  # fmt: skip
    table = Table(caption, columns, tuple(_line(rows[place]) for place in places), words=("outcome",))
    return (*blocks, Details("The rounds in numbers", (table,)))


def _line(row: RoundRow) -> tuple[str | int | float, ...]:
    accuracy = "–" if row.accuracy is None else percent(row.accuracy)
    loss = "–" if row.loss is None else f"{row.loss:.4f}"
    return (str(row.round), row.outcome, row.available, row.asked, row.included, row.lost_batches, accuracy, loss,
            row.strong, row.fairness_gap, f"{row.cardinality:.2f}", f"{row.seconds:.2f}")  # fmt: skip


def _settings(result: RunResult) -> tuple[Block, ...]:
    """Return the spec as a file that makes the run again."""
    how = "Everything that decided this run. Saved as `spec.toml`, `coterie run spec.toml` makes it again."
    return Text((how,)), Listing("The spec of this run, as TOML", spec_toml(result.record.head["spec"]))


def spec_toml(tables: Mapping[str, Any]) -> str:
    """Return a spec's nested tables as TOML, without comments.

    >>> print(spec_toml({"seed": 3, "data": {"source": "mnist", "shared": [1, 2]}}), end="")
    seed = 3
    <BLANKLINE>
    [data]
    source = "mnist"
    shared = [1, 2]
    """
    plain = {name: value for name, value in tables.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {toml_value(value)}\n" for name, value in plain.items()]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines.append(f"\n[{name}]\n" + spec_toml(table))
    return "".join(lines)


def _next(path: Path) -> Commands:
    folder = shlex.quote(str(path))
    gives_away = "What its log gives away: both privacy levels, and any isolated user with a proof."
    return Commands(
        (
            (f"coterie audit {folder}", gives_away),
            (f"coterie ledger verify {folder}", "Whether the run's ledger is whole and unchanged."),
            (f"coterie report {folder} OTHER", "This run and others on one page; OTHER is another run's folder."),
        )
    )


def _footer(result: RunResult) -> Footer:
    head = result.record.head
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    return Footer(
        facts=(
            ("Folder", str(result.path)),
            ("Run started", str(head["started"])),
            ("Aggregation", f"{head['aggregation']}, {'sealed' if result.verdict.sealed else 'not sealed'}"),
            ("Model parameters", number(head["parameters"])),
            ("Seed", str(head["seed"])),
            ("Versions", versions),
            ("SHA-256 of the record", result.digest),
        ),
        assumptions=assumptions(result.verdict),
    )
