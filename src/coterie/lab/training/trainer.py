"""Local training of a round's users, and the test of a model: which examples go in when, and what comes out.

`SeparateTrainer` is the plain way, every client an ordinary module with an ordinary optimiser;
`stacked_trainer.py` trains many clients as one.

On a CPU many clients train side by side, one core each. Threads of one product share their sum in an order that
depends on their number, and wait for each other: beside other load, two of them take several times as long as one.
So every client is trained by one thread alone, and no result depends on how many cores there are.
"""

import copy
import math
import os
import queue
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.errors import UsageError
from coterie.lab.training.data import UserData
from coterie.lab.training.models import (
    KeyedDropout,
    ParameterLayout,
    channels_last,
    client_keys,
    flatten,
    prepare_model,
    step_keys,
    unflatten,
)
from coterie.lab.training.settings import LocalTraining
from coterie.values import FloatArray, IntArray
from coterie.values.checks import check_count, check_users, frozen_integers
from coterie.values.text import counted, listing

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


# --- local training

_TESTED_ON_CPU, _TESTED_ON_GPU = 250, 2000  # examples at a time


class DivergedError(UsageError):
    """Training gave numbers that are not finite: to go on in the same way is of no use."""


@dataclass(frozen=True, eq=False)
class _Training:
    """What is known of a round's users when they have trained.

    `losses[i]` is the mean loss over all examples that user i met, as it met them. Users in `diverged` got numbers
    that are not finite: their updates are zero, and their losses the mean of the others'.
    """

    users: IntArray
    weights: IntArray
    losses: FloatArray
    diverged: IntArray


@dataclass(frozen=True, eq=False)
class Updates(_Training):
    """What each user's training gave: x_i - x, the way from the global parameters to its own."""

    vectors: Tensor
    """Users × D, float32, on the training device."""


@dataclass(frozen=True, eq=False)
class MeanUpdate(_Training):
    """The weighted mean Σ w_i (x_i - x) / Σ w_i of a round's updates."""

    vector: Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """What some of a round's users gave; `rows` are their places among the round's users."""

    rows: IntArray
    vectors: Tensor
    losses: Tensor


class Trainer(ABC):
    """Trains users on their data from common parameters; randomness is a function of (seed, round, user).

    A round is numbered by how many ended before it, which in a run is its step and not its number in the ledger.
    The device of their data is where it happens. On a CPU `workers` chunks of clients are trained side by side,
    one core each: as many as there are cores, unless given. Their number never decides a result. `chunk` is how
    many clients are computed as one.
    """

    chunk: int

    def __init__(
        self,
        model: nn.Module,
        user_data: UserData,
        settings: LocalTraining,
        *,
        seed: int = 0,
        numerics: Numerics | None = None,
        workers: int | None = None,
    ) -> None:
        self.data = user_data.to(user_data.images.device)
        self.settings = settings
        self.seed = check_count(seed, "the seed", least=0)
        self.numerics = Numerics() if numerics is None else numerics
        self.model = prepare_model(model).to(self.device)
        self.model.train(settings.dropout)
        self.layout = ParameterLayout.of(self.model)
        most = available_cores() if workers is None else check_count(workers, "the number of workers")
        self.workers = most if self.device.type == "cpu" else 1

    @property
    def device(self) -> torch.device:
        """Where the users' examples are."""
        return self.data.images.device

    @abstractmethod
    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        """Train the users, at most `chunk` of them in one part."""

    def updates(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> Updates:
        """Train users from the global parameters (D values) and return each one's update, in their order.

        If nobody's numbers are finite, `DivergedError` is raised; if only some users' are not, their updates
        are zero, as the quantiser of a sealed vector makes them.
        """
        numbers = self._check(parameters, users, round_)
        vectors = torch.empty((len(numbers), self.layout.dimension), device=self.device)

        def put(part: Part) -> None:
            vectors[torch.from_numpy(part.rows).to(self.device)] = part.vectors

        losses, diverged = self._train(parameters, numbers, round_, put)
        return Updates(numbers, self._weights(numbers), losses, diverged, vectors)

    def mean(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> MeanUpdate:
        """Train users and return their weighted mean update, with few chunks of updates in memory at a time."""
        numbers = self._check(parameters, users, round_)
        weights = self._weights(numbers)
        shares = (weights / weights.sum()).astype(np.float32)
        vector = torch.zeros(self.layout.dimension, device=self.device)

        def add(part: Part) -> None:
            vector.add_(torch.from_numpy(shares[part.rows]).to(self.device) @ part.vectors)

        losses, diverged = self._train(parameters, numbers, round_, add)
        return MeanUpdate(numbers, weights, losses, diverged, vector)

    def _weights(self, users: IntArray) -> IntArray:
        return self.settings.weights(self.data.sizes[users])

    def _check(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> IntArray:
        check_count(round_, "the round", least=0)
        self.layout.check(parameters)
        if parameters.ndim != 1:
            raise UsageError(f"global parameters are one vector, not of shape {tuple(parameters.shape)}")
        numbers = frozen_integers(users, np.int64, "users to train")
        check_users(numbers, self.data.users)
        if len(numbers) == 0:
            raise UsageError("no user was given to train")
        if len(np.unique(numbers)) != len(numbers):
            raise UsageError("a user was given twice to train in one round")
        return numbers

    def _train(
        self, parameters: Tensor, users: IntArray, round_: int, take: Callable[[Part], None]
    ) -> tuple[FloatArray, IntArray]:
        """Hand every part to `take`, a diverged user's update as zeros; return losses, and who diverged."""
        losses = np.empty(len(users))
        with one_core(self.device):
            parts = self._parts(parameters.to(self.device), users, round_)
            while (part := self._next(parts)) is not None:
                # A sum of absolute values is finite only if every value is; it comes with the losses in one piece.
                sizes, own = torch.stack((part.vectors.norm(p=1, dim=1), part.losses)).double().cpu().numpy()
                bad = ~np.isfinite(sizes + own)
                if bad.any():
                    part.vectors[torch.from_numpy(bad).to(self.device)] = 0.0
                losses[part.rows] = np.where(bad, np.nan, own)
                take(part)
        missing = np.isnan(losses)
        diverged = users[missing]
        if missing.all():
            names = self.data.names or range(self.data.users)
            raise DivergedError(
                f"training gave numbers that are not finite after {counted(round_, 'round')} for all "
                f"{len(users)} users ({listing(str(names[user]) for user in diverged)}); lower the learning rate "
                f"({self.settings.rate(round_):g} in this round), or look for such numbers in their data"
            )
        return np.where(missing, losses[~missing].mean(), losses), diverged

    def _next(self, parts: Iterator[Part]) -> Part | None:
        """Compute the next part, on a GPU under the trainer's numerics, whatever the caller's are."""
        with nullcontext() if self.device.type == "cpu" else self.numerics.applied():
            return next(parts, None)


class SeparateTrainer(Trainer):
    """Trains every client by itself: on a CPU several side by side, on a GPU one after the other.

    On one kind of CPU it gives the same bits on any number of cores, and whoever trains beside a user.
    """

    chunk = 1

    def __init__(
        self,
        model: nn.Module,
        user_data: UserData,
        settings: LocalTraining,
        *,
        seed: int = 0,
        numerics: Numerics | None = None,
        workers: int | None = None,
    ) -> None:
        super().__init__(model, user_data, settings, seed=seed, numerics=numerics, workers=workers)
        if self.device.type == "cpu":
            _check_randomness(self.model, self.data.images[:1])
            channels_last(self.model)
        self._side_by_side = Workers([copy.deepcopy(self.model) for _ in range(self.workers)])

    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        settings, data = self.settings, self.data
        keys = torch.from_numpy(client_keys(self.seed, round_, users)).to(self.device)

        def train(model: nn.Module, row: int, stop: Stop) -> Part:
            """Return one user's update and mean loss."""
            user = int(users[row])
            unflatten(model, parameters)
            optimiser = torch.optim.SGD(
                [value for value in model.parameters() if value.requires_grad],
                lr=settings.rate(round_),
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
            examples = int(data.sizes[user])
            own_keys = step_keys(keys[row], torch.arange(settings.steps(examples), device=self.device))
            total = torch.zeros((), device=self.device)
            for step, places in enumerate(minibatches(data, settings, user, round_, self.seed)):
                if stop():
                    raise Stopped
                for module in model.modules():
                    if isinstance(module, KeyedDropout):
                        module.key = own_keys[step]
                minibatch = torch.tensor(places, device=self.device)
                loss = functional.cross_entropy(model(data.images[minibatch]), data.labels[minibatch])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += loss.detach() * len(places)
            vector = flatten(model) - parameters
            return Part(np.array([row]), vector[None], (total / (settings.epochs * examples))[None])

        return self._side_by_side.map(train, range(len(users)))


def _check_randomness(model: nn.Module, example: Tensor) -> None:
    """Refuse a model that draws from torch's own generator, which all clients that train side by side share."""
    before = torch.random.get_rng_state()
    with torch.no_grad():
        model(example)
    if not torch.equal(torch.random.get_rng_state(), before):
        torch.random.set_rng_state(before)
        raise UsageError(
            "the model draws random numbers of its own, which clients that train side by side cannot do; "
            "use torch.nn.Dropout layers"
        )


_ORDER = 1
"""Apart from the keys of dropout, which come from (seed, round, user) alone."""


def orders(user_data: UserData, settings: LocalTraining, user: int, round_: int, seed: int) -> IntArray:
    """Return a user's examples as places among all, in the order of each epoch: epochs × examples.

    A shuffled order is a function of (seed, round, user).
    """
    own = user_data.of(user)
    if not settings.shuffled:
        return np.broadcast_to(own, (settings.epochs, len(own)))
    rng = np.random.default_rng((seed, round_, user, _ORDER))
    return np.stack([rng.permutation(own) for _ in range(settings.epochs)])


def minibatches(
    user_data: UserData, settings: LocalTraining, user: int, round_: int, seed: int
) -> Iterator[IntArray]:
    """Yield a user's minibatches of a round in order; an epoch's last one holds what is left."""
    for order in orders(user_data, settings, user, round_, seed):
        for start in range(0, len(order), settings.minibatch):
            yield order[start : start + settings.minibatch]


@dataclass(frozen=True)
class Evaluation:
    """The share of test examples whose label the model gives the highest output, and their mean loss."""

    accuracy: float
    loss: float


def evaluate(
    model: nn.Module, parameters: Tensor, user_data: UserData, *, workers: int | None = None
) -> Evaluation:
    """Test a model with these parameters (D values) where the data are; the module itself stays as it is.

    On a CPU `workers` parts of the test set are computed side by side, one core each: as many as there are cores,
    unless given. The result does not depend on their number.

    >>> from coterie.lab.training import Examples, Partition
    >>> examples = Examples(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    >>> user_data = UserData(examples, Partition.from_users(2, [[0, 1]]), examples, classes=2)
    >>> result = evaluate(nn.Linear(1, 2, bias=False), torch.tensor([1.0, -1.0]), user_data)
    >>> result.accuracy, round(result.loss, 5)
    (1.0, 0.12693)
    """
    user_data = user_data.to(user_data.images.device)
    device = user_data.images.device
    images, labels = user_data.test.images, user_data.test.labels
    on_cpu = device.type == "cpu"
    size = _TESTED_ON_CPU if on_cpu else _TESTED_ON_GPU
    most = available_cores() if workers is None else check_count(workers, "the number of workers")

    def test(replica: nn.Module, start: int, _stop: Stop) -> Tensor:
        """Return how many of a part are right, and the sum of its losses."""
        with torch.no_grad():
            outputs, right = replica(images[start : start + size]), labels[start : start + size]
            loss = functional.cross_entropy(outputs, right, reduction="sum")
            return torch.stack(((outputs.argmax(dim=1) == right).sum().double(), loss.double()))

    with one_core(device):
        starts = range(0, len(labels), size)
        replicas = [_replica(model, parameters, device) for _ in range(min(most, len(starts)) if on_cpu else 1)]
        right, loss = torch.stack(list(Workers(replicas).map(test, starts))).sum(dim=0).tolist()
    return Evaluation(int(right) / len(labels), loss / len(labels))


def _replica(model: nn.Module, parameters: Tensor, device: torch.device) -> nn.Module:
    """Return a copy of a model with other parameters, to test it."""
    replica = copy.deepcopy(model).to(device).eval()
    unflatten(replica, parameters.to(device))
    if device.type == "cpu":
        channels_last(replica)
    return replica
