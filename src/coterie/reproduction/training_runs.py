"""The runs of a training experiment: models trained in the open, as fast as the machine can, with no ledger.

Several are trained at a time, and each result is written down as it comes.
"""

import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass

import numpy as np
import torch

from coterie.experiment.plain import PlainAggregation
from coterie.experiment.setup import prepare
from coterie.experiment.spec import Spec
from coterie.leakage.measures import RunningMeasures
from coterie.reproduction.definition import Experiment, PlannedRun, ReportProgress
from coterie.reproduction.outcome import ExperimentRecord, ResultFile
from coterie.reproduction.reconstruction import attack_windows, made_with
from coterie.selection.workers import CheckStop, never_stop, worker_processes
from coterie.training.data.published import DATASETS, load
from coterie.training.engine.trainer import evaluate
from coterie.training.models import flatten
from coterie.values.checks import check_count

PROCESSES_ON_A_GPU = 4
"""Runs side by side on one GPU: small models leave most of it idle."""


def train(spec: Spec, check_stop: CheckStop = never_stop) -> ExperimentRecord:
    """Train a model as a spec says, adding updates up plainly, and return what came out as a record.

    The cohorts, losses and updates are those of `coterie run` with the same spec and plain aggregation.
    """
    started = time.perf_counter()
    setup = prepare(spec)
    parameters = flatten(setup.model).to(setup.trainer.device)
    counts, nobody = np.zeros(setup.user_data.users, dtype=np.int64), np.zeros(0, dtype=np.int64)
    measures = RunningMeasures(setup.user_data.users)
    curve: dict[int, float] = {}
    ready = time.perf_counter()
    for step, available in zip(range(spec.training.rounds), setup.world.available(0), strict=False):
        cohort = setup.selector.choose(available, counts, np.random.default_rng([spec.seed, step]))
        aggregation = PlainAggregation(setup, parameters, step)
        users = nobody if cohort is None else aggregation.survivors(cohort)[0]
        if len(users):
            parameters = parameters + aggregation.mean(users).to(parameters)
            counts[users] += 1
        measures.add_round((users,) if len(users) else ())
        if (step + 1) % spec.evaluate_every == 0 or step + 1 == spec.training.rounds:
            tested = evaluate(setup.model, parameters, setup.user_data, workers=setup.trainer.workers)
            curve[step + 1] = round(100 * tested.accuracy, 2)
        check_stop()
    now = measures.now
    return {
        "curve": curve,
        "strong": now.strong,
        "fairness_gap": round(now.fairness_gap, 6),
        "fairness_gap_completed": round(now.fairness_gap_completed, 6),
        "cardinality": round(now.cardinality, 4),
        "skipped": now.skipped,
        "seconds": round(time.perf_counter() - ready, 2),
        "preparation_seconds": round(ready - started, 2),
        "made_with": made_with(setup),
    }


@dataclass(frozen=True)
class Machine:
    """What there is to run experiments with."""

    data: str = "data"
    """The folder with the data sets, or where they are fetched to."""
    device: str = "auto"
    """Where to train: auto (a GPU), cpu or cuda."""
    processes: int | None = None
    """Runs or trials side by side; unless given, what suits the machine."""


def run_missing(experiment: Experiment, results: ResultFile, machine: Machine, report: ReportProgress) -> None:
    """Run every run of a training experiment that has no record yet."""
    if machine.processes is not None:
        check_count(machine.processes, "the number of processes")
    planned = {run.digest: run for run in experiment.runs(machine.data, machine.device)}
    known = results.records()
    missing = [run for digest, run in planned.items() if digest not in known]
    # Once and in this process: several that fetch the same files would stand in each other's way.
    for source in sorted({run.spec.data.source for run in missing} & DATASETS.keys()):
        load(DATASETS[source], machine.data)
    runs = len(planned)
    done = runs - len(missing)
    on_a_gpu = torch.cuda.is_available() and machine.device != "cpu"
    side_by_side = machine.processes or (PROCESSES_ON_A_GPU if on_a_gpu else 1)
    for run, record in _outcomes(missing, min(side_by_side, max(len(missing), 1))):
        head = {"run": run.digest, "setting": run.setting, "scheme": run.scheme, "seed": run.seed}
        results.add({**head, "rounds": run.spec.training.rounds, **record})
        done += 1
        report(str(run), done, runs)


def _outcomes(runs: list[PlannedRun], processes: int) -> Iterator[tuple[PlannedRun, ExperimentRecord]]:
    """Yield the runs with their records, as they end."""
    if processes == 1:
        yield from ((run, _result(run)) for run in runs)
        return
    # A new interpreter for each: a GPU cannot be shared through a fork.
    with worker_processes(_result, processes, "spawn") as submit:
        waiting = {submit(run): run for run in runs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _result(run: PlannedRun, check_stop: CheckStop = never_stop) -> ExperimentRecord:
    """Train a run's model, and attack it if that is planned."""
    if run.windows is None:
        return train(run.spec, check_stop)
    return attack_windows(run.spec, run.windows, check_stop)
