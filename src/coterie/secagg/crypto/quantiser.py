"""Which words stand for which floats, and what a sum of such vectors means; fixed for a batch's life (§1)."""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.ring import Ring, Words
from coterie.values import FloatArray
from coterie.values.checks import check_count

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
            raise UsageError(f"words of {word_bits} bits cannot be had here; give {widths}, or 0 for the best")
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
        raise UsageError(f"a sum of {users} users cannot be; the cohort has at most {quantiser.cohort}")
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
