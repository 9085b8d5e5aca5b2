"""Runs what an experiment still lacks, several runs at a time, and writes each result down as it comes."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from coterie.errors import UsageError
from coterie.reproduction.definition import Experiment, PlannedRun
from coterie.reproduction.study import train

PROCESSES_ON_A_GPU = 4
"""Runs side by side on one GPU: small models leave most of it idle."""

Record = dict[str, Any]
Report = Callable[[str, int, int], None]
"""Told which run has ended, how many are done, and how many there are."""


@dataclass(frozen=True)
class ResultFile:
    """The results of one experiment: a JSON line for each run, named by what decided it."""

    path: Path

    def records(self) -> dict[str, Record]:
        """Return the records by the digest of their run; a last line that was cut off is left out."""
        if not self.path.exists():
            return {}
        records: dict[str, Record] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                records[record["run"]] = record
            except (ValueError, KeyError, TypeError):
                if number == len(lines) and not line.endswith("\n"):
                    break
                raise UsageError(f"{self.path}, line {number}: not the record of a run; remove the line") from None
        return records

    def add(self, record: Record) -> None:
        """Append a record; when this returns, a power cut does not take it away."""
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


def run_missing(
    experiment: Experiment,
    results: ResultFile,
    *,
    folder: str,
    device: str = "auto",
    processes: int | None = None,
    report: Report,
) -> None:
    """Run every run of a training experiment that has no record yet."""
    runs = list(experiment.runs(folder, device))
    known = results.records()
    missing = [run for run in runs if run.digest not in known]
    done = len(runs) - len(missing)
    side_by_side = processes or (PROCESSES_ON_A_GPU if torch.cuda.is_available() and device != "cpu" else 1)
    for run, record in _outcomes(missing, min(side_by_side, max(len(missing), 1))):
        head = {"run": run.digest, "setting": run.setting, "scheme": run.scheme, "seed": run.seed}
        results.add({**head, "rounds": run.spec.training.rounds, **record})
        done += 1
        report(str(run), done, len(runs))


def _outcomes(runs: list[PlannedRun], processes: int) -> Iterator[tuple[PlannedRun, Record]]:
    """Yield the runs with their records, as they end."""
    if processes == 1:
        for run in runs:
            yield run, train(run.spec)
        return
    # A new interpreter for each: a GPU cannot be shared through a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: Mapping[Future[Record], PlannedRun] = {pool.submit(train, run.spec): run for run in runs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
