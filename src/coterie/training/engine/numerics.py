"""How a GPU computes: which precision products have, and whether equal runs give equal bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Numerics:
    """What a GPU may do to float32; a CPU is not affected.

    With `tf32`, factors of products are rounded to 10 bits (sums stay float32), which is several times faster.
    With `bfloat16` (torch's autocast), factors and results of products are rounded to 8 bits; parameters and
    everything else stay float32. `deterministic` admits only kernels that give the same bits in every run.
    """

    tf32: bool = True
    bfloat16: bool = False
    deterministic: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set torch's switches, and put them back."""
        backends = torch.backends
        before = (
            backends.cuda.matmul.allow_tf32,
            backends.cudnn.allow_tf32,
            backends.cudnn.deterministic,
            torch.are_deterministic_algorithms_enabled(),
        )
        if self.deterministic:
            # cuBLAS reads it when it starts; without, torch refuses to promise equal bits.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        _switch(self.tf32, self.tf32, self.deterministic, self.deterministic)
        try:
            # A cache of rounded parameters would outlive the step that it was made in.
            with torch.autocast("cuda", torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
                yield
        finally:
            _switch(*before)


def _switch(products: bool, convolutions: bool, cudnn: bool, algorithms: bool) -> None:  # noqa: FBT001 - torch's own
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cudnn.deterministic = cudnn
    if torch.are_deterministic_algorithms_enabled() != algorithms:  # setting it loads torch's compiler
        torch.use_deterministic_algorithms(algorithms)
