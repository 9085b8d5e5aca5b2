"""Which way to train a model on a device: clients stacked, or each by itself."""

from torch import nn
from torch.nn.modules.conv import _ConvNd

from coterie.training.data.federation import Federation
from coterie.training.engine.local import Trainer
from coterie.training.engine.numerics import Numerics
from coterie.training.engine.one_by_one import OneByOne
from coterie.training.engine.stacked import Stacked
from coterie.training.engine.workers import available_cores
from coterie.training.settings import LocalTraining
from coterie.values.checks import check_count


def make_trainer(
    model: nn.Module,
    federation: Federation,
    settings: LocalTraining,
    *,
    cohort: int,
    seed: int = 0,
    numerics: Numerics | None = None,
    compiled: bool = False,
    workers: int | None = None,
) -> Trainer:
    """Return the quicker trainer for the federation's device, for rounds of about `cohort` users.

    On a GPU clients are stacked. On a CPU stacked convolutions only move memory (measured: a third slower);
    models without convolutions, where most of the time goes into calling small operations, gain several times.
    There `workers` clients or stacks are trained side by side, one core each: as many as there are cores, unless
    given; their number never decides a result. `compiled` lets torch.compile fuse a GPU's kernels, which takes up
    to half a minute before the first round and pays for large models over many rounds.
    """
    workers = min(available_cores() if workers is None else check_count(workers, "the number of workers"), cohort)
    convolves = any(isinstance(module, _ConvNd) for module in model.modules())
    if federation.images.device.type == "cpu" and convolves:
        return OneByOne(model, federation, settings, seed=seed, numerics=numerics, workers=workers)
    return Stacked(
        model,
        federation,
        settings,
        cohort=cohort,
        seed=seed,
        numerics=numerics,
        compiled=compiled,
        workers=workers,
    )
