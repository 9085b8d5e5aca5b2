"""The published formats are read as they are defined, and anything else is refused by name."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.training.data.formats import (
    Piece,
    decode_cifar10_binary,
    decode_cifar100_binary,
    decode_idx,
    read_idx,
)
from support.training.published_files import cifar10_binary, cifar100_binary, cifar_examples, idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([9, 0], dtype=np.uint8)


def pieces(images=None, labels=None):
    """The two files of a small set, of which one may be another."""
    return [
        Piece("images", idx(IMAGES) if images is None else images),
        Piece("labels", idx(LABELS) if labels is None else labels),
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 2**32))
def test_idx_gives_back_what_was_written(shape, seed):
    """An array of bytes of any shape, axes without length included, comes back."""
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(read_idx(Piece("file", idx(array)), axes=len(shape)), array)


def test_mnist_gets_its_channel():
    """Images become N × 1 × height × width, row by row, in the files' order."""
    images, labels = decode_idx(pieces(), classes=10)
    assert np.array_equal(images, IMAGES.reshape(2, 1, 3, 4))
    assert labels.tolist() == [9, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": b""}, "images begins with nothing; .* begins with 00 00 08 03"),
        ({"images": idx(LABELS)}, "images begins with 00 00 08 01"),
        ({"images": b"\x1f\x8b\x08\x00rest"}, "images begins with 1f 8b 08 00"),
        ({"labels": idx(IMAGES)}, "labels begins with 00 00 08 03"),
        ({"images": idx(IMAGES)[:-1]}, "images has 39 bytes instead of 40"),
        ({"images": idx(IMAGES)[:10]}, "images has 10 bytes instead of"),
        ({"images": idx(IMAGES) + b"\0"}, "images has 41 bytes instead of 40"),
        ({"images": struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 2**31)}, "images has 16 bytes instead of 9903"),
        ({"labels": idx(LABELS[:1])}, "images has 2 images, but labels 1 labels"),
        ({"labels": idx(np.array([0, 10], dtype=np.uint8))}, "labels: example 1 has the label 10"),
    ],
)
def test_a_file_that_is_not_idx_is_refused(change, message):
    """Wrong magic, wrong lengths, files that do not belong together and labels that are none are named."""
    with pytest.raises(UsageError, match=message):
        decode_idx(pieces(**change), classes=10)


@pytest.mark.parametrize(
    ("encode", "decode", "classes"),
    [(cifar10_binary, decode_cifar10_binary, 10), (cifar100_binary, decode_cifar100_binary, 100)],
)
def test_cifar_records(encode, decode, classes):
    """Files follow one another; pixels are planes of red, green and blue; the label is the (fine) one."""
    first, second = cifar_examples(3, classes, seed=1), cifar_examples(2, classes, seed=2)
    images, labels = decode([Piece("a", encode(*first)), Piece("b", encode(*second))], classes)
    assert np.array_equal(labels, np.concatenate((first[1], second[1])))
    assert images.shape == (5, 3, 32, 32)
    assert images[3, 2, 31, 30] == second[0][0, 2 * 1024 + 31 * 32 + 30]
    assert np.array_equal(images.reshape(5, -1), np.concatenate((first[0], second[0])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "b has 0 bytes, which are not whole records of 3073"),
        (b"\0" * 3072, "b has 3072 bytes, which are not whole records"),
        (b"\x0a" + b"\0" * 3072, "b: example 0 has the label 10, which is not one of the 10 classes"),
    ],
)
def test_what_are_no_records_is_refused(data, message):
    """A file cut inside a record and a label that is none are named, with the file."""
    good = Piece("a", cifar10_binary(*cifar_examples(1, 10, seed=0)))
    with pytest.raises(UsageError, match=message):
        decode_cifar10_binary([good, Piece("b", data)], classes=10)
