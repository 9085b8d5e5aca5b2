"""A plain sum can be rounded as the protocols' words are: levels, bounds, chance, and a whole run."""

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.experiments.plain import WordRounding
from coterie.lab.experiments.run import Run
from coterie.secagg.crypto.quantiser import Quantiser, dequantise
from coterie.secagg.crypto.ring import RING_16, RING_32
from support.experiments.tiny import finished, tiny_spec

values = st.floats(-2.0, 2.0, width=32)


@settings(max_examples=200)
@given(
    vector=st.lists(values, min_size=1, max_size=8),
    bits=st.sampled_from([16, 32]),
    clip=st.sampled_from([0.25, 0.5, 1.0]),
    weight=st.integers(1, 30),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_word_is_one_of_the_two_next_to_the_value(vector, bits, clip, weight, seed):
    """In exact numbers: w·(x + c)/s lies between the word and the next, and no word passes w·(levels - 1)."""
    rounding = WordRounding(bits, clip, weight_cap=30, cohort=12)
    assert 12 * 30 * (rounding.levels - 1) <= 2**bits - 1 < 12 * 30 * rounding.levels
    step = 2 * Fraction(clip) / (rounding.levels - 1)
    words = rounding.sum_of_words(torch.tensor([vector]), np.array([weight]), seed)
    for value, word in zip(vector, words.tolist(), strict=True):
        exact = weight * (min(max(Fraction(value), -Fraction(clip)), Fraction(clip)) + Fraction(clip)) / step
        slack = Fraction(1, 2**20)  # of float64, where the exact value is all but a whole number
        assert floor(exact - slack) <= word <= ceil(exact + slack)
        assert 0 <= word <= weight * (rounding.levels - 1)


def test_rounding_is_right_on_average_and_a_function_of_the_seed():
    """Over many values the mean of the words is the value; equal seeds round equally, others do not."""
    rounding = WordRounding(16, 0.5, weight_cap=1, cohort=60)
    vectors = torch.full((2, 100_000), 0.1234)
    words = rounding.sum_of_words(vectors, np.array([1, 1]), 5).double() / 2
    exact = (float(np.float32(0.1234)) + 0.5) / rounding.step
    assert len(words.unique()) == 3
    assert float(words.mean()) == pytest.approx(exact, abs=5 * 0.5 / np.sqrt(200_000))
    means = [rounding.mean(vectors, np.array([1, 1]), seed).numpy() for seed in (5, 5, 6)]
    assert np.array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


def test_weights_count_as_they_should():
    """The mean is the weighted one, to within a step over the sum of the weights."""
    rounding = WordRounding(32, 0.5, weight_cap=50, cohort=3)
    vectors, weights = torch.tensor([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.25]]), np.array([50, 7, 1])
    right = weights @ vectors.double().numpy() / weights.sum()
    assert rounding.mean(vectors, weights, 0).numpy() == pytest.approx(
        right, abs=3 * rounding.step / weights.sum()
    )


@pytest.mark.parametrize(("bits", "ring"), [(16, RING_16), (32, RING_32)])
def test_words_mean_what_the_protocols_take_them_for(bits, ring):
    """Levels are the quantiser's, and the sum of words, with weights and check words, opens to the same mean."""
    rounding, quantiser = WordRounding(bits, 0.3, 5, 12), Quantiser(ring, 0.3, weight_cap=5, cohort=12)
    assert (rounding.levels, rounding.step) == (quantiser.levels, quantiser.step)
    rng = np.random.default_rng(0)
    vectors, weights = torch.from_numpy(rng.normal(0, 0.2, (12, 500)).astype(np.float32)), rng.integers(1, 6, 12)
    words = rounding.sum_of_words(vectors, weights, 3).numpy()
    extra = [weights.sum(), *[12] * quantiser.ring.check_words]
    total = np.concatenate((words, extra)).astype(ring.dtype)
    assert np.array_equal(total[:500], words)
    assert np.array_equal(dequantise(total, quantiser, 12).mean, rounding.mean(vectors, weights, 3))


def test_words_that_leave_no_level_are_refused():
    """Too many users of too large a weight for 16 bits: the message says what to change."""
    with pytest.raises(UsageError, match=r"70 users of weight up to 1000 leave no level .* or take 32 bits"):
        WordRounding(16, 0.5, weight_cap=1000, cohort=70)


def test_a_plain_run_in_words_differs_by_its_rounding_alone(data, new_folder):
    """One round in 16 and in 32 bits: within a step of the unrounded mean, and the same each time."""
    spec = tiny_spec(data, "plain", training__rounds=1)
    unrounded = finished(spec, new_folder()).parameters
    for bits in (16, 32):
        rounded, again = (
            finished(spec.changed({"aggregation.word_bits": bits}), new_folder()).parameters for _ in range(2)
        )
        step = WordRounding(bits, spec.aggregation.clip, 1, spec.selection.per_round).step
        assert torch.equal(rounded, again)
        assert 0 < float((rounded - unrounded).abs().max()) <= step + 1e-6


def test_words_are_checked_before_anything_is_written(data, new_folder):
    """A spec whose words leave no level starts nothing."""
    changes = {"training__weighting": "examples", "aggregation__weight_cap": 60_000, "aggregation__word_bits": 16}
    folder = new_folder()
    with pytest.raises(UsageError, match="leave no level"):
        Run.start(tiny_spec(data, "plain", **changes), folder)
    assert not folder.exists()
