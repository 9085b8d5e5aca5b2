"""A run's folder: what is in it under which name, and how it survives a crash at any instant.

The ledger binds the files together: it has a digest of each, and none counts that was changed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.experiment.record import RecordFile, RoundRow, RunRecord, head_digest, read_record, row_of
from coterie.federation.ledger import Ledger, Round, Snapshot, State
from coterie.files import (
    FileLock,
    changed_file,
    encode_arrays,
    map_array,
    read_arrays,
    remove_unfinished,
    sync_folder,
    write_file,
    writing,
)
from coterie.values import FloatArray, IntArray

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
