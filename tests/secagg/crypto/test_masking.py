"""Keystreams, masks, and rounding and masking in one pass."""

import hashlib
import json
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.secagg.crypto import masking
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream, Mask, add_masks, mask_into, quantise_into
from coterie.secagg.crypto.quantiser import Quantiser
from coterie.secagg.crypto.ring import PIECE, PRIME_31, RING_16, RING_32
from reference import (
    exact_word,
    keystream_by_blocks,
    masked,
    possible_words,
    rounding_places,
    uniform_of,
)

VECTORS = Path(__file__).parents[2] / "vectors"
Q12 = Quantiser(RING_32, 1.0, weight_cap=1000, cohort=12)
Q12_16 = Quantiser(RING_16, 1.0, weight_cap=7, cohort=12)
ROUNDING = Seed(bytes(range(32)))
RINGS = pytest.mark.parametrize("ring", [RING_16, RING_32, PRIME_31], ids=["2^16", "2^32", "prime"])
SIZES = pytest.mark.parametrize("size", [0, 1, PIECE - 3, PIECE - 2, PIECE, PIECE + 1, 2 * PIECE + 7])
rings = st.sampled_from([RING_16, RING_32, PRIME_31])
keys = st.binary(min_size=32, max_size=32)
masks = st.lists(st.tuples(keys, st.sampled_from([1, -1])), min_size=1, max_size=4)


def words_of(keystream, *counts, dtype=np.uint32):
    parts = [np.empty(count, dtype=dtype) for count in counts]
    for part in parts:
        keystream.words_into(part)
    return np.concatenate(parts)


def in_one_go(key, words, dtype="<u4"):
    """The keystream of AES-CTR from counter block zero, by one call of the library."""
    size = np.dtype(dtype).itemsize * words
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))
    return np.frombuffer(stream, dtype=dtype)


class Drawn:
    """Stands in for an encryptor: its keystream is the given words."""

    def __init__(self, words, dtype="<u4"):
        self._left = iter(np.asarray(words, dtype=dtype).tobytes())

    def update_into(self, zeros, room):
        room[: len(zeros)] = bytes(islice(self._left, len(zeros)))


# --- keystreams -----------------------------------------------------------------------------------------


def test_the_published_vector():
    """NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt, from its own counter block on."""
    case = json.loads((VECTORS / "aes_256_ctr.json").read_text(encoding="utf-8"))[0]
    assert case["name"] == "NIST SP 800-38A F.5.5"
    first_word = 4 * int(case["counter"], 16)
    words = words_of(Keystream(Seed(bytes.fromhex(case["key"])), RING_32, first_word), 16)
    plain, cipher = (np.frombuffer(bytes.fromhex(case[name]), dtype="<u4") for name in ("plain", "cipher"))
    assert np.array_equal(words ^ plain, cipher)


@given(keys, rings, st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_keystreams_are_their_slow_twins(key, ring, counts):
    """However they are drawn, the words are those of AES over counters, one block at a time."""
    words = words_of(Keystream(Seed(key), ring), *counts, dtype=ring.dtype)
    assert words.dtype == ring.dtype
    assert words.tolist() == list(islice(keystream_by_blocks(key, ring.modulus), sum(counts)))


def test_a_real_word_is_rejected():
    """Word 748 068 of this keystream is q in its low 31 bits: modulo the prime all later words move up by one."""
    key = hashlib.sha256(b"coterie rejection 500").digest()
    raw = in_one_go(key, 750_001) % 2**31
    assert np.flatnonzero(raw == PRIME_31.modulus).tolist() == [748_068]
    expected = np.delete(raw, 748_068)
    vector = np.zeros(750_000, dtype=np.uint32)
    add_masks(vector, [Mask(Seed(key), 1)], PRIME_31, threads=2)
    assert np.array_equal(vector, expected)
    assert np.array_equal(words_of(Keystream(Seed(key), PRIME_31), 700_001, 49_999), expected)


q = PRIME_31.modulus
odd_words = st.sampled_from([q, q + 2**31, q - 1, 2**31, 0]) | st.integers(0, 2**32 - 1)


@given(st.lists(odd_words, min_size=1, max_size=60), st.data())
def test_rejected_words_are_left_out(raw, data):
    """Words that are q in 31 bits vanish, also many in a row; all others move up, cut to 31 bits."""
    accepted = [word % 2**31 for word in raw if word % 2**31 != q]
    cut = data.draw(st.integers(0, len(accepted)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_counter_mode", lambda _key, _first: Drawn(raw))
        words = words_of(Keystream(Seed(bytes(32)), PRIME_31), cut, len(accepted) - cut)
    assert words.tolist() == accepted


def test_keystreams_begin_at_whole_blocks():
    """A stream moves to any block, but not inside one, and not where words may have been left out."""
    words = words_of(Keystream(Seed(bytes(32)), RING_32, 12), 5)
    assert words.tolist() == in_one_go(bytes(32), 17)[12:].tolist()
    words = words_of(Keystream(Seed(bytes(32)), RING_16, 24), 5, dtype=np.uint16)
    assert words.tolist() == in_one_go(bytes(32), 29, "<u2")[24:].tolist()
    for ring, word, byte in ((RING_32, 6, 24), (RING_16, 4, 8)):
        with pytest.raises(UsageError, match=f"cannot begin at byte {byte}, inside a block"):
            Keystream(Seed(bytes(32)), ring, word)
    with pytest.raises(UsageError, match="modulo 2147483647 cannot begin at word 4"):
        Keystream(Seed(bytes(32)), PRIME_31, 4)


# --- masks ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rings, masks, st.integers(0, 40), st.integers(1, 3), st.randoms(use_true_random=False))
def test_masks_are_their_slow_twins(ring, chosen, size, threads, random):
    """Every word gets every keystream with its sign, modulo q, with any number of threads."""
    words = [random.randrange(ring.modulus) for _ in range(size)]
    vector = np.array(words, dtype=ring.dtype)
    add_masks(vector, [Mask(Seed(key), sign) for key, sign in chosen], ring, threads=threads)
    assert vector.tolist() == masked(words, chosen, ring.modulus)


@SIZES
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("ring", [RING_16, RING_32], ids=["2^16", "2^32"])
def test_masks_have_no_seams(ring, size, threads):
    """Around the ends of pieces and stretches the keystream goes on without a gap."""
    vector = np.arange(size).astype(ring.dtype)
    expected = vector.astype(np.int64)
    signs = {bytes([number]) * 32: sign for number, sign in enumerate((1, -1, 1))}
    add_masks(vector, [Mask(Seed(key), sign) for key, sign in signs.items()], ring, threads=threads)
    for key, sign in signs.items():
        expected += sign * in_one_go(key, size, ring.dtype).astype(np.int64)
    assert np.array_equal(vector, expected % ring.modulus)


@RINGS
def test_the_masks_of_a_pair_cancel(ring):
    """What one user adds and the other subtracts is gone from their sum; each vector alone looks like noise."""
    size, seed = PIECE + 9, bytes(range(32, 64))
    quantiser = Quantiser(ring, 1.0, weight_cap=1, cohort=2)
    values = np.zeros(size)
    plain, one, other = (np.empty(size + quantiser.extra_words, dtype=ring.dtype) for _ in range(3))
    for out, sign in ((one, 1), (other, -1)):
        mask_into(out, values, 1, quantiser, [Mask(Seed(seed), sign)], ROUNDING)
        assert abs(out.mean() / ring.modulus - 0.5) < 0.01
    quantise_into(plain, values, 1, quantiser, ROUNDING)
    ring.add_into(one, other)
    assert np.array_equal(one, 2 * plain)


# --- rounding -------------------------------------------------------------------------------------------

quantisers = st.builds(
    lambda ring, clip, cohort: Quantiser(ring, clip, 1, min(cohort, ring.modulus - 1)),
    st.sampled_from([RING_16, RING_32]),
    st.floats(1e-6, 1e6),
    st.integers(0, 31).map(lambda bits: 2**bits) | st.integers(1, 2**31),
)
edges = st.sampled_from([0, 1, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(
    0, 2**32 - 1
)


@settings(max_examples=300)
@given(quantisers, st.lists(st.tuples(st.floats(-1.1, 1.1) | st.sampled_from([-1.0, 1.0]), edges), max_size=20))
def test_words_are_their_slow_twins_for_any_draw(quantiser, pairs):
    """For any draw u the word is ⌊y + u⌋ in exact arithmetic, unless y + u is within 4·2^-k of a whole number."""
    ring = quantiser.ring
    values = np.array([share * quantiser.clip for share, _ in pairs])
    drawn = [word % 2 ** (8 * ring.dtype.itemsize) for _, word in pairs]
    out = np.empty(len(pairs) + quantiser.extra_words, dtype=ring.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_counter_mode", lambda _key, _first: Drawn(drawn, ring.dtype))
        quantise_into(out, values, 1, quantiser, ROUNDING)
    slack = Fraction(4, 2 ** rounding_places(1, quantiser))
    for value, word, level in zip(values, drawn, out.tolist(), strict=False):
        assert level in possible_words(value, 1, quantiser, uniform_of(word, 1, quantiser), slack)
    assert out[len(pairs) :].tolist() == [1, *[1] * ring.check_words]


class Every(Drawn):
    """A keystream of all values that the random bits of a word can have."""

    def __init__(self, stream):
        self._stream, self._at = stream, 0

    def update_into(self, zeros, room):
        room[: len(zeros)] = self._stream[self._at : self._at + len(zeros)]
        self._at += len(zeros)


@pytest.mark.parametrize(
    ("ring", "weight"), [(RING_32, 1), (RING_32, 2**32 - 1), (RING_16, 1), (RING_16, 2), (RING_16, 7)]
)
@pytest.mark.parametrize("value", [-1.0, -0.7320508, -1e-9, 0.0, 0.3333333333, 0.99999999999, 1.0])
def test_the_expectation_is_exact(monkeypatch, ring, weight, value):
    """Over all values of the k random bits the mean word is w·(x + c)/s, up to 4·2^-k, at any weight."""
    quantiser = Quantiser(ring, 1.0, weight_cap=weight, cohort=1)
    places, bits = rounding_places(weight, quantiser), 8 * ring.dtype.itemsize
    every = (np.arange(2**places, dtype=np.uint64) << (bits - places)).astype(ring.dtype)
    monkeypatch.setattr(masking, "_counter_mode", lambda _key, _first: Every(every.tobytes()))
    out = np.empty(2**places + quantiser.extra_words, dtype=ring.dtype)
    quantise_into(out, np.full(2**places, value), weight, quantiser, ROUNDING)
    words = out[: 2**places]
    assert abs(sum(words.tolist()) - exact_word(value, weight, quantiser) * 2**places) <= 4
    assert 0 <= int(words.min()) <= int(words.max()) <= weight * (quantiser.levels - 1)


@SIZES
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("quantiser", [Q12_16, Q12], ids=["2^16", "2^32"])
def test_rounding_has_no_seams(quantiser, size, threads):
    """Around the ends of pieces every word is ⌊w·y + u⌋ for the next u of one keystream, with any threads."""
    dtype, weight = quantiser.ring.dtype, 7
    bits = 8 * dtype.itemsize
    values = np.random.default_rng(2).uniform(-1.1, 1.1, size).astype(np.float32)
    out = np.empty(size + quantiser.extra_words, dtype=dtype)
    quantise_into(out, values, weight, quantiser, ROUNDING, threads=threads)
    span = weight * (quantiser.levels - 1)
    assert rounding_places(weight, quantiser) >= 16
    drawn = in_one_go(ROUNDING.reveal(), size, dtype).astype(np.int64)
    uniform = (drawn if span % 2 else (drawn + 2 ** (bits - 1)) % 2**bits) / 2**bits
    exact = (np.clip(values.astype(np.float64), -1, 1) + 1) * span / 2 + uniform
    sure = np.abs(exact - np.round(exact)) > (2**-14 if bits == 16 else 2**-16)
    assert np.count_nonzero(~sure) <= np.count_nonzero(np.abs(values) >= 1) + size // 1000 + 5
    assert np.array_equal(out[:size][sure], np.floor(exact[sure]))
    assert out[size:].tolist() == [7, *[1] * quantiser.ring.check_words]


@SIZES
@pytest.mark.parametrize("quantiser", [Q12_16, Q12], ids=["2^16", "2^32"])
def test_one_pass_is_both_steps(quantiser, size):
    """`mask_into` gives the words of `quantise_into` and then `add_masks`, with any number of threads."""
    ring, weight = quantiser.ring, quantiser.weight_cap
    values = np.random.default_rng(6).normal(0, 0.5, size).astype(np.float32)
    seeds = [Mask(Seed(bytes([number]) * 32), sign) for number, sign in ((1, 1), (2, -1), (3, -1))]
    expected = np.empty(size + quantiser.extra_words, dtype=ring.dtype)
    quantise_into(expected, values, weight, quantiser, ROUNDING)
    add_masks(expected, seeds, ring)
    for threads in (1, 2, 5):
        out = np.empty_like(expected)
        mask_into(out, values, weight, quantiser, seeds, ROUNDING, threads=threads)
        assert np.array_equal(out, expected)


def test_a_piece_with_clipped_values_is_rounded_like_any_other():
    """Neither a value beyond the clip nor the lie of the array in memory changes another value's word."""
    values = np.random.default_rng(0).uniform(-1, 1, 1000)
    beyond = values.copy()
    beyond[[3, 500]] = 1e300, -4.0
    spread = np.zeros(3000)
    spread[::3] = beyond
    plain, other, apart = (np.empty(1000 + Q12.extra_words, dtype=np.uint32) for _ in range(3))
    for out, given_ in ((plain, values), (other, beyond), (apart, spread[::3])):
        quantise_into(out, given_, 1, Q12, ROUNDING)
    assert np.flatnonzero(plain != other).tolist() == [3, 500]
    assert other[[3, 500]].tolist() == [Q12.levels - 1, 0]
    assert np.array_equal(other, apart)


@RINGS
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_not_finite_is_masked_like_the_zero_update(ring, threads):
    """With its masks too, an update that is not finite is the zero update bit for bit."""
    quantiser = Quantiser(ring, 1.0, weight_cap=9, cohort=12)
    values = np.full(2 * PIECE, 3.0)
    values[[PIECE + 17, PIECE + 40]] = np.nan, np.inf
    spoilt, zero = (np.empty(len(values) + quantiser.extra_words, dtype=ring.dtype) for _ in range(2))
    seeds = [Mask(Seed(bytes([1]) * 32), 1), Mask(Seed(bytes([2]) * 32), -1)]
    mask_into(spoilt, values, 9, quantiser, seeds, ROUNDING, threads=threads)
    mask_into(zero, np.zeros_like(values), 9, quantiser, seeds, ROUNDING, threads=threads)
    assert np.array_equal(spoilt, zero)


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": 0}, "the weight is 0; give an integer of at least 1"),
        ({"weight": 1001}, "the weight is 1001; the most that the quantiser allows is 1000"),
        ({"weight": 1.5}, "the weight is 1.5"),
        ({"weight": True}, "the weight is True"),
        ({"values": np.zeros(4, dtype=np.int32)}, "int32; give one row of floats"),
        ({"values": np.zeros((2, 2))}, r"shape \(2, 2\)"),
        ({"values": np.zeros(4, dtype=np.longdouble)}, "give one row of floats"),
        ({"values": np.zeros(3)}, "give 6 words of uint32"),
        ({"out": np.zeros(7, dtype=np.int32)}, "int32; give 7 words of uint32"),
        ({"out": np.zeros((7, 1), dtype=np.uint32)}, "give 7 words of uint32"),
        ({"threads": 0}, "0 threads cannot work"),
        ({"masks": []}, "in the clear"),
    ],
)
def test_impossible_requests_are_refused(changed, message):
    """A weight, values, a vector, masks or threads that cannot be are the caller's fault, and said so."""
    fields = {
        "out": np.zeros(7, dtype=np.uint32), "values": np.zeros(4), "weight": 1, "quantiser": Q12,
        "masks": [Mask(Seed(bytes(32)), 1)], "rounding": ROUNDING,
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        mask_into(**(fields | changed))


def test_masks_have_a_sign_and_hide_their_seed():
    """A sign is 1 or -1, masks go onto words only, and nothing shows a seed."""
    with pytest.raises(UsageError, match="the sign of a mask is 0"):
        Mask(Seed(bytes(32)), 0)
    with pytest.raises(UsageError, match="float64; give 3 words of uint32"):
        add_masks(np.zeros(3), [], RING_32)
    assert repr(Mask(Seed(bytes(32)), 1)) == "Mask(seed=Seed(…), sign=1)"
