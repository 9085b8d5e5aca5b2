"""Batch plans as JSON files that a person can read: a line per batch."""

import os
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.storage.files import atomic_write, reading
from coterie.values import BatchPlan, IntArray
from coterie.values.checks import frozen

_FORMAT = "coterie plan"
_VERSION = 1

# Millions of Python integers at once would need ten times the memory of the plan.
_BATCHES_WRITTEN = 1 << 14  # at a time, as of names
_BYTES_READ = 1 << 20  # at a time

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
    with reading(path):
        data = Path(path).read_bytes()
    kind = _decode(path, data, _PlanFormat)
    if kind.format != _FORMAT:
        raise UsageError(f"{os.fspath(path)} has the format {kind.format!r}; give a plan, {_FORMAT!r}")
    if kind.version != _VERSION:
        raise UsageError(
            f"{os.fspath(path)} has the version {kind.version}; this Coterie reads version {_VERSION}: "
            f"write the plan anew, or use the Coterie that wrote it"
        )
    file = _decode(path, data, _PlanFile)
    _check_users(path, file.users, len(data))
    members, starts = _members(path, file.batches)
    try:
        return BatchPlan(file.users, file.privacy, members, starts, file.names)
    except UsageError as error:
        raise UsageError(f"{os.fspath(path)}: {error}") from error


def _check_users(path: str | os.PathLike[str], users: int, size: int) -> None:
    """Refuse a plan with far more users than its batches can hold: memory must not follow a claim."""
    limit = max(_FREE_USERS, _USERS_PER_BYTE * size)
    if users > limit:
        raise UsageError(
            f"{os.fspath(path)} is not a plan: {users} users are more than {limit}, the limit for a plan of "
            f"{size} bytes"
        )


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


def _decode(path: str | os.PathLike[str], data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{os.fspath(path)} is not a plan: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{os.fspath(path)} is not JSON, or is cut off: {error}") from error


def _members(path: str | os.PathLike[str], batches: msgspec.Raw) -> tuple[IntArray, IntArray]:
    """Return the members of all batches, and where each batch starts."""
    decoder = msgspec.json.Decoder(list[list[_Count]])
    try:
        return _pack(map(decoder.decode, _cut(memoryview(batches))))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Something is wrong, or was cut in two; decoding all at once tells which, and where.
        try:
            return _pack([decoder.decode(batches)])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{os.fspath(path)} is not a plan: in its batches, {error}") from error


def _cut(text: memoryview) -> Iterator[bytes]:
    """Cut a JSON list of lists, where one list ends and the next follows, into several lists of lists."""
    start = 0
    while start < len(text):
        piece = bytes(text[start : start + _BYTES_READ])
        stop = piece.rfind(b"],") + 1
        opening = b"[" if start else b""
        if stop == 0 or start + len(piece) == len(text):
            yield opening + bytes(text[start:])
            return
        yield opening + piece[:stop] + b"]"
        start += stop + 1


def _pack(pieces: Iterable[list[list[int]]]) -> tuple[IntArray, IntArray]:
    members, sizes = [np.zeros(0, dtype=np.int32)], [np.zeros(1, dtype=np.int64)]
    for piece in pieces:
        sizes.append(np.fromiter(map(len, piece), np.int64, len(piece)))
        members.append(np.fromiter(chain.from_iterable(piece), np.int32, int(sizes[-1].sum())))
    return frozen(np.concatenate(members)), np.cumsum(np.concatenate(sizes))  # frozen: the plan makes no copy
