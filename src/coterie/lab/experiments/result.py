"""What a run's folder says about the run: its record, its ledger's log, how its batches fared, its verdict."""

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

from coterie.federation.audit import evidence_of
from coterie.federation.ledger import Ledger, Snapshot, State
from coterie.lab.experiments.folder import RoundRow, RunFolder, RunRecord, check_files, read_checked
from coterie.lab.experiments.spec import AggregationSettings
from coterie.leakage import Evidence, Question, Verdict, examine
from coterie.values import BatchPlan, FloatArray, IntArray, ParticipationLog
from coterie.values.tables import from_table
from coterie.values.text import counted, display_name, listing


@dataclass(frozen=True, eq=False)
class BatchHealth:
    """A plan, and for each batch of it: the rounds it was asked in, completed, and lost members in.

    A round that was given up as a whole counts as asked only. So does one without a seal that went on with a part
    of the batch.
    """

    plan: BatchPlan
    asked: IntArray
    completed: IntArray
    lost: IntArray

    @classmethod
    def of(cls, snapshot: Snapshot) -> "BatchHealth | None":
        """Return how the batches of the plan in force fared in the rounds that are over; None without a plan."""
        if snapshot.plan is None:
            return None
        asked = snapshot.times_asked.copy()
        if (current := snapshot.open_round) is not None and current.cohort is not None:
            asked[current.cohort.batches] -= 1
        return cls(snapshot.plan, asked, snapshot.times_included, snapshot.times_lost)

    @property
    def lost_share(self) -> FloatArray:
        """The share of a batch's rounds in which it was lost, 0 for one that was never asked."""
        return self.lost / np.maximum(self.asked, 1)

    def worst_first(self) -> IntArray:
        """Return the batches, those with the largest share of lost rounds first, then those asked least.

        >>> plan = BatchPlan.from_batches(3, 1, [[0], [1], [2]])
        >>> BatchHealth(plan, np.array([4, 0, 4]), np.array([4, 0, 3]), np.array([0, 0, 1])).worst_first().tolist()
        [2, 1, 0]
        """
        return np.lexsort((np.arange(len(self.asked)), self.asked, -self.lost_share))


@dataclass(frozen=True, eq=False)
class RunResult:
    """A run as its folder tells it: everything that its page, the console and the JSON summary show.

    `evidence` is what the ledger shows to an audit; a round of it that has no row in the record was cut off by a
    crash. `health` is None for schemes without batches. `notes` are sentences about what happened on the way.
    """

    path: Path
    record: RunRecord
    evidence: Evidence
    health: BatchHealth | None
    notes: tuple[str, ...] = ()

    @property
    def log(self) -> ParticipationLog:
        """Every set of users whose sum the server could open, the worst case where that is not known."""
        return self.evidence.worst_case

    @property
    def plan(self) -> BatchPlan | None:
        """The plan in force; None for schemes without batches."""
        return self.evidence.plan

    @cached_property
    def aggregation(self) -> AggregationSettings:
        """How sums were taken."""
        return from_table(AggregationSettings, self.record.head["spec"]["aggregation"], "a spec's aggregation")

    @cached_property
    def verdict(self) -> Verdict:
        """What `coterie audit` says of the run, by what is cheap: the same on every machine."""
        return examine(self.evidence, Question(combinations=0), rng=np.random.default_rng(0), time_left=None)

    @property
    def account(self) -> tuple[str, ...]:
        """The verdict in a few sentences, and what became of batches that lost a member."""
        return (*self.verdict.words.sentences, *losses(self.verdict, self.lost_batches))

    @property
    def lost_batches(self) -> int:
        """How often a batch lost a member on the way."""
        return sum(row.lost_batches for row in self.record.rows)

    @property
    def unfinished(self) -> int:
        """How many rounds a crash cut off."""
        return self.log.rounds - len(self.record.rows)

    @property
    def tested(self) -> RoundRow | None:
        """The last round after which the model was tested."""
        return next((row for row in reversed(self.record.rows) if row.accuracy is not None), None)

    @property
    def digest(self) -> str:
        """The SHA-256 of the record's file, in hexadecimal."""
        lines = (self.record.head, *(row.to_json() for row in self.record.rows))
        return sha256("".join(json.dumps(line) + "\n" for line in lines).encode()).hexdigest()

    def summary(self) -> dict[str, Any]:
        """Return what came out, in one object, as `--json` prints it."""
        rows, tested, verdict = self.record.rows, self.tested, self.verdict
        last, weak = rows[-1] if rows else None, verdict.weak
        return {
            "out": str(self.path),
            "rounds": len(rows),
            "skipped": last.skipped if last else 0,
            "lost_batches": self.lost_batches,
            "accuracy": tested.accuracy if tested else None,
            "loss": tested.loss if tested else None,
            "strong": verdict.strong if verdict.certain else None,
            "cardinality": last.cardinality if last else 0.0,
            "fairness_gap": last.fairness_gap if last else 0.0,
            "seconds": round(sum(row.seconds for row in rows), 3),
            "weak": {"low": weak.low, "high": weak.high, "exact": weak.exact}
            if verdict.has_sums and verdict.certain
            else None,
            "verdict": {
                "headline": verdict.words.headline,
                "tone": verdict.words.tone,
                "sentences": list(self.account),
            },
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
        return f"RunResult({str(self.path)!r}, {rounds}, strong={self.verdict.strong}{tested})"

    def _repr_html_(self) -> str:
        """Return the verdict and the key numbers, for a notebook."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}<td>{escape(str(value))}</tr>"
            for name, value in self.summary().items()
            if name not in {"verdict", "weak"}
        )
        account = escape(" ".join(self.account))
        return f"<p><b>{escape(self.verdict.words.headline)}</b></p><table>{rows}</table><p>{account}</p>"


def read_run(path: Path) -> RunResult:
    """Read the folder of a run, ended or not; one of which a file was changed since it was written is refused."""
    folder = RunFolder.open(path)  # not locked: another process may be at work on it
    with Ledger.open(folder.ledger, read_only=True) as ledger:
        record, snapshot = read_checked(folder, ledger)
        place = ledger.place
    check_files(folder, snapshot)
    return RunResult(
        path=path,
        record=record,
        evidence=evidence_of(snapshot, place),
        health=BatchHealth.of(snapshot),
        notes=tuple(_notes(snapshot, record)),
    )


def _as_number(value: str | float | tuple[str, ...] | None) -> str | float:
    """Return a value of a row for an array of them."""
    return math.nan if value is None else len(value) if isinstance(value, tuple) else value


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


def losses(verdict: Verdict, times: int) -> tuple[str, ...]:
    """Say what became of batches that lost a member on the way, `times` times in all."""
    if not times or verdict.evidence.plan is None:
        return ()
    lost = f"A batch lost a member on the way {'once' if times == 1 else counted(times, 'time')}"
    if verdict.sealed:
        return (f"{lost} and was left out whole.",)
    return (f"{lost}: without a seal the sum of the others comes out.",) if verdict.breaches else (f"{lost}.",)
