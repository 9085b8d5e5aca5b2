"""Many trials of several schemes, in one process or in several: the result is the same."""

import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from multiprocessing.synchronize import Event

from coterie.errors import CoterieError
from coterie.simulation.setting import Simulation
from coterie.simulation.trial import Trial, run_trial
from coterie.values.checks import check_count


def run_trials(simulation: Simulation, trials: int, processes: int) -> Iterator[list[Trial]]:
    """Yield trial after trial, each with the result of every scheme; the same whatever the number of processes."""
    check_count(trials, "the number of trials")
    check_count(processes, "the number of processes")
    tasks = ((scheme, trial) for trial in range(trials) for scheme in range(len(simulation.schemes)))
    if processes == 1:
        yield from _by_trial((run_trial(simulation, *task) for task in tasks), len(simulation.schemes))
    else:
        yield from _by_trial(_in_processes(simulation, tasks, processes), len(simulation.schemes))


def _in_processes(simulation: Simulation, tasks: Iterator[tuple[int, int]], processes: int) -> Iterator[Trial]:
    """Yield the tasks' trials in order; a few are under way ahead of the one that is waited for."""
    context = get_context("forkserver")
    stop = context.Event()
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(simulation, stop)
    )
    try:
        under_way = deque(pool.submit(_work, *task) for task in islice(tasks, 4 * processes))
        while under_way:
            yield under_way.popleft().result()
            under_way.extend(pool.submit(_work, *task) for task in islice(tasks, 1))
    except BrokenProcessPool:
        raise CoterieError(
            "a worker process died, perhaps for want of memory; try again with fewer processes"
        ) from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _by_trial(results: Iterator[Trial], schemes: int) -> Iterator[list[Trial]]:
    while batch := list(islice(results, schemes)):
        yield batch


_simulation: Simulation
_stopped: Callable[[], bool]


def _start_worker(simulation: Simulation, stop: Event) -> None:
    """Keep the simulation in a worker process; only the main process answers to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _simulation, _stopped
    _simulation, _stopped = simulation, stop.is_set


def _work(scheme: int, trial: int) -> Trial:
    return run_trial(_simulation, scheme, trial, _stopped)
