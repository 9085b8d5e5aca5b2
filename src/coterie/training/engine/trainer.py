"""Local training of a round's users, and the test of a model: which examples go in when, and what comes out.

`SeparateTrainer` is the plain way, every client an ordinary module with an ordinary optimiser;
`stacked_trainer.py` trains many clients as one.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.errors import UsageError
from coterie.training.data.dataset import UserData
from coterie.training.dropout import KeyedDropout, client_keys, step_keys
from coterie.training.engine.hardware import Numerics, Stop, Stopped, Workers, available_cores, one_core
from coterie.training.models import ParameterLayout, channels_last, flatten, prepare_model, unflatten
from coterie.training.settings import LocalTraining
from coterie.values import FloatArray, IntArray
from coterie.values.checks import check_count, check_users, frozen_integers
from coterie.values.text import counted, listing

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

    >>> from coterie.training import Examples, Partition
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
