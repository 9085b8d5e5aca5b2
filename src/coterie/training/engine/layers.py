"""Layers of many clients at once: what a `torch.nn.Sequential` of common layers becomes when stacked.

Values of all clients travel together: images as clients × minibatch × height × width × channels, flat values as
clients × minibatch × features. `layered` says whether a model can be built from these layers; any other model is
stacked by `torch.func.vmap`.
"""

from collections.abc import Container
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.training.engine.convolution import convolve
from coterie.training.engine.dropout import PER_WORD, KeyedDropout, counters, levels, share
from coterie.training.engine.normalisation import group_norm

_IMAGES = 5
"""Dimensions of stacked images."""


class Layer(Protocol):
    """One layer of all clients; `parameters` are in the layout that its `packed` made."""

    names: tuple[str, ...]

    def packed(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return the module's parameters, stacked over clients, in the layout that is quick to compute with."""
        ...

    def unpacked(self, parameters: list[Tensor]) -> list[Tensor]:
        """Undo `packed`."""
        ...

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        """Return the layer's outputs; `keys` are the clients' keys of dropout in this step."""
        ...


class _Plain:
    """A layer whose parameters stay as they are."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names

    def packed(self, parameters: list[Tensor]) -> list[Tensor]:
        return parameters

    def unpacked(self, parameters: list[Tensor]) -> list[Tensor]:
        return parameters


class _Convolution(_Plain):
    def __init__(self, module: nn.Conv2d, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.channels = module.in_channels
        self.kernel, self.stride = _pair(module.kernel_size), _pair(module.stride)
        self.padding = _pair(cast("tuple[int, ...]", module.padding))

    def packed(self, parameters: list[Tensor]) -> list[Tensor]:
        """Filters C × out × channels × kernel become C × out × (kernel · channels)."""
        weights, *bias = parameters
        return [weights.permute(0, 1, 3, 4, 2).flatten(2), *bias]

    def unpacked(self, parameters: list[Tensor]) -> list[Tensor]:
        weights, *bias = parameters
        shape = (*weights.shape[:2], *self.kernel, self.channels)
        return [weights.view(shape).permute(0, 1, 4, 2, 3), *bias]

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del keys
        weights, *bias = parameters
        if torch.is_autocast_enabled(values.device.type):  # which knows torch's own convolutions only
            dtype = torch.get_autocast_dtype(values.device.type)
            values, weights = values.to(dtype), weights.to(dtype)
        outputs = convolve(values, weights, self.kernel, self.stride, self.padding).to(torch.float32)
        return outputs + bias[0][:, None, None, None] if bias else outputs


class _Linear(_Plain):
    def packed(self, parameters: list[Tensor]) -> list[Tensor]:
        weights, *bias = parameters
        return [weights.transpose(1, 2), *bias]

    unpacked = packed

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del keys
        weights, *bias = parameters
        return torch.baddbmm(bias[0][:, None], values, weights) if bias else torch.bmm(values, weights)


class _GroupNorm(_Plain):
    def __init__(self, module: nn.GroupNorm, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.groups, self.epsilon = module.num_groups, module.eps

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del keys
        weights, bias = parameters
        return group_norm(values, self.groups, weights, bias, self.epsilon)


class _Pooling(_Plain):
    def __init__(self, module: nn.MaxPool2d) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del parameters, keys
        module = self.module
        # Seen as B × channels × H × W the memory is in torch's channels-last format.
        flat = values.flatten(0, 1).permute(0, 3, 1, 2)
        pooled = functional.max_pool2d(flat, module.kernel_size, module.stride, module.padding)
        return pooled.permute(0, 2, 3, 1).view(*values.shape[:2], *pooled.shape[2:], -1)


class _Rectifier(_Plain):
    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del parameters, keys
        return torch.relu(values)


class _Flatten(_Plain):
    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        """Put the values of an example in a row, in the order channels × height × width of the module's twin."""
        del parameters, keys
        return values.permute(0, 1, 4, 2, 3).flatten(2) if values.ndim == _IMAGES else values.flatten(2)


class _Dropout(_Plain):
    def __init__(self, module: KeyedDropout, number: int) -> None:
        super().__init__()
        self.module, self.number = module, number
        self._counters = torch.zeros(0, dtype=torch.int64)

    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        del parameters
        if not self.module.training or not self.module.probability:
            return values
        places = values[0].numel()
        words = -(-places // PER_WORD)
        if len(self._counters) != words:
            self._counters = counters(places, self.number, values.device)
        lowest, factor = share(self.module.probability)
        kept = levels(keys, self._counters)[:, :places] >= lowest
        if values.ndim == _IMAGES:
            clients, count, height, width, channels = values.shape
            kept = kept.view(clients, count, channels, height, width).permute(0, 1, 3, 4, 2)
        else:
            kept = kept.view(values.shape)
        return values * kept * factor


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    return first, second


def layered(model: nn.Module, example: torch.Size, names: Container[str]) -> list[Layer] | None:
    """Return the stacked layers of a prepared model, or None if it is made of anything else.

    `example` is the shape of one example and `names` are the trained parameters.
    """
    images = len(example) == _IMAGES - 2
    if type(model) is not nn.Sequential or not (images or len(example) == 1):
        return None
    layers: list[Layer] = []
    drawn = 0
    for path, module in model.named_modules(remove_duplicate=False):
        if type(module) is nn.Sequential and (module is model or not _hooked(module)):
            continue
        own = tuple(f"{path}.{name}" for name, _ in module.named_parameters(recurse=False))
        layer = None if _hooked(module) else _layer(module, own, drawn, images=images)
        # A parameter that two layers share has the name of the first only.
        if layer is None or not all(name in names for name in own):
            return None
        layers.append(layer)
        drawn += isinstance(module, KeyedDropout)
        images = images and not isinstance(module, nn.Flatten)
    return layers


_ANY_MEMORY = (
    nn.Conv2d, nn.Linear, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ReLU, nn.Tanh,
    nn.Dropout, KeyedDropout, nn.Flatten,
)  # fmt: skip
"""Layers that take images in any order of memory."""


def channels_last(model: nn.Module) -> None:
    """Lay out a model's filters channels last if all its layers can do with that: a CPU then pools far faster.

    What the model computes stays the same. A module of one's own might call `view` on its values, which torch
    refuses for this layout; so only a `torch.nn.Sequential` of common layers is changed.
    """
    modules = [module for module in model.modules() if type(module) is not nn.Sequential]
    if type(model) is nn.Sequential and all(type(m) in _ANY_MEMORY and not _hooked(m) for m in modules):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it


def _hooked(module: nn.Module) -> bool:
    """Say whether the module does more than its class says."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)  # noqa: SLF001


def _layer(module: nn.Module, names: tuple[str, ...], drawn: int, *, images: bool) -> Layer | None:
    """Return a module's stacked layer if there is one for its kind and options."""
    kind = type(module)
    layer: Layer | None = None
    if isinstance(module, KeyedDropout):
        layer = _Dropout(module, drawn)
    elif kind is nn.ReLU:
        layer = _Rectifier()
    elif isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        layer = _Flatten()
    elif kind is nn.Linear and not images:
        layer = _Linear(names)
    elif isinstance(module, nn.Conv2d) and kind is nn.Conv2d and images:
        plain = module.groups == 1 and _pair(module.dilation) == (1, 1) and module.padding_mode == "zeros"
        layer = _Convolution(module, names) if plain and not isinstance(module.padding, str) else None
    elif isinstance(module, nn.MaxPool2d) and kind is nn.MaxPool2d and images:
        plain = module.dilation in {1, (1, 1)} and not module.return_indices and not module.ceil_mode
        layer = _Pooling(module) if plain else None
    elif isinstance(module, nn.GroupNorm) and kind is nn.GroupNorm and images and module.affine:
        layer = _GroupNorm(module, names)
    return layer
