"""CIFAR's Python files: pickles, read without running anything that they ask for.

A pickle is a program. This reader knows three names, which an array of bytes is written with, and gives each a
harmless stand-in; any other name is refused before anything happens.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.training.data.formats import ByteArray, Piece, joined, shaped_cifar


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
