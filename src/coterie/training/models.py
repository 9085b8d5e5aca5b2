"""The models of the experiments by name, and what a model must be to be trained here."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from coterie.errors import UsageError
from coterie.training.engine.dropout import Draws, KeyedDropout
from coterie.training.engine.vector import ParameterLayout


def mnist_cnn(classes: int) -> nn.Sequential:
    """Return the paper's CNN for 28×28 grey images: 1 663 370 parameters for 10 classes.

    Pooling comes before the ReLU: the order changes nothing (both are monotone) and spares three quarters of it.

    >>> ParameterLayout.of(mnist_cnn(10)).dimension
    1663370
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        nn.Linear(512, classes),
    )  # fmt: skip


def lenet(classes: int) -> nn.Sequential:
    """Return LeNet for 32×32 colour images, with dropout 0.2 after every hidden layer: 62 006 parameters for 10.

    >>> ParameterLayout.of(lenet(10)).dimension
    62006
    """
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(120, 84), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(84, classes),
    )  # fmt: skip


VGG_11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""The channels of VGG-11's convolutions; a stage ends with pooling."""


def vgg11(classes: int) -> nn.Sequential:
    """Return VGG-11 for 32×32 colour images: GroupNorm in groups of 16 channels, one linear head.

    Dropout 0.2 stands at the end of every stage, and so also before the head. Convolutions need no bias: the
    normalisation that follows has one.

    >>> ParameterLayout.of(vgg11(100)).dimension
    9274532
    """
    layers: list[nn.Module] = []
    channels = 3
    for stage in VGG_11:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(width // 16, width)]
            channels = width
            layers += [nn.ReLU()]
        # The stage's last ReLU moves behind the pooling, which changes nothing and spares three quarters of it.
        layers[-1:] = [nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, classes))


def small_cnn(classes: int) -> nn.Sequential:
    """Return a small CNN for 28×28 grey images, quick on two CPU cores: 20 490 parameters for 10 classes.

    >>> ParameterLayout.of(small_cnn(10)).dimension
    20490
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, classes),
    )  # fmt: skip


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "mnist-cnn": mnist_cnn,
    "lenet": lenet,
    "vgg-11": vgg11,
    "small-cnn": small_cnn,
}


def make_model(name: str, classes: int, seed: int) -> nn.Module:
    """Return a model by name; `seed` decides its first parameters, and torch's own generator is left alone.

    >>> make_model("perceptron", classes=10, seed=0)
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no model 'perceptron'; choose one of mnist-cnn, lenet, vgg-11, small-cnn
    """
    if name not in MODELS:
        raise UsageError(f"there is no model {name!r}; choose one of {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](classes)


def prepared(model: nn.Module) -> nn.Module:
    """Return a copy of any model, ready to be trained: its dropout layers take keys.

    Refused are models whose training would send more than the sealed vector of parameters, or that have none.

    >>> prepared(nn.BatchNorm1d(4))
    Traceback (most recent call last):
    coterie.errors.UsageError: the model has the buffers running_mean, running_var, num_batches_tracked: state that training changes but that is no parameter would have to leave the device outside the sealed vector; use GroupNorm in place of BatchNorm, and keep constants as plain attributes
    """  # noqa: E501 - the message is one line
    if any(isinstance(value, nn.parameter.UninitializedParameter) for value in model.parameters()):
        raise UsageError("the model has parameters without a shape yet; run it once on an example first")
    model = _with_keys(copy.deepcopy(model))
    buffers = [name for name, _ in model.named_buffers() if name not in dropout_keys(model)]
    if buffers:
        raise UsageError(
            f"the model has the buffers {', '.join(buffers)}: state that training changes but that is no "
            "parameter would have to leave the device outside the sealed vector; use GroupNorm in place of "
            "BatchNorm, and keep constants as plain attributes"
        )
    if not ParameterLayout.of(model).dimension:
        raise UsageError("the model has no parameters to train")
    for name, value in model.named_parameters():
        if value.requires_grad and value.dtype != torch.float32:
            raise UsageError(f"the model's parameter {name!r} is of {value.dtype}; make it float32")
    return model


def _with_keys(model: nn.Module) -> nn.Module:
    """Put keyed dropout in the place of the model's own."""
    draws = Draws()
    replaced: dict[nn.Module, KeyedDropout] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - the class of all dropout layers
            continue
        if type(module) is not nn.Dropout:
            raise UsageError(
                f"the model's layer {path!r} is {type(module).__name__}; only torch.nn.Dropout has masks that "
                "are the same whatever trains beside it: use that"
            )
        keyed = replaced.setdefault(module, KeyedDropout(module.p, draws))
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, keyed)
    model.register_forward_pre_hook(draws.start)
    return model


def dropout_keys(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers that hold the keys of a prepared model's dropout layers."""
    return tuple(f"{path}.key" for path, module in model.named_modules() if isinstance(module, KeyedDropout))
