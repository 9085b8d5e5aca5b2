"""Which way to train a model on a device: stacked, or one client after the other."""

from torch import nn
from torch.nn.modules.conv import _ConvNd

from coterie.training.data.federation import Federation
from coterie.training.engine.local import Trainer
from coterie.training.engine.numerics import Numerics
from coterie.training.engine.one_by_one import OneByOne
from coterie.training.engine.stacked import Stacked
from coterie.training.settings import LocalTraining


def make_trainer(
    model: nn.Module,
    federation: Federation,
    settings: LocalTraining,
    *,
    cohort: int,
    seed: int = 0,
    numerics: Numerics | None = None,
    compiled: bool = False,
) -> Trainer:
    """Return the quicker trainer for the federation's device, for rounds of about `cohort` users.

    On a GPU clients are stacked. On a CPU a minibatch's convolutions fill the cores already and stacking them
    only moves memory (measured: no faster, up to four times slower); models without convolutions, where most of
    the time goes into calling small operations, gain several times. `compiled` lets torch.compile fuse a GPU's
    kernels, which takes up to half a minute before the first round and pays for large models over many rounds.
    """
    convolves = any(isinstance(module, _ConvNd) for module in model.modules())
    if federation.images.device.type == "cpu" and convolves:
        return OneByOne(model, federation, settings, seed=seed, numerics=numerics)
    return Stacked(model, federation, settings, cohort=cohort, seed=seed, numerics=numerics, compiled=compiled)
