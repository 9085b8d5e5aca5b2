"""Local training of a round's users: what goes in, what comes out, and the checks around it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from coterie.errors import UsageError
from coterie.training.data.federation import Federation
from coterie.training.engine.numerics import Numerics
from coterie.training.engine.vector import ParameterLayout
from coterie.training.engine.workers import available_cores, one_core
from coterie.training.models import prepared
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

    `losses[i]` is the mean loss over all examples that user i met, as it met them.
    """

    users: IntArray
    vectors: Tensor
    """Users × D, float32, on the training device."""
    weights: IntArray
    losses: FloatArray


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """The weighted mean Σ w_i (x_i - x) / Σ w_i of a round's updates, and the users' losses."""

    users: IntArray
    vector: Tensor
    weights: IntArray
    losses: FloatArray


@dataclass(frozen=True, eq=False)
class Part:
    """What some of a round's users gave; `rows` are their places among the round's users."""

    rows: IntArray
    vectors: Tensor
    losses: Tensor


class Trainer(ABC):
    """Trains users of a federation from common parameters; randomness is a function of (seed, round, user).

    The federation's device is where it happens. On a CPU `workers` chunks of clients are trained side by side,
    one core each: as many as there are cores, unless given. Their number never decides a result. `chunk` is how
    many clients are computed as one.
    """

    chunk: int

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        settings: LocalTraining,
        *,
        seed: int = 0,
        numerics: Numerics | None = None,
        workers: int | None = None,
    ) -> None:
        self.federation = federation.to(federation.images.device)
        self.settings = settings
        self.seed = check_count(seed, "the seed", least=0)
        self.numerics = Numerics() if numerics is None else numerics
        self.model = prepared(model).to(self.device)
        self.model.train(settings.dropout)
        self.layout = ParameterLayout.of(self.model)
        wanted = available_cores() if workers is None else check_count(workers, "the number of workers")
        self.workers = wanted if self.device.type == "cpu" else 1

    @property
    def device(self) -> torch.device:
        """Where the federation's examples are."""
        return self.federation.images.device

    @abstractmethod
    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        """Train the users, at most `chunk` of them in one part."""

    def updates(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> Updates:
        """Train users from the global parameters (D values) and return each one's update, in their order."""
        asked = self._checked(parameters, users, round_)
        vectors = torch.empty((len(asked), self.layout.dimension), device=self.device)
        losses = np.empty(len(asked))
        with one_core(self.device):
            for part, met in self._sound(parameters, asked, round_):
                vectors[torch.from_numpy(part.rows).to(self.device)] = part.vectors
                losses[part.rows] = met
        return Updates(asked, vectors, self._weights(asked), losses)

    def mean(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> MeanUpdate:
        """Train users and return their weighted mean update, with few chunks of updates in memory at a time."""
        asked = self._checked(parameters, users, round_)
        weights = self._weights(asked)
        shares = (weights / weights.sum()).astype(np.float32)
        vector = torch.zeros(self.layout.dimension, device=self.device)
        losses = np.empty(len(asked))
        with one_core(self.device):
            for part, met in self._sound(parameters, asked, round_):
                vector += torch.from_numpy(shares[part.rows]).to(self.device) @ part.vectors
                losses[part.rows] = met
        return MeanUpdate(asked, vector, weights, losses)

    def _weights(self, users: IntArray) -> IntArray:
        return self.settings.weights(self.federation.starts[users + 1] - self.federation.starts[users])

    def _checked(self, parameters: Tensor, users: Sequence[int] | IntArray, round_: int) -> IntArray:
        check_count(round_, "the round", least=0)
        self.layout.check(parameters)
        if parameters.ndim != 1:
            raise UsageError(f"global parameters are one vector, not of shape {tuple(parameters.shape)}")
        asked = frozen_integers(users, np.int64, "users to train")
        check_users(asked, self.federation.users)
        if len(asked) == 0:
            raise UsageError("no user was given to train")
        if len(np.unique(asked)) != len(asked):
            raise UsageError("a user was given twice to train in one round")
        return asked

    def _sound(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[tuple[Part, FloatArray]]:
        """Yield the parts with their losses; refuse numbers that are not finite once all users have trained."""
        broken: list[int] = []
        for part in self._trained(parameters.to(self.device), users, round_):
            # A sum of absolute values is finite only if every value is; it comes with the losses in one piece.
            sizes, losses = torch.stack((part.vectors.norm(p=1, dim=1), part.losses)).double().cpu().numpy()
            broken += users[part.rows[~np.isfinite(sizes + losses)]].tolist()
            yield part, losses
        if broken:
            named = ", ".join(self._name(user) for user in broken[:_MOST_NAMES])
            others = " and others" if len(broken) > _MOST_NAMES else ""
            raise Diverged(
                f"training gave numbers that are not finite in round {round_} for {len(broken)} of {len(users)} "
                f"users ({named}{others}); lower the learning rate ({self.settings.rate(round_):g} in this "
                "round), or look for such numbers in their data"
            )

    def _trained(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
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
        names = self.federation.names
        return str(user) if names is None else names[user]
