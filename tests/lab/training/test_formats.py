"""The published formats are read as they are defined, pickles without running anything they ask for."""

import io
import os
import pickle
import pickletools
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.training.published import (
    FileContent,
    decode_cifar_binary,
    decode_cifar_python,
    decode_idx,
    read_idx,
)
from support.training.published_files import cifar10_binary, cifar100_binary, cifar_examples, cifar_pickle, idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([9, 0], dtype=np.uint8)


def idx_files(images=None, labels=None):
    """The two files of a small set, of which one may be another."""
    return [
        FileContent("images", idx(IMAGES) if images is None else images),
        FileContent("labels", idx(LABELS) if labels is None else labels),
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 2**32))
def test_idx_gives_back_what_was_written(shape, seed):
    """An array of bytes of any shape, axes without length included, comes back."""
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(read_idx(FileContent("file", idx(array)), axes=len(shape)), array)


def test_mnist_gets_its_channel():
    """Images become N × 1 × height × width, row by row, in the files' order."""
    images, labels = decode_idx(idx_files())
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
    ],
)
def test_a_file_that_is_not_idx_is_refused(change, message):
    """Wrong magic, wrong lengths and files that do not belong together are named."""
    with pytest.raises(UsageError, match=message):
        decode_idx(idx_files(**change))


@pytest.mark.parametrize(
    ("encode", "columns", "classes"),
    [(cifar10_binary, 1, 10), (cifar100_binary, 2, 100)],
)
def test_cifar_records(encode, columns, classes):
    """Files follow one another; pixels are planes of red, green and blue; the label is the (fine) one."""
    first, second = cifar_examples(3, classes, seed=1), cifar_examples(2, classes, seed=2)
    images, labels = decode_cifar_binary(
        [FileContent("a", encode(*first)), FileContent("b", encode(*second))], columns
    )
    assert np.array_equal(labels, np.concatenate((first[1], second[1])))
    assert images.shape == (5, 3, 32, 32)
    assert images[3, 2, 31, 30] == second[0][0, 2 * 1024 + 31 * 32 + 30]
    assert np.array_equal(images.reshape(5, -1), np.concatenate((first[0], second[0])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "b has 0 bytes, which are not whole records of 3073"),
        (b"\0" * 3072, "b has 3072 bytes, which are not whole records"),
    ],
)
def test_what_are_no_records_is_refused(data, message):
    """A file cut inside a record is named."""
    good = FileContent("a", cifar10_binary(*cifar_examples(1, 10, seed=0)))
    with pytest.raises(UsageError, match=message):
        decode_cifar_binary([good, FileContent("b", data)], label_bytes=1)


CIFAR_PIXELS, CIFAR_LABELS = cifar_examples(3, 10, seed=1)


class Attack:
    """What a pickle turns into a call."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize(("key", "classes"), [("labels", 10), ("fine_labels", 100)])
def test_a_dictionary_of_its_time_is_read(key, classes):
    """Pixels and labels of several files come back in order, as the binary version would give them."""
    more, others = cifar_examples(2, classes, seed=2)
    files = [
        FileContent("a", cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS, key.encode())),
        FileContent("b", cifar_pickle(more, others, key.encode())),
    ]
    images, labels = decode_cifar_python(files, key)
    assert np.array_equal(images.reshape(5, -1), np.concatenate((CIFAR_PIXELS, more)))
    assert np.array_equal(labels, np.concatenate((CIFAR_LABELS, others)))


def test_the_tests_pickle_is_what_numpy_reads():
    """The opcodes of the tests are a true pickle of an array: pickle itself, with NumPy, reads the same."""
    pickletools.dis(cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS), out=io.StringIO())
    renamed = cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS).replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    content = pickle.loads(renamed, encoding="bytes")  # noqa: S301 - made here
    assert np.array_equal(content[b"data"], CIFAR_PIXELS)
    assert content[b"labels"] == CIFAR_LABELS.tolist()


def test_arrays_by_column_are_turned():
    """An array that was pickled column by column is read as such."""
    data = cifar_pickle(
        np.ascontiguousarray(CIFAR_PIXELS.T).reshape(CIFAR_PIXELS.shape), CIFAR_LABELS, order=b"\x88"
    )
    images, _ = decode_cifar_python([FileContent("a", data)], "labels")
    assert np.array_equal(images.reshape(3, -1), CIFAR_PIXELS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path, protocol):
    """The name of what it wanted is told, and nothing has run, whatever the protocol."""
    data = pickle.dumps({"data": Attack(str(tmp_path / "made")), "labels": []}, protocol=protocol)
    with pytest.raises(UsageError, match=r"data_batch_1 wants to use posix\.mkdir.*do not trust it"):
        decode_cifar_python([FileContent("data_batch_1", data)], "labels")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["builtins eval", "__builtin__ eval", "numpy load", "numpy.core.multiarray fromfile"]
)
def test_only_the_names_of_an_array_exist(name):
    """Even harmless-looking neighbours of the known names are refused."""
    module, function = name.split()
    data = f"c{module}\n{function}\n(S'1'\ntR.".encode()
    with pytest.raises(UsageError, match=f"wants to use {module}.{function}"):
        decode_cifar_python([FileContent("a", data)], "labels")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a is not a whole pickle"),
        (b"\x80\x02}q\x01.", "does not hold an array of bytes 'data' and a list 'labels'"),
        (b"\x80\x02K\x01.", "does not hold an array"),
        (pickle.dumps({b"data": [1], b"labels": [1]}, 2), "does not hold an array|wants to use"),
        (cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS, key=b"other"), "does not hold an array"),
        (cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS, kind=b"f8"), "does not hold an array of bytes"),
        (cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS.astype(int) + 300), "does not hold an array"),
        (cifar_pickle(CIFAR_PIXELS, CIFAR_LABELS[:2]), r"pixels of shape \(3, 3072\) and 2 labels"),
        (cifar_pickle(CIFAR_PIXELS[:, :3], CIFAR_LABELS), r"pixels of shape \(3, 3\)"),
    ],
)
def test_what_is_no_batch_is_refused(data, message):
    """Other content and shapes that do not fit are named, with the file."""
    with pytest.raises(UsageError, match=message):
        decode_cifar_python([FileContent("a", data)], "labels")


def test_a_pickle_cut_off_anywhere_is_refused():
    """However many bytes are there, short of all, the file is refused as the caller's error."""
    data = cifar_pickle(CIFAR_PIXELS[:1, :], CIFAR_LABELS[:1])
    for length in (*range(300), *range(300, len(data), 97), len(data) - 1):
        with pytest.raises(UsageError, match=r"^a (is not a whole pickle|wants to use)"):
            decode_cifar_python([FileContent("a", data[:length])], "labels")


def test_any_changed_byte_is_read_or_refused():
    """Bytes changed at random give a result or a refusal, never another error, nor much memory."""
    data = cifar_pickle(CIFAR_PIXELS[:1], CIFAR_LABELS[:1])
    rng = np.random.default_rng(0)
    refused = 0
    tracemalloc.start()
    for _ in range(2000):
        changed = bytearray(data)
        changed[rng.integers(0, 200)] = rng.integers(0, 256)
        try:
            decode_cifar_python([FileContent("a", bytes(changed))], "labels")
        except UsageError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 1000
    assert peak < 1 << 20
