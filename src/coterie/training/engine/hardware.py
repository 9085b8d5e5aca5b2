"""How a device computes: many clients side by side on a CPU, one core each; and a GPU's precision.

Threads of one product share their sum in an order that depends on their number, and wait for each other: beside
other load, two of them take several times as long as one. So every client is trained by one thread alone, and no
result depends on how many cores there are.
"""

import math
import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Generic, TypeVar

import torch

Replica = TypeVar("Replica")
Item = TypeVar("Item")
Result = TypeVar("Result")

Stop = Callable[[], bool]
"""Says whether the result is no longer wanted: whoever takes long asks it now and then."""

_AHEAD = 2
"""Pieces of work for each worker that are begun or done before their turn: a bound on memory."""


class Stopped(BaseException):
    """Work was given up because nobody waits for its result."""


@contextmanager
def one_core(device: torch.device) -> Iterator[None]:
    """Let torch use one core of a CPU for the caller's own operations, and for those of threads that it starts."""
    before = torch.get_num_threads()
    if device.type != "cpu":
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers(Generic[Replica]):
    """Threads that each work with a replica of their own: a model, say, that one client at a time can use.

    >>> workers = Workers([[], []])
    >>> list(workers.map(lambda replica, item, stop: item**2, range(4)))
    [0, 1, 4, 9]
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._count = len(replicas)
        self._replicas: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        for replica in replicas:
            self._replicas.put(replica)

    def map(self, work: Callable[[Replica, Item, Stop], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield `work(replica, item, stop)` of every item, in their order.

        When the caller stops early (an error, Ctrl-C), work that waits is dropped and work that runs is stopped;
        no thread outlives the iterator.
        """
        if self._count == 1 or len(items) == 1:
            yield from (self._one(work, item, lambda: False) for item in items)
            return
        stopped = Event()
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(min(self._count, len(items)), "client", lambda: torch.set_num_threads(1)) as pool:
            try:
                for item in items:
                    waiting.append(pool.submit(self._one, work, item, stopped.is_set))
                    if len(waiting) > _AHEAD * self._count:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                stopped.set()
                for future in waiting:
                    future.cancel()

    def _one(self, work: Callable[[Replica, Item, Stop], Result], item: Item, stop: Stop) -> Result:
        if stop():
            raise Stopped
        replica = self._replicas.get()
        try:
            return work(replica, item, stop)
        finally:
            self._replicas.put(replica)


def available_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: those that it may run on, within its container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, math.ceil(min([cores, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in cores, of this process's control groups and of the groups around them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup"
        mounts = [mount / controllers, mount / "cpu"] if controllers else [mount, mount / "unified"]
        group = PurePosixPath(path.lstrip("/"))
        # Inside a container its own group is often mounted as the root, and the path that is told leads nowhere.
        for folder in (where / inner for where in mounts for inner in (group, *group.parents)):
            yield from _quota(_text(folder / "cpu.max").split())
            period = _text(folder / "cpu.cfs_period_us").split()
            yield from _quota([*_text(folder / "cpu.cfs_quota_us").split(), *period])


def _quota(words: list[str]) -> Iterator[float]:
    """Yield a quota given as microseconds in each period: "50000 100000" is half a core, "max" and -1 are none."""
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):  # noqa: PLR2004
        yield int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True)
class Numerics:
    """What a GPU may do to float32; a CPU is not affected.

    With `tf32`, factors of products are rounded to 10 bits (sums stay float32), which is several times faster.
    With `bfloat16` (torch's autocast), factors and results of products are rounded to 8 bits, and so are values
    on their way from one convolution to the next; parameters, sums and everything else stay float32.
    `deterministic` admits only kernels that give the same bits in every run.
    """

    tf32: bool = True
    bfloat16: bool = False
    deterministic: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set torch's switches, and put them back."""
        backends = torch.backends
        before = (
            backends.cuda.matmul.allow_tf32,
            backends.cudnn.allow_tf32,
            backends.cudnn.deterministic,
            torch.are_deterministic_algorithms_enabled(),
        )
        if self.deterministic:
            # cuBLAS reads it when it starts; without, torch refuses to promise equal bits.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        _switch(self.tf32, self.tf32, self.deterministic, self.deterministic)
        try:
            # A cache of rounded parameters would outlive the step that it was made in.
            with torch.autocast("cuda", torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
                yield
        finally:
            _switch(*before)


def _switch(products: bool, convolutions: bool, cudnn: bool, algorithms: bool) -> None:  # noqa: FBT001 - torch's own
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cudnn.deterministic = cudnn
    if torch.are_deterministic_algorithms_enabled() != algorithms:  # setting it loads torch's compiler
        torch.use_deterministic_algorithms(algorithms)
