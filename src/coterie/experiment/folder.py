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
from coterie.experiment.record import RecordFile, RoundRow
from coterie.storage.files import atomic_write, reading, remove_unfinished, writing
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
class Pending:
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
                if (path / "record.jsonl").exists():
                    what = f"holds another run; go on with that one (coterie run --resume {path}), or"
                elif (path / "checkpoints").exists():
                    what = "holds a run that was stopped before its first round; delete it, or"
                else:
                    what = "is not empty;"
                raise UsageError(f"{path} {what} give another folder with --out")
            (path / "checkpoints").mkdir(parents=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Return the folder of a run that was started before."""
        if not (path / "record.jsonl").is_file():
            if (path / "checkpoints").is_dir():
                raise UsageError(f"{path} holds a run that was stopped before its first round; start it anew")
            raise UsageError(f"{path} is not the folder of a run: it has no record.jsonl; check the path")
        remove_unfinished(path)
        return cls(path)

    def save(self, checkpoint: Checkpoint) -> str:
        """Write a checkpoint, drop those that are no longer needed, and return its SHA-256."""
        row = json.dumps(None if checkpoint.row is None else asdict(checkpoint.row))
        facts = {"/step": checkpoint.step, "/row": row}
        digest = _write(self._checkpoint(checkpoint.step), facts, checkpoint.parameters)
        for old in self._steps()[:-1]:
            if old % KEPT_EVERY:
                self._checkpoint(old).unlink(missing_ok=True)
        self._pending.unlink(missing_ok=True)
        return digest

    def latest(self) -> Checkpoint:
        """Return the newest checkpoint."""
        steps = self._steps()
        if not steps:
            raise UsageError(f"{self.path} has no checkpoint: the run stopped before it began; start it anew")
        values = _read(self._checkpoint(steps[-1]))
        row = json.loads(str(values.pop("/row")))
        step = int(values.pop("/step"))
        return Checkpoint(step, values, None if row is None else RoundRow(**row))

    def set_aside(self, pending: Pending) -> None:
        """Write a round's result, before the ledger commits the round."""
        _write(self._pending, {"/round": pending.round, "/loss": pending.training_loss}, {"mean": pending.mean})

    def pending(self) -> Pending | None:
        """Return the result that was set aside last, if its round's checkpoint is not there yet."""
        if not self._pending.exists():
            return None
        values = _read(self._pending)
        return Pending(int(values["/round"]), values["mean"], float(values["/loss"]))

    def keep_aggregate(self, step: int, mean: FloatArray, users: NDArray[np.integer]) -> None:
        """Keep a step's mean update and whose it is."""
        with writing(self.aggregates):
            self.aggregates.mkdir(exist_ok=True)
        _write(self.aggregates / f"{step:06d}.npz", {}, {"mean": mean, "users": users})

    def _checkpoint(self, step: int) -> Path:
        return self._checkpoints / f"{step:06d}.npz"

    def _steps(self) -> list[int]:
        return sorted(int(path.stem) for path in self._checkpoints.glob("*.npz") if path.stem.isdigit())


def _write(path: Path, facts: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Write arrays to a file, whole or not at all; return its SHA-256."""
    buffer = io.BytesIO()
    values = {name: np.asarray(value) for name, value in (facts | dict(arrays)).items()}  # type: ignore[operator]
    np.savez(buffer, **values)  # type: ignore[arg-type]
    with atomic_write(path) as file:
        file.write(buffer.getbuffer())
    return hashlib.sha256(buffer.getbuffer()).hexdigest()


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path):
        data = path.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged: {error}; put a sound copy there, or start the run anew") from None
