"""Vectors over Z_q, what their words mean, and where arrays lie in them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.crypto.ring import (
    EXTRA_WORDS,
    PIECE,
    PRIME_31,
    RING_32,
    Layout,
    Quantisation,
    Ring,
    Sum,
    dequantise,
)

RINGS = pytest.mark.parametrize("ring", [RING_32, PRIME_31], ids=["2^32", "prime"])
rings = st.sampled_from([RING_32, PRIME_31])


def elements(ring):
    """Elements of the ring, often those at its ends."""
    return st.one_of(st.integers(0, ring.modulus - 1), st.sampled_from([0, 1, ring.modulus - 2, ring.modulus - 1]))


# --- the ring -------------------------------------------------------------------------------------------


def summed_up(ring, vectors):
    """Add the vectors to zeros, one after the other."""
    total = np.zeros_like(vectors[0])
    for words in vectors:
        ring.add_into(total, words)
    return total


@given(rings, st.data())
def test_arithmetic_is_that_of_integers_modulo_q(ring, data):
    """Sums and differences are the integers' own, reduced modulo q, and stay words of 32 bits."""
    pairs = data.draw(st.lists(st.tuples(elements(ring), elements(ring)), max_size=40))
    a, b = (np.array(side, dtype=np.uint32) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    total, difference = a.copy(), a.copy()
    ring.add_into(total, b)
    ring.subtract_into(difference, b)
    summed = summed_up(ring, [a, b, b])
    assert total.tolist() == [(x + y) % ring.modulus for x, y in pairs]
    assert difference.tolist() == [(x - y) % ring.modulus for x, y in pairs]
    assert summed.tolist() == [(x + 2 * y) % ring.modulus for x, y in pairs]
    assert total.dtype == difference.dtype == summed.dtype == np.uint32
    assert b.tolist() == [y for _, y in pairs]


@RINGS
@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_pieces_leave_no_seam(ring, size):
    """Vectors around the length of a piece are added like any other."""
    rng = np.random.default_rng(1)
    vectors = [rng.integers(0, ring.modulus, size, dtype=np.uint32) for _ in range(3)]
    total = summed_up(ring, vectors)
    assert np.array_equal(total, np.sum(vectors, axis=0, dtype=np.uint64) % ring.modulus)
    for words in vectors:
        ring.subtract_into(total, words)
    assert not total.any()


def test_only_the_two_rings_are_known():
    """No other modulus is taken, and vectors of different lengths are not added."""
    with pytest.raises(UsageError, match="the modulus is 65537"):
        Ring(65537)
    target = np.zeros(3, dtype=np.uint32)
    for words in (np.zeros(4, dtype=np.uint32), np.zeros(1, dtype=np.uint32), np.zeros((3, 1), dtype=np.uint32)):
        with pytest.raises(UsageError, match="cannot be added"):
            RING_32.add_into(target, words)
        with pytest.raises(UsageError, match="cannot be added"):
            PRIME_31.subtract_into(target, words)


# --- quantisation ---------------------------------------------------------------------------------------


@given(rings, st.integers(1, 2**33), st.integers(1, 2**33))
def test_levels_are_the_most_that_cannot_wrap(ring, cohort, weight_cap):
    """The largest sum fits below q, one more level would not, and where two levels do not fit it is refused."""
    if cohort * weight_cap > ring.modulus - 1:
        with pytest.raises(UsageError, match=f"can reach {cohort * weight_cap}, and would wrap around"):
            Quantisation.fitting(ring, 1.0, cohort, weight_cap)
        return
    quantisation = Quantisation.fitting(ring, 1.0, cohort, weight_cap)
    assert cohort * weight_cap * (quantisation.levels - 1) <= ring.modulus - 1
    assert cohort * weight_cap * quantisation.levels > ring.modulus - 1
    with pytest.raises(UsageError, match=f"wrap around at {ring.modulus}"):
        Quantisation(1.0, quantisation.levels + 1, weight_cap, cohort, ring)


@given(st.floats(1e-100, 1e100), st.integers(2, 2**32))
def test_the_scale_never_passes_the_last_level(clip, levels):
    """clip·scale is at most (levels - 1) / 2 in float64, and as near as float64 allows."""
    quantisation = Quantisation(clip, levels, 1, 1, RING_32)
    half = Fraction(levels - 1, 2)
    assert half * (1 - Fraction(4, 2**53)) <= Fraction(clip * quantisation.scale) <= half
    assert quantisation.step == pytest.approx(1 / quantisation.scale, rel=1e-15)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"levels": 1}, "the levels is 1"),
        ({"levels": 2.5}, "the levels is 2.5"),
        ({"cohort": 0}, "the cohort is 0"),
        ({"weight_cap": True}, "the weight cap is True"),
        ({"clip": 0.0}, "the clip is 0.0"),
        ({"clip": -1.0}, "the clip is -1.0"),
        ({"clip": float("nan")}, "the clip is nan"),
        ({"clip": float("inf")}, "the clip is inf"),
        ({"clip": 1e-310}, "the clip is 1e-310"),
        ({"levels": 2**32 + 1}, "a sum of 1 users of weight up to 1 at 4294967297 levels can reach 4294967296"),
    ],
)
def test_impossible_quantisations_are_refused(changed, message):
    """What is no quantisation cannot be made, and the message says why, with the value."""
    fields = {"clip": 1.0, "levels": 3, "weight_cap": 1, "cohort": 1, "ring": RING_32}
    with pytest.raises(UsageError, match=message):
        Quantisation(**(fields | changed))


# --- what a sum means -----------------------------------------------------------------------------------


@settings(deadline=None)
@given(rings, st.data())
def test_a_sum_is_the_users_sum_up_to_the_rounding(ring, data):
    """Σ w·x comes back with less than one step of error for each unit of weight, and Σ w exactly."""
    cohort, cap = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 2000))
    users, size = data.draw(st.integers(1, cohort)), data.draw(st.integers(0, 30))
    clip = data.draw(st.floats(1e-3, 1e3))
    quantisation = Quantisation.fitting(ring, clip, cohort, cap)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    inputs = rng.uniform(-1.2 * clip, 1.2 * clip, (users, size))
    weights = rng.integers(1, cap + 1, users)
    vectors = np.empty((users, size + EXTRA_WORDS), dtype=np.uint32)
    clipped = [
        quantise_into(vector, values, weight, quantisation, rng)
        for vector, values, weight in zip(vectors, inputs, weights, strict=True)
    ]
    total = summed_up(ring, vectors)
    result = dequantise(total, quantisation, users)
    assert clipped == (np.abs(inputs) > clip).sum(axis=1).tolist()
    assert result.weight == weights.sum()
    assert result.values.dtype == np.float64
    expected = (weights[:, None] * np.clip(inputs, -clip, clip)).sum(axis=0)
    bound = quantisation.step * result.weight * (1 + 1e-9) + 1e-12 * clip * result.weight
    assert (np.abs(result.values - expected) <= bound).all()
    assert (np.abs(result.mean * result.weight - result.values) <= 1e-12 * clip * result.weight).all()


@pytest.mark.parametrize(
    ("ring", "cohort", "weight_cap", "levels"),
    [
        (RING_32, 257, 65537, 256),
        (RING_32, 3, 1, 1431655766),
        (PRIME_31, 331, 151, 42967),
        (PRIME_31, 2, 9, 119304648),
    ],
)
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_the_largest_sum_is_the_last_element(ring, cohort, weight_cap, levels, value):
    """With cohort·cap·(levels - 1) = q - 1, all at the clip with the greatest weight sum to q - 1, no further."""
    quantisation = Quantisation.fitting(ring, 0.1, cohort, weight_cap)
    assert quantisation.levels == levels
    assert cohort * weight_cap * (levels - 1) == ring.modulus - 1
    rng = np.random.default_rng(5)
    total = np.zeros(100 + EXTRA_WORDS, dtype=np.uint32)
    exact = np.zeros(100 + EXTRA_WORDS, dtype=np.uint64)
    for _ in range(cohort):
        vector = np.empty_like(total)
        quantise_into(vector, np.full(100, value), weight_cap, quantisation, rng)
        ring.add_into(total, vector)
        exact += vector
    assert total.tolist() == exact.tolist()
    assert set(total[:-EXTRA_WORDS].tolist()) == {ring.modulus - 1 if value > 0 else 0}
    assert total[-EXTRA_WORDS:].tolist() == [cohort * weight_cap, cohort, cohort]
    result = dequantise(total, quantisation, cohort)
    assert result.values == pytest.approx(np.full(100, value * 0.1 * cohort * weight_cap))


SMALL = Quantisation(1.0, levels=5, weight_cap=3, cohort=4, ring=RING_32)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([8, 2, 3, 2], "masks did not cancel: the check words of 2 users are 3 and 2"),
        ([8, 2, 2, 2**32 - 1], "are 2 and 4294967295"),
        ([8, 1, 2, 2], "the weights of 2 users sum to 1; between 2 and 6"),
        ([8, 7, 2, 2], "the weights of 2 users sum to 7"),
        ([13, 3, 2, 2], "a word of the sum of 2 users is 13; of a weight of 3 it is 12 at most"),
    ],
)
def test_a_sum_that_cannot_be_is_the_peers_fault(words, message):
    """Check words, weights and levels that no set of users could have sent discard the sum."""
    with pytest.raises(PeerError, match=message):
        dequantise(np.array(words, dtype=np.uint32), SMALL, 2)


def test_a_good_sum():
    """Words worked out by hand: step 0.5; levels 4 (weight 2) and 1 (weight 1) stand for 2·1 - 0.5."""
    result = dequantise(np.array([9, 3, 2, 2], dtype=np.uint32), SMALL, 2)
    assert (result.values.tolist(), result.weight, result.mean.tolist()) == ([1.5], 3, [0.5])
    assert isinstance(result, Sum)


@pytest.mark.parametrize(
    ("total", "users", "message"),
    [
        (np.zeros(2, dtype=np.uint32), 1, "3 or more words"),
        (np.zeros(5, dtype=np.int64), 1, "int64"),
        (np.zeros((5, 1), dtype=np.uint32), 1, r"\(5, 1\)"),
        (np.ones(5, dtype=np.uint32), 0, "a sum of 0 users"),
        (np.ones(5, dtype=np.uint32), 5, "at most 4"),
    ],
)
def test_what_is_no_sum_is_the_callers_fault(total, users, message):
    """Shapes, dtypes and numbers of users that cannot be are refused before a word is looked at."""
    with pytest.raises(UsageError, match=message):
        dequantise(total, SMALL, users)


# --- layout ---------------------------------------------------------------------------------------------

arrays = stn.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    stn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.floats(-100, 100, width=16),
)


@given(st.dictionaries(st.text(max_size=4), arrays, max_size=5))
def test_named_arrays_come_back(named):
    """Flat and back, every array has its name, shape, dtype and values; the order of a mapping means nothing."""
    layout = Layout.of(named)
    flat = layout.flatten(dict(reversed(named.items())))
    assert flat.shape == (layout.dimension,) == (sum(array.size for array in named.values()),)
    assert flat.dtype == (np.float64 if any(a.dtype == np.float64 for a in named.values()) else np.float32)
    restored = layout.restore(flat)
    assert list(restored) == list(named)
    for name, array in named.items():
        assert restored[name].dtype == array.dtype
        assert restored[name].shape == array.shape
        assert np.array_equal(restored[name], array)


@given(arrays)
def test_a_single_array_comes_back(array):
    """An array without a name comes back as one."""
    layout = Layout.of(array)
    restored = layout.restore(layout.flatten(array).astype(np.float64))
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    assert np.array_equal(restored, array)
    assert Layout.of({"a": array}) != layout


def test_a_single_array_is_not_copied():
    """A contiguous array is used where it lies; one that is not is copied into a row."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.shares_memory(Layout.of(array).flatten(array), array)
    turned = array.T
    assert Layout.of(turned).flatten(turned).tolist() == [0, 3, 1, 4, 2, 5]


def test_arrays_of_another_layout_are_refused():
    """Another name, shape, dtype or number of values is refused, and so is what is no float."""
    good = {"w": np.zeros((2, 2), dtype=np.float32), "b": np.zeros(2, dtype=np.float32)}
    layout = Layout.of(good)
    for wrong in (
        {"w": good["w"]},
        {"w": good["w"], "c": good["b"]},
        {**good, "b": np.zeros(3, dtype=np.float32)},
        {**good, "b": np.zeros(2)},
        good["w"],
    ):
        with pytest.raises(UsageError, match="these arrays are"):
            layout.flatten(wrong)
    with pytest.raises(UsageError, match="for 6 values"):
        layout.restore(np.zeros(5))
    with pytest.raises(UsageError, match="steps is of int64; only arrays of float16"):
        Layout.of({"w": good["w"], "steps": np.zeros(1, dtype=np.int64)})
    with pytest.raises(UsageError, match="the array is of >f4"):
        Layout.of(np.zeros(1, dtype=">f4"))
