"""SGD of a chunk of clients in tensors of fixed size, so that one step can be a CUDA graph."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from coterie.training.data.federation import Federation
from coterie.training.engine.dropout import step_keys
from coterie.training.engine.graphs import replayed
from coterie.training.engine.minibatches import Timetable
from coterie.training.engine.stack import Stack
from coterie.training.settings import LocalTraining
from coterie.values import IntArray


class Steps:
    """The state of `clients` clients during a round of up to `most` steps; loaded anew for each chunk.

    The step size η and the minibatch's size are multiplied into the loss, so that the gradient already is the
    step; a client that has no more examples has a step of zero, and keeps its parameters. With s_c = 1 while
    client c is active, else 0, and g' = -η g / |minibatch|, a step is

        x ← (1 - s_c η δ) x + g'    or, with momentum,    v ← s_c μ v - s_c η δ x + g',  x ← x + v.
    """

    def __init__(
        self,
        stack: Stack,
        federation: Federation,
        settings: LocalTraining,
        *,
        like: Tensor,
        clients: int,
        most: int,
    ) -> None:
        self._stack, self._federation, self._settings = stack, federation, settings
        device = like.device
        shape = (clients, most, settings.minibatch)
        self._parameters = [
            value.expand(clients, *value.shape[1:]).clone(memory_format=torch.contiguous_format).requires_grad_()
            for value in stack.packed(like[None])
        ]
        self._velocities = [torch.zeros_like(value) for value in self._parameters] if settings.momentum else []
        self._places = torch.zeros(shape, dtype=torch.int64, device=device)
        self._real = torch.zeros(shape, device=device)
        self._pull = torch.zeros(shape, device=device)
        self._decay = torch.ones(shape[:2], device=device)
        self._carry = torch.zeros(shape[:2], device=device)
        self._keys = torch.zeros(clients, dtype=torch.int64, device=device)
        self._losses = torch.zeros(clients, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._losses_of, self._move = stack.losses, _moved
        self.advance: Callable[[], None] = self._advance
        """Takes the next step."""

    def captured(self, *, compiled: bool) -> "Steps":
        """Let every further step be the replay of a graph; `compiled`, of kernels that torch.compile made."""
        if compiled:
            self._advance()  # fills what layers keep for later, which a compiler would rather find than make
            self._losses_of = torch.compile(self._losses_of, dynamic=False)
            self._move = torch.compile(self._move, dynamic=False)
        self.advance = replayed(self._advance, self._step.device)
        return self

    @torch.no_grad()
    def load(self, parameters: Tensor, table: Timetable, keys: IntArray, rate: float) -> None:
        """Put the clients of a timetable at the start of a round; places beyond them count nothing."""
        for own, value in zip(self._parameters, self._stack.packed(parameters[None]), strict=True):
            own.copy_(value.expand_as(own))
        for velocity in self._velocities:
            velocity.zero_()
        settings, active = self._settings, table.active
        counted = np.maximum(table.counted, 1.0)[:, :, None]
        for target, values in (
            (self._places, table.places),
            (self._real, table.real),
            (self._pull, np.float32(-rate) * table.real / counted),
            (self._decay, 1.0 - rate * settings.weight_decay * active),
            (self._carry, settings.momentum * active),
            (self._keys[:, None], keys[:, None]),
        ):
            target.zero_()
            given = torch.from_numpy(np.ascontiguousarray(values))
            target[: given.shape[0], : given.shape[1]].copy_(given)
        self._losses.zero_()
        self._step.zero_()

    def results(self, parameters: Tensor, clients: int) -> tuple[Tensor, Tensor]:
        """Return the updates and the summed losses of the first clients."""
        with torch.no_grad():
            vectors = self._stack.unpacked([value[:clients] for value in self._parameters])
        return vectors - parameters, self._losses[:clients].clone()

    def _now(self, values: Tensor) -> Tensor:
        return values.index_select(1, self._step).squeeze(1)

    def _advance(self) -> None:
        places = self._now(self._places)
        loss = self._losses_of(
            self._parameters,
            self._federation.images[places],
            self._federation.labels[places],
            step_keys(self._keys, self._step),
        )
        slopes = torch.autograd.grad((loss * self._now(self._pull)).sum(), self._parameters)
        with torch.no_grad():
            self._move(self._parameters, self._velocities, slopes, self._now(self._decay), self._now(self._carry))
            self._losses += (loss * self._now(self._real)).sum(dim=1)
            # Captures take a few steps ahead of time, which may be more than a short round has.
            self._step.add_(1).remainder_(self._places.shape[1])


def _moved(
    parameters: list[Tensor], velocities: list[Tensor], slopes: tuple[Tensor, ...], decay: Tensor, carry: Tensor
) -> None:
    """Take everybody's step."""
    for index, (value, slope) in enumerate(zip(parameters, slopes, strict=True)):
        shape = (-1, *(1,) * (value.ndim - 1))
        if not velocities:
            torch.addcmul(slope, value, decay.view(shape), out=value)
            continue
        velocity = velocities[index]
        torch.addcmul(slope, velocity, carry.view(shape), out=velocity)
        velocity.addcmul_(value, decay.view(shape) - 1.0)
        value.add_(velocity)
