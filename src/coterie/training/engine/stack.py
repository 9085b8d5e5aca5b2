"""One model of many clients: every parameter once per client, and the losses of all of them in one pass."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from coterie.errors import UsageError
from coterie.training.engine.layers import Layer, layered
from coterie.training.engine.vector import ParameterLayout, called
from coterie.training.models import dropout_keys

_IMAGES = 5
"""Dimensions of stacked images."""


class Stack(ABC):
    """Parameters of C clients as tensors with the clients in front, in the layout that the stack computes with."""

    @abstractmethod
    def packed(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters of vectors C × D; they may share the vectors' memory."""

    @abstractmethod
    def unpacked(self, stacked: list[Tensor]) -> Tensor:
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

    def packed(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters, layer after layer."""
        named = self._layout.split(vectors)
        return [value for layer in self._layers for value in layer.packed([named[name] for name in layer.names])]

    def unpacked(self, stacked: list[Tensor]) -> Tensor:
        """Return the vectors C × D of stacked parameters."""
        values = iter(stacked)
        named: dict[str, Tensor] = {}
        for layer in self._layers:
            own = layer.unpacked([next(values) for _ in layer.names])
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

    def packed(self, vectors: Tensor) -> list[Tensor]:
        """Return the stacked parameters in the module's order."""
        return list(self._layout.split(vectors).values())

    def unpacked(self, stacked: list[Tensor]) -> Tensor:
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
                "use torch.nn.Dropout layers, or train clients one by one (OneByOne)"
            ) from error
        return result

    def _one(self, parameters: list[Tensor], images: Tensor, key: Tensor) -> Tensor:
        """Return one client's outputs."""
        named = dict(zip(self._layout.names, parameters, strict=True))
        return called(self._model, named, dict.fromkeys(self._keys, key), images)


def stack_of(model: nn.Module, example: torch.Size, layout: ParameterLayout) -> Stack:
    """Return the stack of a prepared model for examples of this shape: by layers where that can be."""
    layers = layered(model, example, layout.names)
    return MappedStack(model, layout) if layers is None else LayerStack(layers, layout)
