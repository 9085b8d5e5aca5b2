"""A model's trained parameters as one flat float32 vector, which is what a client sends, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from coterie.errors import UsageError


@dataclass(frozen=True)
class ParameterLayout:
    """Where each named parameter lies in the flat vector: one after the other, in the module's order.

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
