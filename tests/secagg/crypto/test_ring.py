"""Vectors over Z_q, for words of 16 and of 32 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.secagg.crypto.ring import PIECE, PRIME_31, RING_16, RING_32, Ring

ALL = [RING_16, RING_32, PRIME_31]
RINGS = pytest.mark.parametrize("ring", ALL, ids=["2^16", "2^32", "prime"])


def elements(ring):
    """Elements of the ring, often those at its ends."""
    return st.one_of(st.integers(0, ring.modulus - 1), st.sampled_from([0, 1, ring.modulus - 2, ring.modulus - 1]))


def summed_up(ring, vectors):
    """Add the vectors to zeros, one after the other."""
    total = np.zeros_like(vectors[0])
    for words in vectors:
        ring.add_into(total, words)
    return total


@given(st.sampled_from(ALL), st.data())
def test_arithmetic_is_that_of_integers_modulo_q(ring, data):
    """Sums and differences are the integers' own, reduced modulo q, and stay words of the ring."""
    pairs = data.draw(st.lists(st.tuples(elements(ring), elements(ring)), max_size=40))
    a, b = (np.array(side, dtype=ring.dtype) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    total, difference = a.copy(), a.copy()
    ring.add_into(total, b)
    ring.subtract_into(difference, b)
    summed = summed_up(ring, [a, b, b])
    assert total.tolist() == [(x + y) % ring.modulus for x, y in pairs]
    assert difference.tolist() == [(x - y) % ring.modulus for x, y in pairs]
    assert summed.tolist() == [(x + 2 * y) % ring.modulus for x, y in pairs]
    assert total.dtype == difference.dtype == summed.dtype == ring.dtype
    assert b.tolist() == [y for _, y in pairs]


@RINGS
@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_pieces_leave_no_seam(ring, size):
    """Vectors around the length of a piece are added like any other."""
    rng = np.random.default_rng(1)
    vectors = [rng.integers(0, ring.modulus, size, dtype=ring.dtype) for _ in range(3)]
    total = summed_up(ring, vectors)
    assert np.array_equal(total, np.sum(vectors, axis=0, dtype=np.uint64) % ring.modulus)
    for words in vectors:
        ring.subtract_into(total, words)
    assert not total.any()


def test_only_the_three_rings_are_known():
    """No other modulus is taken, and vectors of different lengths or words are not added."""
    for modulus in (0, 1, 2, 65537, 2**31, 2**64):
        with pytest.raises(UsageError, match=f"the modulus is {modulus}; it must be 2\\^16, 2\\^32 or the prime"):
            Ring(modulus)
    for ring in ALL:
        target = np.zeros(3, dtype=ring.dtype)
        other = np.uint16 if ring.dtype == np.uint32 else np.uint32
        for words in (
            np.zeros(4, dtype=ring.dtype),
            np.zeros(1, dtype=ring.dtype),
            np.zeros((3, 1), dtype=ring.dtype),
            np.zeros(3, dtype=other),
            np.zeros(3, dtype=np.int64),
        ):
            with pytest.raises(UsageError, match="cannot be added"):
                ring.add_into(target, words)
            with pytest.raises(UsageError, match="cannot be added"):
                ring.subtract_into(target, words)


def test_words_and_check_words():
    """A word has 16 bits modulo 2^16 and else 32, little-endian; check words have 64 bits in all."""
    assert [(ring.dtype.str, ring.check_words, ring.wraps) for ring in ALL] == [
        ("<u2", 4, True),
        ("<u4", 2, True),
        ("<u4", 2, False),
    ]
    assert all(8 * ring.dtype.itemsize * ring.check_words == 64 for ring in ALL)
