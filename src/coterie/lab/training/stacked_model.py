"""One model of many clients: every parameter once per client, and each layer computed for all of them at once.

Values of all clients travel together: images as clients × minibatch × height × width × channels, flat values as
clients × minibatch × features. `stack_layers` builds a model from these layers where that can be; any other model
is stacked by `torch.func.vmap`.

Grouped convolutions, which is what `torch.func.vmap` makes of convolutions, run far below a GPU's speed. Here
images lie channels last; the patches of all images of a client are the rows of one matrix (C clients × rows ×
patch), and one batched product with the clients' filters (C × out × patch) gives the outputs, channels last
again.
"""

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from coterie.errors import UsageError
from coterie.lab.training.models import (
    PER_WORD,
    KeyedDropout,
    ParameterLayout,
    call_with,
    counters,
    dropout_keys,
    hooked,
    levels,
    share,
)

Pair = tuple[int, int]


def _narrowed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values in a type, and values that have it as they are.

    `values.to(dtype)` would return them as they are too, but torch 2.11 compiles a function of one's own that ends
    with such a call into one without gradients: they are zero, on every device and with every backend.
    """
    return values if values.dtype == dtype else values.to(dtype)


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
    if stride == (1, 1) and torch.compiler.is_compiling():
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
    a compiler makes one kernel of the sum. Without a compiler it would be slower.
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
    return _narrowed(total, grad.dtype)


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
        return _narrowed(torch.addcmul(bias - mean * weight, wide, weight), values.dtype)

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
        grad_of_values = _narrowed(grad_of_values.addcmul_(grad, scale * weights), dtype)
        grad_of_weights, grad_of_bias = (part.sum(dim=1, keepdim=True) for part in (weight_grad, grad_sum))
        return grad_of_values, grad_of_weights, grad_of_bias, None


def group_norm(values: Tensor, groups: int, weights: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Normalise images C × B × H × W × channels; weights and bias are C × channels."""
    clients, count, height, width, channels = values.shape
    shaped = values.reshape(clients, count, height * width, groups, channels // groups)
    weight, shift = (value.view(clients, 1, 1, groups, channels // groups) for value in (weights, bias))
    result: Tensor = StackedGroupNorm.apply(shaped, weight, shift, epsilon)  # type: ignore[no-untyped-call]
    return result.view(values.shape)


# --- the layers, and the model

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

    names: tuple[str, ...]
    """The parameters' names, in the order in which they are packed."""

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
        self.names = tuple(name for layer in layers for name in layer.names)

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
        self.names = layout.names

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
