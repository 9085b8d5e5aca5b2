"""Examples keep their bytes until they are on the device, and are normalised there once."""

import pytest
import torch

from coterie import UsageError
from coterie.training import Dataset, Examples
from coterie.training.data.dataset import normalised

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
    result = normalised(images, mean=(0.25, 0.5), std=(0.5, 0.125), device="cpu")
    assert result.dtype == torch.float32
    for channel, (mean, std) in enumerate(((0.25, 0.5), (0.5, 0.125))):
        expected = (images[:, channel].double() / 255 - mean) / std
        torch.testing.assert_close(result[:, channel].double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(images, before)


def test_floats_are_taken_as_they_are():
    """Floating-point images are only converted to float32, not normalised, and never changed in place."""
    images = torch.tensor([[300.0]], dtype=torch.float64)
    result = normalised(images, mean=(), std=(), device="cpu")
    assert result.dtype == torch.float32
    assert result.item() == 300.0
