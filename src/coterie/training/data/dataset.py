"""Images or tables with their labels, and `UserData`: all users' examples in one stack, and who holds which.

Data of one's own come from a folder with a NumPy file per user, or from a function that gives each user's.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.files import reading
from coterie.training.data.partition import Partition
from coterie.values.checks import IntArray, check_count, checked_names, starts_of

_TEST = "test"


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
    """What local training needs: every user's training examples once, who holds which, and the test set.

    Grey levels are normalised with `mean` and `std`, one value per channel, when `to` moves them; both are empty
    for floating-point images.

    >>> user_data = UserData(
    ...     Examples(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])),
    ...     Partition.from_users(examples=3, users=[[2, 0], [1]]),
    ...     test=Examples(torch.tensor([[5.0]]), torch.tensor([1])),
    ...     classes=2,
    ... )
    >>> user_data
    UserData(2 users, 3 examples, 1 to test with, 2 classes)
    >>> user_data.of(0).tolist(), user_data.sizes.tolist()
    ([2, 0], [2, 1])
    """

    train: Examples
    partition: Partition
    test: Examples
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", checked_names(self.names, self.users))
        train, test = self.train, self.test
        if self.partition.examples != len(train):
            raise UsageError(
                f"the partition is of {self.partition.examples} examples, but there are {len(train)} to train "
                "with; make it for this data set"
            )
        train.check_labels(self.classes)
        test.check_labels(self.classes)
        if len(test) == 0:
            raise UsageError("the test set is empty; give at least one example to test with")
        if train.images.shape[1:] != test.images.shape[1:] or train.images.dtype != test.images.dtype:
            raise UsageError(f"users' examples are {train!r} and those to test with {test!r}; make them alike")
        if train.images.dtype == torch.uint8 and not train.images.shape[1] == len(self.mean) == len(self.std):
            raise UsageError(
                f"images have {train.images.shape[1]} channels, but there are {len(self.mean)} means and "
                f"{len(self.std)} standard deviations; give one of each per channel"
            )

    @classmethod
    def of_dataset(cls, dataset: Dataset, partition: Partition) -> "UserData":
        """Return a published data set, held by the users of a partition."""
        return cls(dataset.train, partition, dataset.test, dataset.classes, dataset.mean, dataset.std)

    @property
    def images(self) -> torch.Tensor:
        """The training images of all users, uint8 or floating-point; a user's are picked by index."""
        return self.train.images

    @property
    def labels(self) -> torch.Tensor:
        """The labels of the training images, int64."""
        return self.train.labels

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.partition)

    @property
    def sizes(self) -> IntArray:
        """How many examples each user has."""
        return self.partition.sizes

    def of(self, user: int) -> IntArray:
        """Return one user's examples, as places in `images` and `labels`, in the user's order.

        It is a copy: torch does not take a read-only array as an index without a warning.
        """
        return self.partition.of(user).copy()

    def __repr__(self) -> str:
        return (
            f"UserData({self.users} users, {len(self.train)} examples, {len(self.test)} to test with, "
            f"{self.classes} classes)"
        )

    def to(self, device: torch.device | str) -> "UserData":
        """Return the data with its tensors on the device, images as normalised float32.

        Done twice it changes nothing more; `mean` and `std` stay, to turn the images back.
        """
        train, test = (
            Examples(normalise(part.images, self.mean, self.std, device), part.labels.to(device))
            for part in (self.train, self.test)
        )
        return replace(self, train=train, test=test)


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
    return _stack_users(parts, (str(test), *_arrays(test)), classes, names=[file.stem for file in files])


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
    return _stack_users(parts, ("the test set", *test), classes, names=None)


def _arrays(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return a file's images and labels; nothing that it holds is run."""
    with reading(path), path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                tabular = "features" in arrays
                values, labels = arrays["features" if tabular else "images"], arrays["labels"]
        except KeyError:
            raise UsageError(
                f"{path} does not hold 'images' (or 'features') and 'labels'; save it with numpy.savez under "
                "these names"
            ) from None
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
            raise UsageError(
                f"{path} is not a readable .npz file of numbers ({error}); save it anew with numpy.savez"
            ) from error
    return _rows(path, values) if tabular else values, labels


def _rows(path: Path, features: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a table's rows as floating-point numbers."""
    if features.ndim != 2 or features.dtype.kind not in "fiub":  # noqa: PLR2004 - rows × columns
        raise UsageError(
            f"{path}: features are {features.dtype} of shape {features.shape}; give numbers, rows × columns"
        )
    return features.astype(np.float32)


def _stack_users(
    parts: Iterable[tuple[str, ArrayLike, ArrayLike]],
    test: tuple[str, ArrayLike, ArrayLike],
    classes: int | None,
    names: Sequence[str] | None,
) -> UserData:
    """Stack the users' examples; every refusal begins with whose data it is about."""
    if classes is not None:
        check_count(classes, "the number of classes", least=2)
    sources = {where: _examples(where, images, labels) for where, images, labels in (*parts, test)}
    classes = classes or max(2, *(int(some.labels.max()) + 1 for some in sources.values()))
    first, like = next(iter(sources.items()))
    for where, some in sources.items():
        with _about(where):
            some.check_labels(classes)
            if some.images.shape[1:] != like.images.shape[1:] or some.images.dtype != like.images.dtype:
                raise UsageError(f"there are {some!r}, but in {first} {like!r}; make them alike")
    *users, tested = sources.values()
    starts = starts_of([len(some) for some in users])
    channels = like.images.shape[1] if like.images.dtype == torch.uint8 else 0
    return UserData(
        Examples(torch.cat([some.images for some in users]), torch.cat([some.labels for some in users])),
        Partition(int(starts[-1]), np.arange(starts[-1]), starts),
        tested,
        classes,
        # Bytes are scaled and nothing else: means of the users' data would be something learned about them.
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        names=None if names is None else tuple(names),
    )


def _examples(where: str, images: ArrayLike, labels: ArrayLike) -> Examples:
    images, labels = np.asarray(images), np.asarray(labels)
    with _about(where):
        if labels.size == 0:
            raise UsageError("there are no examples; give at least one, or leave the user out")
        if labels.dtype.kind not in "iu":
            raise UsageError(f"labels are {labels.dtype}; give integers")
        if images.dtype != np.uint8:
            if images.dtype.kind != "f":
                raise UsageError(f"images are {images.dtype}; give uint8 or floating-point numbers")
            images = images.astype(np.float32, copy=False)
            if not np.isfinite(images).all():
                place = int(np.argwhere(~np.isfinite(images))[0][0])
                raise UsageError(f"image {place} has a value that is not a finite number; repair or remove it")
        return Examples(torch.tensor(images), torch.tensor(labels.astype(np.int64)))


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Let a refusal begin with whose data it is about."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
