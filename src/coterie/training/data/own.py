"""Data of one's own: a folder with a NumPy file per user, or a function that gives each user's."""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.storage.files import reading
from coterie.training.data.dataset import Examples, UserData
from coterie.training.data.partition import Partition
from coterie.values.checks import check_count

_TEST = "test"
_BYTE_IMAGE_AXES = 4


def read_folder(folder: str | os.PathLike[str], classes: int | None = None) -> UserData:
    """Read the users' data from a folder of .npz files: one per user, named after the user, and `test.npz`.

    Each file holds `images` (or, of a table, `features`) and `labels`, as `numpy.savez` writes them. Images are
    N × channels × height × width as uint8, of which 0 … 255 become 0 … 1, or floating-point of any shape N × …,
    taken as they are; features are numbers, N × columns; labels are integers from 0. Users are in the order of
    their names. `classes` is the largest label plus one, unless given.
    """
    folder = Path(folder)
    files = _user_files(folder)
    parts = ((str(file), *_arrays(file)) for file in files)
    test = folder / f"{_TEST}.npz"
    if not test.exists():
        raise UsageError(
            f"{folder} has no test.npz, the examples that the model is tested with; put them there, saved "
            "as a user's are"
        )
    return _stacked(parts, (str(test), *_arrays(test)), classes, names=[file.stem for file in files])


def count_users(folder: str | os.PathLike[str]) -> int:
    """Return how many users a folder holds data of, without reading it."""
    return len(_user_files(Path(folder)))


def _user_files(folder: Path) -> list[Path]:
    with reading(folder):
        files = sorted(entry for entry in folder.iterdir() if entry.suffix == ".npz" and entry.stem != _TEST)
    if not files:
        raise UsageError(f"{folder} holds no user's data; put a file NAME.npz there for each user, and test.npz")
    return files


def from_function(
    examples_of: Callable[[int], tuple[ArrayLike, ArrayLike]],
    users: int,
    test: tuple[ArrayLike, ArrayLike],
    classes: int | None = None,
) -> UserData:
    """Make users' data of the images and labels that `examples_of` gives for users 0, 1, … and of a test set.

    Images and labels are as in `read_folder`.

    >>> from_function(lambda user: ([[user / 2], [0.1]], [user, 0]), users=2, test=([[0.5]], [1]))
    UserData(2 users, 4 examples, 1 to test with, 2 classes)
    """
    check_count(users, "the number of users")
    parts = ((f"user {user}", *examples_of(user)) for user in range(users))
    return _stacked(parts, ("the test set", *test), classes, names=None)


def _arrays(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return a file's images and labels; nothing that it holds is run."""
    with reading(path), path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise UsageError(
                f"{path} is not a readable .npz file: it was cut off, or never was one; save it anew with "
                "numpy.savez"
            )
    try:
        with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            tabular = "features" in arrays
            values, labels = arrays["features" if tabular else "images"], arrays["labels"]
    except KeyError:
        raise UsageError(
            f"{path} does not hold 'images' (or 'features') and 'labels'; save it with numpy.savez under these "
            "names"
        ) from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        raise UsageError(f"{path} is not a readable .npz file of numbers ({error}); save it anew") from error
    return _rows(path, values) if tabular else values, labels


def _rows(path: Path, features: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a table's rows as floating-point numbers."""
    if features.ndim != 2 or features.dtype.kind not in "fiub":  # noqa: PLR2004 - rows × columns
        raise UsageError(
            f"{path}: features are {features.dtype} of shape {features.shape}; give numbers, rows × columns"
        )
    return features.astype(np.float32)


def _stacked(
    parts: Iterable[tuple[str, ArrayLike, ArrayLike]],
    test: tuple[str, ArrayLike, ArrayLike],
    classes: int | None,
    names: Sequence[str] | None,
) -> UserData:
    """Stack the users' examples; every refusal begins with whose data it is about."""
    if classes is not None:
        check_count(classes, "the number of classes", least=2)
    images, labels, like = [], [], None
    for where, some_images, some_labels in (*parts, test):
        checked_images, checked_labels = _checked(where, some_images, some_labels, classes)
        like = like or (where, checked_images)
        _check_alike(*like, where, checked_images)
        images.append(checked_images)
        labels.append(checked_labels)
    largest = max(int(some.max()) for some in labels)
    sizes = [len(some) for some in labels[:-1]]
    channels = images[0].shape[1] if images[0].dtype == np.uint8 else 0
    return UserData.of_examples(
        _examples(images[:-1], labels[:-1]),
        Partition(sum(sizes), np.arange(sum(sizes)), np.concatenate(([0], np.cumsum(sizes)))),
        _examples(images[-1:], labels[-1:]),
        classes=classes or max(largest + 1, 2),
        # Bytes are scaled and nothing else: means of the users' data would be something learned about them.
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        names=names,
    )


def _checked(
    where: str, images: ArrayLike, labels: ArrayLike, classes: int | None
) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    images, labels = np.asarray(images), np.asarray(labels)
    if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
        raise UsageError(f"{where}: labels are {labels.dtype} of shape {labels.shape}; give a list of integers")
    if images.ndim < 2 or len(images) != len(labels):  # noqa: PLR2004 - an example has an axis of its own
        raise UsageError(
            f"{where}: images have the shape {images.shape}; give {len(labels)} of them, one per label"
        )
    if len(labels) == 0:
        raise UsageError(f"{where} has no data; give at least one example, or leave the user out")
    if images.dtype == np.uint8:
        if images.ndim != _BYTE_IMAGE_AXES:
            raise UsageError(
                f"{where}: uint8 images have the shape {images.shape}; give N × channels × height × width"
            )
    elif images.dtype.kind != "f":
        raise UsageError(f"{where}: images are {images.dtype}; give uint8 or floating-point numbers")
    else:
        images = images.astype(np.float32, copy=False)
        if not np.isfinite(images).all():
            place = int(np.argwhere(~np.isfinite(images))[0][0])
            raise UsageError(
                f"{where}: image {place} has a value that is not a finite number; repair or remove it"
            )
    outside = np.flatnonzero((labels < 0) | (labels >= (classes or np.iinfo(np.int64).max)))
    if len(outside):
        known = f"one of the {classes} classes 0 … {classes - 1}" if classes else "an integer from 0"
        raise UsageError(f"{where}: label {outside[0]} is {labels[outside[0]]}, which is not {known}")
    return images, labels.astype(np.int64)


def _check_alike(where: str, images: NDArray[np.generic], other: str, others: NDArray[np.generic]) -> None:
    if images.shape[1:] != others.shape[1:] or images.dtype != others.dtype:
        raise UsageError(
            f"{other}: an image is {others.dtype} of shape {others.shape[1:]}, but in {where} {images.dtype} of "
            f"shape {images.shape[1:]}; make them alike"
        )


def _examples(images: Sequence[NDArray[np.generic]], labels: Sequence[NDArray[np.int64]]) -> Examples:
    return Examples(torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels)))
