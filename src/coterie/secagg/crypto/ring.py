"""The integers modulo q that vectors are added in, kept as words of 16 or 32 bits (§1)."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""The words of a vector: 16 bits each modulo 2^16, else 32."""

PIECE = 65_536
"""Vectors are worked on in pieces of this many words, which stay in a core's cache."""
CHECK_BITS = 64
"""Bits of check words in a vector: noise passes for a sum with a probability of 2^-64."""

_WORDS: dict[int, np.dtype[np.unsignedinteger[Any]]] = {
    2**16: np.dtype("<u2"),
    2**32: np.dtype("<u4"),
    2**31 - 1: np.dtype("<u4"),
}


@dataclass(frozen=True)
class Ring:
    """The integers modulo q, for q = 2^16, 2^32 or the prime 2^31 - 1.

    >>> total = np.array([1, 5], dtype=np.uint32)
    >>> PRIME_31.add_into(total, np.array([2**31 - 2, 1], dtype=np.uint32))
    >>> total
    array([0, 6], dtype=uint32)
    >>> RING_16.dtype, RING_16.check_words, RING_32.check_words
    (dtype('uint16'), 4, 2)
    """

    modulus: int

    def __post_init__(self) -> None:
        if self.modulus not in _WORDS:
            raise UsageError(f"the modulus is {self.modulus}; it must be 2^16, 2^32 or the prime 2^31 - 1")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The type of a word, little-endian."""
        return _WORDS[self.modulus]

    @property
    def check_words(self) -> int:
        """How many words of value 1 end a vector: 64 bits of them."""
        return CHECK_BITS // (8 * self.dtype.itemsize)

    @property
    def wraps(self) -> bool:
        """Whether words wrap around at q by themselves, so that numpy's own addition is the ring's."""
        return self.modulus == 1 << 8 * self.dtype.itemsize

    def add_into(self, target: Words, words: Words) -> None:
        """Add `words` to `target`, modulo q."""
        self._check_vectors(target, words)
        if self.wraps:
            np.add(target, words, target)
        else:
            self._combine(np.add, np.subtract, target, words)

    def subtract_into(self, target: Words, words: Words) -> None:
        """Subtract `words` from `target`, modulo q."""
        self._check_vectors(target, words)
        if self.wraps:
            np.subtract(target, words, target)
        else:
            self._combine(np.subtract, np.add, target, words)

    def _combine(self, operation: np.ufunc, back: np.ufunc, target: Words, words: Words) -> None:
        modulus = self.dtype.type(self.modulus)
        spare = np.empty(min(len(target), PIECE), dtype=self.dtype)
        for start in range(0, len(target), PIECE):
            piece = target[start : start + PIECE]
            other = spare[: len(piece)]
            operation(piece, words[start : start + PIECE], piece)
            # One of the result and the result moved by q lies below q; the other is larger, wrapped or not.
            back(piece, modulus, other)
            np.minimum(piece, other, out=piece)

    def _check_vectors(self, target: Words, words: Words) -> None:
        if target.shape != words.shape or target.ndim != 1:
            raise UsageError(f"vectors of shapes {target.shape} and {words.shape} cannot be added")
        if target.dtype != self.dtype or words.dtype != self.dtype:
            raise UsageError(f"vectors of {target.dtype} and {words.dtype} cannot be added modulo {self.modulus}")


RING_16 = Ring(2**16)
RING_32 = Ring(2**32)
PRIME_31 = Ring(2**31 - 1)
