"""Partitions as JSON files that a person can read: a line per user."""

import json
import os
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, reading
from coterie.training.data.partition import Partition

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
