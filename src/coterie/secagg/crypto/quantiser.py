"""What turns an update into a vector: named arrays as one row of floats, and floats as words of a ring (§1)."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.ring import Ring, Words
from coterie.values import FloatArray
from coterie.values.checks import check_count

Floats: TypeAlias = NDArray[np.floating[Any]]
Update: TypeAlias = Floats | Mapping[str, Floats]

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
    def of(cls, arrays: Update) -> "Layout":
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

    def flatten(self, arrays: Update) -> Floats:
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


def _parts(arrays: Update) -> list[Floats]:
    return list(arrays.values()) if isinstance(arrays, Mapping) else [arrays]


_CLIP_RANGE = (1e-100, 1e100)  # far from where a float64 loses bits
LARGEST_COHORT_IN_16_BITS = 64
"""Up to this many users 16-bit words leave about 10 bits for a value."""


@dataclass(frozen=True)
class Quantiser:
    """How an update of a user of weight w becomes a vector: w·(x + c)/s for each value, rounded at random.

    x is clipped to [-c, c], and s = 2c / (levels - 1). After the values come w, and check words of 1. `levels` is
    the largest number for which the sum of `cohort` vectors of weight `weight_cap` cannot wrap around:
    cohort·weight_cap·(levels - 1) ≤ q - 1. Whoever could change one of these between two rounds of one model would
    read single updates off the difference, so a charter fixes them all.

    >>> from coterie.secagg.crypto.ring import RING_16, RING_32
    >>> quantiser = Quantiser(RING_32, clip=1.0, weight_cap=1000, cohort=12)
    >>> quantiser.levels, 12 * 1000 * (quantiser.levels - 1) < 2**32
    (357914, True)
    >>> Quantiser(RING_16, clip=1.0, weight_cap=1000, cohort=120)
    Traceback (most recent call last):
    coterie.errors.UsageError: 120 users of weight up to 1000 leave no level for a value modulo 65536; lower the cohort or the largest weight, or take a larger ring
    """  # noqa: E501 - the message is one line

    ring: Ring
    clip: float
    weight_cap: int
    """w_max, the largest weight of a user."""
    cohort: int
    """The most vectors that are ever added."""

    def __post_init__(self) -> None:
        for name in ("weight_cap", "cohort"):
            object.__setattr__(self, name, check_count(getattr(self, name), f"the quantiser's {name}"))
        object.__setattr__(self, "clip", float(self.clip))
        low, high = _CLIP_RANGE
        if not low <= self.clip <= high:
            raise UsageError(f"the clip is {self.clip}; give a number between {low} and {high}")
        if self.levels < 2:  # noqa: PLR2004 - one level says nothing
            raise UsageError(
                f"{self.cohort} users of weight up to {self.weight_cap} leave no level for a value modulo "
                f"{self.ring.modulus}; lower the cohort or the largest weight, or take a larger ring"
            )

    @classmethod
    def in_ring_of(
        cls, rings: Sequence[Ring], clip: float, weight_cap: int, cohort: int, *, word_bits: int = 0
    ) -> "Quantiser":
        """Return the quantiser in one of the rings that an inner protocol can add in, with words of so many bits.

        0 stands for words of 16 bits where weights are equal and about 10 bits are left for a value, and for the
        largest ring elsewhere.

        >>> from coterie.secagg.crypto.ring import RING_16, RING_32
        >>> [Quantiser.in_ring_of((RING_16, RING_32), 1.0, 1, users).ring.modulus for users in (64, 65)]
        [65536, 4294967296]
        """
        wide = weight_cap > 1 or cohort > LARGEST_COHORT_IN_16_BITS
        fitting = [ring for ring in rings if word_bits in {0, 8 * ring.dtype.itemsize}]
        if not fitting:
            widths = " or ".join(str(8 * ring.dtype.itemsize) for ring in rings)
            raise UsageError(f"words of {word_bits} bits do not fit this sum; give {widths}, or 0 for the best")
        order = sorted(fitting, key=lambda ring: ring.modulus, reverse=wide and word_bits == 0)
        return cls(order[0], clip, weight_cap, cohort)

    @property
    def levels(self) -> int:
        """How many levels a value has; derived, never chosen."""
        return (self.ring.modulus - 1) // (self.cohort * self.weight_cap) + 1

    @property
    def step(self) -> float:
        """The distance between two levels, s = 2c / (levels - 1)."""
        return 2.0 * self.clip / (self.levels - 1)

    @property
    def extra_words(self) -> int:
        """The words after the values: the weight, and the check words."""
        return 1 + self.ring.check_words

    def vector_bytes(self, dimension: int) -> int:
        """Return how long a vector of so many values is."""
        return self.ring.dtype.itemsize * (dimension + self.extra_words)

    def scale(self, weight: int) -> float:
        """Return weight / s, rounded so that clip·scale, as a float64, never passes weight·(levels - 1) / 2."""
        half = weight * (self.levels - 1) / 2
        scale = half / self.clip
        while self.clip * scale > half:
            scale = math.nextafter(scale, 0.0)
        return scale

    def check_weight(self, weight: int) -> int:
        """Return a user's weight; refuse one outside 1 … w_max."""
        checked = check_count(weight, "the weight")
        if checked > self.weight_cap:
            raise UsageError(f"the weight is {weight}; the most that the quantiser allows is {self.weight_cap}")
        return checked

    @cached_property
    def encoded_fields(self) -> tuple[int | bytes, ...]:
        """The fields as a charter has them: q, clip as a little-endian double, w_max, cohort, levels."""
        return self.ring.modulus, struct.pack("<d", self.clip), self.weight_cap, self.cohort, self.levels

    def differences(self, other: "Quantiser") -> Iterator[str]:
        """Yield in words where another quantiser differs."""
        for field in fields(self):
            one, two = getattr(self, field.name), getattr(other, field.name)
            if one != two:
                yield f"{field.name.replace('_', ' ')} {two} in place of {one}"


@dataclass(frozen=True, eq=False)
class Sum:
    """What the server learns from a sum of vectors: Σ w_i x_i, and Σ w_i."""

    values: FloatArray
    weight: int

    @property
    def mean(self) -> FloatArray:
        """The weighted mean Σ w_i x_i / Σ w_i."""
        return self.values / self.weight


def dequantise(total: Words, quantiser: Quantiser, users: int) -> Sum:
    """Return what the sum of the vectors of `users` users means: Σ w_i x_i = s·Σ words - c·Σ w_i.

    All check words must be the number of users: otherwise masks did not cancel, and the sum is noise. The weights
    and the words must be some that the users could have had.
    """
    extra = quantiser.extra_words
    if total.dtype != quantiser.ring.dtype or total.ndim != 1 or len(total) < extra:
        raise UsageError(
            f"a sum modulo {quantiser.ring.modulus} has {extra} or more words of {quantiser.ring.dtype}, not "
            f"{total.shape} of {total.dtype}"
        )
    if not 1 <= users <= quantiser.cohort:
        raise UsageError(f"a sum of {users} users is not possible; the cohort has 1 to {quantiser.cohort}")
    weight, *checks = (int(word) for word in total[-extra:])
    if checks != [users] * len(checks):
        raise PeerError(
            f"masks did not cancel: the check words of {users} users are {', '.join(map(str, checks))}; "
            "a member sealed under other terms, or did not seal at all"
        )
    if not users <= weight <= users * quantiser.weight_cap:
        raise PeerError(
            f"the weights of {users} users sum to {weight}; between {users} and {users * quantiser.weight_cap} "
            "was expected"
        )
    words = total[:-extra]
    most = weight * (quantiser.levels - 1)
    if words.max(initial=0) > most:
        raise PeerError(
            f"a word of the sum of {users} users is {words.max()}; of a weight of {weight} it is {most} at most"
        )
    values: FloatArray = np.multiply(words, quantiser.step, dtype=np.float64)
    values -= weight * quantiser.clip
    return Sum(values, weight)
