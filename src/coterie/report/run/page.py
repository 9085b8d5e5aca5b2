"""The page of one run: how it learned, what it measured, who took part, and what it guarantees."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import numpy as np

from coterie import __version__
from coterie.audit import StrongLevel
from coterie.errors import UsageError
from coterie.experiment.record import Record, RoundRow
from coterie.report.page.blocks import (
    Block,
    Commands,
    Details,
    Foot,
    Page,
    Plots,
    Section,
    Table,
    Text,
    Tile,
    Tiles,
    Tone,
)
from coterie.report.page.html import render
from coterie.report.page.words import counted, evenly, number, percent
from coterie.report.run.guarantee import Facts, answer, assumptions, guaranteed, not_guaranteed
from coterie.report.run.health import BatchHealth, health_blocks
from coterie.report.run.plots import learning_blocks, measures_plots, participation_plot
from coterie.values import BatchPlan, ParticipationLog

MOST_ROUNDS = 500
"""Rows of the table of rounds."""
MOST_NOTES = 6
"""Notes that are not folded away."""
NEXT = Commands(
    (
        (
            "coterie audit RUN",
            "What its log gives away: both privacy levels, and any isolated user with a proof. RUN is its folder.",
        ),
        ("coterie ledger verify RUN", "Whether the run's ledger is whole and unchanged, record by record."),
    )
)


def run_page(
    record: Record,
    log: ParticipationLog,
    plan: BatchPlan | None,
    health: BatchHealth | None,
    notes: Sequence[str] = (),
    *,
    sealed: bool,
) -> str:
    """Return the report of a run as one HTML file.

    `log` is the ledger's, with the rounds' own numbers: a round of it that has no row in the record was cut off
    by a crash. `plan` and `health` are None for schemes without batches. `notes` are sentences about what
    happened on the way. `sealed` must be said, because a wrong guess would be a false promise.
    """
    if plan is not None and plan.users > log.users:
        raise UsageError(f"the plan has {plan.users} users, the log only {log.users}; they are not of one run")
    facts = run_facts(record, log, plan, sealed=sealed)
    rows = record.rows
    said, tone = answer(facts)
    sections = [
        Section("How it learned", learning_blocks(rows)),
        Section(
            "Privacy, fairness and use",
            (measures_plots(rows, known=facts.level is not None),)
            if rows
            else (Text(("No round has ended yet.",)),),
        ),
        Section("Who took part", _who(log, plan, facts)),
    ]
    if plan is not None and health is not None:
        sections.append(Section("How the batches fared", health_blocks(health, plan)))
    sections += [
        Section("What is guaranteed", (guaranteed(facts),)),
        Section("What is not guaranteed", (not_guaranteed(facts),)),
        Section("The rounds", _rounds(rows, facts, notes)),
        Section("What to do next", (NEXT,), printed=False),
    ]
    page = Page(
        kind="Run report",
        title=f"{counted(facts.users, 'user')}, {counted(facts.rounds, 'round')}",
        answer=said + _reached(rows),
        tiles=_tiles(rows, facts),
        sections=tuple(sections),
        foot=_foot(record, facts),
        tone=tone,
    )
    return render(page)


def run_facts(record: Record, log: ParticipationLog, plan: BatchPlan | None, *, sealed: bool) -> Facts:
    """Return what the words about a run depend on, judged by its log."""
    strong = StrongLevel(log.users)
    for _, members in log.sets():
        strong.add(members)
    split = 0
    if plan is not None and len(plan):
        # A batch that always took part whole lies in one class.
        classes = strong.class_of[plan.members]
        first, last = (reduce(classes, plan.starts[:-1]) for reduce in (np.minimum.reduceat, np.maximum.reduceat))
        split = int(np.sum(first != last))
    finished = {row.round for row in record.rows}
    unfinished = sum(round_ not in finished for round_ in range(log.first, log.first + log.rounds))
    return Facts(
        users=log.users,
        rounds=log.rounds,
        learned=len(log.set_rounds),
        level=None if unfinished and not sealed else strong.level,
        demanded=record.head["privacy"] if plan is not None else None,
        split=split,
        unfinished=unfinished,
        aggregation=record.head["aggregation"],
        sealed=sealed,
        batches=plan is not None,
    )


def _reached(rows: Sequence[RoundRow]) -> str:
    measured = [row.accuracy for row in rows if row.accuracy is not None]
    return f" The model reached {percent(measured[-1])} accuracy." if measured else ""


def _tiles(rows: Sequence[RoundRow], facts: Facts) -> Tiles:
    tiles = [_level_tile(facts)]
    measured = [row for row in rows if row.accuracy is not None]
    if measured:
        last = measured[-1]
        tiles.append(Tile("Accuracy", percent(last.accuracy or 0.0), f"on the test set, after round {last.round}"))
    results = sum(row.outcome == "committed" for row in rows)
    without = facts.rounds - results
    meaning = f"of {number(facts.rounds)}; {number(without)} gave none" if without else "all rounds gave one"
    tiles.append(Tile("Rounds with a result", number(results), meaning))
    if rows:
        last = rows[-1]
        tiles += [
            Tile("Cardinality C", f"{last.cardinality:.2f}", "users in the model per round, on average"),
            Tile("Fairness gap F", f"{last.fairness_gap:.3f}", "between the users' shares of rounds; 0 is fair"),
        ]
    if facts.batches:
        lost = sum(row.lost_batches for row in rows)
        meaning = (
            "left out whole: the seal held" if facts.sealed else "without a seal, a sum of the others remains"
        )
        tiles.append(Tile("Batches lost on the way", number(lost), meaning if lost else "in all rounds"))
    return Tiles(tuple(tiles))


def _level_tile(facts: Facts) -> Tile:
    if facts.level is None:
        return Tile("Privacy level T", "unknown", "unsealed rounds were cut off", "warning")
    if not facts.learned:
        return Tile("Privacy level T", "–", "no sum was learned")
    if facts.demanded is None:
        meaning = "no level was asked for: users come one by one"
        return Tile("Privacy level T", number(facts.level), meaning, "warning" if facts.level == 1 else "plain")
    if facts.level < facts.demanded:
        return Tile("Privacy level T", number(facts.level), f"below the {facts.demanded} asked for", "warning")
    tone: Tone = "plain" if facts.aggregation == "plain" else "good"
    return Tile("Privacy level T", number(facts.level), f"at least the {facts.demanded} asked for", tone)


def _who(log: ParticipationLog, plan: BatchPlan | None, facts: Facts) -> tuple[Block, ...]:
    if not log.users or not log.rounds:
        return (Text(("Nobody yet.",)),)
    if plan is None:
        words = "Users were chosen one by one. Rows are users, columns are rounds."
    elif facts.split:
        split = counted(facts.split, "batch", "batches")
        words = f"Users of one batch stand together. {split} did not always take part whole."
    else:
        words = "Users of one batch stand together. In every round each batch took part whole or not at all."
    return (Text((words,)), Plots((participation_plot(log, plan),)))


def _rounds(rows: Sequence[RoundRow], facts: Facts, notes: Sequence[str]) -> tuple[Block, ...]:
    outcomes = Counter(row.outcome for row in rows)
    text = f"{counted(facts.rounds, 'round')}: {number(outcomes['committed'])} gave a result"
    if outcomes["skipped"]:
        text += (
            f", {number(outcomes['skipped'])} skipped, because no cohort could be formed from who was available"
        )
    if outcomes["abandoned"]:
        text += f", {number(outcomes['abandoned'])} abandoned on the way"
    if facts.unfinished:
        text += f", {number(facts.unfinished)} cut off by a crash and tried again under a new number"
    blocks: list[Block] = [Text((text + ".", *notes[:MOST_NOTES]))]
    if len(notes) > MOST_NOTES:
        blocks.append(Details(counted(len(notes) - MOST_NOTES, "more note"), (Text(tuple(notes[MOST_NOTES:])),)))
    if not rows:
        return tuple(blocks)
    places = evenly(len(rows), MOST_ROUNDS).tolist()
    caption = (
        "Every round."
        if len(places) == len(rows)
        else f"{len(places)} of {number(len(rows))} rounds, evenly spaced."
    )
    columns = ("round", "outcome", "available", "asked", "in the model", "batches lost", "accuracy", "loss", "T",
               "F", "C", "seconds")  # fmt: skip
    table = Table(caption, columns, tuple(_line(rows[place]) for place in places), words=("outcome",))
    return (*blocks, Details("The rounds in numbers", (table,)))


def _line(row: RoundRow) -> tuple[str | int | float, ...]:
    accuracy = "–" if row.accuracy is None else percent(row.accuracy)
    loss = "–" if row.loss is None else f"{row.loss:.4f}"
    return (str(row.round), row.outcome, row.available, row.asked, row.included, row.lost_batches, accuracy, loss,
            row.strong, row.fairness_gap, f"{row.cardinality:.2f}", f"{row.seconds:.2f}")  # fmt: skip


def _foot(record: Record, facts: Facts) -> Foot:
    head = record.head
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    settings = ", ".join(f"{name} = {value}" for name, value in _flat(head["spec"]))
    return Foot(
        facts=(
            ("Made by", f"Coterie {__version__}"),
            ("Run started", str(head["started"])),
            ("Aggregation", f"{head['aggregation']}, {'sealed' if facts.sealed else 'not sealed'}"),
            ("Model parameters", number(head["parameters"])),
            ("Seed", str(head["seed"])),
            ("Versions", versions),
            ("Settings", settings),
            ("SHA-256 of the record", record_digest(record)),
        ),
        assumptions=assumptions(facts),
    )


def record_digest(record: Record) -> str:
    """Return the SHA-256 of the record's file, in hexadecimal."""
    lines = (record.head, *(asdict(row) for row in record.rows))
    return sha256("".join(json.dumps(line) + "\n" for line in lines).encode()).hexdigest()


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings with dotted names.

    >>> list(_flat({"training": {"rate": 0.1}, "seed": 3}))
    [('training.rate', '0.1'), ('seed', '3')]
    """
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
