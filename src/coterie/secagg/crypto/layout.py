"""Named arrays as one flat vector of floats, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError

Floats: TypeAlias = NDArray[np.floating[Any]]
Arrays: TypeAlias = Floats | Mapping[str, Floats]

FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class Layout:
    """Where the values of named arrays lie in one flat vector; `names` is None for a single array.

    >>> weights = {"w": np.ones((2, 2), dtype=np.float32), "b": np.zeros(2, dtype=np.float16)}
    >>> layout = Layout.of(weights)
    >>> layout.dimension, layout.flatten(weights)
    (6, array([1., 1., 1., 1., 0., 0.], dtype=float32))
    >>> layout.restore(np.arange(6.0))["b"]
    array([4., 5.], dtype=float16)
    """

    names: tuple[str, ...] | None
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, arrays: Arrays) -> "Layout":
        """Return the layout of these arrays, in the order in which they come."""
        names = tuple(arrays) if isinstance(arrays, Mapping) else None
        parts = _parts(arrays)
        for name, array in zip(("the array",) if names is None else names, parts, strict=True):
            if array.dtype not in FLOATS:
                raise UsageError(
                    f"{name} is of {array.dtype}; only arrays of float16, float32 and float64 can be summed"
                )
        return cls(names, tuple(array.shape for array in parts), tuple(array.dtype.name for array in parts))

    @property
    def dimension(self) -> int:
        """The number of values."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, arrays: Arrays) -> Floats:
        """Return all values in one row: float64 if any array is, else float32; not copied where that can be."""
        names = self.names
        if names is not None and isinstance(arrays, Mapping) and arrays.keys() == set(names):
            arrays = {name: arrays[name] for name in names}
        if Layout.of(arrays) != self:
            raise UsageError(f"these arrays are {Layout.of(arrays)}, not {self}")
        dtype = np.float64 if "float64" in self.dtypes else np.float32
        parts = [array.reshape(-1) for array in _parts(arrays)]
        if len(parts) == 1:
            return np.ascontiguousarray(parts[0], dtype=dtype)
        return np.concatenate(parts or [np.zeros(0)], dtype=dtype)

    def restore(self, vector: Floats) -> Floats | dict[str, Floats]:
        """Return the arrays, in their shapes and dtypes, with the values of a flat vector."""
        if vector.shape != (self.dimension,):
            raise UsageError(f"a vector of shape {vector.shape} was given for {self.dimension} values")
        ends = np.cumsum([math.prod(shape) for shape in self.shapes], dtype=np.int64)
        parts = np.split(vector, ends[:-1]) if self.shapes else []
        shaped = [
            part.reshape(shape).astype(dtype)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        ]
        return shaped[0] if self.names is None else dict(zip(self.names, shaped, strict=True))


def _parts(arrays: Arrays) -> list[Floats]:
    return list(arrays.values()) if isinstance(arrays, Mapping) else [arrays]
