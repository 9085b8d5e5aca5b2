"""`Partition`: which examples of a data set each user holds; and its JSON file, with a line per user."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, reading
from coterie.values.arrays import IntArray, frozen_integers


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
        starts = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
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
        sizes = np.diff(self.starts)
        sizes.flags.writeable = False
        return sizes

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
    with atomic_write(path) as file:
        file.write(f'{head}"users": [\n{users}\n]}}\n'.encode())


def read_partition(path: str | os.PathLike[str]) -> Partition:
    """Read a partition from a JSON file of `write_partition`, or made by hand; white space may differ."""
    name = os.fspath(path)
    with reading(path):
        data = Path(path).read_bytes()
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
