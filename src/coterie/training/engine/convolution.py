"""Convolutions of many clients at once, each client with its own filters, as batched matrix products.

Grouped convolutions, which is what `torch.func.vmap` makes of them, run far below a GPU's speed. Here images lie
channels last; the patches of all images of a client are the rows of one matrix (C clients × rows × patch), and
one batched product with the clients' filters (C × out × patch) gives the outputs, channels last again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Pair = tuple[int, int]


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
    cut = windows.reshape(clients, count * rows * columns, kernel[0] * kernel[1] * words)
    return cut if cut.dtype == dtype else cut.contiguous().view(dtype)


class StackedConvolution(torch.autograd.Function):
    """y = conv(x; w) for each client: x is C × B × H × W × channels, w is C × out × (kernel·channels)."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:  # noqa: ANN401, PLR0917 - torch's own
        """Return C × B × rows × columns × out."""
        cut = patches(images, kernel, stride, padding, padding)
        ctx.save_for_backward(cut, weights)
        ctx.geometry = (kernel, stride, padding, images.shape)
        rows, columns = (
            (length + 2 * pad - size) // step + 1
            for length, size, step, pad in zip(images.shape[2:4], kernel, stride, padding, strict=True)
        )
        return torch.bmm(cut, weights.transpose(1, 2)).view(*images.shape[:2], rows, columns, -1)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        """Return the gradients of images and weights."""
        (slope,) = slopes
        cut, weights = ctx.saved_tensors
        by_images = _slope_of_images(slope, weights, *ctx.geometry) if ctx.needs_input_grad[0] else None
        return by_images, _slope_of_weights(slope, cut), None, None, None


def _slope_of_weights(slope: Tensor, cut: Tensor) -> Tensor:
    """Return the gradient of the weights: outputs' gradient × patches, summed over all rows.

    The sum is long and its result small, so it is cut into parts by images until the parts fill a GPU.
    """
    clients, count, out = slope.shape[0], slope.shape[1], slope.shape[-1]
    patch = cut.shape[-1]
    tiles = clients * -(-patch // _TILE) * -(-out // _TILE)
    parts = next(
        part for part in range(1, count + 1) if count % part == 0 and (tiles * part >= _TILES or part == count)
    )
    summed = torch.bmm(
        slope.reshape(clients * parts, -1, out).transpose(1, 2), cut.reshape(clients * parts, -1, patch)
    )
    return summed.view(clients, parts, out, patch).sum(dim=1) if parts > 1 else summed


def _slope_of_images(  # noqa: PLR0917 - the geometry of a convolution
    slope: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair, shape: torch.Size
) -> Tensor:
    """Return the gradient of the images: the convolution of the outputs' gradient with the turned filters."""
    clients, channels, out = shape[0], shape[-1], slope.shape[-1]
    if stride != (1, 1):
        slope = _spread(slope, stride)
    # What is missing on each side so that every pixel of the image gets its turn.
    low = (kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1])
    high = (
        shape[2] + kernel[0] - 1 - slope.shape[2] - low[0],
        shape[3] + kernel[1] - 1 - slope.shape[3] - low[1],
    )
    cut = patches(slope, kernel, (1, 1), low, high)
    filters = _in_words(weights.view(clients, out, -1, channels))
    turned = filters.flip(2).transpose(1, 2).contiguous().view(weights.dtype)
    return torch.bmm(cut, turned.view(clients, -1, channels)).view(shape)


def _spread(slope: Tensor, stride: Pair) -> Tensor:
    """Put zeros between the outputs' gradients, as far apart as the patches were cut."""
    clients, count, rows, columns, out = slope.shape
    wide = slope.new_zeros(clients, count, (rows - 1) * stride[0] + 1, (columns - 1) * stride[1] + 1, out)
    wide[:, :, :: stride[0], :: stride[1]] = slope
    return wide


def convolve(images: Tensor, weights: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Convolve every client's images with its own filters."""
    result: Tensor = StackedConvolution.apply(images, weights, kernel, stride, padding)  # type: ignore[no-untyped-call]
    return result
