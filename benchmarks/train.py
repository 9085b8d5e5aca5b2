"""Local training of a round's 12 clients: stacked against one after the other, on a GPU if there is one.

Without one, clients that train side by side, one core each, are measured too; with one, several runs at a time, as
`coterie reproduce` has them, each in a process of its own (start NVIDIA's MPS first, or they take turns).

The share of the peak is of a dense TF32 product by the GPU's data sheet. Operations are counted by formula: a
convolution or linear layer takes 2 · outputs · (inputs to each) for its outputs, and as many again for each of
its two gradients, of which the first layer has one.
"""

import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import torch
from measure import seconds
from torch import nn

from coterie.lab.training import Examples, Partition, UserData
from coterie.lab.training.models import flatten, make_model
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_trainer import StackedTrainer
from coterie.lab.training.trainer import Numerics, SeparateTrainer

CLIENTS = 12
ROUNDS_TOGETHER = 40
TF32_PEAK = {"NVIDIA H200": 494.7e12, "NVIDIA H100 80GB HBM3": 494.7e12, "NVIDIA A100-SXM4-80GB": 156e12}
"""Dense, by data sheet."""


@dataclass(frozen=True)
class Case:
    """A model with the paper's shapes: examples of each client and minibatch size."""

    model: str
    shape: tuple[int, ...]
    classes: int
    examples: int
    minibatch: int
    bar: float | None = None
    """How many times faster than one by one it must be on a GPU."""
    runs: int = 1
    """Runs at a time."""
    large: bool = False
    """Whether the runs are compiled and in bfloat16, as those of large models are."""


ON_GPU = (
    Case("lenet", (3, 32, 32), 10, examples=416, minibatch=50, bar=30, runs=12),
    Case("mnist-cnn", (1, 28, 28), 10, examples=500, minibatch=100, bar=7, runs=6),
    Case("vgg-11", (3, 32, 32), 100, examples=416, minibatch=50, bar=8, runs=3, large=True),
)
ON_CPU = (Case("small-cnn", (1, 28, 28), 10, examples=100, minibatch=20),)


def operations(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the operations of one example's training step."""
    forward: list[int] = []

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        forward.append(2 * output[0].numel() * module.weight[0].numel())

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        model(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return 3 * sum(forward) - forward[0]


def user_data(case: Case, device: str) -> UserData:
    """Return random examples for each client: time does not depend on what they show."""
    count = CLIENTS * case.examples
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.normal(size=(count, *case.shape)).astype(np.float32))
    train = Examples(images, torch.from_numpy(rng.integers(0, case.classes, count)))
    parts = Partition.from_users(count, np.split(np.arange(count), CLIENTS))
    return UserData(train, parts, Examples(images[:1], train.labels[:1]), case.classes).to(device)


def local_training(case: Case) -> LocalTraining:
    """Return the paper's settings but for the rate, which time does not depend on."""
    return LocalTraining(minibatch=case.minibatch, learning_rate=0.03, weight_decay=5e-4, shuffled=False)


_barrier: Barrier


def _start_worker(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a worker process holds nothing else
    _barrier = barrier


def _rounds(case: Case) -> float:
    """Return the seconds of so many rounds, begun together with the other processes."""
    model, data = make_model(case.model, case.classes, seed=0), user_data(case, "cuda")
    trainer = StackedTrainer(
        model,
        data,
        local_training(case),
        cohort=CLIENTS,
        compiled=case.large,
        numerics=Numerics(bfloat16=case.large),
    )
    parameters, users = flatten(model).to("cuda"), range(CLIENTS)
    trainer.mean(parameters, users, 0)
    _barrier.wait()
    start = time.perf_counter()
    for round_ in range(ROUNDS_TOGETHER):
        trainer.mean(parameters, users, round_)
    return time.perf_counter() - start


def together(case: Case) -> dict[str, float]:
    """Time several runs at a time: the seconds that a round takes on average over all of them."""
    context = get_context("spawn")
    with context.Pool(case.runs, _start_worker, (context.Barrier(case.runs),)) as pool:
        slowest = max(pool.map(_rounds, [case] * case.runs, chunksize=1))
    return {"median_s": slowest / (case.runs * ROUNDS_TOGETHER), "runs": case.runs}


def measure(case: Case, device: str) -> dict[str, Any]:
    """Time a round of every way to train it."""
    model, data = make_model(case.model, case.classes, seed=0), user_data(case, device)
    local = local_training(case)
    parameters, users = flatten(model).to(device), range(CLIENTS)
    trainers = {
        "one_by_one": SeparateTrainer(model, data, local, workers=1),
        "stacked": StackedTrainer(model, data, local, cohort=CLIENTS),
    }
    if device == "cpu":
        trainers["side_by_side"] = SeparateTrainer(model, data, local)
    else:
        trainers["stacked_compiled"] = StackedTrainer(model, data, local, cohort=CLIENTS, compiled=True)
        trainers["stacked_compiled_bfloat16"] = StackedTrainer(
            model, data, local, cohort=CLIENTS, compiled=True, numerics=Numerics(bfloat16=True)
        )
    work = CLIENTS * case.examples * operations(model, case.shape)
    result: dict[str, Any] = {"clients": CLIENTS, "examples": case.examples, "minibatch": case.minibatch}
    result["operations"] = work
    # Losses come to the host every round, so a round's end is the device's.
    timings = {
        name: seconds(lambda t=trainer: t.mean(parameters, users, 0), repeats=7 if name == "one_by_one" else 20)
        for name, trainer in trainers.items()
    }
    if device == "cuda":
        timings["runs_side_by_side"] = together(case)
    alone = timings["one_by_one"]["median_s"]
    for name, timing in timings.items():
        rate = work / timing["median_s"]
        peak = TF32_PEAK.get(torch.cuda.get_device_name()) if device == "cuda" else None
        result[name] = {
            **timing,
            "times_faster": alone / timing["median_s"],
            "rounds_per_second": 1 / timing["median_s"],
            "TFLOP_per_second": rate / 1e12,
            **({"share_of_TF32_peak": rate / peak} if peak else {}),
        }
        print(f"{case.model} {name}: {timing['median_s'] * 1000:.1f} ms a round", file=sys.stderr)
    result["chunk"] = trainers["stacked"].chunk
    result["bar"] = case.bar
    return result


def run() -> dict[str, object]:
    """Measure the paper's three models on a GPU, or the small one on a CPU."""
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    return {
        "what": f"a round of {CLIENTS} clients, stacked against one by one",
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "numerics": "TF32 products" if cuda else "float32",
        **{case.model: measure(case, device) for case in (ON_GPU if cuda else ON_CPU)},
    }
