"""Clients of a chunk at once: parameters stacked, one pass for everybody's minibatch, one graph on a GPU."""

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from coterie.errors import UsageError
from coterie.training.data.federation import Federation
from coterie.training.engine.dropout import client_keys
from coterie.training.engine.local import Part, Trainer
from coterie.training.engine.minibatches import timetable
from coterie.training.engine.numerics import Numerics
from coterie.training.engine.stack import LayerStack, Stack, stack_of
from coterie.training.engine.steps import Steps
from coterie.training.engine.vector import flatten
from coterie.training.engine.workers import Stop, Stopped, Workers
from coterie.training.settings import LocalTraining
from coterie.values import IntArray
from coterie.values.checks import check_count

_MOST_OF_FREE_MEMORY = 0.6
_BYTES_ON_CPU = 2**23
"""A chunk's parameters stay in the caches of a core, and large models use many cores."""
_CHUNKS_ON_CPU = 2
"""So many chunks at least: small models use two cores. More would cost more calls of small operations."""


class Stacked(Trainer):
    """Trains `chunk` clients at a time, in one stack.

    `cohort` is how many users a round usually has. On a GPU the chunk is that or, if memory is too small, an
    equal part of it; on a CPU half of it, or less for large models, so that chunks can be trained side by side.
    `chunk` decides otherwise. Users who take about as many steps go into one chunk; on a GPU the last chunk is
    filled up with clients that count nothing. On one kind of CPU the same chunks give the same bits, on any
    number of cores; another chunk size, or a GPU, gives the same numbers up to rounding.
    """

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        settings: LocalTraining,
        *,
        cohort: int,
        seed: int = 0,
        numerics: Numerics | None = None,
        chunk: int | None = None,
        compiled: bool = False,
        workers: int | None = None,
    ) -> None:
        super().__init__(model, federation, settings, seed=seed, numerics=numerics, workers=workers)
        check_count(cohort, "the number of users per round")
        self.stack = stack_of(self.model, self.federation.images.shape[1:], self.layout)
        self._most = settings.steps(int(np.diff(self.federation.starts).max()))
        if compiled and not isinstance(self.stack, LayerStack):
            raise UsageError(
                "only a torch.nn.Sequential of convolutions, linear layers, GroupNorm, max pooling, ReLU, dropout "
                "and Flatten can be compiled for many clients; train this model without"
            )
        self._compiled = compiled
        self._steps: Steps | None = None
        self._like = flatten(self.model)
        # While a stack of a module that is not made of layers computes, the module has other parameters.
        self._side_by_side = Workers([self.stack, *(copy.deepcopy(self.stack) for _ in range(self.workers - 1))])
        self.chunk = self._fitting(cohort) if chunk is None else check_count(chunk, "the chunk of clients")

    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        sizes = self.federation.starts[users + 1] - self.federation.starts[users]
        order = np.argsort(-sizes, kind="stable")
        rate = self.settings.rate(round_)

        def train(stack: Stack, rows: IntArray, stop: Stop) -> Part:
            table = timetable(self.federation, self.settings, users[rows], round_, self.seed)
            steps = self._loaded(stack, len(rows))
            steps.load(parameters, table, client_keys(self.seed, round_, users[rows]), rate)
            for _ in range(table.steps):
                if stop():
                    raise Stopped
                steps.advance()
            vectors, losses = steps.results(parameters, len(rows))
            met = torch.tensor(sizes[rows] * self.settings.epochs, dtype=torch.float32, device=self.device)
            return Part(rows, vectors, losses / met)

        return self._side_by_side.map(
            train, [order[start : start + self.chunk] for start in range(0, len(order), self.chunk)]
        )

    def _loaded(self, stack: Stack, clients: int) -> Steps:
        """Return the state to train in: on a GPU always the same, since its steps are captured."""
        if self.device.type != "cuda":
            return self._state(stack, clients)
        if self._steps is None:
            self._steps = self._state(stack, self.chunk).captured(compiled=self._compiled)
        return self._steps

    def _state(self, stack: Stack, clients: int) -> Steps:
        return Steps(stack, self.federation, self.settings, like=self._like, clients=clients, most=self._most)

    def _fitting(self, cohort: int) -> int:
        """Return how many clients to train at a time: the cohort, or an equal part of it that fits in memory."""
        if self.device.type == "cuda":
            bound = int(_MOST_OF_FREE_MEMORY * torch.cuda.mem_get_info(self.device)[0] / self._bytes_per_client())
        else:
            bound = min(_BYTES_ON_CPU // (4 * self.layout.dimension), -(-cohort // _CHUNKS_ON_CPU))
        parts = -(-cohort // max(1, bound))
        return -(-cohort // parts)

    def _bytes_per_client(self) -> int:
        """Return what one client's step holds on the GPU at most."""
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self._state(self.stack, 1).advance()
        return torch.cuda.max_memory_allocated(self.device) - before
