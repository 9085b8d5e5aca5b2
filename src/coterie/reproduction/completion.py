"""One experiment from what is there to its outcome: runs what is missing, or says what keeps it from being run."""

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coterie import __version__
from coterie.errors import UsageError
from coterie.reproduction.definition import Experiment
from coterie.reproduction.outcome import Outcome, simulated_outcome, training_outcome, unknown_outcome
from coterie.reproduction.records import Record, ResultFile, SimulatedFile

Report = Callable[[str, int, int], None]
"""Told what has ended, how many are done, and how many there are."""


@dataclass(frozen=True)
class Machine:
    """What there is to run experiments with."""

    data: str = "data"
    """The folder with the data sets, or where they are fetched to."""
    device: str = "auto"
    """Where to train: auto (a GPU), cpu or cuda."""
    processes: int | None = None
    """Runs or trials side by side; unless given, what suits the machine."""


def record_path(experiment: Experiment, folder: Path) -> Path:
    """Return where an experiment's record lies in a folder of results."""
    return folder / f"{experiment.name}.{'jsonl' if experiment.kind == 'training' else 'json'}"


def outcome_so_far(experiment: Experiment, folder: Path) -> Outcome:
    """Return what the records in a folder say of an experiment."""
    path = record_path(experiment, folder)
    if experiment.kind == "training":
        return training_outcome(experiment, ResultFile(path).records())
    record = SimulatedFile(path).record(experiment.digest)
    return unknown_outcome(experiment) if record is None else simulated_outcome(experiment, record)


def complete(experiment: Experiment, folder: Path, machine: Machine, report: Report, *, quick: bool) -> Outcome:
    """Run what an experiment lacks in a folder of results, and return its outcome.

    What cannot be run here is named in the outcome as its obstacle. Training at full size asks for a GPU, unless
    the machine's device is set to something else than auto.
    """
    so_far = outcome_so_far(experiment, folder)
    if not so_far.missing:
        return so_far
    if experiment.kind == "training":
        obstacle = _obstacle(experiment, machine, so_far.missing, quick=quick) or _train(
            experiment, folder, machine, report
        )
        return replace(outcome_so_far(experiment, folder), obstacle=obstacle)
    record = _simulated(experiment, machine, report)
    SimulatedFile(record_path(experiment, folder)).write(record, experiment.digest)
    return outcome_so_far(experiment, folder)


def _simulated(experiment: Experiment, machine: Machine, report: Report) -> Record:
    from coterie.reproduction.simulated import simulate

    record = simulate(experiment, processes=machine.processes or 1, report=report)
    made_with = {"coterie": __version__, "numpy": np.__version__, "python": platform.python_version()}
    return {**record, "made_with": made_with}


def _obstacle(experiment: Experiment, machine: Machine, missing: int, *, quick: bool) -> str:
    """Return what keeps training from being tried at all, or nothing."""
    import torch

    if machine.device == "auto" and not quick and not torch.cuda.is_available():
        return (
            f"{missing} training runs of {experiment.name} are missing, and there is no GPU here. Run the command "
            "on a machine with one, add --quick for a small version, or --device cpu to train at full size on the "
            "processor, which takes hours or days."
        )
    return ""


def _train(experiment: Experiment, folder: Path, machine: Machine, report: Report) -> str:
    """Run the missing runs; return what kept them from being run, or nothing."""
    from coterie.reproduction.execution import missing_runs, run_missing
    from coterie.training.data.published import DATASETS, load

    results = ResultFile(record_path(experiment, folder))
    runs = missing_runs(experiment, results, machine.data, machine.device)
    try:
        # Once and in this process: several that fetch the same files would stand in each other's way.
        for source in sorted({run.spec.data.source for run in runs} & DATASETS.keys()):
            load(DATASETS[source], machine.data)
        run_missing(
            experiment,
            results,
            folder=machine.data,
            device=machine.device,
            processes=machine.processes,
            report=report,
        )
    except UsageError as error:
        return str(error)
    return ""
