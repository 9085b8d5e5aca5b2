"""Everything that a spec decides before the first round: users' fates, data, model, trainer, selector."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from coterie.errors import UsageError
from coterie.experiment.federation import federation_of
from coterie.experiment.spec import Spec
from coterie.experiment.world import World
from coterie.selection import BatchSelector, Selector, selector_named
from coterie.training.data.federation import Federation
from coterie.training.data.fetch import Progress, no_progress
from coterie.training.engine.local import Trainer
from coterie.training.engine.trainers import make_trainer
from coterie.training.models import make_model
from coterie.values import BatchPlan


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a run."""

    spec: Spec
    world: World
    federation: Federation
    model: nn.Module
    trainer: Trainer
    selector: Selector

    @property
    def plan(self) -> BatchPlan | None:
        """The batches, if the scheme has any."""
        return self.selector.plan if isinstance(self.selector, BatchSelector) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The users' names."""
        return self.federation.names or tuple(f"user-{user}" for user in range(self.federation.users))

    def selector_for(self, plan: BatchPlan | None) -> Selector:
        """Return the selector for the plan in force."""
        if plan is None or not isinstance(self.selector, BatchSelector):
            return self.selector
        return replace(self.selector, plan=plan)


def prepare(spec: Spec, progress: Progress = no_progress, workers: int | None = None) -> Parts:
    """Return the parts of a run; refuse a spec that cannot be run.

    `workers` clients are trained side by side on a CPU: as many as there are cores, unless given. The result does
    not depend on it, so it is not part of the spec.
    """
    world = World(spec.seed, spec.data.users, spec.selection.dropout, spec.selection.lost)
    selector = _selector(spec, world)
    federation = federation_of(spec.data, world.spread(), progress)
    if federation.users != spec.data.users:
        raise UsageError(
            f"{spec.data.source} has {federation.users} users, not {spec.data.users}; set data.users to that"
        )
    _check_weights(spec, federation)
    federation = federation.to(_device(spec.training.device))
    model = make_model(spec.training.model, federation.classes, spec.seed)
    _check_fit(spec, model, federation)
    trainer = make_trainer(
        model, federation, spec.training, cohort=spec.selection.per_round, seed=spec.seed, workers=workers
    )
    return Parts(spec, world, federation, model, trainer, selector)


def _selector(spec: Spec, world: World) -> Selector:
    users, wanted = spec.data.users, spec.selection
    if wanted.plan:
        from coterie.storage.plans import read_plan

        plan = read_plan(Path(wanted.plan))
        if plan.users != users:
            raise UsageError(f"{wanted.plan} is a plan of {plan.users} users, not of {users}; set data.users")
        selector: Selector = BatchSelector(plan, wanted.per_round, spare=wanted.spare)
    else:
        selector = selector_named(wanted.scheme, users, wanted.per_round, world.dropout)
        if isinstance(selector, BatchSelector):
            selector = replace(selector, spare=wanted.spare)
    _check_aggregation(spec, selector)
    return selector


def _check_aggregation(spec: Spec, selector: Selector) -> None:
    """Refuse an aggregation that the scheme cannot have."""
    protocol, sealed = spec.aggregation.protocol, spec.aggregation.sealed
    if protocol == "plain":
        return
    if not isinstance(selector, BatchSelector):
        if sealed:
            raise UsageError(
                f"the scheme {spec.selection.scheme} has no batches that could be sealed; choose one such as T4, "
                "or set aggregation.protocol to plain or aggregation.sealed to false"
            )
        return
    largest = int(selector.plan.sizes.max())
    least = largest + selector.plan.privacy
    if sealed and protocol != "open" and spec.selection.per_round < least:
        raise UsageError(
            f"{protocol} shows no sum of fewer than {least} users (a batch of {largest} and T more), but a round "
            f"has {spec.selection.per_round}; raise selection.per_round, lower T, or take the protocol open"
        )
    if sealed and selector.plan.privacy < 2:  # noqa: PLR2004 - a sum of one is that one
        raise UsageError(f"T is {selector.plan.privacy}: a seal hides nobody in a batch of one; choose T2 or more")


def _check_fit(spec: Spec, model: nn.Module, federation: Federation) -> None:
    """Refuse a model that cannot take the users' examples, before anything is written."""
    example = federation.images[:1].cpu()
    try:
        with torch.no_grad():
            model.eval()(example)
    except RuntimeError:
        shape = " × ".join(map(str, example.shape[1:]))
        raise UsageError(
            f"the model {spec.training.model} cannot take examples of {shape}, as {spec.data.source} has them; "
            "choose another with training.model"
        ) from None


def _check_weights(spec: Spec, federation: Federation) -> None:
    """Refuse weights that a sealed vector could not carry: they would count less there than in a plain sum."""
    largest, cap = int(federation.sizes.max()), spec.aggregation.weight_cap
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
