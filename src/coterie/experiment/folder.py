"""A run's folder: what is in it under which name, and how it survives a crash at any instant."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.experiment.record import RecordFile, RoundRow, row_of
from coterie.storage.files import atomic_write, reading, remove_unfinished, sync_folder, writing
from coterie.storage.lock import FileLock
from coterie.values import FloatArray

KEPT_EVERY = 10
"""Of the checkpoints every tenth stays, and the newest."""

Parameters = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The model after a number of steps, and the record's row of the last of them."""

    step: int
    parameters: Parameters
    row: RoundRow | None


@dataclass(frozen=True, eq=False)
class PendingResult:
    """A round's result, down on the disk before the ledger commits the round: after a crash it is still there."""

    round: int
    mean: FloatArray
    training_loss: float


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = RecordFile(path / "record.jsonl")
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
                if (path / "ledger.sqlite").exists() or (path / "record.jsonl").exists():
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
            if (path / "record.jsonl").exists() or (path / "checkpoints").exists():
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
        row = json.dumps(None if checkpoint.row is None else asdict(checkpoint.row))
        facts = {"/step": checkpoint.step, "/row": row}
        return _write(self.checkpoint_file(checkpoint.step), facts, checkpoint.parameters)

    def tidy(self, step: int) -> None:
        """Drop what is no longer needed when the checkpoint of a step counts."""
        for old in self.steps():
            if old != step and old % KEPT_EVERY:
                self.checkpoint_file(old).unlink(missing_ok=True)
        self._pending.unlink(missing_ok=True)

    def checkpoint(self, step: int, digest: str) -> Checkpoint:
        """Return the checkpoint of a step; refuse one whose bytes are not those with the digest."""
        path = self.checkpoint_file(step)
        if not path.exists():
            raise UsageError(f"{path} was removed; put it back, or start the run anew")
        values = _read(path, digest)
        try:
            row = json.loads(str(values.pop("/row")))
            found = int(values.pop("/step"))
        except (KeyError, ValueError, TypeError):
            raise UsageError(
                f"{path} is not a checkpoint; put a sound copy there, or start the run anew"
            ) from None
        return Checkpoint(found, values, None if row is None else row_of(row, str(path)))

    def set_aside(self, pending: PendingResult) -> str:
        """Write a round's result before the ledger commits the round; return its SHA-256."""
        facts = {"/round": pending.round, "/loss": pending.training_loss}
        return _write(self._pending, facts, {"mean": pending.mean})

    def pending(self, round_: int, digest: str) -> PendingResult:
        """Return the result of a round that was set aside; refuse another one."""
        if not self._pending.exists():
            raise UsageError(f"{self.path} lacks the result of round {round_} (pending.npz); a file was removed")
        values = _read(self._pending, digest)
        return PendingResult(int(values["/round"]), values["mean"], float(values["/loss"]))

    def keep_aggregate(self, step: int, mean: FloatArray, users: NDArray[np.integer]) -> str:
        """Keep a step's mean update and whose it is; return the SHA-256."""
        with writing(self.aggregates):
            self.aggregates.mkdir(exist_ok=True)
        return _write(self.aggregate_file(step), {}, {"mean": mean, "users": users})

    def checkpoint_file(self, step: int) -> Path:
        """Return where the checkpoint of a step is, or would be."""
        return self._checkpoints / f"{step:06d}.npz"

    def aggregate_file(self, step: int) -> Path:
        """Return where the mean update of a step is, or would be."""
        return self.aggregates / f"{step:06d}.npz"

    def steps(self) -> list[int]:
        """Return the steps whose checkpoint is there."""
        return sorted(int(path.stem) for path in self._checkpoints.glob("*.npz") if path.stem.isdigit())


def _write(path: Path, facts: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Write arrays to a file, whole or not at all; return its SHA-256."""
    buffer = io.BytesIO()
    values = {name: np.asarray(value) for name, value in (facts | dict(arrays)).items()}  # type: ignore[operator]
    np.savez(buffer, **values)  # type: ignore[arg-type]
    with atomic_write(path) as file:
        file.write(buffer.getbuffer())
    return hashlib.sha256(buffer.getbuffer()).hexdigest()


def _read(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, after its bytes have proved to be those that were written."""
    with reading(path):
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise changed(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged: {error}; put a sound copy there, or start the run anew") from None


def changed(path: Path, where: str = "") -> UsageError:
    """Return what to raise about a file of which the ledger has another digest."""
    return UsageError(
        f"{path}{where} was changed since it was written: the run's ledger has another digest; put the right copy "
        f"there, or start the run anew"
    )
