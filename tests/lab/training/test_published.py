"""A data folder's files are found where people put them, checked, and fetched where they are missing."""

import gzip
import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.lab.training import load
from coterie.lab.training.published import (
    Download,
    PublishedDataset,
    PublishedForm,
    decode_cifar_binary,
    decode_cifar_python,
    decode_idx,
)
from support.training.file_server import serving
from support.training.published_files import archive, cifar10_binary, cifar_examples, cifar_pickle, idx

BATCHES = [cifar_examples(count, 10, seed) for seed, count in enumerate((3, 2, 4))]
BINARY = {
    f"cifar-bin/{name}.bin": cifar10_binary(*batch)
    for name, batch in zip(("one", "two", "test"), BATCHES, strict=True)
}
PYTHON = {
    f"cifar-py/{name}": cifar_pickle(*batch) for name, batch in zip(("one", "two", "test"), BATCHES, strict=True)
}
AS_RECORDS, AS_PICKLES = (
    partial(decode_cifar_binary, label_bytes=1),
    partial(decode_cifar_python, label_key="labels"),
)
ARCHIVE = archive({"./cifar-bin/readme.html": b"hello", **BINARY})


def digests(files):
    """The files' digests."""
    return {path: f"sha256:{hashlib.sha256(data).hexdigest()}" for path, data in files.items()}


def source(address="http://127.0.0.1:1"):
    """A data set of nine images, published in two forms; nobody answers at the address unless it is given."""
    return PublishedDataset(
        "nine",
        classes=10,
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        forms=(
            PublishedForm(digests(BINARY), 2, AS_RECORDS, archive="nine-binary.tar.gz"),
            PublishedForm(digests(PYTHON), 2, AS_PICKLES, archive="nine-python.tar.gz"),
        ),
        downloads=(
            Download(f"{address}/nine", "nine-binary.tar.gz", f"md5:{hashlib.md5(ARCHIVE).hexdigest()}"),  # noqa: S324
        ),
    )


def put(folder, files):
    """Write files to a folder."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def flat(files):
    """The same files without their folders."""
    return {path.rpartition("/")[2]: data for path, data in files.items()}


def zipped(files):
    """The same files, each as .gz."""
    return {f"{path}.gz": gzip.compress(data) for path, data in files.items()}


def check(dataset):
    """The data set is the one that was written."""
    pixels = np.concatenate([pixels for pixels, _ in BATCHES])
    labels = np.concatenate([labels for _, labels in BATCHES])
    for examples, own in ((dataset.train, slice(0, 5)), (dataset.test, slice(5, 9))):
        assert examples.images.dtype == torch.uint8
        assert np.array_equal(examples.images.numpy().reshape(-1, 3072), pixels[own])
        assert examples.labels.tolist() == labels[own].tolist()
    assert (dataset.name, dataset.classes, dataset.mean) == ("nine", 10, (0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    "files",
    [
        BINARY,
        flat(BINARY),
        zipped(BINARY),
        zipped(flat(BINARY)),
        PYTHON,
        flat(PYTHON),
        {"nine-binary.tar.gz": ARCHIVE},
        {"nine-python.tar.gz": archive(PYTHON)},
        {"nine-python.tar.gz": archive(PYTHON), "cifar-bin/one.bin": b"only one of three"},
        {"nine-binary.tar.gz": b"broken, but not needed", **BINARY},
    ],
)
def test_every_form_in_every_place_is_the_same_data(tmp_path, files):
    """Raw, in gzip, without the folder, in the archive, in either form: the same examples, without a network."""
    put(tmp_path, files)
    check(load(source(), tmp_path))


def test_idx_files_are_a_form(tmp_path):
    """MNIST's two files per set are found and decoded together."""
    images = np.arange(2 * 4, dtype=np.uint8).reshape(2, 2, 2)
    files = {
        "M/a": idx(images),
        "M/b": idx(np.array([1, 2], dtype=np.uint8)),
        "M/c": idx(images[:1]),
        "M/d": idx(np.array([3], dtype=np.uint8)),
    }
    put(tmp_path, files)
    small = replace(source(), mean=(0.5,), std=(0.5,), forms=(PublishedForm(digests(files), 2, decode_idx),))
    dataset = load(small, str(tmp_path))
    assert dataset.train.images.shape == (2, 1, 2, 2)
    assert dataset.test.labels.tolist() == [3]


def test_what_is_missing_is_fetched_once(tmp_path):
    """The archive is fetched into the folder, read there, and not asked for again; progress is told."""
    seen = []
    with serving() as server:
        server.files["/nine"] = ARCHIVE
        for _ in range(2):
            check(load(source(server.address), tmp_path / "data", lambda *state: seen.append(state)))
        assert server.ranges == [None]
    assert seen[-1] == ("nine-binary.tar.gz", len(ARCHIVE), len(ARCHIVE))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["nine-binary.tar.gz"]


def test_without_a_network_all_files_that_would_do_are_listed(tmp_path):
    """The message says why fetching failed, every form with its files, the folder, and where they can be had."""
    put(tmp_path, {"cifar-bin/one.bin": BINARY["cifar-bin/one.bin"]})
    with pytest.raises(UsageError) as caught:
        load(source(), tmp_path)
    assert str(caught.value).endswith(
        f"; {tmp_path} does not hold nine: put nine-binary.tar.gz; or cifar-bin/ with one.bin, two.bin, test.bin; "
        "or nine-python.tar.gz; or cifar-py/ with one, two, test there (a file may end in .gz). They can be had "
        "from http://127.0.0.1:1/nine"
    )
    assert "cannot be fetched: [Errno" in str(caught.value)


def test_without_a_folder_one_is_asked_for():
    """A data set that does not come with the package needs a folder."""
    with pytest.raises(UsageError, match="nine needs a data folder"):
        load(source())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({**BINARY, "cifar-bin/two.bin": b""}, r"two\.bin is not the published file of nine"),
        (
            {**BINARY, "cifar-bin/two.bin": BINARY["cifar-bin/two.bin"][:-1]},
            r"two\.bin is not the published file of nine: its digest is sha256:",
        ),
        (
            {**BINARY, "cifar-bin/two.bin": BINARY["cifar-bin/one.bin"]},
            r"two\.bin is not the published file of nine",
        ),
        ({**PYTHON, "cifar-py/one": b"cos\nsystem\n."}, r"one is not the published file of nine"),
        ({**zipped(flat(BINARY)), "two.bin.gz": b"no gzip"}, r"two\.bin\.gz is not a whole gzip file"),
        ({**zipped(flat(BINARY)), "two.bin.gz": gzip.compress(b"x" * 99)[:-9]}, "is not a whole gzip file"),
        ({**zipped(flat(BINARY)), "two.bin.gz": gzip.compress(b"x" * 99)[:5]}, "is not a whole gzip file"),
        ({"nine-binary.tar.gz": b""}, r"nine-binary\.tar\.gz is not a whole archive"),
        ({"nine-binary.tar.gz": b"no archive"}, r"nine-binary\.tar\.gz is not a whole archive"),
        ({"nine-binary.tar.gz": ARCHIVE[: len(ARCHIVE) // 2]}, "is not a whole archive"),
        ({"nine-binary.tar.gz": gzip.compress(b"no tar inside")}, "is not a whole archive"),
        ({"nine-binary.tar.gz": archive(dict(list(BINARY.items())[:2]))}, "does not hold cifar-bin/test.bin"),
        (
            {"nine-binary.tar.gz": archive({**BINARY, "cifar-bin/two.bin": b"x"})},
            r"tar\.gz: cifar-bin/two\.bin is not the published",
        ),
    ],
)
def test_a_bad_file_is_named(tmp_path, files, message):
    """Cut off, empty, another file's content, code in a pickle: the file and the reason, before it is decoded."""
    put(tmp_path, files)
    with pytest.raises(UsageError, match=message):
        load(source(), tmp_path)


def test_an_archive_cut_off_anywhere_is_refused(tmp_path):
    """However many bytes of the archive are there, short of the last file's end, it is refused."""
    for length in range(0, len(ARCHIVE) * 9 // 10, 1009):
        put(tmp_path, {"nine-binary.tar.gz": ARCHIVE[:length]})
        with pytest.raises(UsageError, match=r"nine-binary\.tar\.gz"):
            load(source(), tmp_path)
