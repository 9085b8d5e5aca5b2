"""What a run leaves behind: one JSON line about the run, one per round, written as they happen.

A line that was cut off by a crash is dropped when the record is read; everything before it stands.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args, get_type_hints

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, reading, writing

FORMAT = 2
LARGEST_LINE = 1 << 20
"""Bytes that a line of a record has at most."""

_HEAD: dict[str, type] = {"spec": dict, "seed": int, "users": int, "parameters": int, "aggregation": str}


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
    """The privacy level of all that the server could open so far."""
    fairness_gap: float
    fairness_gap_completed: float
    cardinality: float
    skipped: int
    """Rounds without a result so far."""
    seconds: float
    """Time that the round took."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the row's line in a record."""
        return _digest(_line(asdict(self)))


@dataclass(frozen=True)
class RunRecord:
    """A run's record: its head (spec, seed, versions, ...) and its rounds."""

    head: dict[str, Any]
    rows: tuple[RoundRow, ...]
    digest: str = ""
    """The SHA-256 of the head's line."""


class RecordFile:
    """Appends to a record, a line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, head: dict[str, Any]) -> str:
        """Begin a new record, whole or not at all; return the SHA-256 of its first line."""
        line = head_line(head)
        with atomic_write(self.path) as file:
            file.write(f"{line}\n".encode())
        return _digest(line)

    def replace_head(self, head: dict[str, Any]) -> None:
        """Put another first line before the rows, whole or not at all."""
        with reading(self.path):
            data = self.path.read_bytes()
        with atomic_write(self.path) as file:
            file.write(head_line(head).encode() + data[data.index(b"\n") :])

    def add(self, row: RoundRow) -> None:
        """Append a round; when this returns, a power cut does not take it away."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(f"{_line(asdict(row))}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def repair(self) -> None:
        """Drop a last line that a crash cut off."""
        with reading(self.path):
            data = self.path.read_bytes()
        whole = _whole_lines(data)
        if whole != data:
            with atomic_write(self.path) as file:
                file.write(whole)


def read_record(path: Path) -> RunRecord:
    """Read a run's record; a last line that is not whole is left out."""
    try:
        text = _whole_lines(path.read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a run's record: {error}") from None
    lines = text.split("\n")[:-1]
    head = _object(lines[0], path, 1) if lines else {}
    if head.get("format") != FORMAT:
        raise UsageError(f"{path} is not a run's record of format {FORMAT}; check the path")
    for name, kind in _HEAD.items():
        if type(head.get(name)) is not kind:
            raise UsageError(
                f"{path}, line 1: {name} is {head.get(name)!r:.40}; the file was changed: put the right copy there"
            )
    rows = (row_of(_object(line, path, n), f"{path}, line {n}") for n, line in enumerate(lines[1:], start=2))
    return RunRecord(head, tuple(rows), _digest(lines[0]))


def row_of(values: Mapping[str, Any], where: str) -> RoundRow:
    """Return the row that an object of JSON is; refuse what is none, and a value of the wrong kind."""
    if values.keys() != {field.name for field in fields(RoundRow)}:
        raise UsageError(f"{where}: not a round's row; the file was changed: put the right copy there")
    hints = get_type_hints(RoundRow)
    for name, value in values.items():
        kinds = get_args(hints[name]) or (hints[name],)
        whole = type(value) is int and float in kinds
        if not (type(value) in kinds or whole) or (type(value) is float and not math.isfinite(value)):
            raise UsageError(f"{where}: {name} is {value!r:.40}; the file was changed: put the right copy there")
    return RoundRow(**values)


def _whole_lines(data: bytes) -> bytes:
    """Return a record without a last line that a crash or a power cut left in part.

    Of a line that was not synced, a power cut can leave the end without the beginning, which then reads as zeros.
    """
    whole = data[: data.rfind(b"\n") + 1]
    last = whole.rfind(b"\n", 0, len(whole) - 1) + 1
    return whole[:last] if last and b"\0" in whole[last:] else whole


def head_line(head: Mapping[str, Any]) -> str:
    """Return the first line of a record."""
    return _line({"format": FORMAT, **head})


def head_digest(head: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the first line of a record."""
    return _digest(head_line(head))


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line) if len(line) <= LARGEST_LINE else None
    except (ValueError, RecursionError):
        raise UsageError(
            f"{path}, line {number}: not JSON; the file was changed: put the right copy there"
        ) from None
    return value if isinstance(value, dict) else {}


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False)


def _digest(line: str) -> str:
    return sha256(line.encode()).hexdigest()
