"""A federation is one stack of examples, who holds which, and a test set that is like them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.training import Dataset, Examples, Federation, Partition, federated

IMAGES = torch.arange(4 * 3 * 2 * 2, dtype=torch.uint8).reshape(4, 3, 2, 2)
TRAIN = Examples(IMAGES, torch.tensor([0, 1, 1, 0]))
TEST = Examples(IMAGES[:1] + 200, torch.tensor([1]))
DATASET = Dataset("tiny", 2, TRAIN, TEST, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.125))
PARTITION = Partition.from_users(4, [[3, 0], [1]])


def test_federated_keeps_the_bytes_and_the_users_order():
    """The stack is the data set's own tensor; users are runs of indices into it."""
    federation = federated(DATASET, PARTITION)
    assert federation.images is TRAIN.images
    assert federation.users == 2
    assert federation.of(0).tolist() == [3, 0]
    assert federation.sizes.tolist() == [2, 1]
    assert federation.indices.dtype == federation.starts.dtype == np.int64
    assert federation.partition == PARTITION


def test_moving_normalises_once():
    """`to` gives float32 by the data set's mean and standard deviation; a second time changes nothing."""
    federation = federated(DATASET, PARTITION)
    moved = federation.to("cpu")
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (DATASET.mean, DATASET.std))
    torch.testing.assert_close(moved.images, (IMAGES / 255 - mean) / std)
    torch.testing.assert_close(moved.test_images, (TEST.images / 255 - mean) / std)
    assert torch.equal(moved.to("cpu").images, moved.images)
    assert moved.mean == DATASET.mean
    assert federation.images.dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.tensor([0, 1, 2, 0])}, "example 2 has the label 2"),
        ({"test_labels": torch.tensor([2])}, "example 0 has the label 2"),
        ({"test_images": IMAGES[:0], "test_labels": torch.tensor([], dtype=torch.int64)}, "test set is empty"),
        ({"test_images": IMAGES[:1, :, :1]}, "make them alike"),
        ({"test_images": IMAGES[:1].float()}, "make them alike"),
        ({"mean": (0.1,)}, "images have 3 channels, but there are 1 means and 3 standard deviations"),
        ({"std": ()}, "3 means and 0 standard deviations"),
        ({"starts": [0, 0, 3]}, "user 0 has no data"),
        ({"indices": [0, 1, 4]}, "user 1 has the example 4"),
        ({"names": ("a",)}, "1 names were given for 2 users"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    """Labels, shapes, channels, users and names that contradict one another are named."""
    with pytest.raises(UsageError, match=message):
        replace(federated(DATASET, PARTITION), **change)


def test_a_partition_of_another_data_set_is_refused():
    """A partition of more or fewer examples is not taken, even if its indices would fit."""
    with pytest.raises(UsageError, match="the partition is of 5 examples, but there are 4"):
        federated(DATASET, Partition.from_users(5, [[0]]))


def test_names_come_along():
    """Users may have names, in their order."""
    federation = Federation.of_examples(
        Examples(torch.zeros(2, 3), torch.tensor([0, 1])),
        Partition.from_users(2, [[0], [1]]),
        Examples(torch.zeros(1, 3), torch.tensor([1])),
        classes=2,
        names=["ann", "ben"],
    )
    assert federation.to("cpu").names == ("ann", "ben")
