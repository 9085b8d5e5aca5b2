"""CIFAR's pickles are read without running anything."""

import io
import os
import pickle
import pickletools
import tracemalloc

import numpy as np
import pytest

from coterie import UsageError
from coterie.training.data.formats import Piece
from coterie.training.data.pickles import decode_cifar10_python, decode_cifar100_python
from support.training.published_files import cifar_examples, cifar_pickle

PIXELS, LABELS = cifar_examples(3, 10, seed=1)


class Attack:
    """What a pickle turns into a call."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize(
    ("key", "decode", "classes"),
    [(b"labels", decode_cifar10_python, 10), (b"fine_labels", decode_cifar100_python, 100)],
)
def test_a_dictionary_of_its_time_is_read(key, decode, classes):
    """Pixels and labels of several files come back in order, as the binary version would give them."""
    more, others = cifar_examples(2, classes, seed=2)
    files = [Piece("a", cifar_pickle(PIXELS, LABELS, key)), Piece("b", cifar_pickle(more, others, key))]
    images, labels = decode(files, classes)
    assert np.array_equal(images.reshape(5, -1), np.concatenate((PIXELS, more)))
    assert np.array_equal(labels, np.concatenate((LABELS, others)))


def test_the_tests_pickle_is_what_numpy_reads():
    """The opcodes of the tests are a true pickle of an array: pickle itself, with NumPy, reads the same."""
    pickletools.dis(cifar_pickle(PIXELS, LABELS), out=io.StringIO())
    renamed = cifar_pickle(PIXELS, LABELS).replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    content = pickle.loads(renamed, encoding="bytes")  # noqa: S301 - made here
    assert np.array_equal(content[b"data"], PIXELS)
    assert content[b"labels"] == LABELS.tolist()


def test_arrays_by_column_are_turned():
    """An array that was pickled column by column is read as such."""
    data = cifar_pickle(np.ascontiguousarray(PIXELS.T).reshape(PIXELS.shape), LABELS, order=b"\x88")
    images, _ = decode_cifar10_python([Piece("a", data)], 10)
    assert np.array_equal(images.reshape(3, -1), PIXELS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path, protocol):
    """The name of what it wanted is told, and nothing has run, whatever the protocol."""
    data = pickle.dumps({"data": Attack(str(tmp_path / "made")), "labels": []}, protocol=protocol)
    with pytest.raises(UsageError, match=r"data_batch_1 wants to use posix\.mkdir.*do not trust it"):
        decode_cifar10_python([Piece("data_batch_1", data)], 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["builtins eval", "__builtin__ eval", "numpy load", "numpy.core.multiarray fromfile"]
)
def test_only_the_names_of_an_array_exist(name):
    """Even harmless-looking neighbours of the known names are refused."""
    module, function = name.split()
    data = f"c{module}\n{function}\n(S'1'\ntR.".encode()
    with pytest.raises(UsageError, match=f"wants to use {module}.{function}"):
        decode_cifar10_python([Piece("a", data)], 10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a is not a whole pickle"),
        (b"\x80\x02}q\x01.", "does not hold an array of bytes 'data' and a list 'labels'"),
        (b"\x80\x02K\x01.", "does not hold an array"),
        (pickle.dumps({b"data": [1], b"labels": [1]}, 2), "does not hold an array|wants to use"),
        (cifar_pickle(PIXELS, LABELS, key=b"other"), "does not hold an array"),
        (cifar_pickle(PIXELS, LABELS, kind=b"f8"), "does not hold an array of bytes"),
        (cifar_pickle(PIXELS, LABELS.astype(int) + 300), "does not hold an array"),
        (cifar_pickle(PIXELS, LABELS[:2]), r"pixels of shape \(3, 3072\) and 2 labels"),
        (cifar_pickle(PIXELS[:, :3], LABELS), r"pixels of shape \(3, 3\)"),
        (cifar_pickle(PIXELS, LABELS + 10), "a: example 0 has the label"),
    ],
)
def test_what_is_no_batch_is_refused(data, message):
    """Other content, labels that are none and shapes that do not fit are named, with the file."""
    with pytest.raises(UsageError, match=message):
        decode_cifar10_python([Piece("a", data)], 10)


def test_a_pickle_cut_off_anywhere_is_refused():
    """However many bytes are there, short of all, the file is refused as the caller's error."""
    data = cifar_pickle(PIXELS[:1, :], LABELS[:1])
    for length in (*range(300), *range(300, len(data), 97), len(data) - 1):
        with pytest.raises(UsageError, match=r"^a (is not a whole pickle|wants to use)"):
            decode_cifar10_python([Piece("a", data[:length])], 10)


def test_any_changed_byte_is_read_or_refused():
    """Bytes changed at random give a result or a refusal, never another error, nor much memory."""
    data = cifar_pickle(PIXELS[:1], LABELS[:1])
    rng = np.random.default_rng(0)
    refused = 0
    tracemalloc.start()
    for _ in range(2000):
        changed = bytearray(data)
        changed[rng.integers(0, 200)] = rng.integers(0, 256)
        try:
            decode_cifar10_python([Piece("a", bytes(changed))], 10)
        except UsageError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 1000
    assert peak < 1 << 20
