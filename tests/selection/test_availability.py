"""Availability is drawn as its model says."""

import numpy as np
import pytest

from coterie import UsageError
from coterie.selection import IndependentDropout, draw_dropout


def test_drawn_probabilities_come_from_the_given_values_alike():
    """Each value is drawn about equally often, and no other."""
    drawn = draw_dropout([0.1, 0.5], 10_000, np.random.default_rng(0))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [0.1, 0.5]
    assert counts[0] == pytest.approx(5000, abs=250)


def test_users_are_away_with_their_probability():
    """The share of rounds in which a user is away is its dropout probability."""
    model, rng = IndependentDropout([0.0, 0.25, 1.0]), np.random.default_rng(0)
    away = 1 - np.mean([model.sample(rng) for _ in range(4000)], axis=0)
    assert away == pytest.approx([0.0, 0.25, 1.0], abs=0.03)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_is_not_a_probability_is_refused(value):
    """Negative, above one and NaN are refused with the value."""
    with pytest.raises(UsageError, match=str(value)):
        IndependentDropout([0.5, value])
