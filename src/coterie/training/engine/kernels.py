"""Convolution, group normalisation and dropout of many clients at once, each client with its own parameters.

Grouped convolutions, which is what `torch.func.vmap` makes of them, run far below a GPU's speed. Here images lie
channels last; the patches of all images of a client are the rows of one matrix (C clients × rows × patch), and
one batched product with the clients' filters (C × out × patch) gives the outputs, channels last again.

A mask of dropout is a function of (seed, round, user, step, number, place), the same on every device. Drawn from a
generator it would depend on what else was drawn: on the clients trained beside it, on the device. Here every mask
comes from a counter through the finaliser of splitmix64, four places of 16 bits from each 64-bit word.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Pair = tuple[int, int]


def _widened(values: Tensor) -> Tensor:
    """Return values that can be added up: bfloat16 is for memory and factors, and becomes float32."""
    return values.to(torch.float32) if values.dtype == torch.bfloat16 else values


_WORD = torch.complex128
"""Patches are copied in words of 16 bytes where channels allow: a GPU copies them several times as fast."""
_TILE = 128
_TILES = 128
"""A product keeps a large GPU busy if its result has about this many tiles of 128 × 128."""


def _in_words(images: Tensor) -> Tensor:
    """Return the same memory in larger words, if a pixel's channels are whole words; a compiler does better."""
    fits = images.shape[-1] * images.element_size() % _WORD.itemsize == 0 and not torch.compiler.is_compiling()
    return images.contiguous().view(_WORD) if fits else images


def patches(images: Tensor, kernel: Pair, stride: Pair, low: Pair, high: Pair) -> Tensor:
    """Return all patches of images C × B × H × W × channels as C × (B · rows · columns) × patch.

    A patch is laid out as kernel height × kernel width × channels; `low` and `high` are the zeros around images.
    """
    dtype = images.dtype
    images = _in_words(images)
    if any((*low, *high)):
        images = functional.pad(images, (0, 0, low[1], high[1], low[0], high[0]))
    images = images.contiguous()
    clients, count, height, width, words = images.shape
    rows = (height - kernel[0]) // stride[0] + 1
    columns = (width - kernel[1]) // stride[1] + 1
    by_client, by_image, by_row, by_column, _ = images.stride()
    # A kernel's row lies in one piece in memory: width × channels.
    windows = images.as_strided(
        (clients, count, rows, columns, kernel[0], kernel[1] * words),
        (by_client, by_image, by_row * stride[0], by_column * stride[1], by_row, 1),
    )
    patch_rows = windows.reshape(clients, count * rows * columns, kernel[0] * kernel[1] * words)
    return patch_rows if patch_rows.dtype == dtype else patch_rows.contiguous().view(dtype)


class StackedConvolution(torch.autograd.Function):
    """y = conv(x; w) for each client: x is C × B × H × W × channels, w is C × out × (kernel·channels)."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:  # noqa: ANN401, PLR0917 - torch's own
        """Return C × B × rows × columns × out."""
        patch_rows = patches(images, kernel, stride, padding, padding)
        ctx.save_for_backward(patch_rows, weights)
        ctx.geometry = (kernel, stride, padding, images.shape)
        rows, columns = (
            (length + 2 * pad - size) // step + 1
            for length, size, step, pad in zip(images.shape[2:4], kernel, stride, padding, strict=True)
        )
        return torch.bmm(patch_rows, weights.transpose(1, 2)).view(*images.shape[:2], rows, columns, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        """Return the gradients of images and weights."""
        (grad,) = grads
        patch_rows, weights = ctx.saved_tensors
        grad_of_images = _grad_of_images(grad, weights, *ctx.geometry) if ctx.needs_input_grad[0] else None
        return grad_of_images, _grad_of_weights(grad, patch_rows), None, None, None


def _grad_of_weights(grad: Tensor, patch_rows: Tensor) -> Tensor:
    """Return the gradient of the weights: outputs' gradient × patches, summed over all rows.

    The sum is long and its result small, so it is cut into parts by images until the parts fill a GPU.
    """
    clients, count, out = grad.shape[0], grad.shape[1], grad.shape[-1]
    patch = patch_rows.shape[-1]
    tiles = clients * -(-patch // _TILE) * -(-out // _TILE)
    parts = next(
        part for part in range(1, count + 1) if count % part == 0 and (tiles * part >= _TILES or part == count)
    )
    summed = torch.bmm(
        grad.reshape(clients * parts, -1, out).transpose(1, 2), patch_rows.reshape(clients * parts, -1, patch)
    )
    return summed.view(clients, parts, out, patch).sum(dim=1) if parts > 1 else summed


def _grad_of_images(  # noqa: PLR0917 - the geometry of a convolution
    grad: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair, shape: torch.Size
) -> Tensor:
    """Return the gradient of the images: the convolution of the outputs' gradient with the flipped filters."""
    if stride == (1, 1) and grad.dtype == torch.bfloat16 and torch.compiler.is_compiling():
        return fold_grad(grad, weights, kernel, padding, shape)
    clients, channels, out = shape[0], shape[-1], grad.shape[-1]
    if stride != (1, 1):
        grad = _dilate(grad, stride)
    # What is missing on each side so that every pixel of the image gets its turn.
    low = (kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1])
    high = (
        shape[2] + kernel[0] - 1 - grad.shape[2] - low[0],
        shape[3] + kernel[1] - 1 - grad.shape[3] - low[1],
    )
    patch_rows = patches(grad, kernel, (1, 1), low, high)
    filters = _in_words(weights.view(clients, out, -1, channels))
    flipped = filters.flip(2).transpose(1, 2).contiguous().view(weights.dtype)
    return torch.bmm(patch_rows, flipped.view(clients, -1, channels)).view(shape)


def fold_grad(grad: Tensor, weights: Tensor, kernel: Pair, padding: Pair, shape: torch.Size) -> Tensor:
    """Return the gradient of the images, with steps of one: every patch's gradient, added up where they overlap.

    Patches of images have fewer channels than patches of outputs where a layer widens, so less memory is moved;
    a compiler makes one kernel of the sum. It is for compiled bfloat16 alone: compiled for a GPU in float32 (torch
    2.11), VGG-11 did not learn with it, for a reason that was not found; the same graph is right on a CPU.
    """
    clients, count, rows, columns, out = grad.shape
    patch_grads = torch.bmm(grad.reshape(clients, -1, out), weights)
    patch_grads = patch_grads.view(clients, count, rows, columns, *kernel, shape[-1])
    total = torch.zeros((), device=grad.device)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            top, left = row - padding[0], column - padding[1]
            bottom, right = shape[2] - rows - top, shape[3] - columns - left
            piece = _widened(patch_grads[:, :, :, :, row, column])
            total = total + functional.pad(piece, (0, 0, left, right, top, bottom))
    return total.to(grad.dtype)


def _dilate(grad: Tensor, stride: Pair) -> Tensor:
    """Put zeros between the outputs' gradients, as far apart as the patches were cut."""
    clients, count, rows, columns, out = grad.shape
    wide = grad.new_zeros(clients, count, (rows - 1) * stride[0] + 1, (columns - 1) * stride[1] + 1, out)
    wide[:, :, :: stride[0], :: stride[1]] = grad
    return wide


def convolve(images: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Convolve every client's images with its own filters."""
    result: Tensor = StackedConvolution.apply(images, weights, kernel, stride, padding)  # type: ignore[no-untyped-call]
    return result


class StackedGroupNorm(torch.autograd.Function):
    """y = γ (x - m) / √(v + ε) + β, with mean m and variance v of an example's group over all its pixels.

    x is C × B × pixels × groups × channels of a group; γ and β are C × 1 × 1 × groups × channels of a group.
    Values may be bfloat16: then so is y, and everything in between is float32.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor, bias: Tensor, epsilon: float) -> Tensor:  # noqa: ANN401 - torch's own
        """Return the normalised values."""
        wide = _widened(values)
        variance, mean = torch.var_mean(wide, dim=(2, 4), correction=0, keepdim=True)
        scale = torch.rsqrt(variance + epsilon)
        ctx.save_for_backward(values, weights, mean, scale)
        weight = scale * weights
        return torch.addcmul(bias - mean * weight, wide, weight).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        """Return the gradients of values, weights and bias.

        With n values in a group, s = √(v + ε), x̂ = (x - m) / s and the gradient g of y,

            ∂x = γ g / s - (Σ γ g + x̂ Σ γ g x̂) / (n s),    ∂γ = Σ g x̂,    ∂β = Σ g.

        Sums over pixels come first; what follows is small, but for the pass that puts ∂x = a g + b x + c together.
        """
        (grad,) = grads
        values, weights, mean, scale = ctx.saved_tensors
        dtype = values.dtype
        grad, values = _widened(grad), _widened(values)
        count = values.shape[2] * values.shape[4]
        grad_sum = grad.sum(dim=2, keepdim=True)
        weight_grad = ((grad * values).sum(dim=2, keepdim=True) - mean * grad_sum) * scale
        first = (weights * grad_sum).sum(dim=4, keepdim=True) / count
        second = (weights * weight_grad).sum(dim=4, keepdim=True) / count
        by_x = -scale * scale * second
        grad_of_values = torch.addcmul(-(scale * first + by_x * mean), values, by_x)
        grad_of_values = grad_of_values.addcmul_(grad, scale * weights).to(dtype)
        grad_of_weights, grad_of_bias = (part.sum(dim=1, keepdim=True) for part in (weight_grad, grad_sum))
        return grad_of_values, grad_of_weights, grad_of_bias, None


def group_norm(values: Tensor, groups: int, weights: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Normalise images C × B × H × W × channels; weights and bias are C × channels."""
    clients, count, height, width, channels = values.shape
    shaped = values.reshape(clients, count, height * width, groups, channels // groups)
    weight, shift = (value.view(clients, 1, 1, groups, channels // groups) for value in (weights, bias))
    result: Tensor = StackedGroupNorm.apply(shaped, weight, shift, epsilon)  # type: ignore[no-untyped-call]
    return result.view(values.shape)
