"""What a run leaves behind: one JSON line about the run, one per round, written as they happen.

A line that was cut off by a crash is dropped when the record is read; everything before it stands.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, writing

FORMAT = 1


@dataclass(frozen=True)
class RoundRow:
    """One round of a run, and the measures after it."""

    step: int
    """Which step of the run this was, from 1; a step that a crash cut off is tried again in a new round."""
    round: int
    """The round's number in the ledger, where numbers are never used twice."""
    outcome: str
    """committed, abandoned or skipped."""
    available: int
    """Users that could be reached when the cohort was chosen."""
    asked: int
    """Users in the cohort."""
    included: int
    """Users whose updates are in the model."""
    lost_batches: int
    """Batches of the cohort that were lost on the way."""
    training_loss: float | None
    accuracy: float | None
    """On the test set after this round, where it was measured."""
    loss: float | None
    """The same for the loss, if it is a finite number."""
    strong: int
    fairness_gap: float
    fairness_gap_completed: float
    cardinality: float
    skipped: int
    """Rounds without a result so far."""
    seconds: float
    """Time that the round took."""


@dataclass(frozen=True)
class Record:
    """A run's record: its head (spec, seed, versions, ...) and its rounds."""

    head: dict[str, Any]
    rows: tuple[RoundRow, ...]


class RecordFile:
    """Appends to a record, a line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, head: dict[str, Any]) -> None:
        """Begin a new record, whole or not at all."""
        with atomic_write(self.path) as file:
            file.write(_line({"format": FORMAT, **head}).encode())

    def add(self, row: RoundRow) -> None:
        """Append a round; when this returns, a power cut does not take it away."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(_line(asdict(row)).encode())
            file.flush()
            os.fsync(file.fileno())

    def cut(self, steps: int) -> Record:
        """Drop rounds after a number of steps, and a line that a crash cut off; return what stays.

        The ledger and the checkpoint decide how far a run came; the record follows them.
        """
        record = read_record(self.path)
        kept = tuple(row for row in record.rows if row.step <= steps)
        lines = [_line(record.head), *(_line(asdict(row)) for row in kept)]
        with atomic_write(self.path) as file:
            file.write("".join(lines).encode())
        return Record(record.head, kept)


def read_record(path: Path) -> Record:
    """Read a run's record; a last line that is not whole is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a run's record: {error}") from None
    lines = _objects(text, path)
    head = next(lines, None)
    if head is None or head.get("format") != FORMAT:
        raise UsageError(f"{path} is not a run's record of format {FORMAT}; check the path")
    names = {field.name for field in fields(RoundRow)}
    rows = []
    for number, line in enumerate(lines, start=2):
        if line.keys() != names:
            raise UsageError(f"{path}, line {number}: not a round's row; the file was changed")
        rows.append(RoundRow(**line))
    return Record(head, tuple(rows))


def _objects(text: str, path: Path) -> Iterator[dict[str, Any]]:
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except ValueError:
            if number == len(lines) and not text.endswith("\n"):
                return
            raise UsageError(f"{path}, line {number}: not JSON; the file was changed") from None
        yield value if isinstance(value, dict) else {}


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False) + "\n"
