"""What turns an update into a vector: levels that cannot wrap, words weighted and then rounded, sums and back."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.crypto.quantiser import Quantiser, Sum, dequantise
from coterie.secagg.crypto.ring import PRIME_31, RING_16, RING_32
from reference import exact_word, vectors_by_definition

ALL = [RING_16, RING_32, PRIME_31]
RINGS = pytest.mark.parametrize("ring", ALL, ids=["2^16", "2^32", "prime"])
rings = st.sampled_from(ALL)
keys = st.binary(min_size=32, max_size=32)


def vector(values, weight, quantiser, key=bytes(32), threads=1):
    """The vector of one user, unmasked."""
    out = np.empty(len(values) + quantiser.extra_words, dtype=quantiser.ring.dtype)
    quantise_into(out, np.asarray(values), weight, quantiser, Seed(key), threads=threads)
    return out


@st.composite
def quantisers(draw):
    """Quantisers of every ring, from two levels to as many as there can be."""
    ring = draw(rings)
    weight_cap = draw(st.integers(1, 2000))
    cohort = draw(st.integers(1, max(1, min(2000, (ring.modulus - 1) // weight_cap))))
    return Quantiser(ring, draw(st.floats(1e-3, 1e3)), weight_cap, cohort)


# --- levels ---------------------------------------------------------------------------------------------


@given(rings, st.integers(1, 2**33), st.integers(1, 2**33))
def test_levels_are_the_most_that_cannot_wrap(ring, cohort, weight_cap):
    """The largest sum fits below q, one more level would not, and where two levels do not fit it is refused."""
    if cohort * weight_cap > ring.modulus - 1:
        with pytest.raises(UsageError, match=f"{cohort} users of weight up to {weight_cap} leave no level"):
            Quantiser(ring, 1.0, weight_cap, cohort)
        return
    levels = Quantiser(ring, 1.0, weight_cap, cohort).levels
    assert levels >= 2
    assert cohort * weight_cap * (levels - 1) <= ring.modulus - 1 < cohort * weight_cap * levels


@given(quantisers(), st.data())
def test_the_scale_never_passes_the_last_word(quantiser, data):
    """clip·scale is at most w·(levels - 1)/2 in float64, and as near as float64 allows."""
    weight = data.draw(st.integers(1, quantiser.weight_cap))
    half = Fraction(weight * (quantiser.levels - 1), 2)
    scaled = Fraction(quantiser.clip * quantiser.scale(weight))
    assert half * (1 - Fraction(4, 2**53)) <= scaled <= half
    assert quantiser.step == pytest.approx(2 * quantiser.clip / (quantiser.levels - 1), rel=1e-15)


def test_the_ring_follows_the_cohort_unless_the_word_size_is_chosen():
    """Words have 16 bits where weights are equal and values keep about 10 bits, and else the largest ring's."""
    both = (RING_16, RING_32)
    assert Quantiser.in_ring_of(both, 1.0, 1, 64).ring is RING_16
    assert Quantiser.in_ring_of(both, 1.0, 1, 65).ring is RING_32
    assert Quantiser.in_ring_of(both, 1.0, 2, 8).ring is RING_32
    assert Quantiser.in_ring_of(both, 1.0, 5, 1000, word_bits=16).ring is RING_16
    assert Quantiser.in_ring_of(both, 1.0, 1, 2, word_bits=32).ring is RING_32
    assert Quantiser.in_ring_of((PRIME_31,), 1.0, 1, 2).ring is PRIME_31
    with pytest.raises(UsageError, match="words of 8 bits do not fit this sum; give 16 or 32, or 0"):
        Quantiser.in_ring_of(both, 1.0, 1, 2, word_bits=8)
    with pytest.raises(UsageError, match="words of 16 bits do not fit this sum; give 32, or 0"):
        Quantiser.in_ring_of((PRIME_31,), 1.0, 1, 2, word_bits=16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": 0}, "the quantiser's cohort is 0"),
        ({"cohort": 2.5}, "the quantiser's cohort is 2.5"),
        ({"weight_cap": True}, "the quantiser's weight_cap is True"),
        ({"weight_cap": 2**17}, "leave no level for a value modulo 65536"),
        ({"clip": 0.0}, "the clip is 0.0"),
        ({"clip": -1.0}, "the clip is -1.0"),
        ({"clip": float("nan")}, "the clip is nan"),
        ({"clip": float("inf")}, "the clip is inf"),
        ({"clip": 1e-310}, "the clip is 1e-310"),
    ],
)
def test_impossible_quantisers_are_refused(changes, message):
    """What is no quantiser cannot be made, and the message says why, with the value."""
    with pytest.raises(UsageError, match=message):
        Quantiser(**{"ring": RING_16, "clip": 1.0, "weight_cap": 1, "cohort": 1, **changes})


@pytest.mark.parametrize(
    ("weight", "message"), [(0, "is 0"), (4, "most that the quantiser allows is 3"), (1.5, "1.5")]
)
def test_weights_beyond_the_cap_are_refused(weight, message):
    """A weight is a whole number from 1 to the largest."""
    with pytest.raises(UsageError, match=message):
        vector(np.zeros(2), weight, Quantiser(RING_16, 1.0, 3, 4))


def test_differences_are_named():
    """Where two quantisers differ is said field by field, old and new."""
    one, two = Quantiser(RING_32, 1.0, 1, 8), Quantiser(RING_32, 2.0, 3, 8)
    assert list(one.differences(two)) == ["clip 2.0 in place of 1.0", "weight cap 3 in place of 1"]
    assert list(one.differences(one)) == []


# --- words ----------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(quantisers(), keys, st.data())
def test_words_are_those_of_the_definition(quantiser, key, data):
    """Every word is ⌊w·(x + c)/s + u⌋ in exact arithmetic, up to 4·2^-k; u is a word of the key's keystream."""
    weight = data.draw(st.integers(1, quantiser.weight_cap))
    share = st.floats(-1.2, 1.2) | st.sampled_from([-1.0, 1.0, 0.0])
    values = np.array(data.draw(st.lists(share.map(lambda x: x * quantiser.clip), max_size=30)))
    words = vector(values, weight, quantiser, key)
    assert words.dtype == quantiser.ring.dtype
    expected = list(vectors_by_definition(values.tolist(), weight, quantiser, key))
    assert len(words) == len(expected)
    assert all(word in allowed for word, allowed in zip(words.tolist(), expected, strict=True))


@RINGS
@pytest.mark.parametrize("weight", [1, 7, 90])
def test_rounding_is_unbiased_after_weighting(ring, weight):
    """The mean of many draws is w·(x + c)/s within 4 standard errors; the share of each word passes chi-square."""
    quantiser = Quantiser(ring, 1.5, 90, 8)
    draws = 100_000
    for number, value in enumerate((-1.2, -0.1234, 1e-3, 0.7, 1.4999)):
        words = vector(np.full(draws, value), weight, quantiser, bytes([number, weight]) * 16)[:draws]
        exact = exact_word(value, weight, quantiser)
        low = math.floor(exact)
        share = float(exact - low)
        assert np.abs(words - float(exact)).max() <= 1 + 4 * 2**-16
        up = np.count_nonzero(words == low + 1)
        assert abs(np.mean(words - float(exact))) <= 4 * math.sqrt(max(share * (1 - share), 1 / draws) / draws)
        if 0.01 < share < 0.99:
            # One degree of freedom: 16 is passed by chance once in 15 000 times, and the keys are fixed.
            square = (up - draws * share) ** 2 / (draws * share) + (draws * share - up) ** 2 / (
                draws * (1 - share)
            )
            assert square < 16


@RINGS
def test_words_are_not_multiples_of_the_weight(ring):
    """Weighted first and rounded then, a user's words take every residue modulo its weight alike."""
    weight, size = 13, 26_000
    quantiser = Quantiser(ring, 1.0, 13, 8)
    values = np.random.default_rng(1).uniform(-0.01, 0.01, size)
    residues = np.bincount(vector(values, weight, quantiser)[:size] % weight, minlength=weight)
    if ring is RING_16:
        # Small updates fall on few words: more than the two multiples of w near the middle are taken.
        assert np.count_nonzero(residues) > 2
    else:
        expected = size / weight
        assert ((residues - expected) ** 2 / expected).sum() < 45  # 12 degrees of freedom: 2·10^-5 by chance


@given(quantisers(), keys, keys, st.integers(0, 2**32))
def test_the_key_alone_decides_about_rounding(quantiser, key, other, seed):
    """The same update, weight and key give the same words; another key rounds differently somewhere."""
    values = np.random.default_rng(seed).uniform(-quantiser.clip, quantiser.clip, 400)
    first = vector(values, 1, quantiser, key)
    assert np.array_equal(first, vector(values, 1, quantiser, key))
    if key != other:
        assert not np.array_equal(first, vector(values, 1, quantiser, other))


@RINGS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_not_finite_is_the_zero_update(ring, bad, dtype):
    """An update with one value that is not finite is the zero update bit for bit, at its own weight."""
    quantiser = Quantiser(ring, 1.0, 90, 8)
    size = 70_000
    values = np.random.default_rng(2).uniform(-2, 2, size).astype(dtype)
    zero = vector(np.zeros(size, dtype=dtype), 90, quantiser)
    for place in (0, 40_000, size - 1):
        spoilt = values.copy()
        spoilt[place] = bad
        for threads in (1, 2, 3):
            assert np.array_equal(vector(spoilt, 90, quantiser, threads=threads), zero)
    assert zero[size] == 90


@RINGS
def test_threads_do_not_change_words(ring):
    """One thread or several, the words are the same."""
    quantiser = Quantiser(ring, 1.0, 9, 8)
    values = np.random.default_rng(3).normal(0, 0.7, 100_001).astype(np.float32)
    expected = vector(values, 5, quantiser)
    for threads in (2, 3, 8):
        assert np.array_equal(vector(values, 5, quantiser, threads=threads), expected)


# --- sums -----------------------------------------------------------------------------------------------


def summed(vectors, ring):
    total = np.zeros_like(vectors[0])
    for words in vectors:
        ring.add_into(total, words)
    return total


@settings(max_examples=60)
@given(quantisers(), st.data())
def test_no_sum_wraps_and_it_is_the_users_sum_up_to_the_rounding(quantiser, data):
    """The sum modulo q is the sum of the integers; Σ w·x comes back to less than a step for each user."""
    users = data.draw(st.integers(1, min(quantiser.cohort, 40)))
    size = data.draw(st.integers(0, 30))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    clip = quantiser.clip
    inputs = rng.uniform(-1.2 * clip, 1.2 * clip, (users, size))
    weights = rng.integers(1, quantiser.weight_cap + 1, users).tolist()
    vectors = [vector(row, w, quantiser, rng.bytes(32)) for row, w in zip(inputs, weights, strict=True)]
    total = summed(vectors, quantiser.ring)
    assert total.tolist() == np.sum(vectors, axis=0, dtype=np.uint64).tolist()
    result = dequantise(total, quantiser, users)
    assert isinstance(result, Sum)
    assert result.weight == sum(weights)
    assert result.values.dtype == np.float64
    expected = (np.array(weights)[:, None] * np.clip(inputs, -clip, clip)).sum(axis=0)
    bound = quantiser.step * users * (1 + 1e-9) + 1e-12 * clip * result.weight
    assert (np.abs(result.values - expected) <= bound).all()
    assert (np.abs(result.mean * result.weight - result.values) <= 1e-12 * clip * result.weight).all()


@RINGS
def test_the_error_of_a_sum_grows_with_the_root_of_the_users(ring):
    """The error of a sum of n users has a standard deviation of at most s·√n/2, below s·√(Σ w²)/2."""
    users, size = 40, 20_000
    quantiser = Quantiser(ring, 1.0, 9, users)
    rng = np.random.default_rng(4)
    inputs, weights = rng.uniform(-1, 1, (users, size)), rng.integers(1, 10, users)
    vectors = [
        vector(row, int(w), quantiser, bytes([i]) * 32)
        for i, (row, w) in enumerate(zip(inputs, weights, strict=True))
    ]
    result = dequantise(summed(vectors, ring), quantiser, users)
    errors = result.values - (weights[:, None] * inputs).sum(axis=0)
    assert errors.std() <= 1.05 * quantiser.step * math.sqrt(users) / 2
    assert errors.std() <= quantiser.step * math.sqrt((weights**2).sum())
    assert abs(errors.mean()) <= 4 * errors.std() / math.sqrt(size)


@pytest.mark.parametrize(
    ("ring", "cohort", "weight_cap", "levels"),
    [
        (RING_16, 17, 257, 16),
        (RING_16, 3, 5, 4370),
        (RING_32, 257, 65537, 256),
        (RING_32, 3, 1, 1431655766),
        (PRIME_31, 331, 151, 42967),
        (PRIME_31, 2, 9, 119304648),
    ],
)
@pytest.mark.parametrize("value", [1.0, -1.0, 7.0])
def test_the_largest_sum_is_the_last_element(ring, cohort, weight_cap, levels, value):
    """With cohort·cap·(levels - 1) = q - 1, all at the clip with the greatest weight sum to q - 1, no further."""
    quantiser = Quantiser(ring, 0.1, weight_cap, cohort)
    assert quantiser.levels == levels
    assert cohort * weight_cap * (levels - 1) == ring.modulus - 1
    vectors = [
        vector(np.full(100, 0.1 * value), weight_cap, quantiser, bytes([i % 256]) * 32) for i in range(cohort)
    ]
    total = summed(vectors, ring)
    assert total.tolist() == np.sum(vectors, axis=0, dtype=np.uint64).tolist()
    assert set(total[:100].tolist()) == {ring.modulus - 1 if value > 0 else 0}
    assert total[100:].tolist() == [cohort * weight_cap, *[cohort] * ring.check_words]
    sign = math.copysign(1.0, value)
    assert dequantise(total, quantiser, cohort).values == pytest.approx(
        np.full(100, sign * 0.1 * cohort * weight_cap)
    )


SMALL = Quantiser(RING_16, 1.0, weight_cap=3, cohort=5461)  # 5 levels


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([8, 2, 2, 3, 2, 2], "masks did not cancel: the check words of 2 users are 2, 3, 2, 2"),
        ([8, 2, 2, 2, 2, 2**16 - 1], "are 2, 2, 2, 65535"),
        ([8, 1, 2, 2, 2, 2], "the weights of 2 users sum to 1; between 2 and 6"),
        ([8, 7, 2, 2, 2, 2], "the weights of 2 users sum to 7"),
        ([13, 3, 2, 2, 2, 2], "a word of the sum of 2 users is 13; of a weight of 3 it is 12 at most"),
    ],
)
def test_a_sum_that_cannot_be_is_the_peers_fault(words, message):
    """Check words, weights and words that no set of users could have sent discard the sum."""
    assert SMALL.levels == 5
    with pytest.raises(PeerError, match=message):
        dequantise(np.array(words, dtype=np.uint16), SMALL, 2)


def test_a_good_sum():
    """Words worked out by hand: step 0.5; 8 (weight 2, x = 1) and 1 (weight 1, x = -0.5) stand for 1.5."""
    result = dequantise(np.array([9, 3, 2, 2, 2, 2], dtype=np.uint16), SMALL, 2)
    assert (result.values.tolist(), result.weight, result.mean.tolist()) == ([1.5], 3, [0.5])


@pytest.mark.parametrize(
    ("total", "users", "message"),
    [
        (np.zeros(4, dtype=np.uint16), 1, "5 or more words"),
        (np.zeros(5, dtype=np.int64), 1, "int64"),
        (np.zeros(5, dtype=np.uint32), 1, "uint32"),
        (np.zeros((5, 1), dtype=np.uint16), 1, r"\(5, 1\)"),
        (np.ones(5, dtype=np.uint16), 0, "a sum of 0 users"),
        (np.ones(5, dtype=np.uint16), 5462, "1 to 5461"),
    ],
)
def test_what_is_no_sum_is_the_callers_fault(total, users, message):
    """Shapes, words and numbers of users that cannot be are refused before a word is looked at."""
    with pytest.raises(UsageError, match=message):
        dequantise(total, SMALL, users)


def test_a_vector_has_the_weight_and_64_bits_of_check_words():
    """After the values come w and check words of 1: four of 16 bits, two of 32."""
    assert vector(np.zeros(2), 3, Quantiser(RING_16, 1.0, 3, 4))[2:].tolist() == [3, 1, 1, 1, 1]
    assert vector(np.zeros(2), 3, Quantiser(RING_32, 1.0, 3, 4))[2:].tolist() == [3, 1, 1]
    assert Quantiser(RING_16, 1.0, 3, 4).vector_bytes(7) == 2 * 12
    assert Quantiser(RING_32, 1.0, 3, 4).vector_bytes(7) == 4 * 10
