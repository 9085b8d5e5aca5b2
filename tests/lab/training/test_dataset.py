"""Examples keep their bytes until they are on the device; users' data are one stack, and who holds which."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.lab.training import Dataset, Examples, Partition, UserData
from coterie.lab.training.data import normalise

LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 1, 4, 4), LABELS.int(), "labels must be one-dimensional int64, not int32"),
        (torch.zeros(2, 1, 4, 4), LABELS[:, None], r"not int64 of shape \(2, 1\)"),
        (torch.zeros(2), LABELS, r"one example per row, not float32 of shape \(2,\)"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), LABELS, "N × channels × height × width"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), LABELS, "uint8 or floating-point, not int64"),
        (torch.zeros(3, 4), LABELS, "3 images and 2 labels"),
    ],
)
def test_what_are_no_examples_is_refused(images, labels, message):
    """Wrong kinds, shapes and numbers of images and labels are named."""
    with pytest.raises(UsageError, match=message):
        Examples(images, labels)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_data_set_has_only_labels_of_its_classes(label):
    """A label outside 0 … 9 is refused with its place, in training and in test data."""
    good = Examples(torch.zeros(2, 3), torch.tensor([0, 9]))
    bad = Examples(torch.zeros(2, 3), torch.tensor([0, label]))
    for train, test in ((good, bad), (bad, good)):
        with pytest.raises(UsageError, match=rf"example 1 has the label {label}; labels of 10 classes are 0 … 9"):
            Dataset("digits", 10, train, test, (), ())


def test_normalising_is_the_formula_channel_by_channel():
    """Every grey level becomes (g/255 - mean)/std of its channel, in float32; the bytes stay as they were."""
    images = torch.arange(256, dtype=torch.uint8).repeat(2).reshape(2, 2, 8, 16)
    before = images.clone()
    result = normalise(images, mean=(0.25, 0.5), std=(0.5, 0.125), device="cpu")
    assert result.dtype == torch.float32
    for channel, (mean, std) in enumerate(((0.25, 0.5), (0.5, 0.125))):
        expected = (images[:, channel].double() / 255 - mean) / std
        torch.testing.assert_close(result[:, channel].double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(images, before)


def test_floats_are_taken_as_they_are():
    """Floating-point images are only converted to float32, not normalised, and never changed in place."""
    images = torch.tensor([[300.0]], dtype=torch.float64)
    result = normalise(images, mean=(), std=(), device="cpu")
    assert result.dtype == torch.float32
    assert result.item() == 300.0


IMAGES = torch.arange(4 * 3 * 2 * 2, dtype=torch.uint8).reshape(4, 3, 2, 2)
TRAIN = Examples(IMAGES, torch.tensor([0, 1, 1, 0]))
TEST = Examples(IMAGES[:1] + 200, torch.tensor([1]))
DATASET = Dataset("tiny", 2, TRAIN, TEST, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.125))
PARTITION = Partition.from_users(4, [[3, 0], [1]])


def test_users_data_keep_the_bytes_and_the_users_order():
    """The stack is the data set's own tensor; users are runs of indices into it."""
    user_data = UserData.of_dataset(DATASET, PARTITION)
    assert user_data.images is TRAIN.images
    assert user_data.users == 2
    assert user_data.of(0).tolist() == [3, 0]
    assert user_data.sizes.tolist() == [2, 1]
    assert user_data.partition is PARTITION


def test_moving_normalises_once():
    """`to` gives float32 by the data set's mean and standard deviation; a second time changes nothing."""
    user_data = UserData.of_dataset(DATASET, PARTITION)
    moved = user_data.to("cpu")
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (DATASET.mean, DATASET.std))
    torch.testing.assert_close(moved.images, (IMAGES / 255 - mean) / std)
    torch.testing.assert_close(moved.test.images, (TEST.images / 255 - mean) / std)
    assert torch.equal(moved.to("cpu").images, moved.images)
    assert moved.mean == DATASET.mean
    assert user_data.images.dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": Examples(IMAGES, torch.tensor([0, 1, 2, 0]))}, "example 2 has the label 2"),
        ({"test": Examples(IMAGES[:1], torch.tensor([2]))}, "example 0 has the label 2"),
        ({"test": Examples(IMAGES[:0], TEST.labels[:0])}, "test set is empty"),
        ({"test": Examples(IMAGES[:1, :, :1], TEST.labels)}, "make them alike"),
        ({"test": Examples(IMAGES[:1].float(), TEST.labels)}, "make them alike"),
        ({"mean": (0.1,)}, "images have 3 channels, but there are 1 means and 3 standard deviations"),
        ({"std": ()}, "3 means and 0 standard deviations"),
        ({"partition": Partition.from_users(5, [[0], [1]])}, "the partition is of 5 examples, but there are 4"),
        ({"names": ("a",)}, "1 names were given for 2 users"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, message):
    """Labels, shapes, channels, users and names that contradict one another are named."""
    with pytest.raises(UsageError, match=message):
        replace(UserData.of_dataset(DATASET, PARTITION), **change)


def test_names_come_along():
    """Users may have names, in their order."""
    user_data = UserData(
        Examples(torch.zeros(2, 3), torch.tensor([0, 1])),
        Partition.from_users(2, [[0], [1]]),
        Examples(torch.zeros(1, 3), torch.tensor([1])),
        classes=2,
        names=["ann", "ben"],
    )
    assert user_data.to("cpu").names == ("ann", "ben")


def test_held_out_examples_are_of_the_training_set_and_no_longer_in_it():
    """Every training example is in one part, with its label; the test set is in neither."""
    numbers = torch.arange(10)
    train = Examples(numbers[:, None].float(), numbers)
    dataset = Dataset("digits", 10, train, Examples(torch.tensor([[77.0]]), torch.tensor([7])), (), ())
    held = dataset.held_out(0.3, np.random.default_rng(5))
    assert (len(held.train), len(held.test)) == (7, 3)
    together = torch.cat([held.train.labels, held.test.labels])
    assert sorted(together.tolist()) == numbers.tolist()
    for part in (held.train, held.test):
        assert torch.equal(part.images[:, 0].long(), part.labels)
    again = dataset.held_out(0.3, np.random.default_rng(5))
    assert torch.equal(again.test.labels, held.test.labels)


@pytest.mark.parametrize(("share", "count"), [(0.01, 0), (0.99, 10)])
def test_nothing_or_all_cannot_be_held_out(share, count):
    """A share that leaves one part without examples is named, with the number that it gives."""
    train = Examples(torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64))
    with pytest.raises(UsageError, match=rf"a share of {share} of 10 examples is {count}"):
        Dataset("digits", 10, train, train, (), ()).held_out(share, np.random.default_rng(0))
