"""Coded masks over the prime field: any U of n evaluations give a mask's pieces back, t of them say nothing (§5).

A mask of m words is cut into U - t pieces of equal length. They and t random pieces are the values of a polynomial
of degree below U, coordinate by coordinate, at the points 1 … U; user j holds its value at the point U + 1 + j.
The sum of many users' evaluations at one point is that of the sum of their masks: the server decodes once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.errors import TooFewUsersError, UsageError
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import PRIME_31, Words
from coterie.secagg.crypto.shamir import decode_values, inverse

_P = PRIME_31.modulus
_HALF_BITS = 16
_COLUMNS = 8192
"""Columns of a product that are worked on at once, so that memory stays at a few vectors."""
_CHECKS = 2
"""Random combinations of coordinates in which wrong evaluations are looked for: one is missed once in 2^62."""


@dataclass(frozen=True)
class Code:
    """How the masks of n users are shared: t colluders learn nothing, and U evaluations decode a sum."""

    users: int
    """n."""
    privacy: int
    """t, how many evaluations say nothing."""
    needed: int
    """U, how many evaluations decode."""

    def __post_init__(self) -> None:
        if not 0 <= self.privacy < self.needed <= self.users:
            raise UsageError(
                f"{self.needed} of {self.users} evaluations cannot decode what {self.privacy} of them hide; "
                "U must be above t and at most n"
            )
        if self.users + self.needed >= _P:
            raise UsageError(f"{self.users} users are too many for the field")

    @property
    def pieces(self) -> int:
        """How many pieces a mask is cut into: U - t."""
        return self.needed - self.privacy

    def share_words(self, mask_words: int) -> int:
        """Return how long one evaluation of a mask is."""
        return -(-mask_words // self.pieces)

    @cached_property
    def _generator(self) -> Words:
        """The n × U matrix that turns pieces into evaluations."""
        return lagrange_matrix(self._inner_points, self.points(range(self.users)))

    @property
    def _inner_points(self) -> NDArray[np.int64]:
        return np.arange(1, self.needed + 1, dtype=np.int64)

    def points(self, holders: Sequence[int] | range) -> NDArray[np.int64]:
        """Return the points at which some holders have their evaluations."""
        return np.array(holders, dtype=np.int64) + self.needed + 1

    def encode(self, mask: Words, noise: Seed) -> Words:
        """Return the evaluations of a mask, one row for each user; `noise` is used for nothing else."""
        length = self.share_words(len(mask))
        pieces = np.zeros((self.needed, length), dtype=np.uint32)
        pieces.reshape(-1)[: len(mask)] = mask
        random = np.empty(self.privacy * length, dtype=np.uint32)
        Keystream(noise, PRIME_31).words_into(random)
        pieces[self.pieces :] = random.reshape(self.privacy, length)
        return multiply(self._generator, pieces)

    def decode(self, holders: Sequence[int], sums: Words, mask_words: int, randomness: Seed) -> Words:
        """Return the mask that evaluations at some holders' points belong to, one row for each holder.

        Up to (len(holders) - U) / 2 wrong rows are corrected. Who sent them is not told: a row is also wrong if
        a user whose mask is in the sum gave that holder a wrong evaluation.
        """
        right = self._right_rows(holders, sums, randomness)[: self.needed]
        back = lagrange_matrix(self.points([holders[row] for row in right]), self._inner_points[: self.pieces])
        return multiply(back, sums[right]).reshape(-1)[:mask_words]

    def _right_rows(self, holders: Sequence[int], sums: Words, randomness: Seed) -> list[int]:
        """Return rows that lie on one polynomial of degree below U, all but those that do not fit the others."""
        if len(holders) < self.needed:
            raise TooFewUsersError(
                f"{len(holders)} sums of shares came; {self.needed} are needed to decode the masks"
            )
        drawn = np.empty(_CHECKS * sums.shape[1], dtype=np.uint32)
        Keystream(randomness, PRIME_31).words_into(drawn)
        values = multiply(sums, drawn.reshape(sums.shape[1], _CHECKS))
        points = self.points(holders)
        wrong: set[int] | None = set()
        for column in values.T:
            if wrong is not None and not _on_polynomial(points, column, self.needed):
                decoded = decode_values(points.tolist(), column.tolist(), self.needed)
                wrong = None if decoded is None else wrong | decoded[1]
        right = [row for row in range(len(holders)) if wrong is not None and row not in wrong]
        if len(right) < self.needed:
            raise TooFewUsersError(
                f"{len(holders)} sums of shares do not belong together; {(len(holders) - self.needed) // 2} wrong "
                "ones can be corrected"
            )
        return right


def multiply(left: Words, right: Words) -> Words:
    """Return the matrix product modulo p, exactly.

    Numbers are cut into halves of 16 bits, so that up to 2^20 products of two halves add up to less than 2^53,
    which float64 holds exactly: the fast product of floats does the work.

    >>> multiply(np.array([[_P - 1, 2]], dtype=np.uint32), np.array([[3], [5]], dtype=np.uint32))
    array([[7]], dtype=uint32)
    """
    if left.shape[1] > 1 << 20:
        raise UsageError(f"a product over {left.shape[1]} terms is too long to be exact")
    low, high = _halves(left)
    out = np.empty((len(left), right.shape[1]), dtype=np.uint32)
    for start in range(0, right.shape[1], _COLUMNS):
        low_right, high_right = _halves(right[:, start : start + _COLUMNS])
        total = _reduced(high @ high_right) * 2  # 2^32 = 2 modulo p
        total += (_reduced(low @ high_right) + _reduced(high @ low_right)) % _P * (1 << _HALF_BITS) % _P
        total += _reduced(low @ low_right)
        out[:, start : start + _COLUMNS] = total % _P
    return out


def _halves(matrix: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (matrix & np.uint32((1 << _HALF_BITS) - 1)).astype(np.float64), (matrix >> _HALF_BITS).astype(
        np.float64
    )


def _reduced(product: NDArray[np.float64]) -> NDArray[np.int64]:
    return product.astype(np.int64) % _P


def lagrange_matrix(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> Words:
    """Return the matrix that turns values at the sources into values at the targets, where degrees are lower.

    Entry (i, j) is Π_{k≠j} (x_i - s_k) / (s_j - s_k), modulo p; sources and targets have no point in common. All
    are small numbers, as users' places are: so one table has the inverses of all differences.
    """
    difference = targets[:, np.newaxis] - sources
    whole = _product(difference % _P)
    between = sources[:, np.newaxis] - sources
    np.fill_diagonal(between, 1)
    weight = inverse(_product(between % _P))
    table = inverse(np.arange(1, max(int(abs(difference).max(initial=1)), 1) + 1, dtype=np.int64))
    inverses = np.sign(difference) * table[abs(difference) - 1] % _P
    matrix: Words = (whole[:, np.newaxis] * weight % _P * inverses % _P).astype(np.uint32)
    return matrix


def _product(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.ones(len(rows), dtype=np.int64)
    for column in rows.T:
        result = result * column % _P
    return result


def _on_polynomial(points: NDArray[np.int64], values: Words, needed: int) -> bool:
    """Whether values lie on a polynomial of degree below `needed`."""
    if len(points) == needed:
        return True
    expected = multiply(lagrange_matrix(points[:needed], points[needed:]), values[:needed, np.newaxis])[:, 0]
    return bool((expected == values[needed:]).all())
