"""CUDA graphs: thousands of small kernels launched as one."""

from collections.abc import Callable

import torch

WARM_UPS = 3
"""Runs before a capture, in which libraries choose and load their kernels."""


def replayed(action: Callable[[], None], device: torch.device) -> Callable[[], None]:
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
