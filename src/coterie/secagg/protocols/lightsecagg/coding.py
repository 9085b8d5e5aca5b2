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

from coterie.errors import TooFewUsers, UsageError
from coterie.secagg.batch.parameters import Parameters
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import PRIME_31, Words

_P = PRIME_31.modulus
_HALF_BITS = 16
_COLUMNS = 8192
"""Columns of a product that are worked on at once, so that memory stays at a few vectors."""
_CHECKS = 2
"""Random combinations of coordinates in which wrong evaluations are looked for: one is missed once in 2^62."""


@dataclass(frozen=True)
class Code:
    """How the masks of n users are shared: t colluders learn nothing, and U evaluations decode a sum.

    U = n - ⌊δn⌋ - 2e and t = ⌊γn⌋: if no more than ⌊δn⌋ users are lost, U + 2e evaluations are left, so that e
    wrong ones are corrected. Everybody derives these from the charter and the roster; they are never sent.

    >>> Code.of(100, Parameters())
    Code(users=100, privacy=20, needed=60)
    >>> Code.of(100, Parameters()).pieces
    40
    """

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

    @classmethod
    def of(cls, users: int, parameters: Parameters) -> "Code":
        """Return the code for a roster: e is a twentieth of the users, at least one where there is room for it."""
        privacy, left = parameters.colluding(users), users - parameters.lost(users)
        errors = min(max(1, users // 20), max(0, (left - privacy - 1) // 2))
        return cls(users, privacy, left - 2 * errors)

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
            raise TooFewUsers(f"{len(holders)} sums of shares came; {self.needed} are needed to decode the masks")
        drawn = np.empty(_CHECKS * sums.shape[1], dtype=np.uint32)
        Keystream(randomness, PRIME_31).words_into(drawn)
        values = multiply(sums, drawn.reshape(sums.shape[1], _CHECKS))
        points = self.points(holders)
        wrong: set[int] = set()
        for column in values.T:
            if not _on_polynomial(points, column, self.needed):
                wrong |= _wrong_places(points, column, self.needed)
        right = [row for row in range(len(holders)) if row not in wrong]
        if len(right) < self.needed or not all(
            _on_polynomial(points[right], column, self.needed) for column in values[right].T
        ):
            raise TooFewUsers(
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

    Entry (i, j) is Π_{k≠j} (x_i - s_k) / (s_j - s_k), modulo p; sources and targets have no point in common.
    """
    difference = (targets[:, np.newaxis] - sources) % _P
    whole = _product(difference)
    between = (sources[:, np.newaxis] - sources) % _P
    np.fill_diagonal(between, 1)
    below = difference * _product(between) % _P
    return (whole[:, np.newaxis] * _inverse(below) % _P).astype(np.uint32)


def _product(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.ones(len(rows), dtype=np.int64)
    for column in rows.T:
        result = result * column % _P
    return result


def _inverse(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 1/x = x^(p-2)."""
    result, power, exponent = np.ones_like(numbers), numbers, _P - 2
    while exponent:
        if exponent & 1:
            result = result * power % _P
        power = power * power % _P
        exponent >>= 1
    return result


def _on_polynomial(points: NDArray[np.int64], values: Words, needed: int) -> bool:
    """Whether values lie on a polynomial of degree below `needed`."""
    if len(points) == needed:
        return True
    expected = multiply(lagrange_matrix(points[:needed], points[needed:]), values[:needed, np.newaxis])[:, 0]
    return bool((expected == values[needed:]).all())


def _wrong_places(points: NDArray[np.int64], values: Words, needed: int) -> set[int]:
    """Return where values miss the polynomial that the others lie on, by Berlekamp and Welch.

    There are Q of degree below U + e and E of degree at most e, not both zero, with Q(x) = y·E(x) at every point;
    E is zero wherever a value is wrong, if at most e are.
    """
    from flint import nmod, nmod_mat, nmod_poly

    errors = (len(points) - needed) // 2
    powers = np.ones((len(points), needed + errors), dtype=np.int64)
    for column in range(1, needed + errors):
        powers[:, column] = powers[:, column - 1] * points % _P
    weighted = (_P - powers[:, : errors + 1] * values[:, np.newaxis].astype(np.int64) % _P) % _P
    system = nmod_mat(np.concatenate((powers, weighted), axis=1).tolist(), _P)
    basis, rank = system.nullspace()
    if rank == 0:
        return set()
    locator = nmod_poly([int(basis[needed + errors + row, 0]) for row in range(errors + 1)], _P)
    return {place for place, point in enumerate(points.tolist()) if int(locator(nmod(point, _P))) == 0}
