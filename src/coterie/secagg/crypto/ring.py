"""Vectors over Z_q: which words stand for which floats, and what the sum of such vectors means (§1)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import PeerError, UsageError
from coterie.values import FloatArray

Words: TypeAlias = NDArray[np.uint32]
Floats: TypeAlias = NDArray[np.floating[Any]]
Arrays: TypeAlias = Floats | Mapping[str, Floats]

PIECE = 32_768
"""Vectors are worked on in pieces of this many words, which stay in a core's cache (128 KiB)."""
EXTRA_WORDS = 3
"""Words after the values: the weight, and two check words of value 1."""

FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
_CLIP_RANGE = (1e-100, 1e100)  # far from where a float64 loses bits


@dataclass(frozen=True)
class Ring:
    """The integers modulo q, kept as words of 32 bits below q; q is 2^32 or the prime 2^31 - 1.

    >>> total = np.array([1, 5], dtype=np.uint32)
    >>> PRIME_31.add_into(total, np.array([2**31 - 2, 1], dtype=np.uint32))
    >>> total
    array([0, 6], dtype=uint32)
    """

    modulus: int

    def __post_init__(self) -> None:
        if self.modulus not in {2**32, 2**31 - 1}:
            raise UsageError(f"the modulus is {self.modulus}; it must be 2^32 or the prime 2^31 - 1")

    def add_into(self, target: Words, words: Words) -> None:
        """Add `words` to `target`, modulo q."""
        _check_shapes(target, words)
        if self.modulus == 2**32:
            np.add(target, words, target)  # unsigned words wrap around at 2^32 by themselves
        else:
            self._combine(np.add, np.subtract, target, words)

    def subtract_into(self, target: Words, words: Words) -> None:
        """Subtract `words` from `target`, modulo q."""
        _check_shapes(target, words)
        if self.modulus == 2**32:
            np.subtract(target, words, target)
        else:
            self._combine(np.subtract, np.add, target, words)

    def _combine(self, operation: np.ufunc, back: np.ufunc, target: Words, words: Words) -> None:
        modulus = np.uint32(self.modulus)
        spare = np.empty(min(len(target), PIECE), dtype=np.uint32)
        for start in range(0, len(target), PIECE):
            piece = target[start : start + PIECE]
            other = spare[: len(piece)]
            operation(piece, words[start : start + PIECE], piece)
            # One of the result and the result moved by q lies below q; the other is larger, wrapped or not.
            back(piece, modulus, other)
            np.minimum(piece, other, out=piece)


RING_32 = Ring(2**32)
PRIME_31 = Ring(2**31 - 1)


def _check_shapes(target: Words, words: Words) -> None:
    if target.shape != words.shape or target.ndim != 1:
        raise UsageError(f"vectors of shapes {target.shape} and {words.shape} cannot be added")


@dataclass(frozen=True)
class Quantisation:
    """How floats become words: the level v = y rounded at random, with y = (x + c) / step for x in [-c, c].

    There are `levels` levels 0 … levels - 1. A vector of weight w holds w·v for each value, then w, then two
    check words of 1. Sums of `cohort` vectors of weight `weight_cap` must stay below q, or they would wrap
    around unseen; so cohort·weight_cap·(levels - 1) ≤ q - 1.

    >>> quantisation = Quantisation.fitting(RING_32, clip=1.0, cohort=12, weight_cap=1000)
    >>> quantisation.levels, 12 * 1000 * (quantisation.levels - 1) < 2**32
    (357914, True)
    >>> Quantisation.fitting(PRIME_31, clip=1.0, cohort=2**20, weight_cap=4096)
    Traceback (most recent call last):
    coterie.errors.UsageError: a sum of 1048576 users of weight up to 4096 at 2 levels can reach 4294967296, and would wrap around at 2147483647; lower the cohort or the weight cap
    """  # noqa: E501 - the message is one line

    clip: float
    levels: int
    weight_cap: int
    cohort: int
    ring: Ring

    def __post_init__(self) -> None:
        for name, least in (("levels", 2), ("weight_cap", 1), ("cohort", 1)):
            object.__setattr__(self, name, _count(getattr(self, name), name.replace("_", " "), least))
        object.__setattr__(self, "clip", float(self.clip))
        low, high = _CLIP_RANGE
        if not low <= self.clip <= high:
            raise UsageError(f"the clip is {self.clip}; give a number between {low} and {high}")
        largest = self.cohort * self.weight_cap * (self.levels - 1)
        if largest >= self.ring.modulus:
            raise UsageError(
                f"a sum of {self.cohort} users of weight up to {self.weight_cap} at {self.levels} levels "
                f"can reach {largest}, and would wrap around at {self.ring.modulus}; "
                "lower the cohort or the weight cap"
            )

    @classmethod
    def fitting(cls, ring: Ring, clip: float, cohort: int, weight_cap: int = 1) -> "Quantisation":
        """Return the quantisation with the most levels that cannot wrap around."""
        cohort, weight_cap = _count(cohort, "cohort"), _count(weight_cap, "weight cap")
        # With too many users there is not even room for 2 levels, and the constructor says so.
        levels = max(2, (ring.modulus - 1) // (cohort * weight_cap) + 1)
        return cls(clip, levels, weight_cap, cohort, ring)

    @property
    def step(self) -> float:
        """The distance between two levels, 2c / (levels - 1)."""
        return 2.0 * self.clip / (self.levels - 1)

    @property
    def scale(self) -> float:
        """1 / step, rounded so that clip·scale, as a float64, never passes (levels - 1) / 2: no level is left."""
        half = (self.levels - 1) / 2
        scale = half / self.clip
        while self.clip * scale > half:
            scale = math.nextafter(scale, 0.0)
        return scale

    def check_weight(self, weight: int) -> int:
        """Return a user's weight; refuse one outside 1 … weight_cap."""
        checked = _count(weight, "weight")
        if checked > self.weight_cap:
            raise UsageError(f"the weight is {weight}; the most that the terms allow is {self.weight_cap}")
        return checked


def _count(value: int, what: str, least: int = 1) -> int:
    try:
        count = index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or count < least:
        raise UsageError(f"the {what} is {value!r}; give an integer of at least {least}")
    return count


@dataclass(frozen=True, eq=False)
class Sum:
    """What the server learns from a sum of vectors: Σ w_i x_i, and Σ w_i."""

    values: FloatArray
    weight: int

    @property
    def mean(self) -> FloatArray:
        """The weighted mean Σ w_i x_i / Σ w_i."""
        return self.values / self.weight


def dequantise(total: Words, quantisation: Quantisation, users: int) -> Sum:
    """Return what the sum of the vectors of `users` users means: Σ w_i x_i = step·Σ w_i v_i - c·Σ w_i.

    The check words must both be the number of users: otherwise masks did not cancel, and the sum is noise. The
    weights and the levels must be some that the users could have had.
    """
    if total.dtype != np.uint32 or total.ndim != 1 or len(total) < EXTRA_WORDS:
        raise UsageError(f"a sum has {EXTRA_WORDS} or more words of 32 bits, not {total.shape} of {total.dtype}")
    if not 1 <= users <= quantisation.cohort:
        raise UsageError(f"a sum of {users} users cannot be; the cohort has at most {quantisation.cohort}")
    weight, *checks = (int(word) for word in total[-EXTRA_WORDS:])
    if checks != [users, users]:
        raise PeerError(
            f"masks did not cancel: the check words of {users} users are {checks[0]} and {checks[1]}; "
            "a member sealed under other terms, or did not seal at all"
        )
    if not users <= weight <= users * quantisation.weight_cap:
        raise PeerError(
            f"the weights of {users} users sum to {weight}; between {users} and "
            f"{users * quantisation.weight_cap} was expected"
        )
    words = total[:-EXTRA_WORDS]
    most = weight * (quantisation.levels - 1)
    if words.max(initial=0) > most:
        raise PeerError(
            f"a word of the sum of {users} users is {words.max()}; of a weight of {weight} it is {most} at most"
        )
    values: FloatArray = np.multiply(words, quantisation.step, dtype=np.float64)
    values -= weight * quantisation.clip
    return Sum(values, weight)


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
        listed = _listed(arrays)
        for name, array in zip(("the array",) if names is None else names, listed, strict=True):
            if array.dtype not in FLOATS:
                raise UsageError(
                    f"{name} is of {array.dtype}; only arrays of float16, float32 and float64 can be summed"
                )
        return cls(names, tuple(array.shape for array in listed), tuple(array.dtype.name for array in listed))

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
        listed = [array.reshape(-1) for array in _listed(arrays)]
        if len(listed) == 1:
            return np.ascontiguousarray(listed[0], dtype=dtype)
        return np.concatenate(listed or [np.zeros(0)], dtype=dtype)

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


def _listed(arrays: Arrays) -> list[Floats]:
    return list(arrays.values()) if isinstance(arrays, Mapping) else [arrays]
