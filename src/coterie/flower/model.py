"""The model of a round as bytes that all members hash, and updates of it as one row of numbers.

Only arrays of floats are trained together. Others, such as a counter of minibatches, stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.quantiser import Floats
from coterie.values import FloatArray

RoundKind = Literal["train", "evaluate"]


class _ArrayLine(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Work(msgspec.Struct, frozen=True, array_like=True):
    kind: RoundKind
    arrays: list[_ArrayLine]


@dataclass(frozen=True, eq=False)
class Work:
    """What a round asks for: to train a model, or to evaluate it."""

    kind: RoundKind
    arrays: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(cls, kind: RoundKind, record: ArrayRecord) -> "Work":
        """Return the work on a model of Flower's."""
        return cls(kind, {name: array.numpy() for name, array in record.items()})

    def encode(self) -> bytes:
        """Return the bytes that the terms of a round have as their model."""
        lines = [
            _ArrayLine(name, array.dtype.str, array.shape, array.tobytes()) for name, array in self.arrays.items()
        ]
        return msgspec.msgpack.encode(_Work(self.kind, lines))

    @classmethod
    def decode(cls, data: bytes) -> "Work":
        """Return the work in some terms; refuse bytes that are none."""
        try:
            work = msgspec.msgpack.decode(data, type=_Work)
            arrays = {
                line.name: np.frombuffer(bytearray(line.data), dtype=_plain(line.dtype)).reshape(line.shape)
                for line in work.arrays
            }
        except (msgspec.MsgspecError, ValueError, TypeError, UnicodeDecodeError) as error:
            raise PeerError(f"the server's model cannot be read: {error}") from None
        if len(arrays) != len(work.arrays):
            raise PeerError("the server's model has two arrays of one name")
        return cls(work.kind, arrays)

    @property
    def record(self) -> ArrayRecord:
        """The model as Flower has it."""
        return ArrayRecord({name: Array(array) for name, array in self.arrays.items()})

    @property
    def trained(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of floats."""
        return {name: array for name, array in self.arrays.items() if array.dtype.kind == "f"}

    @property
    def dimension(self) -> int:
        """How many numbers the arrays of floats have."""
        return sum(array.size for array in self.trained.values())

    def update(self, after: ArrayRecord, metrics: list[float]) -> Floats:
        """Return what training changed in the model, then the coordinates of metrics, in one row."""
        if set(after.keys()) != set(self.arrays):
            raise UsageError(
                f"the app returned the arrays {', '.join(after)}; the model has {', '.join(self.arrays)}"
            )
        wide = any(array.dtype.itemsize > np.dtype(np.float32).itemsize for array in self.trained.values())
        row: Floats = np.empty(self.dimension + len(metrics), dtype=np.float64 if wide else np.float32)
        start = 0
        for name, before in self.trained.items():
            array, part = after[name].numpy(), row[start : start + before.size]
            if array.shape != before.shape:
                raise UsageError(f"the app returned {name!r} as {array.shape}; in the model it is {before.shape}")
            np.subtract(array.reshape(-1), before.reshape(-1), out=part, casting="unsafe")
            start += before.size
        row[start:] = metrics
        return row

    def moved_by(self, mean: FloatArray) -> ArrayRecord:
        """Return the model with the mean update added: the average of the models that users would have sent."""
        arrays, start = dict(self.arrays), 0
        for name, before in self.trained.items():
            change = mean[start : start + before.size].reshape(before.shape)
            arrays[name] = np.add(before, change, dtype=np.float64).astype(before.dtype)
            start += before.size
        return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def with_types_of(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """Return a model with the dtypes of another: a strategy's average makes floats of whole numbers."""
    if set(record) != set(like):
        raise UsageError(f"the strategy returned the arrays {', '.join(record)}; the model has {', '.join(like)}")
    arrays = {}
    for name, before in like.items():
        array, dtype = record[name].numpy(), np.dtype(before.dtype)
        arrays[name] = Array(np.asarray(np.rint(array) if dtype.kind in "iu" else array).astype(dtype))
    return ArrayRecord(arrays)


def _plain(dtype: str) -> np.dtype[np.generic]:
    """Return a dtype of plain numbers; refuse objects and structures."""
    plain = np.dtype(dtype)
    if plain.kind not in "fiub":
        raise ValueError(f"it has an array of {dtype}")
    return plain
