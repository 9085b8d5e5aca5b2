"""What a run leaves behind: one JSON line about the run, one per round, written as they happen.

A line that was cut off by a crash is dropped when the record is read; everything before it stands. The same rows
can be written as TensorBoard's event files.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args, get_type_hints

from coterie.errors import UsageError
from coterie.files import read_file, write_file, writing

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
    liars: tuple[str, ...] = ()
    """Users who are proven to have broken the protocol; the round went on without what they sent."""
    diverged: tuple[str, ...] = ()
    """Users whose training gave numbers that are not finite; their updates are zero."""

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data; users of whom there are none are left out."""
        return {name: value for name, value in asdict(self).items() if name not in _OPTIONAL or value}

    @property
    def digest(self) -> str:
        """The SHA-256 of the row's line in a record."""
        return _digest(_line(self.to_json()))


_OPTIONAL = ("liars", "diverged")


@dataclass(frozen=True)
class RunRecord:
    """A run's record: its head (spec, seed, versions, ...) and its rounds."""

    head: dict[str, Any]
    rows: tuple[RoundRow, ...]
    digest: str = ""
    """The SHA-256 of the head's line."""


class LineFile:
    """A file that grows by lines; a crash or a power cut costs it no more than the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> None:
        """Add a line; when this returns, a power cut does not take it away."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[bytes]:
        """Return the lines without a last one that is there in part."""
        return _whole_lines(read_file(self.path)).split(b"\n")[:-1]

    def repair(self) -> None:
        """Drop a last line that a crash cut off."""
        data = read_file(self.path)
        whole = _whole_lines(data)
        if whole != data:
            write_file(self.path, whole)


class RecordFile(LineFile):
    """The record of a run, as it is written."""

    def start(self, head: dict[str, Any]) -> str:
        """Begin a new record, whole or not at all; return the SHA-256 of its first line."""
        write_file(self.path, f"{_head_line(head)}\n".encode())
        return head_digest(head)

    def replace_head(self, head: Mapping[str, Any]) -> None:
        """Put another first line before the rows, whole or not at all."""
        data = read_file(self.path)
        write_file(self.path, _head_line(head).encode() + data[data.index(b"\n") :])

    def add(self, row: RoundRow) -> None:
        """Append a round."""
        self.append(_line(row.to_json()))


def read_record(path: Path) -> RunRecord:
    """Read a run's record; a last line that is not whole is left out."""
    lines = LineFile(path).lines()
    head = _object(lines[0], path, 1) if lines else {}
    if head.get("format") != FORMAT:
        raise UsageError(f"{path} is not a run's record of format {FORMAT}; check the path")
    for name, kind in _HEAD.items():
        if type(head.get(name)) is not kind:
            raise UsageError(
                f"{path}, line 1: {name} is {head.get(name)!r:.40}; the file was changed: put the right copy there"
            )
    rows = (row_of(_object(line, path, n), f"{path}, line {n}") for n, line in enumerate(lines[1:], start=2))
    return RunRecord(head, tuple(rows), sha256(lines[0]).hexdigest())


def row_of(values: Mapping[str, Any], where: str) -> RoundRow:
    """Return the row that an object of JSON is; refuse what is none, and a value of the wrong kind."""
    wrong = "the file was changed: put the right copy there"
    names = {field.name for field in fields(RoundRow)}
    if not names.difference(_OPTIONAL) <= values.keys() <= names:
        raise UsageError(f"{where}: not a round's row; {wrong}")
    hints = get_type_hints(RoundRow)
    for name, value in values.items():
        kinds = get_args(hints[name]) or (hints[name],)
        if name in _OPTIONAL:
            sound = isinstance(value, list) and all(isinstance(user, str) for user in value)
        elif isinstance(value, float):
            sound = float in kinds and math.isfinite(value)
        else:
            sound = type(value) in kinds or (type(value) is int and float in kinds)
        if not sound:
            raise UsageError(f"{where}: {name} is {value!r:.40}; {wrong}")
    users: dict[str, Any] = {name: tuple(values[name]) for name in _OPTIONAL if name in values}
    return RoundRow(**{**values, **users})


def _whole_lines(data: bytes) -> bytes:
    """Return a record without a last line that a crash or a power cut left in part.

    Of a line that was not synced, a power cut can leave the end without the beginning, which then reads as zeros.
    """
    whole = data[: data.rfind(b"\n") + 1]
    last = whole.rfind(b"\n", 0, len(whole) - 1) + 1
    return whole[:last] if last and b"\0" in whole[last:] else whole


def _head_line(head: Mapping[str, Any]) -> str:
    return _line({"format": FORMAT, **head})


def head_digest(head: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the first line of a record."""
    return _digest(_head_line(head))


def _object(line: bytes, path: Path, number: int) -> dict[str, Any]:
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


SCALARS = (
    "training_loss", "accuracy", "loss", "strong", "fairness_gap", "cardinality", "included", "lost_batches",
)  # fmt: skip


class EventFiles:
    """Writes rounds to a folder that TensorBoard reads: first those that a resumed run already has.

    What the stopped run wrote there is taken back, so that every round is there once, and none is missing.
    """

    def __init__(self, folder: Path, rows: Iterable[RoundRow]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("--tensorboard needs the package tensorboard; install coterie[tensorboard]") from None
        self._writer = SummaryWriter(str(folder), purge_step=0)
        for row in rows:
            self.add(row)

    def add(self, row: RoundRow) -> None:
        """Write one round."""
        for name in SCALARS:
            if (value := getattr(row, name)) is not None:
                self._writer.add_scalar(name, value, row.round)
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()
