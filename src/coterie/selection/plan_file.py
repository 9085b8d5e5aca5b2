"""Batch plans as JSON files that a person can read: a line per batch."""

import os
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.files import atomic_write, read_file
from coterie.values import BatchPlan, IntArray
from coterie.values.checks import frozen, starts_of

_FORMAT = "coterie plan"
_VERSION = 1

# Millions of Python integers at once would need ten times the memory of the plan.
_BATCHES_WRITTEN = 1 << 14  # at a time

_FREE_USERS = 10**6
_USERS_PER_BYTE = 10  # where all users are in batches, each takes two bytes at least; others have left

_T = TypeVar("_T")
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _PlanFormat(msgspec.Struct):
    """What tells a plan from any other JSON file."""

    format: str
    version: int


class _PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    users: _Count
    privacy: _Count
    batches: msgspec.Raw
    names: tuple[str, ...] | None = None


def write_plan(plan: BatchPlan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a JSON file, whole or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "plan.json"
    ...     write_plan(plan, file)
    ...     print(file.read_text())
    {"format": "coterie plan", "version": 1, "users": 5, "privacy": 2,
    "batches": [
    [0,1],
    [2,3,4]
    ]}
    <BLANKLINE>
    """
    with atomic_write(path) as file:
        file.write(f'{{"format": "{_FORMAT}", "version": {_VERSION}, '.encode())
        file.write(f'"users": {plan.users}, "privacy": {plan.privacy},\n'.encode())
        if plan.names is not None:
            file.write(b'"names": [')
            file.writelines(_lines(_encode_names(path, plan.names)))
            file.write(b"\n],\n")
        file.write(b'"batches": [')
        file.writelines(_lines(_encode_batches(plan)))
        file.write(b"\n]}\n")


def read_plan(path: str | os.PathLike[str]) -> BatchPlan:
    """Read a plan from a JSON file of `write_plan`; white space may differ."""
    name, data = os.fspath(path), read_file(path)
    kind = _decode(name, data, _PlanFormat)
    if kind.format != _FORMAT:
        raise UsageError(f"{name} has the format {kind.format!r}; give a plan, {_FORMAT!r}")
    if kind.version != _VERSION:
        raise UsageError(
            f"{name} has the version {kind.version}; this Coterie reads version {_VERSION}: write the plan anew, "
            f"or use the Coterie that wrote it"
        )
    file = _decode(name, data, _PlanFile)
    limit = max(_FREE_USERS, _USERS_PER_BYTE * len(data))  # memory must not follow a claim
    if file.users > limit:
        raise UsageError(
            f"{name} is not a plan: {file.users} users are more than {limit}, the limit for a plan of {len(data)} "
            f"bytes"
        )
    members, starts = _members(name, file.batches)
    try:
        return BatchPlan(file.users, file.privacy, members, starts, file.names)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put every piece on lines of its own, with a comma between two."""
    separator = b"\n"
    for piece in pieces:
        yield separator
        yield piece
        separator = b",\n"


def _encode_names(path: str | os.PathLike[str], names: tuple[str, ...]) -> Iterator[bytes]:
    try:
        yield from map(msgspec.json.encode, names)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{os.fspath(path)} cannot be written: the name {error.object!r} is not valid text; change it"
        ) from None


def _encode_batches(plan: BatchPlan) -> Iterator[bytes]:
    for low in range(0, len(plan), _BATCHES_WRITTEN):
        starts = plan.starts[low : low + _BATCHES_WRITTEN + 1]
        members = plan.members[starts[0] : starts[-1]].tolist()
        batches = [members[start:stop] for start, stop in pairwise((starts - starts[0]).tolist())]
        yield msgspec.json.encode(batches)[1:-1].replace(b"],[", b"],\n[")


def _decode(name: str, data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is not a plan: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON, or is cut off: {error}") from error


def _members(name: str, batches: msgspec.Raw) -> tuple[IntArray, IntArray]:
    """Return the members of all batches, and where each batch starts; a batch at a time is in Python integers."""
    decoder = msgspec.json.Decoder(list[_Count])
    sizes: list[int] = []

    def lists() -> Iterator[list[int]]:
        for batch in msgspec.json.decode(batches, type=list[msgspec.Raw]):
            users = decoder.decode(batch)
            sizes.append(len(users))
            yield users

    try:
        members = np.fromiter(chain.from_iterable(lists()), np.int32)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            msgspec.json.decode(batches, type=list[list[_Count]])  # all at once, which tells where it is wrong
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{name} is not a plan: in its batches, {error}") from error
        raise
    return frozen(members), starts_of(sizes)  # frozen, so that the plan takes them without a copy
