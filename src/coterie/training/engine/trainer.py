"""Local training of a round's users: which examples go in when, what comes out, and the checks around it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.errors import UsageError
from coterie.training.data.dataset import UserData
from coterie.training.engine.hardware import Numerics, available_cores, one_core
from coterie.training.engine.vector import ParameterLayout
from coterie.training.models import prepare_model
from coterie.training.settings import LocalTraining
from coterie.values import FloatArray, IntArray
from coterie.values.arrays import check_users, frozen_integers
from coterie.values.checks import check_count

_MOST_NAMES = 10  # in a message


class Diverged(UsageError):  # noqa: N818 - it names what happened
    """Training gave numbers that are not finite: to go on in the same way is of no use."""


@dataclass(frozen=True, eq=False)
class Updates:
    """What each user's training gave: x_i - x, the way from the global parameters to its own.

    `losses[i]` is the mean loss over all examples that user i met, as it met them. Users in `diverged` got numbers
    that are not finite: their updates are zero, and their losses the mean of the others'.
    """

    users: IntArray
    vectors: Tensor
    """Users × D, float32, on the training device."""
    weights: IntArray
    losses: FloatArray
    diverged: IntArray


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """The weighted mean Σ w_i (x_i - x) / Σ w_i of a round's updates; the rest is as in `Updates`."""

    users: IntArray
    vector: Tensor
    weights: IntArray
    losses: FloatArray
    diverged: IntArray


@dataclass(frozen=True, eq=False)
class Part:
    """What some of a round's users gave; `rows` are their places among the round's users."""

    rows: IntArray
    vectors: Tensor
    losses: Tensor


class Trainer(ABC):
    """Trains users on their data from common parameters; randomness is a function of (seed, round, user).

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

        If nobody's numbers are finite, the error `Diverged` says so; if only some users' are not, their updates
        are zero, as the quantiser of a sealed vector makes them.
        """
        numbers = self._check(parameters, users, round_)
        vectors = torch.empty((len(numbers), self.layout.dimension), device=self.device)
        losses = np.empty(len(numbers))
        with one_core(self.device):
            for part, part_losses in self._checked_parts(parameters, numbers, round_):
                vectors[torch.from_numpy(part.rows).to(self.device)] = part.vectors
                losses[part.rows] = part_losses
        return Updates(numbers, vectors, self._weights(numbers), *self._separate(numbers, losses, round_))

    def mean(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> MeanUpdate:
        """Train users and return their weighted mean update, with few chunks of updates in memory at a time."""
        numbers = self._check(parameters, users, round_)
        weights = self._weights(numbers)
        shares = (weights / weights.sum()).astype(np.float32)
        vector = torch.zeros(self.layout.dimension, device=self.device)
        losses = np.empty(len(numbers))
        with one_core(self.device):
            for part, part_losses in self._checked_parts(parameters, numbers, round_):
                vector += torch.from_numpy(shares[part.rows]).to(self.device) @ part.vectors
                losses[part.rows] = part_losses
        return MeanUpdate(numbers, vector, weights, *self._separate(numbers, losses, round_))

    def _weights(self, users: IntArray) -> IntArray:
        return self.settings.weights(self.data.starts[users + 1] - self.data.starts[users])

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

    def _checked_parts(
        self, parameters: Tensor, users: IntArray, round_: int
    ) -> Iterator[tuple[Part, FloatArray]]:
        """Yield the parts with their losses; of a user whose numbers are not finite, zeros and a loss of NaN."""
        for part in self._compute_parts(parameters.to(self.device), users, round_):
            # A sum of absolute values is finite only if every value is; it comes with the losses in one piece.
            sizes, losses = torch.stack((part.vectors.norm(p=1, dim=1), part.losses)).double().cpu().numpy()
            diverged = ~np.isfinite(sizes + losses)
            if diverged.any():
                part.vectors[torch.from_numpy(diverged).to(self.device)] = 0.0
                losses[diverged] = np.nan
            yield part, losses

    def _separate(self, users: IntArray, losses: FloatArray, round_: int) -> tuple[FloatArray, IntArray]:
        """Return losses without NaN, and the users who had one; refuse a round in which all had."""
        missing = np.isnan(losses)
        diverged = users[missing]
        if missing.all():
            names = ", ".join(self._name(user) for user in diverged[:_MOST_NAMES].tolist())
            others = " and others" if len(diverged) > _MOST_NAMES else ""
            raise Diverged(
                f"training gave numbers that are not finite in round {round_} for all {len(users)} users "
                f"({names}{others}); lower the learning rate ({self.settings.rate(round_):g} in this round), or "
                "look for such numbers in their data"
            )
        return np.where(missing, losses[~missing].mean(), losses), diverged

    def _compute_parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        """Yield the parts; a GPU computes each under the trainer's numerics, whatever the caller's are."""
        parts = self._parts(parameters, users, round_)
        if self.device.type == "cpu":
            yield from parts
            return
        while True:
            with self.numerics.applied():
                part = next(parts, None)
            if part is None:
                return
            yield part

    def _name(self, user: int) -> str:
        names = self.data.names
        return str(user) if names is None else names[user]


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


@dataclass(frozen=True, eq=False)
class Timetable:
    """The minibatches of several users side by side, filled up to equal size with examples that count nothing.

    `places[c, s, b]` is an example and `real[c, s, b]` says whether it counts; users with fewer steps have rows
    without any real example at the end.
    """

    places: IntArray
    real: NDArray[np.float32]

    @property
    def steps(self) -> int:
        """The most steps of any user."""
        return int(self.places.shape[1])

    @property
    def active(self) -> NDArray[np.float32]:
        """Users × steps: 1 where the user takes the step, 0 where it has finished before."""
        return self.real[:, :, 0]

    @property
    def examples(self) -> NDArray[np.float32]:
        """Users × steps: the number of examples that count."""
        total: NDArray[np.float32] = self.real.sum(axis=2)
        return total


def timetable(user_data: UserData, settings: LocalTraining, users: IntArray, round_: int, seed: int) -> Timetable:
    """Return the timetable of some users in a round."""
    steps = settings.steps(int(np.max(user_data.starts[users + 1] - user_data.starts[users], initial=0)))
    places = np.zeros((len(users), steps, settings.minibatch), dtype=np.int64)
    real = np.zeros(places.shape, dtype=np.float32)
    for client, user in enumerate(users.tolist()):
        own = orders(user_data, settings, user, round_, seed)
        size, taken = own.shape[1], settings.steps(own.shape[1])
        places[client] = own[0, 0]
        row, counts = (table[client, :taken].reshape(settings.epochs, -1) for table in (places, real))
        row[:, :size], counts[:, :size] = own, 1.0
    return Timetable(places, real)
