"""Images or tables with their labels, and `UserData`: all users' examples in one stack, and who holds which."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from coterie.errors import UsageError
from coterie.training.data.partition import Partition
from coterie.values.arrays import IntArray, checked_names


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


def normalise(
    images: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str
) -> torch.Tensor:
    """Return `images` on the device as float32: grey levels g of channel c become (g/255 - mean_c) / std_c.

    Floating-point images are only moved: whoever made them has normalised them as they should be.

    >>> grey = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)
    >>> normalise(grey, mean=(0.5,), std=(0.25,), device="cpu").flatten().tolist()
    [-2.0, 2.0]
    """
    if images.is_floating_point():
        return images.to(device, torch.float32)
    shape = (1, -1, 1, 1)
    centre = torch.tensor(mean, device=device).reshape(shape)
    deviation = torch.tensor(std, device=device).reshape(shape)
    # Moved first and converted there; in place, so that only one float copy ever exists.
    return images.to(device).to(torch.float32).div_(255).sub_(centre).div_(deviation)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


@dataclass(frozen=True, eq=False, repr=False)
class UserData:
    """What local training needs: user u's examples are `indices[starts[u]:starts[u + 1]]`, in this fixed order.

    `images` (uint8 or floating-point) and `labels` (int64) hold every user's training examples once; a user's
    are picked by index. Grey levels are normalised with `mean` and `std`, one value per channel, when `to`
    moves them; both are empty for floating-point images.

    >>> from coterie.training.data.dataset import Examples
    >>> images = torch.tensor([[0.0], [1.0], [2.0]])
    >>> user_data = UserData.of_examples(
    ...     Examples(images, torch.tensor([0, 1, 1])),
    ...     Partition.from_users(examples=3, users=[[2, 0], [1]]),
    ...     test=Examples(torch.tensor([[5.0]]), torch.tensor([1])),
    ...     classes=2,
    ... )
    >>> user_data
    UserData(2 users, 3 examples, 1 to test with, 2 classes)
    >>> user_data.of(0).tolist(), user_data.sizes.tolist()
    ([2, 0], [2, 1])
    """

    images: torch.Tensor
    labels: torch.Tensor
    indices: IntArray
    starts: IntArray
    test_images: torch.Tensor
    test_labels: torch.Tensor
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        train = Examples(self.images, self.labels)
        test = Examples(self.test_images, self.test_labels)
        partition = Partition(len(train), self.indices, self.starts)
        object.__setattr__(self, "indices", partition.indices)
        object.__setattr__(self, "starts", partition.starts)
        object.__setattr__(self, "names", checked_names(self.names, len(partition)))
        train.check_labels(self.classes)
        test.check_labels(self.classes)
        if len(test) == 0:
            raise UsageError("the test set is empty; give at least one example to test with")
        if self.images.shape[1:] != self.test_images.shape[1:] or self.images.dtype != self.test_images.dtype:
            raise UsageError(f"users' examples are {train!r} and those to test with {test!r}; make them alike")
        if self.images.dtype == torch.uint8 and not self.images.shape[1] == len(self.mean) == len(self.std):
            raise UsageError(
                f"images have {self.images.shape[1]} channels, but there are {len(self.mean)} means and "
                f"{len(self.std)} standard deviations; give one of each per channel"
            )

    @classmethod
    def of_examples(
        cls,
        train: Examples,
        partition: Partition,
        test: Examples,
        classes: int,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        names: Sequence[str] | None = None,
    ) -> "UserData":
        """Put users' data together from examples and who holds which."""
        if partition.examples != len(train):
            raise UsageError(
                f"the partition is of {partition.examples} examples, but there are {len(train)} to train with; "
                "make it for this data set"
            )
        return cls(
            train.images,
            train.labels,
            partition.indices,
            partition.starts,
            test.images,
            test.labels,
            classes,
            tuple(mean),
            tuple(std),
            None if names is None else tuple(names),
        )

    @classmethod
    def of_dataset(cls, dataset: Dataset, partition: Partition) -> "UserData":
        """Return a published data set, held by the users of a partition."""
        return cls.of_examples(
            dataset.train, partition, dataset.test, dataset.classes, mean=dataset.mean, std=dataset.std
        )

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> IntArray:
        """How many examples each user has."""
        return np.diff(self.starts)

    @property
    def partition(self) -> Partition:
        """Who holds which examples."""
        return Partition(len(self.labels), self.indices, self.starts)

    def of(self, user: int) -> IntArray:
        """Return one user's examples, as places in `images` and `labels`, in the user's order.

        It is a copy: torch does not take a read-only array as an index without a warning.
        """
        return self.indices[self.starts[user] : self.starts[user + 1]].copy()

    def __repr__(self) -> str:
        return (
            f"UserData({self.users} users, {len(self.labels)} examples, {len(self.test_labels)} to test with, "
            f"{self.classes} classes)"
        )

    def to(self, device: torch.device | str) -> "UserData":
        """Return the data with its tensors on the device, images as normalised float32.

        Done twice it changes nothing more; `mean` and `std` stay, to turn the images back.
        """
        return replace(
            self,
            images=normalise(self.images, self.mean, self.std, device),
            labels=self.labels.to(device),
            test_images=normalise(self.test_images, self.mean, self.std, device),
            test_labels=self.test_labels.to(device),
        )
