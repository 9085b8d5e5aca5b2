"""Clients of a chunk at once: parameters stacked, one pass for everybody's minibatch, one graph on a GPU."""

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
from coterie.training.engine.stack import LayerStack, stack_of
from coterie.training.engine.steps import Steps
from coterie.training.engine.vector import flatten
from coterie.training.settings import LocalTraining
from coterie.values import IntArray
from coterie.values.checks import check_count

_MOST_OF_FREE_MEMORY = 0.6
_BYTES_ON_CPU = 2**30


class Stacked(Trainer):
    """Trains `chunk` clients at a time, in one stack.

    `cohort` is how many users a round usually has. The chunk is that or, if the device's memory is too small,
    an equal part of it; `chunk` decides otherwise. Users who take about as many steps go into one chunk; on a
    GPU the last chunk is filled up with clients that count nothing. On one CPU the same chunks give the same
    bits; another chunk size, or a GPU, gives the same numbers up to rounding.
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
    ) -> None:
        super().__init__(model, federation, settings, seed=seed, numerics=numerics)
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
        self.chunk = self._fitting(cohort) if chunk is None else check_count(chunk, "the chunk of clients")

    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        sizes = self.federation.starts[users + 1] - self.federation.starts[users]
        order = np.argsort(-sizes, kind="stable")
        met = torch.tensor(sizes * self.settings.epochs, dtype=torch.float32, device=self.device)
        for start in range(0, len(order), self.chunk):
            rows = order[start : start + self.chunk]
            table = timetable(self.federation, self.settings, users[rows], round_, self.seed)
            steps = self._loaded(len(rows))
            steps.load(parameters, table, client_keys(self.seed, round_, users[rows]), self.settings.rate(round_))
            for _ in range(table.steps):
                steps.advance()
            vectors, losses = steps.results(parameters, len(rows))
            yield Part(rows, vectors, losses / met[torch.from_numpy(rows).to(self.device)])

    def _loaded(self, clients: int) -> Steps:
        """Return the state to train in: on a GPU always the same, since its steps are captured."""
        if self.device.type != "cuda":
            return self._state(clients)
        if self._steps is None:
            self._steps = self._state(self.chunk).captured(compiled=self._compiled)
        return self._steps

    def _state(self, clients: int) -> Steps:
        return Steps(
            self.stack,
            self.federation,
            self.settings,
            like=flatten(self.model),
            clients=clients,
            most=self._most,
        )

    def _fitting(self, cohort: int) -> int:
        """Return how many clients to train at a time: the cohort, or an equal part of it that fits in memory."""
        if self.device.type == "cuda":
            bound = int(_MOST_OF_FREE_MEMORY * torch.cuda.mem_get_info(self.device)[0] / self._bytes_per_client())
        else:
            bound = _BYTES_ON_CPU // (16 * self.layout.dimension)
        parts = -(-cohort // max(1, bound))
        return -(-cohort // parts)

    def _bytes_per_client(self) -> int:
        """Return what one client's step holds on the GPU at most."""
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self._state(1).advance()
        return torch.cuda.max_memory_allocated(self.device) - before
