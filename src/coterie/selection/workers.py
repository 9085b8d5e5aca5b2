"""Work in several processes, which ends with the one that waits for it."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any, Literal

from coterie.errors import CoterieError

CheckStop = Callable[[], None]
"""Raises if nobody waits for the result any more: whoever takes long calls it now and then."""


def never_stop() -> None:
    """Do nothing: the `CheckStop` of work in the process that waits for it."""


@contextmanager
def worker_processes(
    work: Callable[..., Any], processes: int, start: Literal["forkserver", "spawn"]
) -> Iterator[Callable[..., Future[Any]]]:
    """Give a function that lets a worker process call `work` with the same arguments, and with a `CheckStop`.

    `work` goes to every process once, when it starts, so it may be large. Only the main process answers to
    Ctrl-C; when it leaves the block, work that waits is dropped and work that runs is stopped.
    """
    context = get_context(start)
    stop = context.Event()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(work, stop))
    try:
        yield lambda *task: pool.submit(_call, *task)
    except BrokenProcessPool:
        raise CoterieError(
            "a worker process died, perhaps for want of memory; try again with fewer processes"
        ) from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_work: Callable[..., Any]
_stop: Event


def _start(work: Callable[..., Any], stop: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _work, _stop
    _work, _stop = work, stop


def _call(*task: Any) -> Any:  # noqa: ANN401 - whatever the work takes and gives
    return _work(*task, _check_stop)


class _StoppedError(Exception):
    """The main process waits for no more results."""


def _check_stop() -> None:
    if _stop.is_set():
        raise _StoppedError
