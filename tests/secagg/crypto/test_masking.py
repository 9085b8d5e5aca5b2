"""Rounding at random, keystreams and masks."""

import hashlib
import json
import math
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
from coterie.secagg.crypto.ring import EXTRA_WORDS, PIECE, PRIME_31, RING_32, Quantisation
from reference import exact_level, keystream_by_blocks, masked, possible_levels

VECTORS = Path(__file__).parents[2] / "vectors"
Q12 = Quantisation.fitting(RING_32, 1.0, cohort=12, weight_cap=1000)
SIZES = pytest.mark.parametrize("size", [0, 1, PIECE - 3, PIECE - 2, PIECE, PIECE + 1, 2 * PIECE + 7])
rings = st.sampled_from([RING_32, PRIME_31])
keys = st.binary(min_size=32, max_size=32)
masks = st.lists(st.tuples(keys, st.sampled_from([1, -1])), min_size=1, max_size=4)


def words_of(keystream, *counts):
    parts = [np.empty(count, dtype=np.uint32) for count in counts]
    for part in parts:
        keystream.words_into(part)
    return np.concatenate(parts)


def in_one_go(key, words):
    """The keystream of AES-CTR from counter block zero, by one call of the library."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * words))
    return np.frombuffer(stream, dtype="<u4")


class Drawn:
    """Stands in for an encryptor: its keystream is the given words."""

    def __init__(self, words):
        self._left = iter(np.asarray(words, dtype="<u4").tobytes())

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
    words = words_of(Keystream(Seed(key), ring), *counts)
    assert words.dtype == np.uint32
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
    with pytest.raises(UsageError, match="cannot begin at word 6, inside a block"):
        Keystream(Seed(bytes(32)), RING_32, 6)
    with pytest.raises(UsageError, match="modulo 2147483647 cannot begin at word 4"):
        Keystream(Seed(bytes(32)), PRIME_31, 4)


# --- masks ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rings, masks, st.integers(0, 40), st.integers(1, 3), st.randoms(use_true_random=False))
def test_masks_are_their_slow_twins(ring, chosen, size, threads, random):
    """Every word gets every keystream with its sign, modulo q, with any number of threads."""
    words = [random.randrange(ring.modulus) for _ in range(size)]
    vector = np.array(words, dtype=np.uint32)
    add_masks(vector, [Mask(Seed(key), sign) for key, sign in chosen], ring, threads=threads)
    assert vector.tolist() == masked(words, chosen, ring.modulus)


@SIZES
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_masks_have_no_seams(size, threads):
    """Around the ends of pieces and stretches the keystream goes on without a gap."""
    vector = np.arange(size, dtype=np.uint32)
    signs = {bytes([number]) * 32: sign for number, sign in enumerate((1, -1, 1))}
    add_masks(vector, [Mask(Seed(key), sign) for key, sign in signs.items()], RING_32, threads=threads)
    expected = np.arange(size, dtype=np.int64)
    for key, sign in signs.items():
        expected += sign * in_one_go(key, size).astype(np.int64)
    assert np.array_equal(vector, expected % 2**32)


@pytest.mark.parametrize("ring", [RING_32, PRIME_31], ids=["2^32", "prime"])
def test_the_masks_of_a_pair_cancel(ring):
    """What one user adds and the other subtracts is gone from their sum; each vector alone looks like noise."""
    size, seed = PIECE + 9, bytes(range(32))
    quantisation = Quantisation.fitting(ring, 1.0, cohort=2)
    values = np.zeros(size)
    plain, one, other = (np.empty(size + EXTRA_WORDS, dtype=np.uint32) for _ in range(3))
    for out, sign in ((one, 1), (other, -1)):
        mask_into(out, values, 1, quantisation, [Mask(Seed(seed), sign)], np.random.default_rng(3))
        assert abs(out.mean() / ring.modulus - 0.5) < 0.01
    quantise_into(plain, values, 1, quantisation, np.random.default_rng(3))
    ring.add_into(one, other)
    assert np.array_equal(one, 2 * plain)


# --- rounding -------------------------------------------------------------------------------------------

quantisations = st.builds(
    lambda clip, levels, odd: Quantisation(clip, max(2, levels - odd), 1, 1, RING_32),
    st.floats(1e-6, 1e6),
    st.integers(1, 32).map(lambda bits: 2**bits) | st.integers(2, 2**32),
    st.integers(0, 1),
)
edges = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1)


@settings(max_examples=300)
@given(quantisations, st.lists(st.tuples(st.floats(-1.1, 1.1) | st.sampled_from([-1.0, 1.0]), edges), max_size=20))
def test_levels_are_their_slow_twins(quantisation, pairs):
    """For any draw u the level is ⌊y + u⌋ in exact arithmetic, unless y + u is within 4·2^-k of a whole number."""
    values = np.array([share * quantisation.clip for share, _ in pairs])
    out = np.empty(len(pairs) + EXTRA_WORDS, dtype=np.uint32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_counter_mode", lambda _key, _first: Drawn([word for _, word in pairs]))
        quantise_into(out, values, 1, quantisation, np.random.default_rng(0))
    places = min(32, 52 - (quantisation.levels - 1).bit_length())
    for value, (_, word), level in zip(values, pairs, out.tolist(), strict=False):
        # With an odd number of levels the word has a sign: the middle of its range stands for u = 0.
        unsigned = word if quantisation.levels % 2 == 0 else (word + 2**31) % 2**32
        uniform = Fraction(unsigned >> (32 - places), 2**places)
        assert level in possible_levels(value, quantisation, uniform, Fraction(4, 2**places))
    assert out[len(pairs) :].tolist() == [1, 1, 1]


@pytest.mark.parametrize("levels", [2**32, 2**32 - 1])
@pytest.mark.parametrize("value", [-1.0, -0.7320508, -1e-9, 0.0, 0.3333333333, 0.99999999999, 1.0])
def test_the_expectation_is_exact(monkeypatch, levels, value):
    """Over all 2^20 values of the random bits the mean level is y, up to 4·2^-20, even with 2^32 levels."""
    every = np.arange(2**20, dtype=np.uint32) << 12
    stream = every.astype("<u4").tobytes()

    class Every(Drawn):
        def __init__(self):
            self._at = 0

        def update_into(self, zeros, room):
            room[: len(zeros)] = stream[self._at : self._at + len(zeros)]
            self._at += len(zeros)

    monkeypatch.setattr(masking, "_counter_mode", lambda _key, _first: Every())
    quantisation = Quantisation(1.0, levels, 1, 1, RING_32)
    out = np.empty(2**20 + EXTRA_WORDS, dtype=np.uint32)
    quantise_into(out, np.full(2**20, value), 1, quantisation, np.random.default_rng(0))
    level = exact_level(value, quantisation)
    total = sum(out[:-EXTRA_WORDS].tolist())
    assert abs(total - level * 2**20) <= 4
    assert 0 <= int(out[:-EXTRA_WORDS].min()) <= int(out[:-EXTRA_WORDS].max()) <= levels - 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("cohort", [1, 12, 12_000, 2**31])
def test_rounding_is_unbiased(dtype, cohort):
    """The mean of many draws is y within 4 standard errors, from 2 levels to 2^32, for every dtype."""
    quantisation = Quantisation.fitting(RING_32, 1.5, cohort)
    draws = 200_000
    rng = np.random.default_rng(11)
    out = np.empty(draws + EXTRA_WORDS, dtype=np.uint32)
    for value in np.array([-1.2, -0.1234, 1e-3, 0.7, 1.4999], dtype=dtype):
        quantise_into(out, np.full(draws, value), 1, quantisation, rng)
        level = exact_level(value, quantisation)
        low = math.floor(level)
        share = float(level - low)
        assert set(out[:-EXTRA_WORDS].tolist()) <= {low, low + 1}
        error = np.mean(out[:-EXTRA_WORDS].astype(np.int64) - low) - share
        assert abs(error) <= 4 * math.sqrt(max(share * (1 - share), 1 / draws) / draws)


@SIZES
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rounding_has_no_seams(size, threads):
    """Around the ends of pieces every word is w·⌊y + u⌋ for the next u of one keystream, with any threads."""
    values = np.random.default_rng(2).uniform(-1.1, 1.1, size).astype(np.float32)
    out = np.empty(size + EXTRA_WORDS, dtype=np.uint32)
    clipped = quantise_into(out, values, 7, Q12, np.random.default_rng(4), threads=threads)
    assert clipped == np.count_nonzero(np.abs(values) > 1)
    uniform = in_one_go(np.random.default_rng(4).bytes(16), size) / 2**32  # an even number of levels
    exact = (np.clip(values.astype(np.float64), -1, 1) + 1) * (Q12.levels - 1) / 2 + uniform
    words = out[:size].astype(np.int64)
    assert not (words % 7).any()
    sure = np.abs(exact - np.round(exact)) > 2**-28
    assert np.count_nonzero(~sure) <= np.count_nonzero(np.abs(values) >= 1) + 5
    assert np.array_equal(words[sure] // 7, np.floor(exact[sure]))
    assert out[size:].tolist() == [7, 1, 1]


@SIZES
def test_one_pass_is_both_steps(size):
    """`mask_into` gives the words of `quantise_into` and then `add_masks`, with any number of threads."""
    values = np.random.default_rng(6).normal(0, 0.5, size).astype(np.float32)
    seeds = [Mask(Seed(bytes([number]) * 32), sign) for number, sign in ((1, 1), (2, -1), (3, -1))]
    expected = np.empty(size + EXTRA_WORDS, dtype=np.uint32)
    clipped = quantise_into(expected, values, 1000, Q12, np.random.default_rng(8))
    add_masks(expected, seeds, RING_32)
    for threads in (1, 2, 5):
        out = np.empty(size + EXTRA_WORDS, dtype=np.uint32)
        assert clipped == mask_into(out, values, 1000, Q12, seeds, np.random.default_rng(8), threads=threads)
        assert np.array_equal(out, expected)


def test_a_piece_with_clipped_values_is_rounded_like_any_other():
    """Neither a value beyond the clip nor the lie of the array in memory changes another value's level."""
    values = np.random.default_rng(0).uniform(-1, 1, 1000)
    beyond = values.copy()
    beyond[[3, 500]] = 1e300, -4.0
    spread = np.zeros(3000)
    spread[::3] = beyond
    plain, other, apart = (np.empty(1000 + EXTRA_WORDS, dtype=np.uint32) for _ in range(3))
    assert quantise_into(plain, values, 1, Q12, np.random.default_rng(1)) == 0
    assert quantise_into(other, beyond, 1, Q12, np.random.default_rng(1)) == 2
    assert quantise_into(apart, spread[::3], 1, Q12, np.random.default_rng(1)) == 2
    assert np.flatnonzero(plain != other).tolist() == [3, 500]
    assert other[[3, 500]].tolist() == [Q12.levels - 1, 0]
    assert np.array_equal(other, apart)


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_not_finite_is_refused(dtype, bad, threads):
    """NaN and infinity are refused by the index of the first, also beside values that are clipped."""
    values = np.full(2 * PIECE, 3.0, dtype=dtype)
    values[[PIECE + 17, PIECE + 40]] = bad
    out = np.empty(len(values) + EXTRA_WORDS, dtype=np.uint32)
    with pytest.raises(UsageError, match=f"value {PIECE + 17} is {bad}; only finite numbers"):
        quantise_into(out, values, 1, Q12, np.random.default_rng(0), threads=threads)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": 0}, "the weight is 0; give an integer of at least 1"),
        ({"weight": 1001}, "the weight is 1001; the most that the terms allow is 1000"),
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
        "out": np.zeros(7, dtype=np.uint32), "values": np.zeros(4), "weight": 1, "quantisation": Q12,
        "masks": [Mask(Seed(bytes(32)), 1)], "rng": np.random.default_rng(0),
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
