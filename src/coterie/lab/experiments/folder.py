"""A run's folder: what is in it under which name, and how it survives a crash at any instant.

The record has one JSON line about the run and one per round, written as they happen. A line that was cut off by a
crash is dropped when the record is read; everything before it stands. The same rows can be written as
TensorBoard's event files.

The ledger binds the files together: it has a digest of each, and none counts that was changed.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.federation.ledger import Ledger, Round, Snapshot, State
from coterie.files import (
    FileLock,
    changed_file,
    encode_arrays,
    map_array,
    read_arrays,
    read_file,
    remove_unfinished,
    sync_folder,
    write_file,
    writing,
)
from coterie.values import FloatArray, IntArray

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


# --- the folder

RECORD = "record.jsonl"
"""The file of a run's record, by which a folder is known for a run's."""
KEPT_EVERY = 10
"""Of the checkpoints every tenth stays, and the newest."""

HEAD, DATA, MODEL, ROW, RESULT, AGGREGATE = "head", "data", "model", "row", "result", "aggregate"
"""The names of files and parts of files in the ledger: the record's first line, all users' data, a checkpoint, a
row of the record, a result that was set aside, a mean update that was kept. A run that was extended to more rounds
has further heads, `head-200` for one of 200 rounds."""

STEP_STATES = (State.COMMITTED, State.ABANDONED, State.SKIPPED)
"""Rounds that are a step of the run; one that a crash left unfinished is tried again in a new round."""

ModelParameters = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The model after a number of steps, and the record's row of the last of them."""

    step: int
    parameters: ModelParameters
    row: RoundRow | None


@dataclass(frozen=True, eq=False)
class PendingResult:
    """A round's result, down on the disk before the ledger commits the round: after a crash it is still there."""

    round: int
    mean: FloatArray
    training_loss: float
    liars: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = RecordFile(path / RECORD)
        self.ledger = path / "ledger.sqlite"
        self.devices = path / "devices"
        self.report = path / "report.html"
        self.summary = path / "summary.json"
        self.figures = path / "figures"
        self.aggregates = path / "aggregates"
        self.events = path / "tensorboard"
        self._checkpoints = path / "checkpoints"
        self._pending = path / "pending.npz"

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make the folder; refuse one that holds something."""
        with writing(path):
            if path.exists() and any(path.iterdir()):
                if (path / "ledger.sqlite").exists() or (path / RECORD).exists():
                    what = f"holds another run; go on with that one (coterie run --resume {path}), or"
                else:
                    what = "is not empty;"
                raise UsageError(f"{path} {what} give another folder with --out")
            new = [each for each in (path, *path.parents) if not each.exists()]
            (path / "checkpoints").mkdir(parents=True)
            for each in {path, *new}:
                sync_folder(each.parent)  # a power cut must not take the whole folder away, rounds later
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Return the folder of a run that was started before."""
        if not (path / "ledger.sqlite").is_file():
            if (path / RECORD).exists() or (path / "checkpoints").exists():
                raise UsageError(f"{path} has no ledger.sqlite: it was removed, or the run never began")
            raise UsageError(f"{path} is not the folder of a run: it has no ledger.sqlite; check the path")
        return cls(path)

    def lock(self) -> FileLock:
        """Take the folder for this process alone, to run in it; who only reads needs no lock."""
        return FileLock(self.path / "run.lock", f"the run in {self.path}")

    def remove_unfinished(self) -> None:
        """Remove what a write that a crash cut off has left; only for whoever holds the lock."""
        remove_unfinished(self.path)

    def save(self, checkpoint: Checkpoint) -> str:
        """Write a checkpoint and return its SHA-256; it counts when the ledger has that."""
        row = json.dumps(None if checkpoint.row is None else checkpoint.row.to_json())
        values = {"/step": checkpoint.step, "/row": row, **checkpoint.parameters}
        return _write_arrays(self.checkpoint_file(checkpoint.step), values)

    def tidy(self, step: int) -> None:
        """Drop what is no longer needed when the checkpoint of a step counts."""
        for path in self._checkpoints.glob("*.npz"):
            if path.stem.isdigit() and int(path.stem) != step and int(path.stem) % KEPT_EVERY:
                path.unlink(missing_ok=True)
        self._pending.unlink(missing_ok=True)

    def checkpoint(self, step: int, digest: str) -> Checkpoint:
        """Return the checkpoint of a step; refuse one whose bytes are not those with the digest."""
        path = self.checkpoint_file(step)
        if not path.exists():
            raise UsageError(f"{path} was removed; put it back, or start the run anew")
        values = read_arrays(path, digest)
        try:
            row = json.loads(str(values.pop("/row")))
            saved = int(values.pop("/step"))
        except (KeyError, ValueError, TypeError):
            raise UsageError(
                f"{path} is not a checkpoint; put a sound copy there, or start the run anew"
            ) from None
        return Checkpoint(saved, values, None if row is None else row_of(row, str(path)))

    def set_aside(self, pending: PendingResult) -> str:
        """Write a round's result before the ledger commits the round; return its SHA-256."""
        users = {"/liars": pending.liars, "/diverged": pending.diverged}
        texts = {name: json.dumps(some) for name, some in users.items() if some}
        values = {"/round": pending.round, "/loss": pending.training_loss, **texts, "mean": pending.mean}
        return _write_arrays(self._pending, values)

    def pending(self, round_: int, digest: str) -> PendingResult:
        """Return the result of a round that was set aside; refuse another one."""
        if not self._pending.exists():
            raise UsageError(f"{self.path} lacks the result of round {round_} (pending.npz); a file was removed")
        values = read_arrays(self._pending, digest)
        liars, diverged = (tuple(json.loads(str(values.get(name, "[]")))) for name in ("/liars", "/diverged"))
        return PendingResult(int(values["/round"]), values["mean"], float(values["/loss"]), liars, diverged)

    def keep_aggregate(self, step: int, mean: FloatArray, users: NDArray[np.integer]) -> str:
        """Keep a step's mean update and whose it is; return the SHA-256."""
        with writing(self.aggregates):
            self.aggregates.mkdir(exist_ok=True)
        return _write_arrays(self.aggregate_file(step), {"mean": mean, "users": users})

    def aggregate(self, step: int) -> tuple[FloatArray, IntArray]:
        """Return a step's mean update, as a map of the file that is read where it is needed, and whose it is."""
        path = self.aggregate_file(step)
        with np.load(path, allow_pickle=False) as file:
            users = file["users"]
        return map_array(path, "mean"), users

    def checkpoint_file(self, step: int) -> Path:
        """Return where the checkpoint of a step is, or would be."""
        return self._checkpoints / f"{step:06d}.npz"

    def aggregate_file(self, step: int) -> Path:
        """Return where the mean update of a step is, or would be."""
        return self.aggregates / f"{step:06d}.npz"


def _write_arrays(path: Path, arrays: Mapping[str, object]) -> str:
    """Write arrays to a file, whole or not at all; return its SHA-256."""
    data, digest = encode_arrays(arrays)
    write_file(path, data)
    return digest


@dataclass(frozen=True, eq=False)
class RunProgress:
    """How far a run came, by its ledger: the steps whose checkpoint counts, and one that may lack it."""

    steps: tuple[Round, ...]
    cut_off: Round | None


def progress_of(folder: RunFolder, snapshot: Snapshot) -> RunProgress:
    """Return how far a run came; refuse a ledger that is not a run's."""
    if not {HEAD, DATA, MODEL} <= snapshot.files.keys():
        raise UsageError(
            f"{folder.path} holds a run that was stopped before its first round; begin it anew in another folder"
        )
    ended = [each for each in snapshot.rounds if each.state in STEP_STATES]
    steps = tuple(each for each in ended if MODEL in each.files)
    if len(ended) - len(steps) > 1 or steps != tuple(ended[: len(steps)]):
        raise UsageError(f"{folder.ledger} is not the ledger of a run: rounds of it have no checkpoint")
    return RunProgress(steps, ended[-1] if len(ended) > len(steps) else None)


def read_checked(folder: RunFolder, ledger: Ledger) -> tuple[RunRecord, Snapshot]:
    """Read a run's record and ledger, and refuse them if a line is not the one whose digest the ledger has.

    Rows follow the ledger, and so does this: beside a run that goes on, the ledger is never behind the record.
    """
    path = folder.record.path
    record = read_record(path) if path.exists() else None
    ledger.refresh()
    snapshot = ledger.snapshot()
    progress = progress_of(folder, snapshot)
    if record is None:
        raise UsageError(f"{path} was removed; put it back: the ledger has a run of {len(progress.steps)} rounds")
    if record.digest not in _heads(snapshot):
        raise changed_file(path, ", line 1,")
    if len(record.rows) > len(progress.steps):
        raise changed_file(path, f", line {len(progress.steps) + 2},")
    for number, (row, round_) in enumerate(zip(record.rows, progress.steps, strict=False), start=2):
        if row.digest != round_.files.get(ROW):
            raise changed_file(path, f", line {number},")
    return record, snapshot


def extend(folder: RunFolder, ledger: Ledger, head: Mapping[str, Any], rounds: int) -> None:
    """Give a run more rounds: the ledger has the new head's digest first, then the record has the head.

    Between the two the record has its old head, which the ledger knows as well: the run can be extended again.
    """
    name, digest = f"{HEAD}-{rounds}", head_digest(head)
    if ledger.files.get(name) != digest:
        ledger.bind({name: digest})
    folder.record.replace_head(head)


def _heads(snapshot: Snapshot) -> set[str]:
    return {digest for name, digest in snapshot.files.items() if name == HEAD or name.startswith(f"{HEAD}-")}


def check_files(folder: RunFolder, snapshot: Snapshot) -> None:
    """Refuse a run of which a checkpoint or a mean update that is there was changed."""
    progress = progress_of(folder, snapshot)
    expected = {folder.checkpoint_file(0): snapshot.files[MODEL]}
    for step, round_ in enumerate(progress.steps, start=1):
        expected[folder.checkpoint_file(step)] = round_.files[MODEL]
        if AGGREGATE in round_.files:
            expected[folder.aggregate_file(step)] = round_.files[AGGREGATE]
    for path, digest in expected.items():
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # most checkpoints are dropped when the next one is there
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            raise changed_file(path)
