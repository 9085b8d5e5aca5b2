"""Data sets and who holds which examples.

`UserData` has all users' images or tables in one stack. Data of one's own come from a folder with a NumPy file per
user, or from a function that gives each user's. A `Partition` says which examples each user holds. It has a JSON
file, with a line per user, and the ways to spread a data set are the paper's settings, each a pure function of
labels and chance.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.files import read_file, reading, write_file
from coterie.values.checks import (
    FloatArray,
    IntArray,
    check_count,
    check_probabilities,
    checked_names,
    frozen,
    frozen_integers,
    starts_of,
)

DROPOUT_OF_LABEL = (0.1, 0.15, 0.2, 0.25, 0.3, 0.3, 0.35, 0.4, 0.45, 0.5)
"""The dropout of a user of class 0 … 9 in the authors' runs where availability goes with the data."""

_LEAST_CONCENTRATION, _LARGEST_CONCENTRATION = 1e-6, 1e6  # beyond, floating point has nothing to tell apart
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Each user's examples, as places in a data set of `examples` examples.

    User u holds `indices[starts[u]:starts[u + 1]]`, in this order: local minibatches follow it. An example may
    belong to several users (a globally shared set) or to none; every user has at least one.

    >>> partition = Partition.from_users(examples=5, users=[[4, 0], [1, 2, 0]])
    >>> partition
    Partition(2 users with 2 to 3 of 5 examples)
    >>> partition.of(1).tolist()
    [1, 2, 0]
    """

    examples: int
    indices: IntArray
    starts: IntArray

    def __post_init__(self) -> None:
        indices = frozen_integers(self.indices, np.int64, "indices of examples")
        starts = frozen_integers(self.starts, np.int64, "starts of users")
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "starts", starts)
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(indices) or bool((self.sizes < 0).any()):
            raise UsageError("starts must rise from 0 to the number of indices")
        if len(self) == 0:
            raise UsageError("a partition needs at least one user")
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            raise UsageError(
                f"user {empty[0]} has no data{_and_others(len(empty) - 1)}; give every user at least one example"
            )
        outside = np.flatnonzero((indices < 0) | (indices >= self.examples))
        if len(outside):
            user = int(np.searchsorted(starts, outside[0], side="right")) - 1
            raise UsageError(
                f"user {user} has the example {indices[outside[0]]}, which is not one of the {self.examples} "
                f"examples 0 … {self.examples - 1}"
            )

    @classmethod
    def from_users(cls, examples: int, users: Iterable[ArrayLike]) -> "Partition":
        """Build a partition from lists of examples, one list per user."""
        parts = [np.asarray(part) for part in users]
        starts = starts_of([len(part) for part in parts])
        # An empty list would make all indices floats.
        filled = [part for part in parts if len(part)]
        return cls(examples, np.concatenate(filled) if filled else np.zeros(0, dtype=np.int64), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        low, high = int(self.sizes.min()), int(self.sizes.max())
        sizes = f"{low}" if low == high else f"{low} to {high}"
        return f"Partition({len(self)} users with {sizes} of {self.examples} examples)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return (
            self.examples == other.examples
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.indices, other.indices)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays are compared by content, never hashed

    @cached_property
    def sizes(self) -> IntArray:
        """How many examples each user has."""
        return frozen(np.diff(self.starts))

    def of(self, user: int) -> IntArray:
        """Return one user's examples, in the user's order."""
        return self.indices[self.starts[user] : self.starts[user + 1]]

    def shuffled(self, rng: np.random.Generator) -> "Partition":
        """Return the same parts, handed to the users in a random order.

        >>> partition = Partition.from_users(examples=3, users=[[0], [1], [2]])
        >>> partition.shuffled(np.random.default_rng(0)).indices.tolist()
        [2, 0, 1]
        """
        return Partition.from_users(self.examples, [self.of(user) for user in rng.permutation(len(self))])

    def label_counts(self, labels: ArrayLike, classes: int) -> IntArray:
        """Return the histogram users × classes: how many examples of each label each user has.

        >>> partition = Partition.from_users(examples=3, users=[[0, 1], [2]])
        >>> partition.label_counts([1, 1, 0], classes=2).tolist()
        [[0, 2], [1, 0]]
        """
        labels = np.asarray(labels)
        if labels.shape != (self.examples,):
            raise UsageError(f"labels have the shape {labels.shape}; the partition is of {self.examples} examples")
        if labels.min() < 0 or labels.max() >= classes:
            raise UsageError(
                f"labels go from {labels.min()} to {labels.max()}, and {classes} classes from 0 to {classes - 1}"
            )
        owners = np.repeat(np.arange(len(self)), self.sizes)
        cells = np.bincount(owners * classes + labels[self.indices], minlength=len(self) * classes)
        return cells.reshape(len(self), classes)


def _and_others(count: int) -> str:
    if count == 0:
        return ""
    return f", nor {'has' if count == 1 else 'have'} {count} other{'' if count == 1 else 's'}"


_FORMAT = "coterie partition"
_VERSION = 1


def write_partition(partition: Partition, path: str | os.PathLike[str]) -> None:
    """Write a partition to a JSON file, whole or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "partition.json"
    ...     write_partition(Partition.from_users(examples=5, users=[[4, 0], [1, 2, 0]]), file)
    ...     print(file.read_text())
    {"format": "coterie partition", "version": 1, "examples": 5,
    "users": [
    [4, 0],
    [1, 2, 0]
    ]}
    <BLANKLINE>
    """
    users = ",\n".join(json.dumps(partition.of(user).tolist()) for user in range(len(partition)))
    head = f'{{"format": "{_FORMAT}", "version": {_VERSION}, "examples": {partition.examples},\n'
    write_file(path, f'{head}"users": [\n{users}\n]}}\n'.encode())


def read_partition(path: str | os.PathLike[str]) -> Partition:
    """Read a partition from a JSON file of `write_partition`, or made by hand; white space may differ."""
    name, data = os.fspath(path), read_file(path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON, or is cut off: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise UsageError(f'{name} is not a partition; it must begin {{"format": "{_FORMAT}", …')
    if content.get("version") != _VERSION:
        raise UsageError(
            f"{name} has the version {content.get('version')!r}; this Coterie reads version {_VERSION}: "
            "write the partition anew, or use the Coterie that wrote it"
        )
    unknown = sorted(content.keys() - {"format", "version", "examples", "users"})
    if unknown:
        raise UsageError(f"{name} has the unknown field {unknown[0]!r}; remove it")
    examples, users = content.get("examples"), content.get("users")
    if not _is_count(examples):
        raise UsageError(f'{name}: "examples" is {examples!r}; it must be the number of examples of the data set')
    if not isinstance(users, list):
        raise UsageError(f'{name}: "users" must be a list with a list of examples for each user')
    for user, part in enumerate(users):
        if not isinstance(part, list) or not all(map(_is_count, part)):
            raise UsageError(f"{name}: user {user} must have a list of examples, each a number of 0 or more")
    try:
        return Partition.from_users(examples, [np.array(part, dtype=np.int64) for part in users])
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _is_count(value: Any) -> TypeGuard[int]:  # noqa: ANN401 - JSON holds anything
    return type(value) is int and 0 <= value < 2**63


def iid(examples: int, users: int, rng: np.random.Generator) -> Partition:
    """Shuffle the examples and deal them out; sizes differ by one at most (the paper's "IID setting").

    >>> iid(60_000, 120, np.random.default_rng(0))
    Partition(120 users with 500 of 60000 examples)
    >>> iid(50_000, 120, np.random.default_rng(0))
    Partition(120 users with 416 to 417 of 50000 examples)
    """
    _check_enough(examples, users)
    return Partition(examples, rng.permutation(examples), _even_starts(examples, users))


def shards(labels: ArrayLike, users: int) -> Partition:
    """Sort the examples by label and cut them into one shard per user: user 0 has the lowest labels.

    A user has one label, or two where a cut does not fall between classes. Neighbours have like labels, and so
    have batches of consecutive users; `Partition.shuffled` hands the shards out at random.

    >>> shards([1, 0, 1, 0], users=2).label_counts([1, 0, 1, 0], classes=2).tolist()
    [[2, 0], [0, 2]]
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    return Partition(len(labels), np.argsort(labels, kind="stable"), _even_starts(len(labels), users))


def shards_and_shared(labels: ArrayLike, users: int, shared_per_class: int, rng: np.random.Generator) -> Partition:
    """Draw a set that all users share, equally many of each class, and give each user one shard of the rest too.

    A user's shard and the shared examples are mixed, in an order that stays. For CIFAR-10 the paper shares 20
    per class: 200 shared and 415 own examples for each of 120 users.

    >>> labels = np.repeat(np.arange(10), 5000)
    >>> shards_and_shared(labels, users=120, shared_per_class=20, rng=np.random.default_rng(0))
    Partition(120 users with 615 of 50000 examples)
    """
    labels = _labels(labels)
    check_count(shared_per_class, "the number of shared examples per class")
    classes, counts = np.unique(labels, return_counts=True)
    short = np.flatnonzero(counts < shared_per_class)
    if len(short):
        raise UsageError(
            f"{shared_per_class} examples of each class cannot be shared: class {classes[short[0]]} has "
            f"{counts[short[0]]}; share fewer"
        )
    shared = np.concatenate(
        [rng.choice(np.flatnonzero(labels == class_), shared_per_class, replace=False) for class_ in classes]
    )
    own = np.setdiff1d(np.arange(len(labels)), shared)
    _check_enough(len(own), users)
    own = own[np.argsort(labels[own], kind="stable")]
    starts = _even_starts(len(own), users)
    return Partition.from_users(
        len(labels), [rng.permutation(np.concatenate((part, shared))) for part in np.split(own, starts[1:-1])]
    )


def dirichlet(labels: ArrayLike, users: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Split each class over the users in proportions drawn from Dir(κ, …, κ), one κ per user.

    Every example is dealt out, so users have different amounts of data; a user that got nothing takes one
    example from the user with the most. κ → ∞ gives every user the same mix, κ → 0 a class to one user. The order
    of a user's examples is random.

    >>> labels = np.repeat(np.arange(10), 100)
    >>> dirichlet(labels, users=20, concentration=0.5, rng=np.random.default_rng(0))
    Partition(20 users with 17 to 114 of 1000 examples)
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    _check_concentration(concentration)
    owners = np.empty(len(labels), dtype=np.int64)
    for class_ in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == class_))
        shares = rng.dirichlet(np.full(users, concentration))
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        owners[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    sizes = np.bincount(owners, minlength=users)
    for user in np.flatnonzero(sizes == 0):
        richest = int(sizes.argmax())
        owners[rng.choice(np.flatnonzero(owners == richest))] = user
        sizes[user], sizes[richest] = 1, sizes[richest] - 1
    order = rng.permutation(len(labels))
    return Partition(len(labels), order[np.argsort(owners[order], kind="stable")], starts_of(sizes))


def dirichlet_mixes(labels: ArrayLike, users: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Give each user equally much data in a mix of classes q_i ~ Dir(κ π), π being the classes' shares of all.

    This is the paper's text to the letter, and far more skewed than `dirichlet` at the same κ: with C classes a
    class's parameter is about κ/C. Users choose in turn and examples are handed out once; a user whose classes
    have run out draws another mix, of the classes that are left.

    >>> labels = np.repeat(np.arange(10), 100)
    >>> dirichlet_mixes(labels, users=20, concentration=0.5, rng=np.random.default_rng(0))
    Partition(20 users with 50 of 1000 examples)
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    _check_concentration(concentration)
    classes, counts = np.unique(labels, return_counts=True)
    pools = [rng.permutation(np.flatnonzero(labels == class_)) for class_ in classes]
    left, parts = counts.copy(), []
    for size in np.diff(_even_starts(len(labels), users)):
        taken = np.zeros_like(left)
        mix = np.zeros(len(classes))
        while (missing := size - taken.sum()) > 0:
            stocked = left > taken
            mix = mix * stocked
            if mix.sum() < _NEGLIGIBLE:
                mix[stocked] = rng.dirichlet(concentration * counts[stocked] / len(labels))
            taken += np.minimum(rng.multinomial(missing, mix / mix.sum()), left - taken)
        part = [pool[rest - take : rest] for pool, rest, take in zip(pools, left, taken, strict=True)]
        parts.append(rng.permutation(np.concatenate(part)))
        left -= taken
    return Partition.from_users(len(labels), parts)


def dropout_by_label(label_counts: ArrayLike, dropout: Sequence[float] = DROPOUT_OF_LABEL) -> FloatArray:
    """Return each user's dropout probability: that of the label it has most of (of equals, the lowest).

    `label_counts` is users × classes, as `Partition.label_counts` gives it.

    >>> dropout_by_label([[5, 0, 0], [1, 0, 4]]).tolist()
    [0.1, 0.2]
    """
    counts = np.asarray(label_counts)
    chances = check_probabilities(dropout, "the dropout of a label")
    if counts.ndim != 2 or counts.shape[1] > len(chances):  # noqa: PLR2004 - users × classes
        raise UsageError(
            f"label counts have the shape {counts.shape}; give users × classes, with at most {len(chances)} "
            "classes, one for each dropout probability"
        )
    majority: IntArray = counts.argmax(axis=1)
    return chances[majority]


def _labels(labels: ArrayLike) -> IntArray:
    return frozen_integers(labels, np.int64, "labels")


def _even_starts(examples: int, users: int) -> IntArray:
    """Return where each of the users' runs of ⌊n/N⌋ or ⌈n/N⌉ examples starts, and where the last ends."""
    return np.arange(users + 1) * examples // users


def _check_enough(examples: int, users: int) -> None:
    check_count(users, "the number of users")
    if examples < users:
        raise UsageError(f"{examples} examples are too few for {users} users; every user needs at least one")


def _check_concentration(concentration: float) -> None:
    low, high = _LEAST_CONCENTRATION, _LARGEST_CONCENTRATION
    if not low <= concentration <= high:
        raise UsageError(f"the concentration κ is {concentration}; give a number from {low:g} to {high:g}")


# --- all users' examples in one stack

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

    def held_out(self, share: float, rng: np.random.Generator) -> "Dataset":
        """Return the set with a share of its training examples to test with, and without its test set.

        Settings such as a learning rate are chosen on these, so that the test set judges only what was chosen.
        """
        count = round(share * len(self.train))
        if not 0 < count < len(self.train):
            raise UsageError(
                f"a share of {share} of {len(self.train)} examples is {count}; hold out some, not all"
            )
        mixed = torch.from_numpy(rng.permutation(len(self.train)))
        test, train = (
            Examples(self.train.images[places], self.train.labels[places])
            for places in (mixed[:count].sort().values, mixed[count:].sort().values)
        )
        return replace(self, train=train, test=test)


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
