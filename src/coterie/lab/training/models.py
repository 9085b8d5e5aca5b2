"""Models by name, what a model must be to be trained here, and its parameters as the vector a client sends.

A mask of dropout is a function of (seed, round, user, step, number, place), the same on every device. Drawn from a
generator it would depend on what else was drawn: on the clients trained beside it, on the device. Here every mask
comes from a counter through the finaliser of splitmix64, four places of 16 bits from each 64-bit word.
"""

import copy
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from coterie.errors import UsageError
from coterie.values import IntArray

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_MASK = 2**40
"""Counters of one mask lie below those of the next."""
_LEVELS = 2**16
PER_WORD = 4
"""Places that one 64-bit word decides about."""


def client_keys(seed: int, round_: int, users: IntArray) -> IntArray:
    """Return a key for each user in a round.

    >>> client_keys(0, 3, np.array([7])) == client_keys(0, 3, np.array([8, 7]))[1:]
    array([ True])
    """
    base = int(np.random.SeedSequence((seed, round_)).generate_state(1, np.uint64)[0].astype(np.int64))
    return mix_bits(base + torch.tensor(users + 1) * _GOLDEN).numpy()


def step_keys(keys: Tensor, steps: Tensor) -> Tensor:
    """Return the keys of clients' steps."""
    return mix_bits(keys + steps * _GOLDEN)


def mix_bits(words: Tensor) -> Tensor:
    """Return 64-bit words scrambled, each on its own; multiplication wraps around at 2^64."""
    words = (words ^ _shifted(words, 30)) * _FIRST
    words = (words ^ _shifted(words, 27)) * _SECOND
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    """Shift to the right, zeros in front; torch's own shift repeats the sign."""
    return torch.bitwise_and(words >> by, 2 ** (64 - by) - 1)


def counters(places: int, number: int, device: torch.device) -> Tensor:
    """Return the counters of the first `places` places of a step's mask of this number: one for four places."""
    words = torch.arange(-(-places // PER_WORD), device=device)
    return (words + number * _MASK) * _GOLDEN


def levels(keys: Tensor, counted: Tensor) -> Tensor:
    """Return levels from -2^15 to 2^15 - 1, four for each counter, for each key."""
    quarters: Tensor = _Quarters.apply(mix_bits(keys.unsqueeze(-1) + counted))  # type: ignore[no-untyped-call]
    return quarters


class _Quarters(torch.autograd.Function):
    """The four quarters of each word; a function of its own because `torch.func.vmap` cannot do it by itself."""

    @staticmethod
    def forward(words: Tensor) -> Tensor:
        return words.view(torch.int16)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep nothing: integers have no gradient."""

    @staticmethod
    def vmap(info: object, in_dims: tuple[int], words: Tensor) -> tuple[Tensor, int]:
        """Do the same for a stack of words."""
        del info
        return words.movedim(in_dims[0], 0).contiguous().view(torch.int16), 0


def share(probability: float) -> tuple[int, float]:
    """Return the lowest level that is kept, and the factor 1/(1 - p) that keeps the mean; p in 1/65536.

    >>> share(0.5)
    (0, 2.0)
    """
    dropped = min(round(probability * _LEVELS), _LEVELS - 1)
    return dropped - _LEVELS // 2, _LEVELS / (_LEVELS - dropped)


class Draws:
    """Counts the masks that one pass through a model has drawn: each call of a layer draws another."""

    def __init__(self) -> None:
        self.count = 0

    def start(self, *_: object) -> None:
        """Begin a pass; a hook before the model's own call."""
        self.count = 0

    def take(self) -> int:
        """Return the number of the next mask."""
        self.count += 1
        return self.count - 1


class KeyedDropout(nn.Module):
    """`torch.nn.Dropout` with the mask of a key: (mask / (1 - p)) · x; the identity when the model is tested.

    The key is a buffer, so that `torch.func.functional_call` can give every client its own.

    >>> draws = Draws()
    >>> drop = KeyedDropout(0.5, draws)
    >>> first, second = drop(torch.ones(2, 8)), drop(torch.ones(2, 8))
    >>> draws.start()
    >>> torch.equal(drop(torch.ones(2, 8)), first), torch.equal(first, second)
    (True, False)
    """

    key: Tensor

    def __init__(self, probability: float, draws: Draws) -> None:
        super().__init__()
        self.probability, self.draws = probability, draws
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, some dropped and the others enlarged."""
        if not self.training or not self.probability:
            return values
        places = values.numel()
        lowest, factor = share(self.probability)
        uniform = levels(self.key, counters(places, self.draws.take(), values.device))
        return values * (uniform[:places].view(values.shape) >= lowest) * factor


# --- models by name


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


def authors_vgg11(classes: int) -> nn.Sequential:
    """Return VGG-11 as the paper's authors trained it: convolutions have biases, dropout 0.2 follows each of them.

    >>> ParameterLayout.of(authors_vgg11(100)).dimension
    9277284
    """
    layers: list[nn.Module] = []
    channels = 3
    for stage in VGG_11:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(width // 16, width)]
            layers += [nn.ReLU(), nn.Dropout(0.2)]
            channels = width
        layers.append(nn.MaxPool2d(2))
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


def mlp(classes: int, shape: Sequence[int]) -> nn.Sequential:
    """Return a perceptron with two hidden layers of 64, for a table's rows or any other examples.

    >>> ParameterLayout.of(mlp(2, shape=(30,))).dimension
    6274
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 64), nn.ReLU(),
        nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, classes),
    )  # fmt: skip


def logistic(classes: int, shape: Sequence[int]) -> nn.Sequential:
    """Return logistic regression: one linear layer.

    >>> ParameterLayout.of(logistic(2, shape=(30,))).dimension
    62
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "small-cnn": small_cnn,
    "mnist-cnn": mnist_cnn,
    "lenet": lenet,
    "vgg-11": vgg11,
    "authors-vgg-11": authors_vgg11,
    "mlp": mlp,
    "logistic": logistic,
}


def make_model(name: str, classes: int, seed: int, shape: Sequence[int] = ()) -> nn.Module:
    """Return a model by name, or what a function of one's own returns, for examples of this shape.

    `seed` decides its first parameters, and torch's own generator is left alone. A name with a colon is a
    function in a module: "my_module:build" calls `build()`, with `classes` and `shape` if it has parameters of
    these names. The module is looked for where Python looks, and in the present folder.

    >>> make_model("perceptron", classes=10, seed=0)
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no model 'perceptron'; choose one of small-cnn, mnist-cnn, lenet, vgg-11, authors-vgg-11, mlp, logistic, or give a function of your own as my_module:build
    """  # noqa: E501 - the message is one line
    if name in MODELS and not shape and "shape" in inspect.signature(MODELS[name]).parameters:
        raise UsageError(f"the model {name} is made for its examples; give their shape")
    if name not in MODELS and ":" not in name:
        raise UsageError(
            f"there is no model {name!r}; choose one of {', '.join(MODELS)}, or give a function of your own as "
            "my_module:build"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        build = MODELS.get(name) or _import_function(name)
        try:
            taken = inspect.signature(build).parameters
            facts = {"classes": classes, "shape": tuple(shape)}
            model = build(**{key: value for key, value in facts.items() if key in taken})
        except Exception as error:
            raise UsageError(
                f"the model {name} could not be made: {type(error).__name__}: {error}; the function may take "
                "classes and shape, and must return a torch.nn.Module"
            ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"the model {name} is a {type(model).__name__}; let the function return a torch.nn.Module"
        )
    return model


def _import_function(name: str) -> Callable[..., object]:
    module_name, _, function = name.partition(":")
    here = os.getcwd()  # noqa: PTH109 - what sys.path holds
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(
            f"the model {name} needs the module {module_name}, which cannot be imported from {here}: "
            f"{type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(here)
    build = getattr(module, function, None)
    if not callable(build):
        raise UsageError(f"the model {name}: {module.__file__} has no function {function!r}; check the name")
    return build  # type: ignore[no-any-return]


def prepare_model(model: nn.Module) -> nn.Module:
    """Return a copy of any model, ready to be trained: its dropout layers take keys.

    Refused are models whose training would send more than the sealed vector of parameters, or that have none.

    >>> prepare_model(nn.BatchNorm1d(4))
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


@dataclass(frozen=True)
class ParameterLayout:
    """Where each trained parameter lies in one flat float32 vector: one after the other, in the module's order.

    >>> layout = ParameterLayout.of(nn.Linear(2, 3))
    >>> layout.names, layout.shapes, layout.dimension
    (('weight', 'bias'), ((3, 2), (3,)), 9)
    >>> layout.split(torch.arange(9.0))["bias"]
    tensor([6., 7., 8.])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: nn.Module) -> "ParameterLayout":
        """Return the layout of a model's trained parameters; those that need no gradient stay as they are."""
        trained = _trained(model)
        return cls(tuple(trained), tuple(tuple(value.shape) for value in trained.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def dimension(self) -> int:
        """The number of values D of the vector."""
        return sum(self.sizes)

    def split(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return views of the parameters in vectors of shape … × D; leading dimensions stay in front."""
        self.check(vectors)
        parts = torch.split(vectors, list(self.sizes), dim=-1)
        leading = vectors.shape[:-1]
        return {
            name: part.reshape(*leading, *shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }

    def join(self, parameters: Mapping[str, Tensor], leading: int = 0) -> Tensor:
        """Return parameters in one vector; each may have `leading` dimensions in front of its own."""
        return torch.cat([parameters[name].flatten(leading) for name in self.names], dim=-1)

    def check(self, vectors: Tensor) -> None:
        """Refuse vectors that are not of this model."""
        if vectors.ndim == 0 or vectors.shape[-1] != self.dimension:
            raise UsageError(
                f"a vector of shape {tuple(vectors.shape)} was given for a model of {self.dimension} parameters"
            )
        if vectors.dtype != torch.float32:
            raise UsageError(f"parameters are of {vectors.dtype}; give float32")


def flatten(model: nn.Module) -> Tensor:
    """Return a copy of a model's trained parameters as one vector."""
    return ParameterLayout.of(model).join({name: value.detach() for name, value in _trained(model).items()})


def unflatten(model: nn.Module, vector: Tensor) -> None:
    """Write a vector into a model's trained parameters.

    >>> model = nn.Linear(1, 1)
    >>> unflatten(model, torch.tensor([2.0, 3.0]))
    >>> flatten(model)
    tensor([2., 3.])
    """
    parts = ParameterLayout.of(model).split(vector)
    with torch.no_grad():
        for name, value in _trained(model).items():
            value.copy_(parts[name])


def call_with(
    model: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Tensor
) -> Tensor:
    """Return what a model gives with other parameters and buffers than its own, which it keeps.

    >>> call_with(nn.Linear(1, 1, bias=False), {"weight": torch.tensor([[2.0]])}, {}, torch.tensor([3.0]))
    tensor([6.])
    """
    # A parameter may stand in several modules, and a module under several names. Told both names of such a module,
    # functional_call would put back the wrong parameter; so each module is named once, and each place in it.
    names = {value: name for name, value in model.named_parameters()}
    state = {
        f"{path}.{name}".lstrip("."): parameters[names[value]]
        for path, module in model.named_modules()
        for name, value in module.named_parameters(recurse=False, remove_duplicate=False)
        if value.requires_grad
    }
    outputs: Tensor = functional_call(model, {**state, **buffers}, (inputs,), tie_weights=False)
    return outputs


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def channels_last(model: nn.Module) -> None:
    """Lay out a model's filters channels last if all its layers can do with that: a CPU then pools far faster.

    What the model computes stays the same. A module of one's own might call `view` on its values, which torch
    refuses for this layout; so only a `torch.nn.Sequential` of common layers is changed.
    """
    modules = [module for module in model.modules() if type(module) is not nn.Sequential]
    if type(model) is nn.Sequential and all(type(m) in _ANY_MEMORY and not hooked(m) for m in modules):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it


_ANY_MEMORY = (
    nn.Conv2d, nn.Linear, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ReLU, nn.Tanh,
    nn.Dropout, KeyedDropout, nn.Flatten,
)  # fmt: skip
"""Layers that take images in any order of memory."""


def hooked(module: nn.Module) -> bool:
    """Say whether the module does more than its class says."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)  # noqa: SLF001
