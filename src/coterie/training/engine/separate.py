"""Every client by itself, an ordinary module with an ordinary optimiser: the plain way to train."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.errors import UsageError
from coterie.training.data.dataset import UserData
from coterie.training.engine.dropout import KeyedDropout, client_keys, step_keys
from coterie.training.engine.hardware import Numerics, Stop, Stopped, Workers
from coterie.training.engine.stack import channels_last
from coterie.training.engine.trainer import Part, Trainer, minibatches
from coterie.training.engine.vector import flatten, unflatten
from coterie.training.settings import LocalTraining
from coterie.values import IntArray


@dataclass(frozen=True)
class _Client:
    """One client's round."""

    parameters: Tensor
    row: int
    user: int
    round: int
    key: Tensor


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
        keys = torch.from_numpy(client_keys(self.seed, round_, users)).to(self.device)
        clients = [_Client(parameters, row, user, round_, keys[row]) for row, user in enumerate(users.tolist())]
        return self._side_by_side.map(self._train, clients)

    def _train(self, model: nn.Module, client: _Client, stop: Stop) -> Part:
        """Return one user's update and mean loss."""
        settings, data = self.settings, self.data
        unflatten(model, client.parameters)
        optimiser = torch.optim.SGD(
            [value for value in model.parameters() if value.requires_grad],
            lr=settings.rate(client.round),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        examples = len(data.of(client.user))
        keys = step_keys(client.key, torch.arange(settings.steps(examples), device=self.device))
        total = torch.zeros((), device=self.device)
        for step, places in enumerate(minibatches(data, settings, client.user, client.round, self.seed)):
            if stop():
                raise Stopped
            _set_key(model, keys[step])
            chosen = torch.tensor(places, device=self.device)
            loss = functional.cross_entropy(model(data.images[chosen]), data.labels[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.detach() * len(places)
        vector = flatten(model) - client.parameters
        return Part(np.array([client.row]), vector[None], (total / (settings.epochs * examples))[None])


def _set_key(model: nn.Module, key: Tensor) -> None:
    for module in model.modules():
        if isinstance(module, KeyedDropout):
            module.key = key


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
