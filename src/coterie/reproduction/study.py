"""One model trained in the open, as fast as the machine can: for questions of accuracy, with no ledger."""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie import __version__
from coterie.audit.measures import RunningMeasures
from coterie.experiment.parts import Parts, prepare
from coterie.experiment.plain import PlainAggregation
from coterie.experiment.spec import Spec
from coterie.training.engine.vector import flatten
from coterie.training.evaluate import evaluate
from coterie.values import BoolArray, IntArray

Progress = Callable[[int], None]
"""Told how many rounds are done."""


def no_progress(rounds: int) -> None:
    """Tell nobody."""
    del rounds


def train(spec: Spec, progress: Progress = no_progress) -> dict[str, Any]:
    """Train a model as a spec says, adding updates up plainly, and return what came out as a record.

    The cohorts, losses and updates are those of `coterie run` with the same spec and plain aggregation.
    """
    started = time.perf_counter()
    parts = prepare(spec)
    parameters = flatten(parts.model).to(parts.trainer.device)
    counts = np.zeros(parts.user_data.users, dtype=np.int64)
    measures = RunningMeasures(parts.user_data.users)
    curve: dict[int, float] = {}
    ready = time.perf_counter()
    for step, available in zip(range(spec.training.rounds), parts.world.available(0), strict=False):
        users = _users(parts, parameters, step, available, counts)
        if len(users):
            mean, _ = PlainAggregation(parts, parameters, step).mean(users)
            parameters = parameters + mean.to(parameters)
            counts[users] += 1
        measures.add_round((users,) if len(users) else ())
        if (step + 1) % spec.evaluate_every == 0 or step + 1 == spec.training.rounds:
            tested = evaluate(parts.model, parameters, parts.user_data, workers=parts.trainer.workers)
            curve[step + 1] = round(100 * tested.accuracy, 2)
        progress(step + 1)
    now = measures.now
    return {
        "curve": curve,
        "strong": now.strong,
        "fairness_gap": round(now.fairness_gap, 6),
        "fairness_gap_completed": round(now.fairness_gap_completed, 6),
        "cardinality": round(now.cardinality, 4),
        "skipped": now.skipped,
        "seconds": round(time.perf_counter() - ready, 2),
        "preparation_seconds": round(ready - started, 2),
        "made_with": _made_with(parts),
    }


def _users(parts: Parts, parameters: Tensor, step: int, available: BoolArray, counts: IntArray) -> IntArray:
    """Return the users whose updates count in a step: the cohort less those who are lost."""
    cohort = parts.selector.choose(available, counts, np.random.default_rng([parts.spec.seed, step]))
    if cohort is None:
        return np.zeros(0, dtype=np.int64)
    return PlainAggregation(parts, parameters, step).survivors(cohort)[0]


def _made_with(parts: Parts) -> dict[str, str]:
    device = parts.trainer.device
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "coterie": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
