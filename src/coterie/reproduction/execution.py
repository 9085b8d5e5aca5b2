"""Runs what a training experiment still lacks, several runs at a time, and writes each result down as it comes."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.synchronize import Event

import torch

from coterie.errors import CoterieError
from coterie.experiment.spec import Spec
from coterie.reproduction.definition import Experiment, PlannedRun
from coterie.reproduction.records import Record, ResultFile
from coterie.reproduction.study import train
from coterie.values.checks import check_count

PROCESSES_ON_A_GPU = 4
"""Runs side by side on one GPU: small models leave most of it idle."""

Report = Callable[[str, int, int], None]
"""Told which run has ended, how many are done, and how many there are."""


def missing_runs(experiment: Experiment, results: ResultFile, folder: str, device: str) -> list[PlannedRun]:
    """Return the runs of a training experiment that have no record yet."""
    known = results.records()
    return [run for run in experiment.runs(folder, device) if run.digest not in known]


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
    if processes is not None:
        check_count(processes, "the number of processes")
    missing = missing_runs(experiment, results, folder, device)
    runs = len(list(experiment.runs()))
    done = runs - len(missing)
    side_by_side = processes or (PROCESSES_ON_A_GPU if torch.cuda.is_available() and device != "cpu" else 1)
    for run, record in _outcomes(missing, min(side_by_side, max(len(missing), 1))):
        head = {"run": run.digest, "setting": run.setting, "scheme": run.scheme, "seed": run.seed}
        results.add({**head, "rounds": run.spec.training.rounds, **record})
        done += 1
        report(str(run), done, runs)


def _outcomes(runs: list[PlannedRun], processes: int) -> Iterator[tuple[PlannedRun, Record]]:
    """Yield the runs with their records, as they end."""
    if processes == 1:
        for run in runs:
            yield run, train(run.spec)
        return
    # A new interpreter for each: a GPU cannot be shared through a fork.
    context = get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker, initargs=(stop,))
    try:
        waiting = {pool.submit(_work, run.spec): run for run in runs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise CoterieError(
            "a worker process died, perhaps for want of memory; try again with fewer processes"
        ) from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


class _StoppedError(Exception):
    """The main process waits for no more results."""


_stop: Event


def _start_worker(stop: Event) -> None:
    """Keep the sign to stop in a worker process; only the main process answers to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _stop  # noqa: PLW0603 - a worker process holds nothing else
    _stop = stop


def _work(spec: Spec) -> Record:
    return train(spec, _check_stop)


def _check_stop(rounds: int) -> None:
    del rounds
    if _stop.is_set():
        raise _StoppedError
