"""Clients of a chunk at once: parameters stacked, one pass for everybody's minibatch, one graph on a GPU."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from coterie.errors import UsageError
from coterie.lab.training.data import UserData
from coterie.lab.training.models import client_keys, flatten, step_keys
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_model import LayerStack, Stack, stack_of
from coterie.lab.training.trainer import (
    Numerics,
    Part,
    SeparateTrainer,
    Stop,
    Stopped,
    Trainer,
    Workers,
    available_cores,
    orders,
)
from coterie.values import IntArray
from coterie.values.checks import check_count

_MOST_OF_FREE_MEMORY = 0.6
_BYTES_ON_CPU = 2**23
"""The most bytes of parameters in a chunk: they stay in a core's cache, and large models use many cores."""
_CHUNKS_ON_CPU = 2
"""So many chunks at least: small models use two cores. More would cost more calls of small operations."""
WARM_UPS = 3
"""Runs before a capture, in which libraries choose and load their kernels."""


def capture_graph(action: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return an action that does the same, on a GPU by replaying a graph of what `action` launched.

    The action must work on the same tensors every time, must not wait for the GPU, and is run a few times first.
    """
    if device.type != "cuda":
        return action
    with torch.cuda.device(device):
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                action()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            action()
    return graph.replay


MOST_DIFFERENT = 0.25
"""A compiled step may differ from torch's own by this share of it, for each client and parameter.

A gradient that is dropped or doubled differs by about 1; rounding to bfloat16 by far less.
"""
_LEAST_SHARE = 1e-3
"""Parameters that move by less than this share of a client's whole step, per value, are rounding alone."""


def check_compiled(expected: Sequence[Tensor], compiled: Sequence[Tensor], names: Sequence[str]) -> None:
    """Refuse compiled kernels whose step is not torch's own. Both are given by parameter, clients in front."""
    whole = sum(float(step.double().square().sum()) for step in expected)
    values = sum(step.numel() for step in expected)
    for name, own, other in zip(names, expected, compiled, strict=True):
        floor = _LEAST_SHARE * (whole / values * own[0].numel()) ** 0.5
        length = own.double().flatten(1).norm(dim=1).clamp(min=floor)
        difference = float(((other - own).double().flatten(1).norm(dim=1) / length).nan_to_num(math.inf).max())
        if not difference <= MOST_DIFFERENT:
            raise UsageError(
                f"torch {torch.__version__} compiles this model wrongly: the first step of {name} differs by "
                f"{difference:.0%} from the step without compiling; set training.compiled = false, or use another "
                "version of torch"
            )


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
    steps = settings.steps(int(np.max(user_data.sizes[users], initial=0)))
    places = np.zeros((len(users), steps, settings.minibatch), dtype=np.int64)
    real = np.zeros(places.shape, dtype=np.float32)
    for client, user in enumerate(users.tolist()):
        own = orders(user_data, settings, user, round_, seed)
        size, taken = own.shape[1], settings.steps(own.shape[1])
        places[client] = own[0, 0]
        row, counts = (table[client, :taken].reshape(settings.epochs, -1) for table in (places, real))
        row[:, :size], counts[:, :size] = own, 1.0
    return Timetable(places, real)


class TrainingState:
    """The state of `clients` clients during a round of up to `most` steps; loaded anew for each chunk.

    The step size η and the minibatch's size are multiplied into the loss, so that the gradient already is the
    step; a client that has no more examples has a step of zero, and keeps its parameters. With s_c = 1 while
    client c is active, else 0, and g' = -η g / |minibatch|, a step is

        x ← (1 - s_c η δ) x + g'    or, with momentum,    v ← s_c μ v - s_c η δ x + g',  x ← x + v.
    """

    def __init__(
        self, stack: Stack, user_data: UserData, settings: LocalTraining, *, like: Tensor, clients: int, most: int
    ) -> None:
        self._stack, self._data, self._settings = stack, user_data, settings
        device = like.device
        shape = (clients, most, settings.minibatch)
        self._parameters = [
            value.expand(clients, *value.shape[1:]).clone(memory_format=torch.contiguous_format).requires_grad_()
            for value in stack.pack(like[None])
        ]
        self._velocities = [torch.zeros_like(value) for value in self._parameters] if settings.momentum else []
        self._places = torch.zeros(shape, dtype=torch.int64, device=device)
        self._real = torch.zeros(shape, device=device)
        self._step_weights = torch.zeros(shape, device=device)
        self._decay = torch.ones(shape[:2], device=device)
        self._carry = torch.zeros(shape[:2], device=device)
        self._keys = torch.zeros(clients, dtype=torch.int64, device=device)
        self._losses = torch.zeros(clients, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._losses_of, self._move = stack.losses, _move_all
        self.advance: Callable[[], None] = self._advance
        """Takes the next step."""

    def capture(self, *, compiled: bool) -> "TrainingState":
        """Let every further step be the replay of a graph; `compiled`, of kernels that torch.compile made.

        The state must be loaded: compiled kernels take the next step once, and are refused if it differs from the
        step that torch takes without compiling. A compiler that drops a gradient would train on, and learn little.
        """
        if compiled:
            expected = self._trial_step()  # it fills the layers' caches, which torch.compile would trace otherwise
            self._losses_of = torch.compile(self._losses_of, dynamic=False)
            self._move = torch.compile(self._move, dynamic=False)
            check_compiled(expected, self._trial_step(), self._stack.names)
        self.advance = capture_graph(self._advance, self._step.device)
        return self

    def _trial_step(self) -> list[Tensor]:
        """Return how the next step moves each parameter, and leave the state as it was."""
        tensors = [*self._parameters, *self._velocities, self._losses, self._step]
        before = [value.detach().clone() for value in tensors]
        self._advance()
        with torch.no_grad():
            moved = [value.detach() - old for value, old in zip(self._parameters, before, strict=False)]
            for value, old in zip(tensors, before, strict=True):
                value.copy_(old)
        return moved

    @torch.no_grad()
    def load(self, parameters: Tensor, table: Timetable, keys: IntArray, rate: float) -> None:
        """Put the clients of a timetable at the start of a round; places beyond them count nothing."""
        for own, value in zip(self._parameters, self._stack.pack(parameters[None]), strict=True):
            own.copy_(value.expand_as(own))
        for velocity in self._velocities:
            velocity.zero_()
        settings, active = self._settings, table.active
        examples = np.maximum(table.examples, 1.0)[:, :, None]
        for target, values in (
            (self._places, table.places),
            (self._real, table.real),
            (self._step_weights, np.float32(-rate) * table.real / examples),
            (self._decay, 1.0 - rate * settings.weight_decay * active),
            (self._carry, settings.momentum * active),
            (self._keys[:, None], keys[:, None]),
        ):
            target.zero_()
            source = torch.from_numpy(np.ascontiguousarray(values))
            target[: source.shape[0], : source.shape[1]].copy_(source)
        self._losses.zero_()
        self._step.zero_()

    def results(self, parameters: Tensor, clients: int) -> tuple[Tensor, Tensor]:
        """Return the updates and the summed losses of the first clients."""
        with torch.no_grad():
            vectors = self._stack.unpack([value[:clients] for value in self._parameters])
        return vectors - parameters, self._losses[:clients].clone()

    def _now(self, values: Tensor) -> Tensor:
        return values.index_select(1, self._step).squeeze(1)

    def _advance(self) -> None:
        places = self._now(self._places)
        loss = self._losses_of(
            self._parameters,
            self._data.images[places],
            self._data.labels[places],
            step_keys(self._keys, self._step),
        )
        grads = torch.autograd.grad((loss * self._now(self._step_weights)).sum(), self._parameters)
        with torch.no_grad():
            self._move(self._parameters, self._velocities, grads, self._now(self._decay), self._now(self._carry))
            self._losses += (loss * self._now(self._real)).sum(dim=1)
            # Captures take a few steps ahead of time, which may be more than a short round has.
            self._step.add_(1).remainder_(self._places.shape[1])


def _move_all(
    parameters: list[Tensor], velocities: list[Tensor], grads: tuple[Tensor, ...], decay: Tensor, carry: Tensor
) -> None:
    """Take everybody's step."""
    for index, (value, grad) in enumerate(zip(parameters, grads, strict=True)):
        shape = (-1, *(1,) * (value.ndim - 1))
        if not velocities:
            torch.addcmul(grad, value, decay.view(shape), out=value)
            continue
        velocity = velocities[index]
        torch.addcmul(grad, velocity, carry.view(shape), out=velocity)
        velocity.addcmul_(value, decay.view(shape) - 1.0)
        value.add_(velocity)


class StackedTrainer(Trainer):
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
        user_data: UserData,
        settings: LocalTraining,
        *,
        cohort: int,
        seed: int = 0,
        numerics: Numerics | None = None,
        chunk: int | None = None,
        compiled: bool = False,
        workers: int | None = None,
    ) -> None:
        super().__init__(model, user_data, settings, seed=seed, numerics=numerics, workers=workers)
        check_count(cohort, "the number of users per round")
        self.stack = stack_of(self.model, self.data.images.shape[1:], self.layout)
        self._most = settings.steps(int(self.data.sizes.max()))
        if compiled and not isinstance(self.stack, LayerStack):
            raise UsageError(
                "only a torch.nn.Sequential of convolutions, linear layers, GroupNorm, max pooling, ReLU, dropout "
                "and Flatten can be compiled for many clients; train this model without"
            )
        self._compiled = compiled
        self._steps: TrainingState | None = None
        self._like = flatten(self.model)
        # A stack of any other module puts its own parameters into it while it computes: each worker needs a copy.
        self._side_by_side = Workers([self.stack, *(copy.deepcopy(self.stack) for _ in range(self.workers - 1))])
        self.chunk = self._fitting(cohort) if chunk is None else check_count(chunk, "the chunk of clients")

    def _parts(self, parameters: Tensor, users: IntArray, round_: int) -> Iterator[Part]:
        sizes = self.data.sizes[users]
        order = np.argsort(-sizes, kind="stable")
        rate = self.settings.rate(round_)

        def train(stack: Stack, rows: IntArray, stop: Stop) -> Part:
            table = timetable(self.data, self.settings, users[rows], round_, self.seed)
            keys = client_keys(self.seed, round_, users[rows])
            if self.device.type == "cuda" and self._steps is None:
                # Always the same state, since its steps are captured, which takes a few of them.
                self._steps = self._new_state(stack, self.chunk)
                self._steps.load(parameters, table, keys, rate)
                self._steps.capture(compiled=self._compiled)
            steps = self._steps or self._new_state(stack, len(rows))
            steps.load(parameters, table, keys, rate)
            for _ in range(table.steps):
                if stop():
                    raise Stopped
                steps.advance()
            vectors, losses = steps.results(parameters, len(rows))
            examples_seen = torch.tensor(
                sizes[rows] * self.settings.epochs, dtype=torch.float32, device=self.device
            )
            return Part(rows, vectors, losses / examples_seen)

        return self._side_by_side.map(
            train, [order[start : start + self.chunk] for start in range(0, len(order), self.chunk)]
        )

    def _new_state(self, stack: Stack, clients: int) -> TrainingState:
        return TrainingState(stack, self.data, self.settings, like=self._like, clients=clients, most=self._most)

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
        self._new_state(self.stack, 1).advance()
        return torch.cuda.max_memory_allocated(self.device) - before


def make_trainer(
    model: nn.Module,
    user_data: UserData,
    settings: LocalTraining,
    *,
    cohort: int,
    seed: int = 0,
    numerics: Numerics | None = None,
    compiled: bool = False,
    workers: int | None = None,
) -> Trainer:
    """Return the quicker trainer for the device of the users' data, for rounds of about `cohort` users.

    On a GPU clients are stacked. On a CPU stacked convolutions only move memory; models without convolutions,
    where most of the time goes into calling small operations, gain.
    There `workers` clients or stacks are trained side by side, one core each: as many as there are cores, unless
    given; their number never decides a result. `compiled` lets torch.compile fuse a GPU's kernels, which takes up
    to half a minute before the first round and pays for large models over many rounds.
    """
    workers = min(available_cores() if workers is None else check_count(workers, "the number of workers"), cohort)
    convolves = any(isinstance(module, _ConvNd) for module in model.modules())
    if user_data.images.device.type == "cpu" and convolves:
        return SeparateTrainer(model, user_data, settings, seed=seed, numerics=numerics, workers=workers)
    return StackedTrainer(
        model, user_data, settings, cohort=cohort, seed=seed, numerics=numerics, compiled=compiled, workers=workers
    )
