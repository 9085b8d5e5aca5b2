"""Gradient inversion (Geiping et al. 2020): from an update of one step of SGD to the images that it was made from.

An image is sought whose gradient points the way of the one that is known. It works where an update is the gradient
of few images: one step, a minibatch of one. From the mean update of a batch of T users it gives a mixture.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from coterie.errors import UsageError

SearchProgress = Callable[[int, int], None]
"""Told how many steps of a search are done, and how many there are."""
DECAY = 0.1
MILESTONES = (3 / 8, 5 / 8, 7 / 8)
"""Where, as shares of all steps, the rate of the search falls by `DECAY`, as in the authors' code."""


@dataclass(frozen=True)
class ImageRange:
    """The values that a pixel can have after normalisation, channel by channel, and the way back to 0 … 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least and the largest value of each channel, to compare with images like these."""
        mean, std = self._columns(like)
        return -mean / std, (1 - mean) / std

    def levels(self, images: Tensor) -> Tensor:
        """Return normalised images as levels from 0 to 1.

        >>> ImageRange((0.5,), (0.25,)).levels(torch.tensor([[[-2.0, 0.0, 3.0]]])).tolist()
        [[[0.0, 0.5, 1.0]]]
        """
        mean, std = self._columns(images)
        return (images * std + mean).clamp(0, 1)

    def _columns(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor(self.mean, device=like.device), torch.tensor(self.std, device=like.device)
        return mean[:, None, None], std[:, None, None]


def gradient_of_step(update: Tensor, model: Tensor, rate: float, weight_decay: float = 0.0) -> Tensor:
    """Return the gradient g of an update of one SGD step, δ = -η (g + λ x), which the training's recipe tells.

    >>> gradient_of_step(torch.tensor([-0.2]), torch.tensor([1.0]), rate=0.1, weight_decay=0.5).tolist()
    [1.5]
    """
    return -update / rate - weight_decay * model


def infer_labels(gradient: Mapping[str, Tensor], classes: int, images: int) -> Tensor:
    """Return the labels of the images behind gradients (… × each parameter's shape), from the last layer alone.

    The gradient of cross-entropy by the output bias is the mean of softmax - one-hot over the images: of one
    image, it is negative at the label and nowhere else. For several images, labels are taken one by one, each
    where what is left is lowest. Without an output bias, the sums over the rows of the last weights stand in for
    it: after a ReLU the inputs are not negative, so that the signs are the same.
    """
    name, last = list(gradient.items())[-1]
    if last.shape[-1:] == (classes,) and last.ndim == 2:  # noqa: PLR2004 - trials × classes
        signal = last
    elif last.ndim == 3 and last.shape[1] == classes:  # noqa: PLR2004 - trials × classes × inputs
        signal = last.sum(dim=-1)
    else:
        raise UsageError(
            f"the last parameter {name} has the shape {tuple(last.shape[1:])}, not that of a layer with {classes} "
            "outputs: labels cannot be read from it; give them"
        )
    signal = signal / signal.abs().sum(dim=-1, keepdim=True).clamp_min(torch.finfo(signal.dtype).tiny)
    left, labels = signal.clone(), []
    for _ in range(images):
        label = left.argmin(dim=-1)
        labels.append(label)
        # A label's one-hot has the weight 1/images of a signal whose negative part adds up to about 1/2.
        left.scatter_add_(-1, label[:, None], torch.full_like(left[:, :1], 0.5 / images))
    return torch.stack(labels, dim=-1)


@dataclass(frozen=True, eq=False)
class InversionResult:
    """What the search found: normalised images, trials × images × channels × height × width, and distances."""

    images: Tensor
    labels: Tensor
    distance: Tensor
    """1 - cosine between the images' gradient and the known one: 0 is the best, 1 says nothing."""


@dataclass(frozen=True)
class Inversion:
    """The search: minimise 1 - cos(∇L(x, y), g) + `variation` · TV(x) over images x, by Adam on gradients' signs.

    Pixels stay in the range that images have. `restarts` searches start from different noise, and the one with the
    least cosine distance is the answer. `images` are sought together for each gradient.
    """

    steps: int = 1000
    rate: float = 0.1
    variation: float = 1e-2
    restarts: int = 2
    images: int = 1

    def invert(
        self,
        model: nn.Module,
        gradients: Tensor,
        shape: tuple[int, ...],
        image_range: ImageRange,
        *,
        classes: int,
        seed: int,
        progress: SearchProgress = lambda done, total: None,  # noqa: ARG005 - told to nobody
    ) -> InversionResult:
        """Return images for each of several gradients (trials × D) at the model that the module holds."""
        if self.restarts < 1:
            raise UsageError(f"the number of restarts is {self.restarts}; give at least 1")
        model = model.to(gradients.device).eval()
        parameters = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
        dimension = sum(value.numel() for value in parameters.values())
        if gradients.shape[1:] != (dimension,):
            raise UsageError(
                f"gradients of shape {tuple(gradients.shape)} were given for a model of {dimension} parameters"
            )
        name, last = list(parameters.items())[-1]
        last_gradients = gradients[:, -last.numel() :].reshape(len(gradients), *last.shape)
        labels = infer_labels({name: last_gradients}, classes, self.images)
        known = gradients / gradients.norm(dim=1, keepdim=True).clamp_min(torch.finfo(gradients.dtype).tiny)

        def loss(values: dict[str, Tensor], images: Tensor, label: Tensor) -> Tensor:
            return functional.cross_entropy(functional_call(model, values, (images,)), label)

        def distances(images: Tensor) -> Tensor:
            parts = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, images, labels)
            flat = torch.cat([parts[name].flatten(1) for name in parameters], dim=1)
            return 1 - functional.cosine_similarity(flat, known, dim=1)

        def search(restart: int) -> Tensor:
            generator = torch.Generator().manual_seed(seed + restart)
            start = torch.randn((len(gradients), self.images, *shape), generator=generator).to(gradients.device)
            before, total = restart * self.steps, self.restarts * self.steps
            return self._search(start, distances, image_range, lambda done: progress(before + done, total))

        found = torch.stack([search(restart) for restart in range(self.restarts)])
        with torch.no_grad():
            distance, best = torch.stack([distances(images) for images in found]).min(dim=0)
        return InversionResult(found[best, torch.arange(len(gradients))], labels, distance)

    def _search(
        self,
        start: Tensor,
        distances: Callable[[Tensor], Tensor],
        image_range: ImageRange,
        step_done: Callable[[int], None],
    ) -> Tensor:
        """Return where a search from one start ends, for all gradients at once; each has its own path."""
        images = start.clone().requires_grad_()
        low, high = image_range.bounds(images)
        optimiser = torch.optim.Adam([images], lr=self.rate)
        milestones = [math.ceil(share * self.steps) for share in MILESTONES]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=DECAY)
        for done in range(1, self.steps + 1):
            total = (distances(images) + self.variation * _total_variation(images)).sum()
            (slope,) = torch.autograd.grad(total, images)
            images.grad = slope.sign()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                images.copy_(torch.maximum(torch.minimum(images, high), low))
            step_done(done)
        return images.detach()


def _total_variation(images: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbouring pixels, down and across, for each trial."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).mean(dim=1)
    across = (images[..., :, 1:] - images[..., :, :-1]).abs().flatten(1).mean(dim=1)
    return down + across
