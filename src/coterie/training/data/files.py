"""The files of published data sets: fetched, and decoded from bytes to arrays.

A fetch goes on where it was cut off, and a file is checked before it gets its name. Every decoder takes the
`FileContent`s that make up a set of examples, in order; it returns images N × channels × height × width and
labels, both uint8, and refuses what the format does not allow: MNIST's IDX, CIFAR's binary records and its
pickles.

A pickle is a program. The reader here knows three names, which an array of bytes is written with, and gives each a
harmless stand-in; any other name is refused before anything happens.
"""

import hashlib
import http.client
import io
import math
import os
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.files import sync_folder, writing

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and how many it will have, where that is known."""

_BYTES_AT_ONCE = 1 << 18
_SECONDS_OF_SILENCE = 30
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


@dataclass(frozen=True)
class Download:
    """A published file: where it is, where it goes inside a data folder, and its digest ("md5:…")."""

    address: str
    path: str
    digest: str


def no_progress(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def digest_of(data: bytes, like: str) -> str:
    """Return the digest of `data`, made as `like` was.

    >>> digest_of(b"", like="md5:")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    kind = like.partition(":")[0]
    return f"{kind}:{hashlib.new(kind, data, usedforsecurity=False).hexdigest()}"


def fetch(download: Download, folder: Path, progress: Progress = no_progress) -> None:
    """Fetch a file into a data folder, unless it is there.

    Bytes gather in a file that ends in .part; a later call goes on from there. A file that is not the published
    one never gets its final name.
    """
    target = folder / download.path
    if target.exists():
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    resumed = _size(part) > 0
    _receive(download.address, part, progress)
    if resumed and not _has_digest(part, download.digest):
        # What was there may be the start of another version: once more, from the first byte.
        part.unlink()
        _receive(download.address, part, progress)
    if not _has_digest(part, download.digest):
        part.unlink()
        raise UsageError(
            f"what {download.address} gave is not the published file: its digest is not {download.digest}; "
            f"get the file from another place and put it at {target}"
        )
    with writing(target):
        part.replace(target)
        sync_folder(target.parent)


def _receive(address: str, part: Path, progress: Progress) -> None:
    """Ask for what is missing until all is there; give up on a connection that brings nothing more."""
    while True:
        had = _size(part)
        total = _receive_once(address, part, progress)
        have = _size(part)
        if total is None or have >= total:
            return
        if have <= had:
            raise UsageError(
                f"{address} stopped after {have} of {total} bytes; they are kept in {part}: run again to go on"
            )


def _receive_once(address: str, part: Path, progress: Progress) -> int | None:
    """Add what one connection brings to the part; return the whole file's size, where it is known."""
    have = _size(part)
    request = Request(address, headers={"User-Agent": "coterie", **({"Range": f"bytes={have}-"} if have else {})})  # noqa: S310 - addresses are constants of this package
    try:
        response = urlopen(request, timeout=_SECONDS_OF_SILENCE)  # noqa: S310 - the same
    except HTTPError as error:
        with error:
            if error.code == _RANGE_NOT_SATISFIABLE:
                return None  # nothing comes after what is there; the digest tells whether it is the file
            raise UsageError(
                f"{address} cannot be fetched: the server answers {error.code} {error.reason}"
            ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise UsageError(f"{address} cannot be fetched: {reason}") from error
    with response:
        start = _start(response, have)
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        with writing(part), part.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.truncate()
            while data := _next(response):
                file.write(data)
                progress(part.name.removesuffix(".part"), file.tell(), total)
            os.fsync(file.fileno())
    return total


def _start(response: http.client.HTTPResponse, have: int) -> int:
    """Return where the answer's bytes belong: a server may give all of them instead of the rest."""
    place = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return have if response.status == _PARTIAL_CONTENT and place and int(place[1]) == have else 0


def _next(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BYTES_AT_ONCE)
    except (OSError, http.client.HTTPException):
        return b""  # cut off: the length tells how much is missing


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _has_digest(path: Path, digest: str) -> bool:
    return path.exists() and digest_of(path.read_bytes(), like=digest) == digest


ByteArray: TypeAlias = NDArray[np.uint8]

_CIFAR_PIXELS = 3 * 32 * 32
_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True)
class FileContent:
    """A file's content, with the name to call it by in errors."""

    name: str
    data: bytes


def decode_idx(files: Sequence[FileContent]) -> tuple[ByteArray, ByteArray]:
    """Decode a file of images and one of labels, both in the IDX format of MNIST."""
    images, labels = files
    grey, digits = read_idx(images, axes=3), read_idx(labels, axes=1)
    if len(grey) != len(digits):
        raise UsageError(
            f"{images.name} has {len(grey)} images, but {labels.name} {len(digits)} labels; fetch both files anew"
        )
    return grey[:, np.newaxis], digits


def read_idx(file: FileContent, axes: int) -> ByteArray:
    """Return the array of bytes in an IDX file: 0 0, kind, number of axes; each axis' length; the values.

    >>> read_idx(FileContent("labels", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])), axes=1)
    array([7, 9], dtype=uint8)
    """
    head = 4 + 4 * axes
    if file.data[:4] != bytes((0, 0, _UNSIGNED_BYTES, axes)):
        raise UsageError(
            f"{file.name} begins with {file.data[:4].hex(' ') or 'nothing'}; an IDX file of bytes with {axes} "
            f"axes begins with 00 00 08 {axes:02x}: fetch the file anew"
        )
    shape = [int.from_bytes(file.data[at : at + 4]) for at in range(4, head, 4)]
    expected = head + math.prod(shape)
    if len(file.data) < head or len(file.data) != expected:
        raise UsageError(f"{file.name} has {len(file.data)} bytes instead of {expected}; fetch the file anew")
    return np.frombuffer(file.data, dtype=np.uint8, offset=head).reshape(shape)


def decode_cifar_binary(files: Sequence[FileContent], label_bytes: int) -> tuple[ByteArray, ByteArray]:
    """Decode CIFAR's records: so many bytes of labels, the last of which counts, 32 × 32 pixels of each colour.

    CIFAR-10 has one label; CIFAR-100 has a coarse one, and then the fine one.
    """
    parts, size = [], label_bytes + _CIFAR_PIXELS
    for file in files:
        if len(file.data) == 0 or len(file.data) % size:
            raise UsageError(
                f"{file.name} has {len(file.data)} bytes, which are not whole records of {size}; fetch the file "
                "anew"
            )
        records = np.frombuffer(file.data, dtype=np.uint8).reshape(-1, size)
        parts.append((records[:, label_bytes:], records[:, label_bytes - 1]))
    return _cifar(parts)


def decode_cifar_python(files: Sequence[FileContent], label_key: str) -> tuple[ByteArray, ByteArray]:
    """Decode the pickled dictionaries of CIFAR, whose labels stand under this key."""
    parts = []
    for file in files:
        content = _unpickle(file)
        try:
            pixels, numbers = content[b"data"].array(), np.array(content[label_key.encode()], dtype=np.uint8)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise UsageError(
                f"{file.name} does not hold an array of bytes 'data' and a list {label_key!r}; fetch the file anew"
            ) from None
        if pixels.shape != (len(numbers), _CIFAR_PIXELS):
            raise UsageError(
                f"{file.name} has pixels of shape {pixels.shape} and {len(numbers)} labels, not {_CIFAR_PIXELS} "
                "pixels for each label; fetch the file anew"
            )
        parts.append((pixels, numbers))
    return _cifar(parts)


def _cifar(parts: Sequence[tuple[ByteArray, ByteArray]]) -> tuple[ByteArray, ByteArray]:
    """Return the pixels of several files as images, with their labels."""
    images, labels = (np.concatenate(values) for values in zip(*parts, strict=True))
    return images.reshape(-1, 3, 32, 32), labels


def _unpickle(file: FileContent) -> Any:  # noqa: ANN401 - a pickle holds anything
    try:
        # Written by Python 2: its strings are bytes.
        return _Reader(io.BytesIO(file.data), encoding="bytes").load()
    except UsageError as error:
        raise UsageError(f"{file.name} {error}") from None
    except Exception as error:  # broken bytes fail in every way there is
        raise UsageError(f"{file.name} is not a whole pickle ({error}); fetch the file anew") from error


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one in C lets ten bytes ask for gigabytes
    """An unpickler for which only three names exist."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        known = {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): None,
            ("numpy", "dtype"): _NumpyDtype,
        }
        try:
            return known[module, name]
        except KeyError:
            raise UsageError(
                f"wants to use {module}.{name}, which the published file does not; do not trust it, fetch it anew"
            ) from None


class _NumpyDtype:
    """Stands for `numpy.dtype`: the kind of an array's values."""

    def __init__(self, code: Any, *_: Any) -> None:  # noqa: ANN401
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like mean nothing for single bytes."""


class _Array:
    """Stands for `numpy.ndarray`: shape, kind and raw bytes."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> ByteArray:
        """Return the array of bytes; anything else is a ValueError."""
        _, shape, kind, by_column, raw = self.state
        if kind.code != b"u1" or not isinstance(raw, bytes):
            raise ValueError
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")
