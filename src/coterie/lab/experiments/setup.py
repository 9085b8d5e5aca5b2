"""Everything that a spec decides before the first round: who is away when, data, model, trainer, selector."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

from coterie.errors import UsageError
from coterie.lab.experiments.plain import WordRounding
from coterie.lab.experiments.spec import DataSettings, Spec
from coterie.lab.training.data import (
    Dataset,
    Partition,
    UserData,
    dirichlet,
    dropout_by_label,
    iid,
    read_folder,
    read_partition,
    shards,
    shards_and_shared,
)
from coterie.lab.training.models import make_model
from coterie.lab.training.published import DATASETS, Progress, load, no_progress
from coterie.lab.training.stacked_trainer import make_trainer
from coterie.lab.training.trainer import Numerics, Trainer
from coterie.selection import (
    AvailabilityModel,
    BatchSelector,
    DailyCycle,
    IndependentDropout,
    PlanSelector,
    Selector,
    draw_dropout,
    knows_users,
    selector_named,
)
from coterie.values import AvailabilityLog, BatchPlan, BoolArray, FloatArray, IntArray

# Each purpose draws from a generator of its own: none disturbs another.
_DROPOUT, _ONLINE, _LOST, _WHEN, _ROUNDING, _PARTITION, _SUM_ROUNDING, _ZONES, _EARLIER, _PLAN = range(10)
_HOLDOUT = 1 << 31
"""Far from the numbers of steps: the selection of a step draws from the seed and that number."""
_TIME_ZONES = 8
_RECORDED = 200
"""Rounds before the first of which it is known who was online."""


class World:
    """Who is away or lost: a function of the seed and the step, so that a resumed run meets the same users."""

    def __init__(self, seed: int, dropout: FloatArray, lost: float, rounds_per_day: int = 0) -> None:
        """`dropout` is each user's probability to be away, `lost` that to be lost in the middle of a round.

        With `rounds_per_day`, users are away by the clock of time zones that are drawn for them.
        """
        self.dropout = dropout
        self._rng = partial(_rng, seed)
        self._users, self._lost = len(dropout), lost
        self.model: AvailabilityModel = IndependentDropout(dropout)
        """Who is available when."""
        if rounds_per_day:
            zones = self._rng(_ZONES).integers(_TIME_ZONES, size=self._users) / _TIME_ZONES
            self.model = DailyCycle(dropout, zones, rounds_per_day)

    def available(self, start: int) -> Iterator[BoolArray]:
        """Yield who is available in the steps from `start` on."""
        return islice(self.model.rounds(self._rng(_ONLINE)), start, None)

    def selector(self, scheme: str, per_round: int) -> Selector:
        """Return the selector of a scheme, with a plan made for these users where the scheme knows them.

        Who was online together is known from rounds before the first one.
        """
        earlier = islice(self.model.rounds(self._rng(_EARLIER)), _RECORDED)
        return selector_named(
            scheme,
            self._users,
            per_round,
            self.dropout,
            rng=self._rng(_PLAN),
            record=AvailabilityLog(np.stack(list(earlier))) if knows_users(scheme) else None,
        )

    def lost_users(self, step: int) -> BoolArray:
        """Return who is lost between being asked in this step and having sent its vector."""
        return self._rng(_LOST, step).random(self._users) < self._lost

    def lost_at(self, step: int, phases: int) -> IntArray:
        """Return the phase at which each user is lost, if it is; of `phases` the last is that of its vector."""
        return self._rng(_WHEN, step).integers(phases, size=self._users)

    def rounding(self, user: int) -> np.random.Generator:
        """Return the generator of the secret that a user's device rounds by."""
        return self._rng(_ROUNDING, user)

    def sum_rounding_seed(self, step: int) -> int:
        """Return the seed with which a step's plain sum is rounded as the protocols' words are."""
        return int(self._rng(_SUM_ROUNDING, step).integers(2**63))


def drawn_dropout(seed: int, choices: Sequence[float], users: int) -> FloatArray:
    """Return each user's probability to be away, drawn from a few."""
    return draw_dropout(choices, users, _rng(seed, _DROPOUT))


def partition_rng(seed: int) -> np.random.Generator:
    """Return the generator with which examples are given to users."""
    return _rng(seed, _PARTITION)


def _rng(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose])


# --- everything that a spec decides before the first round

PARTITIONS = ("iid", "shards", "shards-shared", "dirichlet")


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that a run needs and that stays the same over its rounds."""

    spec: Spec
    world: World
    user_data: UserData
    model: nn.Module
    trainer: Trainer
    selector: Selector
    data_digest: str
    """The SHA-256 of all users' data."""
    rounding: WordRounding | None
    """How a plain sum is rounded, if it is."""

    @property
    def plan(self) -> BatchPlan | None:
        """The batches, if the scheme has any."""
        return self.selector.plan if isinstance(self.selector, PlanSelector) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The users' names."""
        return self.user_data.names or tuple(f"user-{user}" for user in range(self.user_data.users))

    def selector_for(self, plan: BatchPlan | None) -> Selector:
        """Return the selector for the plan in force."""
        if plan is None or not isinstance(self.selector, PlanSelector):
            return self.selector
        return self.selector.over(plan)


def prepare(spec: Spec, progress: Progress = no_progress, workers: int | None = None) -> Setup:
    """Return the setup of a run; refuse a spec that cannot be run.

    `workers` clients are trained side by side on a CPU: as many as there are cores, unless given. The result does
    not depend on it, so it is not part of the spec.
    """
    chosen, user_data = spec.selection.dropout, None
    if chosen == "by-label":
        user_data = _user_data(spec, progress)
        counts = user_data.partition.label_counts(user_data.labels.numpy(), user_data.classes)
        dropout = dropout_by_label(counts)
    else:
        dropout = drawn_dropout(spec.seed, chosen, spec.data.users)
    world = World(spec.seed, dropout, spec.selection.lost, spec.selection.rounds_per_day)
    selector = _selector(spec, world)
    if user_data is None:  # a scheme that cannot be was refused before any data are fetched
        user_data = _user_data(spec, progress)
    _check_weights(spec, user_data)
    device = _device(spec.training.device)
    if workers is not None and device.type != "cpu":
        raise UsageError(
            f"{workers} workers have no effect on a GPU; leave them out, or set training.device to cpu"
        )
    digest = data_digest(user_data)
    user_data = user_data.to(device)
    model = make_model(spec.training.model, user_data.classes, spec.seed, user_data.images.shape[1:])
    _check_fit(spec, model, user_data)
    trainer = make_trainer(
        model,
        user_data,
        spec.training,
        cohort=spec.selection.per_round,
        seed=spec.seed,
        numerics=Numerics(bfloat16=spec.training.precision == "bfloat16"),
        compiled=spec.training.compiled and device.type == "cuda",
        workers=workers,
    )
    return Setup(spec, world, user_data, model, trainer, selector, digest, _rounding(spec, selector))


def _user_data(spec: Spec, progress: Progress) -> UserData:
    """Return the users' data as a spec describes it; published files that are missing are fetched."""
    data = spec.data
    if data.source in DATASETS:
        dataset = load(DATASETS[data.source], data.folder, progress)
        if data.holdout:
            dataset = dataset.held_out(data.holdout, _rng(spec.seed, _HOLDOUT))
        return UserData.of_dataset(dataset, _partition(data, dataset, partition_rng(spec.seed)))
    if not Path(data.source).is_dir():
        raise UsageError(
            f"there is no data set or folder {data.source!r}; give {', '.join(DATASETS)}, or a folder with a file "
            "NAME.npz for each user, and test.npz"
        )
    if data.holdout:
        raise UsageError(f"{data.source} has examples to test with, test.npz; leave data.holdout out")
    user_data = read_folder(data.source)
    if user_data.users != data.users:
        raise UsageError(f"{data.source} has {user_data.users} users, not {data.users}; set data.users to that")
    return user_data


def _selector(spec: Spec, world: World) -> Selector:
    users, selection = spec.data.users, spec.selection
    if selection.plan:
        from coterie.selection.plan_file import read_plan

        plan = read_plan(Path(selection.plan))
        if plan.users != users:
            raise UsageError(f"{selection.plan} is a plan of {plan.users} users, not of {users}; set data.users")
        selector: Selector = BatchSelector(plan, selection.per_round, spare=selection.spare)
    else:
        selector = world.selector(selection.scheme, selection.per_round)
        if isinstance(selector, BatchSelector):
            selector = replace(selector, spare=selection.spare)
    _check_aggregation(spec, selector)
    return selector


def _check_aggregation(spec: Spec, selector: Selector) -> None:
    """Refuse an aggregation that the scheme cannot have."""
    protocol, sealed = spec.aggregation.protocol, spec.aggregation.sealed
    if spec.aggregation.plain:
        return
    try:
        from coterie.secagg import PROTOCOLS
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the protocol {protocol} needs the package {error.name}, which is not installed; install coterie "
            "with its dependencies, or set aggregation.protocol to plain"
        ) from None
    if not isinstance(selector, PlanSelector):
        if sealed:
            raise UsageError(
                f"the scheme {spec.selection.scheme} has no batches that could be sealed; choose one such as T4, "
                "or set aggregation.protocol to plain or aggregation.sealed to false"
            )
        return
    least = PROTOCOLS[protocol].least_included(selector.plan.sizes.tolist(), selector.plan.privacy)
    if sealed and spec.selection.per_round < least:
        raise UsageError(
            f"{protocol} shows no sum of fewer than {least} users (the largest batch and T more), but a round "
            f"has {spec.selection.per_round}; raise selection.per_round, lower T, or take the protocol open"
        )
    if sealed and selector.plan.privacy < 2:  # noqa: PLR2004 - a sum of one is that one
        raise UsageError(f"T is {selector.plan.privacy}: a seal hides nobody in a batch of one; choose T2 or more")


def _rounding(spec: Spec, selector: Selector) -> WordRounding | None:
    """Return how a plain sum is rounded: as the words of secagg and secagg+ would be, for as many users."""
    aggregation = spec.aggregation
    if not aggregation.plain or aggregation.word_bits == 0:
        return None
    largest = int(selector.plan.sizes.max()) if isinstance(selector, PlanSelector) else 0
    return WordRounding(
        word_bits=aggregation.word_bits,
        clip=aggregation.clip,
        weight_cap=spec.largest_weight,
        cohort=spec.most_asked(largest),
    )


def _check_fit(spec: Spec, model: nn.Module, user_data: UserData) -> None:
    """Refuse a model that cannot take the users' examples, before anything is written."""
    example, name = user_data.images[:1].cpu(), spec.training.model
    try:
        with torch.no_grad():
            outputs = model.eval()(example)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        shape = " × ".join(map(str, example.shape[1:]))
        why = f" ({type(error).__name__}: {error})" if ":" in name else ""
        raise UsageError(
            f"the model {name} cannot take examples of {shape}, as {spec.data.source} has them{why}; "
            "choose another with training.model (mlp and logistic take any)"
        ) from None
    if not isinstance(outputs, torch.Tensor) or outputs.shape != (1, user_data.classes):
        given = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise UsageError(
            f"the model {name} gives {given} for one example; it must give {(1, user_data.classes)}, a value for "
            "each class"
        )


def _check_weights(spec: Spec, user_data: UserData) -> None:
    """Refuse weights that a sealed vector could not carry: they would count less there than in a plain sum."""
    largest, cap = int(user_data.sizes.max()), spec.aggregation.weight_cap
    if spec.training.weighting == "examples" and largest > cap:
        raise UsageError(
            f"a user has {largest} examples, but aggregation.weight_cap is {cap}; set it to {largest} or more, "
            "or training.weighting to equal"
        )


def _device(name: str) -> torch.device:
    """Return a torch device; auto is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"training.device is {name!r}, which is not here ({first}); give auto, cpu or cuda"
        ) from None
    return device


def data_digest(user_data: UserData) -> str:
    """Return the SHA-256 of everything that users hold and are tested with."""
    state = hashlib.sha256()
    train, test, partition = user_data.train, user_data.test, user_data.partition
    for part in (train.images, train.labels, test.images, test.labels):
        values = part.numpy()
        state.update(f"{values.dtype} {values.shape}".encode())
        state.update(np.ascontiguousarray(values).data)
    for indices in (partition.indices, partition.starts):
        state.update(f"{len(indices)}".encode())
        state.update(np.ascontiguousarray(indices, dtype="<i8").data)
    state.update(repr((user_data.classes, user_data.mean, user_data.std, user_data.names)).encode())
    return state.hexdigest()


def _partition(data: DataSettings, dataset: Dataset, rng: np.random.Generator) -> Partition:
    labels = dataset.train.labels.numpy()
    match data.partition:
        case "iid":
            return iid(len(labels), data.users, rng)
        case "dirichlet":
            return dirichlet(labels, data.users, data.concentration, rng)
        case "shards":
            partition = shards(labels, data.users)
            return partition.shuffled(rng) if data.order == "random" else partition
        case "shards-shared":
            partition = shards_and_shared(labels, data.users, data.shared, rng)
            return partition.shuffled(rng) if data.order == "random" else partition
    if not Path(data.partition).is_file():
        raise UsageError(
            f"there is no partition {data.partition!r}; give {', '.join(PARTITIONS)}, or a saved partition's file"
        )
    partition = read_partition(data.partition)
    if len(partition) != data.users:
        raise UsageError(f"{data.partition} is for {len(partition)} users, not for {data.users}; set data.users")
    return partition
