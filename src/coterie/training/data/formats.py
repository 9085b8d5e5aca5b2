"""The published files' formats, as bytes to arrays: MNIST's IDX, CIFAR's binary records and its pickles.

Every decoder takes the `Piece`s that make up a set of examples, in order, and the number of classes; it returns
images N × channels × height × width and labels, both uint8, and refuses what the format does not allow.

A pickle is a program. The reader here knows three names, which an array of bytes is written with, and gives each a
harmless stand-in; any other name is refused before anything happens.
"""

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError

ByteArray: TypeAlias = NDArray[np.uint8]

_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_PIXELS = 3 * 32 * 32
_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True)
class Piece:
    """A file's content, with the name to call it by in errors."""

    name: str
    data: bytes


def decode_idx(pieces: Sequence[Piece], classes: int) -> tuple[ByteArray, ByteArray]:
    """Decode a file of images and one of labels, both in the IDX format of MNIST."""
    images, labels = pieces
    grey, digits = read_idx(images, axes=3), read_idx(labels, axes=1)
    if len(grey) != len(digits):
        raise UsageError(
            f"{images.name} has {len(grey)} images, but {labels.name} {len(digits)} labels; fetch both files anew"
        )
    _check_labels(labels, digits, classes)
    return grey[:, np.newaxis], digits


def read_idx(piece: Piece, axes: int) -> ByteArray:
    """Return the array of bytes in an IDX file: 0 0, kind, number of axes; each axis' length; the values.

    >>> read_idx(Piece("labels", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])), axes=1)
    array([7, 9], dtype=uint8)
    """
    head = 4 + 4 * axes
    if piece.data[:4] != bytes((0, 0, _UNSIGNED_BYTES, axes)):
        raise UsageError(
            f"{piece.name} begins with {piece.data[:4].hex(' ') or 'nothing'}; an IDX file of bytes with {axes} "
            f"axes begins with 00 00 08 {axes:02x}: fetch the file anew"
        )
    shape = [int.from_bytes(piece.data[at : at + 4]) for at in range(4, head, 4)]
    expected = head + int(np.prod(shape, dtype=object))
    if len(piece.data) < head or len(piece.data) != expected:
        raise UsageError(f"{piece.name} has {len(piece.data)} bytes instead of {expected}; fetch the file anew")
    return np.frombuffer(piece.data, dtype=np.uint8, offset=head).reshape(shape)


def decode_cifar10_binary(pieces: Sequence[Piece], classes: int) -> tuple[ByteArray, ByteArray]:
    """Decode CIFAR-10's records: a label, then 32 × 32 pixels of red, of green and of blue."""
    return joined([_cifar_records(piece, classes, labels=1) for piece in pieces])


def decode_cifar100_binary(pieces: Sequence[Piece], classes: int) -> tuple[ByteArray, ByteArray]:
    """Decode CIFAR-100's records: a coarse label, which is not used, the fine one, then the pixels."""
    return joined([_cifar_records(piece, classes, labels=2) for piece in pieces])


def _cifar_records(piece: Piece, classes: int, labels: int) -> tuple[ByteArray, ByteArray]:
    size = labels + _CIFAR_PIXELS
    if len(piece.data) == 0 or len(piece.data) % size:
        raise UsageError(
            f"{piece.name} has {len(piece.data)} bytes, which are not whole records of {size}; fetch the file anew"
        )
    records = np.frombuffer(piece.data, dtype=np.uint8).reshape(-1, size)
    return shaped_cifar(piece, records[:, labels:], records[:, labels - 1], classes)


def shaped_cifar(piece: Piece, pixels: ByteArray, labels: ByteArray, classes: int) -> tuple[ByteArray, ByteArray]:
    """Return a file's pixels as images, with their labels."""
    if pixels.shape != (len(labels), _CIFAR_PIXELS):
        raise UsageError(
            f"{piece.name} has pixels of shape {pixels.shape} and {len(labels)} labels, not {_CIFAR_PIXELS} "
            "pixels for each label; fetch the file anew"
        )
    _check_labels(piece, labels, classes)
    return pixels.reshape(-1, *_CIFAR_SHAPE), labels


def joined(parts: Sequence[tuple[ByteArray, ByteArray]]) -> tuple[ByteArray, ByteArray]:
    """Return the images and labels of several files as one."""
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _check_labels(piece: Piece, labels: ByteArray, classes: int) -> None:
    outside = np.flatnonzero(labels >= classes)
    if len(outside):
        raise UsageError(
            f"{piece.name}: example {outside[0]} has the label {labels[outside[0]]}, which is not one of the "
            f"{classes} classes 0 … {classes - 1}; fetch the file anew"
        )


def decode_cifar10_python(pieces: Sequence[Piece], classes: int) -> tuple[ByteArray, ByteArray]:
    """Decode the pickled dictionaries of CIFAR-10."""
    return joined([_examples(piece, b"labels", classes) for piece in pieces])


def decode_cifar100_python(pieces: Sequence[Piece], classes: int) -> tuple[ByteArray, ByteArray]:
    """Decode the pickled dictionaries of CIFAR-100, with its fine labels."""
    return joined([_examples(piece, b"fine_labels", classes) for piece in pieces])


def _examples(piece: Piece, key: bytes, classes: int) -> tuple[ByteArray, ByteArray]:
    content = _unpickled(piece)
    try:
        pixels, labels = content[b"data"].array(), np.array(content[key], dtype=np.uint8)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise UsageError(
            f"{piece.name} does not hold an array of bytes 'data' and a list {key.decode()!r}; fetch the file anew"
        ) from None
    return shaped_cifar(piece, pixels, labels, classes)


def _unpickled(piece: Piece) -> Any:  # noqa: ANN401 - a pickle holds anything
    try:
        # Written by Python 2: its strings are bytes.
        return _Reader(io.BytesIO(piece.data), encoding="bytes").load()
    except UsageError as error:
        raise UsageError(f"{piece.name} {error}") from None
    except Exception as error:  # broken bytes fail in every way there is
        raise UsageError(f"{piece.name} is not a whole pickle ({error}); fetch the file anew") from error


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one in C lets ten bytes ask for gigabytes
    """An unpickler for which only three names exist."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        known = {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): None,
            ("numpy", "dtype"): _Kind,
        }
        try:
            return known[module, name]
        except KeyError:
            raise UsageError(
                f"wants to use {module}.{name}, which the published file does not; do not trust it, fetch it anew"
            ) from None


class _Kind:
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
