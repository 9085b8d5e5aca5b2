"""`Federation`: all users' training examples in one stack, who holds which, and the test set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from coterie.errors import UsageError
from coterie.training.data.dataset import Dataset, Examples, normalised
from coterie.training.data.partition import Partition
from coterie.values.arrays import IntArray, checked_names


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """What local training needs: user u's examples are `indices[starts[u]:starts[u + 1]]`, in this fixed order.

    `images` (uint8 or floating-point) and `labels` (int64) hold every user's training examples once; a user's
    are picked by index. Grey levels are normalised with `mean` and `std`, one value per channel, when `to`
    moves them; both are empty for floating-point images.

    >>> from coterie.training.data.dataset import Examples
    >>> images = torch.tensor([[0.0], [1.0], [2.0]])
    >>> federation = Federation.of_examples(
    ...     Examples(images, torch.tensor([0, 1, 1])),
    ...     Partition.from_users(examples=3, users=[[2, 0], [1]]),
    ...     test=Examples(torch.tensor([[5.0]]), torch.tensor([1])),
    ...     classes=2,
    ... )
    >>> federation
    Federation(2 users, 3 examples, 1 to test with, 2 classes)
    >>> federation.of(0).tolist(), federation.sizes.tolist()
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
    ) -> "Federation":
        """Put a federation together from examples and who holds which."""
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
            f"Federation({self.users} users, {len(self.labels)} examples, {len(self.test_labels)} to test with, "
            f"{self.classes} classes)"
        )

    def to(self, device: torch.device | str) -> "Federation":
        """Return the federation with its tensors on the device, images as normalised float32.

        Done twice it changes nothing more; `mean` and `std` stay, to turn the images back.
        """
        return replace(
            self,
            images=normalised(self.images, self.mean, self.std, device),
            labels=self.labels.to(device),
            test_images=normalised(self.test_images, self.mean, self.std, device),
            test_labels=self.test_labels.to(device),
        )


def federated(dataset: Dataset, partition: Partition) -> Federation:
    """Return a published data set, spread over users."""
    return Federation.of_examples(
        dataset.train, partition, dataset.test, dataset.classes, mean=dataset.mean, std=dataset.std
    )
