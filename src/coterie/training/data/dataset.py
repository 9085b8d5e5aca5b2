"""`Examples` and `Dataset`: images with their labels, kept as they were published until they are on the device."""

from dataclasses import dataclass

import torch

from coterie.errors import UsageError


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Images and their labels, in one order.

    Grey levels stay `uint8`, N × channels × height × width: a quarter of the memory, and of the way to a GPU.
    Floating-point `images` may have any shape N × …; they are used as they are.

    >>> Examples(torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor([7, 2]))
    Examples(2 of 1 × 28 × 28, uint8)
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if labels.dtype != torch.int64 or labels.ndim != 1:
            raise UsageError(f"labels must be one-dimensional int64, not {_kind(labels)}")
        if images.ndim < 2:  # noqa: PLR2004 - an example has at least one axis of its own
            raise UsageError(f"images must be N × …, one example per row, not {_kind(images)}")
        if images.dtype == torch.uint8:
            if images.ndim != 4:  # noqa: PLR2004
                raise UsageError(f"uint8 images must be N × channels × height × width, not {_kind(images)}")
        elif not images.is_floating_point():
            raise UsageError(f"images must be uint8 or floating-point, not {_kind(images)}")
        if len(images) != len(labels):
            raise UsageError(f"there are {len(images)} images and {len(labels)} labels; give one label per image")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.images.shape[1:]))
        return f"Examples({len(self)} of {shape}, {str(self.images.dtype).removeprefix('torch.')})"

    def check_labels(self, classes: int) -> None:
        """Refuse a label that is not one of the classes 0 … classes - 1."""
        outside = (self.labels < 0) | (self.labels >= classes)
        if bool(outside.any()):
            place = int(outside.nonzero()[0])
            raise UsageError(
                f"example {place} has the label {int(self.labels[place])}; labels of {classes} classes "
                f"are 0 … {classes - 1}"
            )


@dataclass(frozen=True, eq=False)
class Dataset:
    """A published data set: examples to train and to test with, and its channels' usual normalisation."""

    name: str
    classes: int
    train: Examples
    test: Examples
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        self.train.check_labels(self.classes)
        self.test.check_labels(self.classes)


def normalised(
    images: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str
) -> torch.Tensor:
    """Return `images` on the device as float32: grey levels g of channel c become (g/255 - mean_c) / std_c.

    Floating-point images are only moved: whoever made them has normalised them as they should be.

    >>> grey = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)
    >>> normalised(grey, mean=(0.5,), std=(0.25,), device="cpu").flatten().tolist()
    [-2.0, 2.0]
    """
    if images.is_floating_point():
        return images.to(device, torch.float32)
    shape = (1, -1, 1, 1)
    centre = torch.tensor(mean, device=device).reshape(shape)
    spread = torch.tensor(std, device=device).reshape(shape)
    # Moved first and converted there; in place, so that only one float copy ever exists.
    return images.to(device).to(torch.float32).div_(255).sub_(centre).div_(spread)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
