"""`run`: one experiment from its spec to its report, in one call."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.experiment.options import with_options
from coterie.experiment.record import RoundRow
from coterie.experiment.run import Run
from coterie.experiment.spec import Spec
from coterie.report.run.page import write_run_report
from coterie.report.run.result import RunResult, read_run


def run(
    spec: Spec | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    progress: Callable[[RoundRow], None] = lambda _row: None,
    **options: Any,  # noqa: ANN401 - a spec checks the kinds
) -> RunResult:
    """Train a model over users who never show their updates, and return what came out.

    `spec` is a spec, its file, or the default one; `out` a new folder (unless given, below `runs`, named after the
    time). `resume` takes up the run in a folder instead. `rounds` is the number of rounds in
    all, in place of the spec's; it also extends a run that is resumed. `workers` are the clients trained side by
    side, as many as there are cores unless given. `progress` is given every round's row. Other keywords
    change the spec as the options of the command do: `coterie.run(model="mlp", data="hospitals")`. The folder then
    holds the record, checkpoints, ledger and report.html.
    """
    now = datetime.now(UTC)
    if resume is not None:
        if spec is not None or out is not None or options:
            raise UsageError(
                "a run is resumed as it was begun; give resume, and at most rounds, workers and progress"
            )
        job = Run.resume(Path(resume), workers=workers, rounds=rounds)
    else:
        settings = spec if isinstance(spec, Spec) else Spec() if spec is None else Spec.read(Path(spec))
        settings = with_options(settings, options if rounds is None else {**options, "rounds": rounds})
        folder = Path("runs") / now.strftime("%Y-%m-%d-%H%M%S") if out is None else Path(out)
        job = Run.start(settings, folder, workers=workers)
    with job:
        for row in job.steps():
            progress(row)
    result = read_run(job.folder.path)
    write_run_report(result, now.strftime("%Y-%m-%d"))
    return result
