"""Shamir's secret sharing of 32-byte secrets: any `threshold` shares give a secret back, fewer say nothing (§5).

The field is the integers modulo p = 2^31 - 1, so that a product fits a word of 64 bits. A secret is nine limbs of
30 bits; each is the value at 0 of a polynomial of its own, and a share is the nine values at the holder's point.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.secagg.crypto.keys import KEY_BYTES, Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import PRIME_31, Words

LIMB_BITS = 30
LIMBS = -(-8 * KEY_BYTES // LIMB_BITS)
SHARE_BYTES = 4 * LIMBS
LARGEST_POINT = 2**16 - 1

_P = np.int64(PRIME_31.modulus)
_BITS = np.int64(31)
Numbers: TypeAlias = NDArray[np.int64]


def split(secrets: Sequence[bytes], threshold: int, points: Sequence[int], randomness: Seed) -> Words:
    """Return the shares of secrets at some points, as words of shape (points, secrets, limbs).

    A limb's polynomial has degree threshold - 1; all coefficients but the first are uniform below p, words of the
    keystream of `randomness`, which is used for nothing else.

    >>> shares = split([bytes(range(32))], 2, [1, 2, 3], Seed(bytes(32)))
    >>> combine_all(np.array([[3, 1]]), shares[[2, 0]].swapaxes(0, 1)) == [bytes(range(32))]
    True
    """
    if not 1 <= threshold <= len(points) or not all(0 < point <= LARGEST_POINT for point in points):
        raise UsageError(
            f"{threshold} of {len(points)} shares cannot be asked for at points {min(points, default=0)} to "
            f"{max(points, default=0)}; give at least as many points, from 1 to {LARGEST_POINT}"
        )
    limbs = np.array([limb for secret in secrets for limb in _limbs(secret)], dtype=np.int64)
    random_words = np.empty((threshold - 1) * len(limbs), dtype=np.uint32)
    Keystream(randomness, PRIME_31).words_into(random_words)
    coefficients = random_words.reshape(threshold - 1, len(limbs))
    at = np.array(points, dtype=np.int64)[:, np.newaxis]
    values = np.zeros((len(points), len(limbs)), dtype=np.int64)
    high = np.empty_like(values)
    for coefficient in coefficients:  # Horner's rule: a point has 16 bits, so 47 are enough before folding
        values += coefficient
        values *= at
        np.right_shift(values, _BITS, high)
        values &= _P
        values += high
    return ((values + limbs) % _P).astype(np.uint32).reshape(len(points), len(secrets), LIMBS)


def are_shares(content: bytes) -> bool:
    """Whether bytes are whole shares: words below p, little-endian."""
    return len(content) % SHARE_BYTES == 0 and bool((np.frombuffer(content, dtype="<u4") < _P).all())


def combine_all(points: NDArray[np.integer], shares: Words) -> list[bytes | None]:
    """Return many secrets at once, from points of shape (secrets, t) and shares of shape (secrets, t, limbs).

    Points of shape (1, t) are the same for all secrets: then Lagrange's basis is computed once. Wrong shares give
    another secret, or one that is too large, which is None.
    """
    weights = lagrange(points.astype(np.int64))
    limbs = np.zeros((len(shares), LIMBS), dtype=np.int64)
    for index in range(weights.shape[1]):
        limbs += weights[:, index, np.newaxis] * shares[:, index] % _P
    return [_joined(row) for row in (limbs % _P).tolist()]


def correct(points: Sequence[int], shares: Words, threshold: int) -> tuple[bytes, list[int]] | None:
    """Return the secret whose shares some are, and which of them are not; None if too many are not.

    Of m shares, of shape (m, limbs), up to (m - threshold) / 2 may be wrong. Each limb is decoded as a word of a
    Reed-Solomon code, by Gao's algorithm.

    >>> shares = split([bytes(range(32))], 2, [1, 2, 3, 4], Seed(bytes(32)))[:, 0]
    >>> shares[2] = 7
    >>> secret, wrong = correct([1, 2, 3, 4], shares, 2)
    >>> secret == bytes(range(32)), wrong
    (True, [2])
    """
    decoded = [decode_values(points, column, threshold) for column in shares.T.tolist()]
    limbs, wrong = [], set[int]()
    for result in decoded:
        if result is None:
            return None
        limbs.append(result[0])
        wrong |= result[1]
    secret = _joined(limbs)
    return None if secret is None else (secret, sorted(wrong))


def decode_values(points: Sequence[int], values: list[int], threshold: int) -> tuple[int, set[int]] | None:
    """Return the value at 0 of the polynomial through most of the values, and the places of the others.

    The polynomial has a degree below `threshold`; None if more than (m - threshold) / 2 of m values miss it.
    """
    from flint import nmod, nmod_poly

    p, radius = PRIME_31.modulus, (len(points) - threshold) // 2
    product = nmod_poly([1], p)
    for point in points:
        product *= nmod_poly([-point, 1], p)
    through = nmod_poly([0], p)
    for point, value in zip(points, values, strict=True):
        basis = product // nmod_poly([-point, 1], p)
        through += basis * (nmod(value, p) / basis(point))
    # Euclid's algorithm, stopped half-way: `rest` = `error` times the polynomial that was looked for.
    before, rest, error_before, error = product, through, nmod_poly([0], p), nmod_poly([1], p)
    while 2 * rest.degree() >= len(points) + threshold:
        quotient, remainder = divmod(before, rest)
        before, rest, error_before, error = rest, remainder, error, error_before - quotient * error
    polynomial, remainder = divmod(rest, error)
    if remainder or polynomial.degree() >= threshold:
        return None
    wrong = {place for place, point in enumerate(points) if int(polynomial(point)) != values[place]}
    return (int(polynomial(0)), wrong) if len(wrong) <= radius else None


def lagrange(points: Numbers) -> Numbers:
    """Return the weights with which values at the points of each row add up to the value at 0.

    λ_i = Π_{j≠i} x_j / (x_j - x_i), modulo p.

    >>> lagrange(np.array([[1, 2, 3]]))
    array([[         3, 2147483644,          1]])
    """
    above, below = np.ones((len(points), 1), dtype=np.int64), points.copy()
    for index in range(points.shape[1]):
        other = points[:, index, np.newaxis]
        above = above * other % _P
        difference = (other - points) % _P
        difference[:, index] = 1
        below = below * difference % _P
    return above * inverse(below) % _P


def inverse(numbers: Numbers) -> Numbers:
    """Return 1/x = x^(p-2), modulo p."""
    result, power = np.ones_like(numbers), numbers
    exponent = PRIME_31.modulus - 2
    while exponent:
        if exponent & 1:
            result = result * power % _P
        power = power * power % _P
        exponent >>= 1
    return result


def _limbs(secret: bytes) -> list[int]:
    if len(secret) != KEY_BYTES:
        raise UsageError(f"a secret to share has {KEY_BYTES} bytes, not {len(secret)}")
    number = int.from_bytes(secret, "little")
    return [number >> LIMB_BITS * index & (1 << LIMB_BITS) - 1 for index in range(LIMBS)]


def _joined(limbs: list[int]) -> bytes | None:
    if any(limb >> LIMB_BITS for limb in limbs):
        return None
    number = sum(limb << LIMB_BITS * index for index, limb in enumerate(limbs))
    return number.to_bytes(KEY_BYTES, "little") if number >> 8 * KEY_BYTES == 0 else None
