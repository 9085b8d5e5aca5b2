"""What a round's time goes into, by kernels, and other ways to compute the convolutions of many clients.

`python benchmarks/run.py kernels` on a GPU; without one it counts the operators of the small model on the CPU.
"""

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from measure import seconds
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from train import CLIENTS, ON_CPU, ON_GPU, Case, local_training, user_data

from coterie.lab.training.models import flatten, make_model
from coterie.lab.training.stacked_model import convolve
from coterie.lab.training.stacked_trainer import StackedTrainer
from coterie.lab.training.trainer import Numerics

PRODUCT = re.compile(r"gemm|nvjet|cutlass|xmma|aten::(bmm|mm|addmm|mkldnn_convolution|convolution_backward)$")
"""Names of kernels, or on a CPU of operators, that compute products of matrices."""
LARGEST = 30
WAYS = {"stacked": (False, False), "compiled": (True, False), "compiled, bfloat16": (True, True)}
"""Whether kernels are compiled, and whether factors are bfloat16."""


def round_profile(case: Case, device: str, *, compiled: bool, bfloat16: bool) -> dict[str, float]:
    """Return the milliseconds of a round in products, in other kernels among the largest, and in the rest."""
    model = make_model(case.model, case.classes, seed=0)
    trainer = StackedTrainer(
        model,
        user_data(case, device),
        local_training(case),
        cohort=CLIENTS,
        compiled=compiled,
        numerics=Numerics(bfloat16=bfloat16),
        workers=1,  # on a CPU the profiler sees its own thread only
    )
    parameters = flatten(model).to(device)
    timing = seconds(lambda: trainer.mean(parameters, range(CLIENTS), 0), repeats=5)
    on_gpu = device == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        trainer.mean(parameters, range(CLIENTS), 0)
    wanted = DeviceType.CUDA if on_gpu else DeviceType.CPU
    kernels = [each for each in profiler.key_averages() if each.device_type == wanted]
    spent = {each.key: (each.self_device_time_total if on_gpu else each.self_cpu_time_total) for each in kernels}
    largest = sorted(spent, key=spent.__getitem__, reverse=True)[:LARGEST]
    products = sum(time for name, time in spent.items() if PRODUCT.search(name))
    others = sum(spent[name] for name in largest if not PRODUCT.search(name))
    total = sum(spent.values())
    return {
        "median_ms": timing["median_s"] * 1000,
        "kernels_ms": total / 1000,
        "launches": sum(each.count for each in kernels),
        "products": products / 1000,
        f"other kernels among the largest {LARGEST}": others / 1000,
        "smaller kernels": (total - products - others) / 1000,
    }


@dataclass(frozen=True)
class Layer:
    """A convolution of a model, with the size of the images that come to it."""

    name: str
    convolution: nn.Conv2d
    height: int
    width: int


def layers(case: Case) -> list[Layer]:
    """Return the convolutions of a model."""
    model = make_model(case.model, case.classes, seed=0)
    found: list[Layer] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], _: object) -> None:
        if isinstance(module, nn.Conv2d):
            found.append(Layer(f"{case.model} {len(found) + 1}", module, *inputs[0].shape[-2:]))

    for module in model.modules():
        module.register_forward_hook(note)
    with torch.no_grad():
        model(torch.zeros(1, *case.shape))
    return found


def ways_to_convolve(layer: Layer, count: int, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Return the milliseconds of a convolution and its gradients for a minibatch of every client, by way."""
    own = layer.convolution
    inputs, outputs, kernel = own.in_channels, own.out_channels, own.kernel_size
    filters = torch.randn(CLIENTS, outputs, inputs, *kernel, device=device, dtype=dtype)
    images = torch.randn(CLIENTS, count, inputs, layer.height, layer.width, device=device, dtype=dtype)
    stacked = filters.permute(0, 1, 3, 4, 2).reshape(CLIENTS, outputs, -1)
    grouped = images.transpose(0, 1).reshape(count, -1, layer.height, layer.width)
    geometry = (kernel, own.stride, own.padding)

    def by_groups(values: Tensor, weights: Tensor) -> Tensor:
        return functional.conv2d(values, weights, stride=own.stride, padding=own.padding, groups=CLIENTS)

    def one_by_one(values: Tensor, weights: Tensor) -> Tensor:
        pairs = zip(values, weights, strict=True)
        return torch.stack([functional.conv2d(x, w, stride=own.stride, padding=own.padding) for x, w in pairs])

    last = torch.channels_last
    ways: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]] = {
        "patches": (lambda x, w: convolve(x, w, *geometry), images.permute(0, 1, 3, 4, 2).contiguous(), stacked),
        "grouped_last": (by_groups, grouped.to(memory_format=last), filters.flatten(0, 1)),
        "grouped_first": (by_groups, grouped.contiguous(), filters.flatten(0, 1)),
        "loop": (one_by_one, images, filters),
    }
    return {name: _milliseconds(device, *way) for name, way in ways.items()}


def _milliseconds(device: str, way: Callable[[Tensor, Tensor], Tensor], images: Tensor, weights: Tensor) -> float:
    images, weights = images.detach().requires_grad_(), weights.detach().requires_grad_()

    def step() -> None:
        torch.autograd.grad(way(images, weights).sum(), (images, weights))
        if device == "cuda":
            torch.cuda.synchronize()

    return seconds(step, repeats=20)["median_s"] * 1000


def run() -> dict[str, object]:
    """Profile the paper's three models on a GPU, or the small one on a CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cases, ways = (ON_GPU, WAYS) if device == "cuda" else (ON_CPU, {"stacked": (False, False)})
    dtypes = {"float32": torch.float32, **({"bfloat16": torch.bfloat16} if device == "cuda" else {})}
    profiles: dict[str, dict[str, Any]] = {}
    compared: dict[str, dict[str, float]] = {}
    for case in cases:
        profiles[case.model] = {
            name: round_profile(case, device, compiled=compiled, bfloat16=bfloat16)
            for name, (compiled, bfloat16) in ways.items()
        }
        with Numerics().applied() if device == "cuda" else nullcontext():
            for layer in layers(case):
                for name, dtype in dtypes.items():
                    compared[f"{layer.name} {name}"] = ways_to_convolve(layer, case.minibatch, device, dtype)
        print(f"{case.model}: done", file=sys.stderr)
    return {
        "what": "a round of 12 clients by kernels, and a convolution's step in four ways; milliseconds",
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "profiles_of_a_round": profiles,
        "layers": compared,
    }
