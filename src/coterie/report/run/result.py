"""What a run's folder says about the run: its record, its ledger's log, how its batches fared, its guarantee."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.audit import Audit, StrongLevel
from coterie.experiment.folder import RunFolder, check_files, read_checked
from coterie.experiment.record import RoundRow, RunRecord
from coterie.ledger import Ledger, Snapshot, State
from coterie.report.run.guarantee import Facts, Guarantee, guarantee
from coterie.values import BatchPlan, FloatArray, IntArray, ParticipationLog
from coterie.values.text import counted, display_name, listing


@dataclass(frozen=True, eq=False)
class BatchHealth:
    """For each batch of a plan: the rounds it was asked in, completed, and lost members in.

    A round that was given up as a whole counts as asked only.
    """

    asked: IntArray
    completed: IntArray
    lost: IntArray

    @property
    def lost_share(self) -> FloatArray:
        """The share of a batch's rounds in which it was lost, 0 for one that was never asked."""
        return self.lost / np.maximum(self.asked, 1)

    def worst_first(self) -> IntArray:
        """Return the batches, those with the largest share of lost rounds first, then those asked least.

        >>> BatchHealth(np.array([4, 0, 4]), np.array([4, 0, 3]), np.array([0, 0, 1])).worst_first().tolist()
        [2, 1, 0]
        """
        return np.lexsort((np.arange(len(self.asked)), self.asked, -self.lost_share))


@dataclass(frozen=True, eq=False)
class RunResult:
    """A run as its folder tells it: everything that its page, the console and the JSON summary show.

    `log` is the ledger's, with the rounds' own numbers: a round of it that has no row in the record was cut off
    by a crash. `plan` and `health` are None for schemes without batches. `notes` are sentences about what
    happened on the way. `unknown` counts the rounds of which nobody knows what the server learned.
    """

    path: Path
    record: RunRecord
    log: ParticipationLog
    plan: BatchPlan | None
    health: BatchHealth | None
    notes: tuple[str, ...] = ()
    unknown: int = 0

    @property
    def sealed(self) -> bool:
        """Whether batches were sealed by their members' keys."""
        head = self.record.head
        return bool(head["spec"]["aggregation"]["sealed"]) and head["aggregation"] != "plain"

    @property
    def tested(self) -> RoundRow | None:
        """The last round after which the model was tested."""
        return next((row for row in reversed(self.record.rows) if row.accuracy is not None), None)

    @property
    def digest(self) -> str:
        """The SHA-256 of the record's file, in hexadecimal."""
        lines = (self.record.head, *(row.to_json() for row in self.record.rows))
        return sha256("".join(json.dumps(line) + "\n" for line in lines).encode()).hexdigest()

    @cached_property
    def facts(self) -> Facts:
        """What the words about the run depend on, judged by its log."""
        strong = StrongLevel(self.log.users)
        for _, members in self.log.sets():
            strong.add(members)
        learned = len(self.log.set_rounds)
        finished = {row.round for row in self.record.rows}
        rounds = range(self.log.first, self.log.first + self.log.rounds)
        return Facts(
            users=self.log.users,
            rounds=self.log.rounds,
            learned=learned,
            level=None if self.unknown else strong.level,
            # Cheap, and the same on every machine.
            weak=Audit.of(self.log, np.random.default_rng(0)).sketch() if learned and not self.unknown else None,
            required=self.record.head["privacy"] if self.plan is not None else None,
            split=_split(strong, self.plan),
            lost=sum(row.lost_batches for row in self.record.rows),
            unfinished=sum(round_ not in finished for round_ in rounds),
            aggregation=self.record.head["aggregation"],
            sealed=self.sealed,
            batches=self.plan is not None,
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """What can be said about the run's privacy."""
        return guarantee(self.facts)

    def summary(self) -> dict[str, Any]:
        """Return what came out, in one object, as `--json` prints it."""
        rows, tested, weak = self.record.rows, self.tested, self.facts.weak
        last = rows[-1] if rows else None
        return {
            "out": str(self.path),
            "rounds": len(rows),
            "skipped": last.skipped if last else 0,
            "lost_batches": self.facts.lost,
            "accuracy": tested.accuracy if tested else None,
            "loss": tested.loss if tested else None,
            "strong": self.facts.level,
            "cardinality": last.cardinality if last else 0.0,
            "fairness_gap": last.fairness_gap if last else 0.0,
            "seconds": round(sum(row.seconds for row in rows), 3),
            "weak": None if weak is None else {"low": weak.low, "high": weak.high, "exact": weak.exact},
            "verdict": self.guarantee.tables(),
        }

    @cached_property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The rounds as columns, an array for each value of a row; NaN where nothing was measured.

        Of the users who broke the protocol or diverged, it is their number.
        """
        return {
            field.name: np.array([_as_number(getattr(row, field.name)) for row in self.record.rows])
            for field in fields(RoundRow)
        }

    def __repr__(self) -> str:
        tested = "" if self.tested is None else f", accuracy={self.tested.accuracy}"
        rounds = counted(len(self.record.rows), "round")
        return f"RunResult({str(self.path)!r}, {rounds}, strong={self.facts.level}{tested})"

    def _repr_html_(self) -> str:
        """Return the verdict and the key numbers, for a notebook."""
        words = self.guarantee
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}<td>{escape(str(value))}</tr>"
            for name, value in self.summary().items()
            if name not in {"verdict", "weak"}
        )
        account = escape(" ".join(words.sentences))
        return f"<p><b>{escape(words.headline)}</b></p><table>{rows}</table><p>{account}</p>"


def read_run(path: Path) -> RunResult:
    """Read the folder of a run, ended or not; one of which a file was changed since it was written is refused."""
    folder = RunFolder.open(path)  # not locked: another process may be at work on it
    with Ledger.open(folder.ledger, read_only=True) as ledger:
        record, snapshot = read_checked(folder, ledger)
    check_files(folder, snapshot)
    return RunResult(
        path=path,
        record=record,
        log=snapshot.log,
        plan=snapshot.plan,
        health=None if snapshot.plan is None else _health(snapshot, snapshot.plan),
        notes=tuple(_notes(snapshot, record)),
        unknown=len(snapshot.unknown_rounds),
    )


def _as_number(value: str | float | tuple[str, ...] | None) -> str | float:
    """Return a value of a row for an array of them."""
    return math.nan if value is None else len(value) if isinstance(value, tuple) else value


def _split(strong: StrongLevel, plan: BatchPlan | None) -> int:
    """Return how many batches some sum holds a part of: a batch that always took part whole lies in one class."""
    if plan is None or len(plan) == 0:
        return 0
    classes = strong.class_of[plan.members]
    first, last = (reduce(classes, plan.starts[:-1]) for reduce in (np.minimum.reduceat, np.maximum.reduceat))
    return int(np.sum(first != last))


def _health(snapshot: Snapshot, plan: BatchPlan) -> BatchHealth:
    asked, completed, lost = (np.zeros(len(plan), dtype=np.int64) for _ in range(3))
    for round_ in snapshot.rounds:
        if round_.cohort is None or round_.plan != snapshot.plan_number:
            continue
        batches = round_.cohort.batches
        asked[batches] += 1
        incomplete = np.isin(batches, list(round_.lost))
        lost[batches[incomplete]] += 1
        if round_.state is State.COMMITTED:
            completed[batches[~incomplete]] += 1
    return BatchHealth(asked, completed, lost)


def _notes(snapshot: Snapshot, record: RunRecord) -> Iterator[str]:
    """Yield a sentence about every batch retired or overridden, round without a result, and user who did wrong."""
    for done, batches in (("retired", snapshot.retired), ("overridden", snapshot.overrides)):
        for each in batches:
            yield f"A batch of {len(each.users)} users was {done} before round {each.since}: {each.reason}."
    for round_ in snapshot.rounds:
        if round_.state in (State.ABANDONED, State.UNFINISHED):
            yield f"Round {round_.number} was {round_.state}: {round_.reason or 'the process was stopped'}."
    for row in record.rows:
        if row.liars:
            who = listing(map(display_name, row.liars))
            yield f"Round {row.round} went on without what {who} sent, proven to have broken the protocol."
        if row.diverged:
            who = listing(map(display_name, row.diverged))
            yield f"In round {row.round} training gave {who} numbers that are not finite, which count as zeros."
