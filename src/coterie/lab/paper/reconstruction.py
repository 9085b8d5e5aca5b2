"""The paper's reconstruction of single updates (app:random-selection): error and users found, by window and drift.

A model is trained until it has settled, then goes on at a small final rate; over windows of these rounds the
server takes the sums apart. Linear attacks are judged by second moments of the sums alone.
"""

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie import __version__
from coterie.lab.attacks.attack import cohorts, observe
from coterie.lab.attacks.disaggregation import (
    DiagonalDrift,
    Kriging,
    LeastSquares,
    LinearMethod,
    Moments,
    disaggregation_errors,
    errors_by_moments,
    moments_of,
)
from coterie.lab.attacks.score import UpdateErrors
from coterie.lab.experiments.setup import Setup, prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.definition import Windows
from coterie.lab.training.models import flatten
from coterie.lab.training.stacked_trainer import make_trainer
from coterie.lab.training.trainer import evaluate
from coterie.selection.workers import CheckStop, never_stop
from coterie.values import BoolArray, FloatArray, IntArray

LINEAR: tuple[LinearMethod, ...] = (LeastSquares(), Kriging())
DRIFT_ROUNDS = 20
"""The drift is the squared relative change of updates over so many rounds."""
BINS = tuple(10.0 ** (exponent / 4) for exponent in range(-16, 17))
"""Edges of the histograms of errors: four to a power of ten; errors beyond are in the first and last bin."""


@dataclass(frozen=True, eq=False)
class FinalRounds:
    """What is needed of the rounds at one final rate to judge any linear attack on any of the windows."""

    everything: Moments
    """Of all rounds."""
    cross: FloatArray
    """Windows × rounds × users: the sums times the real updates at the window's first model."""
    sizes: FloatArray
    """Windows × users: the real updates' squared lengths."""
    diagonal: Mapping[int, tuple[UpdateErrors, ...]]
    """The errors of the diagonal drift, by window length: it looks at the vectors themselves."""
    alike: BoolArray
    """Users all of whose batch hold mostly the same label: their batch's mean is their own update."""
    drift: float | None
    """None if the windows do not reach over so many rounds."""
    accuracy: float


def attack_windows(spec: Spec, windows: Windows, check_stop: CheckStop = never_stop) -> dict[str, Any]:
    """Train as a spec says, attack the windows of each final rate, and return a record."""
    started = time.perf_counter()
    setup = prepare(spec)
    by_rate = _observe(setup, windows, check_stop)
    record = {f"{rate:g}": score_methods(final, windows) for rate, final in by_rate.items()}
    return {"rates": record, "seconds": round(time.perf_counter() - started, 1), "made_with": made_with(setup)}


def made_with(setup: Setup) -> dict[str, str]:
    """Return what a record was made with: the device and the versions."""
    device = setup.trainer.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "coterie": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _observe(setup: Setup, windows: Windows, check_stop: CheckStop) -> dict[float, FinalRounds]:
    """Train until the spec's last round, then at each final rate, and return what was seen there."""
    model, settled = flatten(setup.model).to(setup.trainer.device), setup.spec.training.rounds
    learned = cohorts(setup.selector, setup.world.available(0), setup.user_data.users, setup.spec.seed)
    for step, users in enumerate(islice(learned, settled)):
        model = model + setup.trainer.mean(model, users, step).vector
        check_stop()
    final = list(islice(learned, windows.rounds))
    return {rate: _observe_final_rounds(setup, final, model, rate, windows) for rate in windows.rates}


def _observe_final_rounds(
    setup: Setup, learned: list[IntArray], model: Tensor, rate: float, windows: Windows
) -> FinalRounds:
    spec = setup.spec
    settings = replace(spec.training, learning_rate=rate, schedule=())
    trainer = make_trainer(setup.model, setup.user_data, settings, cohort=spec.selection.per_round, seed=spec.seed)
    begin, everybody = spec.training.rounds, np.arange(setup.user_data.users)
    view = observe(trainer, model, learned, begin)
    truths = [
        trainer.updates(view.model_before(start), everybody, begin + start).vectors for start in windows.starts
    ]
    sums = torch.stack(view.means).double() * torch.from_numpy(view.totals).to(model.device)[:, None]
    later = DRIFT_ROUNDS // windows.stride
    changes = [_change(a, b) for a, b in zip(truths, truths[later:], strict=False)]
    last = view.model_before(len(learned))
    return FinalRounds(
        everything=moments_of(view),
        cross=np.stack([(sums @ truth.double().T).cpu().numpy() for truth in truths]),
        sizes=np.stack([truth.double().square().sum(dim=1).cpu().numpy() for truth in truths]),
        diagonal={
            length: tuple(
                disaggregation_errors(view.window(start, length), DiagonalDrift(), truth)
                for start, truth in zip(windows.starts, truths, strict=True)
            )
            for length in windows.lengths
        },
        alike=alike_users(setup),
        drift=float(np.median(changes)) if changes else None,
        accuracy=evaluate(setup.model, last, setup.user_data, workers=setup.trainer.workers).accuracy,
    )


def alike_users(setup: Setup) -> BoolArray:
    """Return which users are in a batch of two or more that all hold mostly one and the same label.

    A batch hides its members from one another's sums, but not what they have in common.
    """
    data, plan = setup.user_data, setup.plan
    alike = np.zeros(data.users, dtype=np.bool_)
    if plan is None:
        return alike
    counts = data.partition.label_counts(data.labels.cpu().numpy(), data.classes)
    most = np.where(counts.max(axis=1) > counts.sum(axis=1) / 2, counts.argmax(axis=1), -1)
    for batch in range(len(plan)):
        members = plan.batch(batch)
        alike[members] = most[members[0]] >= 0 and bool((most[members] == most[members[0]]).all())
    return alike


def _change(before: Tensor, after: Tensor) -> float:
    """Return the mean squared relative change of users' updates."""
    return float(((after - before).square().sum(dim=1) / before.square().sum(dim=1)).mean())


def score_methods(final: FinalRounds, windows: Windows) -> dict[str, Any]:
    """Return the errors of every method on every window of one final rate, as a record."""
    methods: dict[str, dict[str, Any]] = {}
    conditions: dict[str, float] = {}
    for length in windows.lengths:
        by_method: dict[str, list[UpdateErrors]] = {DiagonalDrift.name: list(final.diagonal[length])}
        spread = []
        for window, start in enumerate(windows.starts):
            moments = final.everything.window(start, length)
            cross = final.cross[window, start : start + length]
            for method in LINEAR:
                result = errors_by_moments(method, moments, cross, final.sizes[window])
                by_method.setdefault(method.name, []).append(result)
            spread.append(_condition(moments.participation))
        conditions[str(length)] = float(f"{np.median(spread):.4g}")
        for name, results in by_method.items():
            methods.setdefault(name, {})[str(length)] = _summary(results, final.alike)
    return {
        "drift": None if final.drift is None else float(f"{final.drift:.4g}"),
        "accuracy": round(100 * final.accuracy, 2),
        "condition": conditions,
        "methods": methods,
    }


def _condition(matrix: FloatArray) -> float:
    """Return the largest singular value over the least that is not zero."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[0] / values[values > 1e-10 * values[0]][-1])


def _summary(results: list[UpdateErrors], alike: BoolArray) -> dict[str, Any]:
    """Return a number for each window, and the histogram of all errors.

    `beyond` counts those found who are not merely alike with their whole batch.
    """
    everything = np.concatenate([result.errors for result in results])
    inside = np.clip(everything, BINS[0], np.nextafter(BINS[-1], 0))
    return {
        "mean": [float(f"{result.errors.mean():.4g}") for result in results],
        "median": [float(f"{np.median(result.errors):.4g}") for result in results],
        "least": [float(f"{result.errors.min():.4g}") for result in results],
        "found": [len(result.found_users) for result in results],
        "beyond": [int(np.count_nonzero(~alike[result.found_users])) for result in results],
        "chance": [result.found_by_chance for result in results],
        "histogram": np.histogram(inside, BINS)[0].tolist(),
    }
