"""`run`: train a model from Python as `coterie run` does, with its report."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.lab.experiments.folder import RoundRow
from coterie.lab.experiments.result import RunResult, read_run
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec, with_options
from coterie.report.run.page import write_run_report


def unnamed_folder() -> Path:
    """Return where a run goes that was given no folder: below `runs`, named after the time."""
    return Path("runs") / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")


def run(
    spec: Spec | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    progress: Callable[[RoundRow], None] = lambda _row: None,
    **options: Any,  # noqa: ANN401 - a spec checks the kinds
) -> RunResult:
    """Train a model over users who never show their updates, and return what came out.

    `spec` is a spec, its tables, its file, or the default one; `out` a new folder (unless given, below `runs`,
    named after the time). `resume` takes up the run in a folder instead. `rounds` is the number of rounds in all,
    in place of the spec's; it also extends a run that is resumed. `workers` are the clients trained side by
    side, as many as there are cores unless given. `progress` is given every round's row. Other keywords
    change the spec as the options of the command do: `coterie.run(model="mlp", data="hospitals")`. The folder then
    holds the record, checkpoints, ledger, report.html and summary.json.
    """
    if resume is not None:
        if spec is not None or out is not None or options:
            what = "give resume, and at most rounds, workers and progress"
            raise UsageError(f"a run is resumed as it was begun; {what}")
        job = Run.resume(Path(resume), workers=workers, rounds=rounds)
    else:
        if spec is None or isinstance(spec, Mapping):
            spec = Spec.from_tables(spec or {})
        elif not isinstance(spec, Spec):
            spec = Spec.read(Path(spec))
        settings = with_options(spec, options if rounds is None else {**options, "rounds": rounds})
        job = Run.start(settings, unnamed_folder() if out is None else Path(out), workers=workers)
    with job:
        for row in job.steps():
            progress(row)
    result = read_run(job.folder.path)
    write_run_report(result, datetime.now(UTC).date().isoformat())
    return result
