"""What experiments gave, on disk: a line for each training run, and one file for each simulated experiment."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, reading, writing

Record = dict[str, Any]


@dataclass(frozen=True)
class ResultFile:
    """The results of one experiment: a JSON line for each run, named by what decided it."""

    path: Path

    def records(self) -> dict[str, Record]:
        """Return the records by the digest of their run; a last line that was cut off is left out."""
        if not self.path.exists():
            return {}
        records: dict[str, Record] = {}
        with reading(self.path):
            lines = self.path.read_bytes().decode(errors="replace").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                records[record["run"]] = record
            except (ValueError, KeyError, TypeError):
                raise UsageError(f"{self.path}, line {number}: not the record of a run; remove the line") from None
        return records

    def add(self, record: Record) -> None:
        """Append a record; when this returns, a power cut does not take it away."""
        with writing(self.path):
            self._drop_cut_off_line()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, separators=(",", ":")) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _drop_cut_off_line(self) -> None:
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            with self.path.open("r+b") as file:
                file.truncate(whole)


@dataclass(frozen=True)
class SimulatedFile:
    """The record of an experiment that trains nothing, with the digest of what decided it."""

    path: Path

    def record(self, digest: str) -> Record | None:
        """Return the record if it is that of the experiment with this digest, and None otherwise."""
        if not self.path.exists():
            return None
        with reading(self.path):
            text = self.path.read_bytes()
        try:
            record: Record = json.loads(text)
            return record if record["experiment"] == digest else None
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{self.path} is not the record of an experiment; remove the file") from None

    def write(self, record: Record, digest: str) -> None:
        """Write the record, whole or not at all."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write((json.dumps({"experiment": digest, **record}, separators=(",", ":")) + "\n").encode())
