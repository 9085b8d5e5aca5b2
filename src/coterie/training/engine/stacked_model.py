"""One model of many clients: every parameter once per client, and each layer computed for all of them at once.

Values of all clients travel together: images as clients × minibatch × height × width × channels, flat values as
clients × minibatch × features. `stack_layers` builds a model from these layers where that can be; any other model
is stacked by `torch.func.vmap`.
"""

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from coterie.errors import UsageError
from coterie.training.dropout import PER_WORD, KeyedDropout, counters, levels, share
from coterie.training.engine.kernels import convolve, group_norm
from coterie.training.models import ParameterLayout, hooked, call_with, dropout_keys

_IMAGES = 5
"""Dimensions of stacked images."""


class Layer(ABC):
    """One layer of all clients; `names` are those of its parameters."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names

    def pack(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return the module's parameters, stacked over clients, in the layout that is quick to compute with."""
        return parameters

    def unpack(self, parameters: list[Tensor]) -> list[Tensor]:
        """Undo `pack`."""
        return parameters

    @abstractmethod
    def forward(self, values: Tensor, parameters: list[Tensor], keys: Tensor) -> Tensor:
        """Return the outputs for packed parameters; `keys` are the clients' keys of dropout in this step."""


class _Convolution(Layer):
    def __init__(self, module: nn.Conv2d, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.channels = module.in_channels
        self.kernel, self.stride = _pair(module.kernel_size), _pair(module.stride)
        self.padding = _pair(cast("tuple[int, ...]", module.padding))

    def pack(self, parameters: list[Tensor]) -> list[Tensor]:
        """Filters C × out × channels × kernel become C × out × (kernel · channels)."""
        weights, *bias = parameters
        return [weights.permute(0, 1, 3, 4, 2).flatten(2), *bias]

    def unpack(self, parameters: list[Tensor]) -> list[Tensor]:
        weights, *bias = parameters
        shape = (*weights.shape[:2], *self.kernel, self.channels)
        return [weights.view(shape).permute(0, 1, 4, 2, 3), *bias]

    def forward(self, values: Tensor, parameters: list[Tensor], _keys: Tensor) -> Tensor:
        weights, *bias = parameters
        if torch.is_autocast_enabled(values.device.type):  # which knows torch's own convolutions only
            dtype = torch.get_autocast_dtype(values.device.type)
            values, weights = values.to(dtype), weights.to(dtype)
        outputs = convolve(values, weights, self.kernel, self.stride, self.padding)
        return outputs + bias[0][:, None, None, None] if bias else outputs


class _Linear(Layer):
    def pack(self, parameters: list[Tensor]) -> list[Tensor]:
        weights, *bias = parameters
        return [weights.transpose(1, 2), *bias]

    unpack = pack

    def forward(self, values: Tensor, parameters: list[Tensor], _keys: Tensor) -> Tensor:
        weights, *bias = parameters
        return torch.baddbmm(bias[0][:, None], values, weights) if bias else torch.bmm(values, weights)


class _GroupNorm(Layer):
    def __init__(self, module: nn.GroupNorm, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.groups, self.epsilon = module.num_groups, module.eps

    def forward(self, values: Tensor, parameters: list[Tensor], _keys: Tensor) -> Tensor:
        weights, bias = parameters
        return group_norm(values, self.groups, weights, bias, self.epsilon)


class _Pooling(Layer):
    def __init__(self, module: nn.MaxPool2d) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: Tensor, _parameters: list[Tensor], _keys: Tensor) -> Tensor:
        module = self.module
        # Seen as B × channels × H × W the memory is in torch's channels-last format.
        flat = values.flatten(0, 1).permute(0, 3, 1, 2)
        pooled = functional.max_pool2d(flat, module.kernel_size, module.stride, module.padding)
        return pooled.permute(0, 2, 3, 1).view(*values.shape[:2], *pooled.shape[2:], -1)


class _Rectifier(Layer):
    def forward(self, values: Tensor, _parameters: list[Tensor], _keys: Tensor) -> Tensor:
        return torch.relu(values)


class _Flatten(Layer):
    def forward(self, values: Tensor, _parameters: list[Tensor], _keys: Tensor) -> Tensor:
        """Put the values of an example in a row, in the order channels × height × width of the module's twin."""
        return values.permute(0, 1, 4, 2, 3).flatten(2) if values.ndim == _IMAGES else values.flatten(2)


class _DropoutLayer(Layer):
    def __init__(self, module: KeyedDropout, number: int) -> None:
        super().__init__()
        self.module, self.number = module, number
        self._counters = torch.zeros(0, dtype=torch.int64)

    def forward(self, values: Tensor, _parameters: list[Tensor], keys: Tensor) -> Tensor:
        if not self.module.training or not self.module.probability:
            return values
        places = values[0].numel()
        words = -(-places // PER_WORD)
        if len(self._counters) != words:
            self._counters = counters(places, self.number, values.device)
        lowest, factor = share(self.module.probability)
        mask = levels(keys, self._counters)[:, :places] >= lowest
        if values.ndim == _IMAGES:
            clients, count, height, width, channels = values.shape
            mask = mask.view(clients, count, channels, height, width).permute(0, 1, 3, 4, 2)
        else:
            mask = mask.view(values.shape)
        return values * mask * factor


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    return first, second


def stack_layers(model: nn.Module, example: torch.Size, names: Container[str]) -> list[Layer] | None:
    """Return the stacked layers of a prepared model, or None if it is made of anything else.

    `example` is the shape of one example and `names` are the trained parameters.
    """
    images = len(example) == _IMAGES - 2
    if type(model) is not nn.Sequential or not (images or len(example) == 1):
        return None
    layers: list[Layer] = []
    masks = 0
    for path, module in model.named_modules(remove_duplicate=False):
        if type(module) is nn.Sequential and (module is model or not hooked(module)):
            continue
        own = tuple(f"{path}.{name}" for name, _ in module.named_parameters(recurse=False))
        layer = None if hooked(module) else _layer(module, own, masks, images=images)
        # A parameter that two layers share has the name of the first only.
        if layer is None or not all(name in names for name in own):
            return None
        layers.append(layer)
        masks += isinstance(module, KeyedDropout)
        images = images and not isinstance(module, nn.Flatten)
    return layers


def _layer(module: nn.Module, names: tuple[str, ...], masks: int, *, images: bool) -> Layer | None:
    """Return a module's stacked layer if there is one for its kind and options."""
    kind = type(module)
    layer: Layer | None = None
    if isinstance(module, KeyedDropout):
        layer = _DropoutLayer(module, masks)
    elif kind is nn.ReLU:
        layer = _Rectifier()
    elif isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        layer = _Flatten()
    elif kind is nn.Linear and not images:
        layer = _Linear(names)
    elif isinstance(module, nn.Conv2d) and kind is nn.Conv2d and images:
        usual = module.groups == 1 and _pair(module.dilation) == (1, 1) and module.padding_mode == "zeros"
        layer = _Convolution(module, names) if usual and not isinstance(module.padding, str) else None
    elif isinstance(module, nn.MaxPool2d) and kind is nn.MaxPool2d and images:
        usual = module.dilation in {1, (1, 1)} and not module.return_indices and not module.ceil_mode
        layer = _Pooling(module) if usual else None
    elif isinstance(module, nn.GroupNorm) and kind is nn.GroupNorm and images and module.affine:
        layer = _GroupNorm(module, names)
    return layer


class Stack(ABC):
    """Parameters of C clients as tensors with the clients in front, in the layout that the stack computes with."""

    @abstractmethod
    def pack(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters of vectors C × D; they may share the vectors' memory."""

    @abstractmethod
    def unpack(self, stacked: list[Tensor]) -> Tensor:
        """Return the vectors C × D of stacked parameters."""

    @abstractmethod
    def outputs(self, stacked: list[Tensor], images: Tensor, keys: Tensor) -> Tensor:
        """Return the outputs C × B × classes for minibatches C × B × …; `keys` are the clients' of this step."""

    def losses(self, stacked: list[Tensor], images: Tensor, labels: Tensor, keys: Tensor) -> Tensor:
        """Return the cross-entropy of each example, C × B."""
        outputs = self.outputs(stacked, images, keys).flatten(0, 1)
        return functional.cross_entropy(outputs, labels.flatten(), reduction="none").view(labels.shape)


class LayerStack(Stack):
    """A stack of layers that are computed for all clients at once."""

    def __init__(self, layers: list[Layer], layout: ParameterLayout) -> None:
        self._layers, self._layout = layers, layout

    def pack(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters, layer after layer."""
        named = self._layout.split(vectors)
        return [value for layer in self._layers for value in layer.pack([named[name] for name in layer.names])]

    def unpack(self, stacked: list[Tensor]) -> Tensor:
        """Return the vectors C × D of stacked parameters."""
        values = iter(stacked)
        named: dict[str, Tensor] = {}
        for layer in self._layers:
            own = layer.unpack([next(values) for _ in layer.names])
            named.update(zip(layer.names, own, strict=True))
        return self._layout.join(named, leading=1)

    def outputs(self, stacked: list[Tensor], images: Tensor, keys: Tensor) -> Tensor:
        """Return the outputs C × B × classes."""
        values = images.permute(0, 1, 3, 4, 2) if images.ndim == _IMAGES else images
        remaining = iter(stacked)
        for layer in self._layers:
            values = layer.forward(values, [next(remaining) for _ in layer.names], keys)
        return values


class MappedStack(Stack):
    """Any module, stacked by `torch.func.vmap`."""

    def __init__(self, model: nn.Module, layout: ParameterLayout) -> None:
        self._model, self._layout, self._keys = model, layout, dropout_keys(model)

    def pack(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters in the module's order."""
        return list(self._layout.split(vectors).values())

    def unpack(self, stacked: list[Tensor]) -> Tensor:
        """Return the vectors C × D of stacked parameters."""
        return self._layout.join(dict(zip(self._layout.names, stacked, strict=True)), leading=1)

    def outputs(self, stacked: list[Tensor], images: Tensor, keys: Tensor) -> Tensor:
        """Return the outputs C × B × classes."""
        try:
            result: Tensor = vmap(self._one)(stacked, images, keys)
        except RuntimeError as error:
            if "randomness" not in str(error):
                raise
            raise UsageError(
                "the model draws random numbers of its own, which clients in a stack cannot do; "
                "use torch.nn.Dropout layers, or train clients one by one (SeparateTrainer)"
            ) from error
        return result

    def _one(self, parameters: list[Tensor], images: Tensor, key: Tensor) -> Tensor:
        """Return one client's outputs."""
        named = dict(zip(self._layout.names, parameters, strict=True))
        return call_with(self._model, named, dict.fromkeys(self._keys, key), images)


def stack_of(model: nn.Module, example: torch.Size, layout: ParameterLayout) -> Stack:
    """Return the stack of a prepared model for examples of this shape: by layers where that can be."""
    layers = stack_layers(model, example, layout.names)
    return MappedStack(model, layout) if layers is None else LayerStack(layers, layout)
