"""One client after the other, each an ordinary module with an ordinary optimiser: the plain way to train."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coterie.training.engine.dropout import KeyedDropout, client_keys, step_keys
from coterie.training.engine.local import Part, Trainer
from coterie.training.engine.minibatches import minibatches
from coterie.training.engine.vector import flatten, unflatten
from coterie.values import IntArray


class OneByOne(Trainer):
    """Trains one client after the other. On one CPU it gives the same bits whoever trains beside a user."""

    chunk = 1

    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        keys = torch.from_numpy(client_keys(self.seed, round_, users)).to(self.device)
        for row, user in enumerate(users.tolist()):
            vector, loss = self._train(parameters, user, round_, keys[row])
            yield Part(np.array([row]), vector[None], loss[None])

    def _train(self, parameters: Tensor, user: int, round_: int, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return one user's update and mean loss."""
        settings = self.settings
        unflatten(self.model, parameters)
        optimiser = torch.optim.SGD(
            [value for value in self.model.parameters() if value.requires_grad],
            lr=settings.rate(round_),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        examples = len(self.federation.of(user))
        keys = step_keys(key, torch.arange(settings.steps(examples), device=self.device))
        total = torch.zeros((), device=self.device)
        for step, places in enumerate(minibatches(self.federation, settings, user, round_, self.seed)):
            self._set_key(keys[step])
            chosen = torch.tensor(places, device=self.device)
            loss = functional.cross_entropy(
                self.model(self.federation.images[chosen]), self.federation.labels[chosen]
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += loss.detach() * len(places)
        return flatten(self.model) - parameters, total / (settings.epochs * examples)

    def _set_key(self, key: Tensor) -> None:
        for module in self.model.modules():
            if isinstance(module, KeyedDropout):
                module.key = key
