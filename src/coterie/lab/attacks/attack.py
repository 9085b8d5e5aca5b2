"""Rounds as the server sees them, what attacks make of them, and how near they come to the real updates."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.errors import UsageError
from coterie.federation.ledger import Ledger
from coterie.lab.attacks.disaggregation import (
    DiagonalDrift,
    Kriging,
    LeastSquares,
    Method,
    best_window,
    disaggregation_errors,
)
from coterie.lab.attacks.score import UpdateErrors
from coterie.lab.attacks.view import ServerView
from coterie.lab.experiments.folder import AGGREGATE, MODEL, RunFolder, check_files, progress_of, read_checked
from coterie.lab.experiments.setup import Setup, prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.training.trainer import Trainer
from coterie.selection import Selector
from coterie.values import BatchPlan, BoolArray, FloatArray, IntArray
from coterie.values.checks import check_count

METHODS: tuple[Method, ...] = (LeastSquares(), DiagonalDrift(), Kriging())
"""What is tried on a run; the strongest of them is the adversary."""


def cohorts(selector: Selector, online: Iterable[BoolArray], users: int, seed: int) -> Iterator[IntArray]:
    """Yield who takes part, round after round, of those who are online; rounds without a cohort are left out."""
    counts = np.zeros(users, dtype=np.int64)
    for step, available in enumerate(online):
        cohort = selector.choose(available, counts, np.random.default_rng([seed, step]))
        if cohort is not None:
            counts[cohort.users] += 1
            yield cohort.users


def observe(trainer: Trainer, model: Tensor, learned: Iterable[IntArray], first: int = 0) -> ServerView:
    """Train a model on one cohort after the other, from a step on, and return what the server has of that."""
    before, rounds, means = model, [], []
    for step, users in enumerate(learned, first):
        rounds.append(users)
        means.append(trainer.mean(model, users, step).vector)
        model = model + means[-1]
    return ServerView.of(trainer.data.users, rounds, means, before)


@dataclass(frozen=True, eq=False)
class AttackedRun:
    """A run that kept its aggregates: what the server has of it, and what only the judge may know."""

    setup: Setup
    view: ServerView
    """All rounds with a result; a round's number is its step in the run, from 0."""

    def real_updates(self, view: ServerView) -> Tensor:
        """Return every user's real update at the first model of a window of the view: the judge's knowledge."""
        trainer = self.setup.trainer
        everybody = np.arange(self.view.users)
        return trainer.updates(view.model.to(trainer.device), everybody, view.rounds[0]).vectors.cpu()


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What one method got."""

    method: str
    errors: UpdateErrors

    def record(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"method": self.method, "users_found": len(self.errors.found_users), "error": self.errors.summary()}


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What attacks on one run came to: each method's errors, over one window."""

    scheme: str
    privacy: int | None
    rounds: tuple[int, int]
    """The first step of the window and the last, from 1 as in the run's record."""
    length: int
    """Rounds with a result in the window."""
    methods: tuple[MethodResult, ...]

    @cached_property
    def strongest(self) -> MethodResult:
        """The method with the most users found, then the least median error."""
        return max(
            self.methods, key=lambda each: (len(each.errors.found_users), -float(np.median(each.errors.errors)))
        )

    def record(self) -> dict[str, Any]:
        """Return it as plain JSON values, as `coterie attack --json` prints it for a scheme."""
        errors = self.strongest.errors
        return {
            "scheme": self.scheme,
            "privacy": self.privacy,
            "users": len(errors.errors),
            "users_found": len(errors.found_users),
            "found_by_chance": errors.found_by_chance,
            "error": errors.summary(),
            "psnr": None,
            "method": self.strongest.method,
            "methods": [each.record() for each in self.methods],
            "window": {"first": self.rounds[0], "last": self.rounds[1], "rounds": self.length},
            "errors": [float(f"{value:.4g}") for value in errors.errors],
        }


def attack(run: str | os.PathLike[str], *, window: int | None = None) -> AttackResult:
    """Attack a run as its server could, and say how near each method came to the users' real updates.

    `run` is the folder of a run that kept its aggregates: `coterie.run(keep_aggregates=True)`. The last `window`
    rounds are taken apart, or as many as promise the least error.
    """
    return attack_run(read_attacked_run(Path(run)), window)


def read_attacked_run(path: Path) -> AttackedRun:
    """Read a run's folder; refuse one that kept no aggregates, or of which a file was changed."""
    folder = RunFolder.open(path)
    with Ledger.open(folder.ledger) as ledger:
        record, snapshot = read_checked(folder, ledger)
    check_files(folder, snapshot)
    spec = Spec.from_tables(record.head["spec"], str(folder.record.path))
    if not spec.keep_aggregates:
        raise UsageError(
            f"the run in {path} kept no aggregates, so there is nothing to attack; run it again with "
            "--keep-aggregates (or keep_aggregates = true in its spec)"
        )
    steps = [step for step, round_ in enumerate(progress_of(folder, snapshot).steps) if AGGREGATE in round_.files]
    missing = [step for step in steps if not folder.aggregate_file(step + 1).exists()]
    if missing:
        raise UsageError(f"{folder.aggregate_file(missing[0] + 1)} was removed; put it back to attack the run")
    if not steps:
        raise UsageError(f"no round of the run in {path} had a result: there is nothing to attack")
    setup = prepare(spec)
    layout = setup.trainer.layout
    first = folder.checkpoint(0, snapshot.files[MODEL]).parameters
    model = layout.join({name: torch.from_numpy(value) for name, value in first.items()})
    weights = spec.training.weights(setup.user_data.sizes)
    means, learned = zip(*(folder.aggregate(step + 1) for step in steps), strict=True)
    totals = [float(weights[members].sum()) for members in learned]
    vectors = [torch.from_numpy(mean) for mean in means]
    view = ServerView.of(setup.user_data.users, learned, vectors, model, rounds=steps, totals=totals)
    return AttackedRun(setup, view)


def attack_run(run: AttackedRun, window: int | None = None) -> AttackResult:
    """Try every method on a run, over its last `window` rounds, or as many as promise the least error."""
    if window is None:
        view = best_window(run.view)
    else:
        rounds = len(run.view.rounds)
        if check_count(window, "the window") > rounds:
            raise UsageError(f"the window is {window} rounds, but only {rounds} had a result; give at most that")
        view = run.view.window(rounds - window, window)
    truth = run.real_updates(view)
    plan, selection = run.setup.plan, run.setup.spec.selection
    results = [MethodResult(each.name, disaggregation_errors(view, each, truth)) for each in METHODS]
    if plan is not None:
        conceded = _batch_mean_errors(truth, plan)
        results = [replace(each, errors=replace(each.errors, chance=conceded)) for each in results]
    return AttackResult(
        scheme=selection.plan or selection.scheme,
        privacy=None if plan is None else plan.privacy,
        rounds=(view.rounds[0] + 1, view.rounds[-1] + 1),
        length=len(view.rounds),
        methods=tuple(results),
    )


def _batch_mean_errors(truth: Tensor, plan: BatchPlan) -> FloatArray:
    """Return each user's error if its batch's mean is taken for its update: a plan shows that by right.

    Members who are alike are found by it, and no plan can help that.
    """
    errors = np.ones(len(truth))
    for batch in range(len(plan)):
        members = plan.batch(batch).tolist()
        own = truth[members].double()
        errors[members] = ((own - own.mean(dim=0)).square().sum(dim=1) / own.square().sum(dim=1)).numpy()
    return errors
