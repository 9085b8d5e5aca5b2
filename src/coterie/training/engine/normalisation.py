"""Group normalisation of many clients at once, each with its own scale and shift, in few passes over memory."""

from typing import Any

import torch
from torch import Tensor


class StackedGroupNorm(torch.autograd.Function):
    """y = γ (x - m) / √(v + ε) + β, with mean m and variance v of an example's group over all its pixels.

    x is C × B × pixels × groups × channels of a group; γ and β are C × 1 × 1 × groups × channels of a group.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor, bias: Tensor, epsilon: float) -> Tensor:  # noqa: ANN401 - torch's own
        """Return the normalised values."""
        variance, mean = torch.var_mean(values, dim=(2, 4), correction=0, keepdim=True)
        scale = torch.rsqrt(variance + epsilon)
        ctx.save_for_backward(values, weights, mean, scale)
        slant = scale * weights
        return torch.addcmul(bias - mean * slant, values, slant)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        """Return the gradients of values, weights and bias.

        With n values in a group, s = √(v + ε), x̂ = (x - m) / s and the gradient g of y,

            ∂x = γ g / s - (Σ γ g + x̂ Σ γ g x̂) / (n s),    ∂γ = Σ g x̂,    ∂β = Σ g.

        Sums over pixels come first; what follows is small, but for the pass that puts ∂x = a g + b x + c together.
        """
        (slope,) = slopes
        values, weights, mean, scale = ctx.saved_tensors
        count = values.shape[2] * values.shape[4]
        plain = slope.sum(dim=2, keepdim=True)
        fitted = ((slope * values).sum(dim=2, keepdim=True) - mean * plain) * scale
        first = (weights * plain).sum(dim=4, keepdim=True) / count
        second = (weights * fitted).sum(dim=4, keepdim=True) / count
        by_x = -scale * scale * second
        by_values = torch.addcmul(-(scale * first + by_x * mean), values, by_x)
        by_values = by_values.addcmul_(slope, scale * weights)
        by_weights, by_bias = (part.sum(dim=1, keepdim=True) for part in (fitted, plain))
        return by_values, by_weights, by_bias, None


def group_norm(values: Tensor, groups: int, weights: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Normalise images C × B × H × W × channels; weights and bias are C × channels."""
    clients, count, height, width, channels = values.shape
    shaped = values.reshape(clients, count, height * width, groups, channels // groups)
    slant, shift = (value.view(clients, 1, 1, groups, channels // groups) for value in (weights, bias))
    result: Tensor = StackedGroupNorm.apply(shaped, slant, shift, epsilon)  # type: ignore[no-untyped-call]
    return result.view(values.shape)
