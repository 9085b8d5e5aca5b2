"""Availability is drawn as its model says."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import AvailabilityLog, UsageError
from coterie.selection import (
    CorrelatedGroups,
    DailyCycle,
    IndependentDropout,
    MarkovOnOff,
    RedrawnDropout,
    Replay,
    draw_dropout,
)


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


def shares_away(model, rounds=6000, seed=0):
    """Return each user's share of absence, and the availability of every round."""
    online = np.array(list(islice(model.rounds(np.random.default_rng(seed)), rounds)))
    return 1 - online.mean(axis=0), online


DROPOUT = np.array([0.1, 0.3, 0.5, 0.8])


@pytest.mark.parametrize(
    "model",
    [
        IndependentDropout(DROPOUT),
        DailyCycle(DROPOUT, zones=[0.0, 0.25, 0.5, 0.9], rounds_per_day=12, swing=1.0),
        MarkovOnOff(DROPOUT, absence=6.0),
        CorrelatedGroups(DROPOUT, groups=[0, 0, 1, 1], outage=0.1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_model_keeps_each_users_share_of_absence(model):
    """Patterns differ in when users are away, not in how often."""
    away, _ = shares_away(model)
    assert model.users == 4
    assert away == pytest.approx(DROPOUT, abs=0.05)


def test_a_daily_cycle_repeats_and_zones_shift_it():
    """Users half a day apart are away at opposite times; a day later it is the same again."""
    _, online = shares_away(DailyCycle([0.5, 0.5], zones=[0.0, 0.5], rounds_per_day=4, swing=1.0), 8000)
    by_hour = 1 - online.reshape(2000, 4, 2).mean(axis=0)
    assert by_hour[:, 0] == pytest.approx([1.0, 0.5, 0.0, 0.5], abs=0.05)
    assert by_hour[:, 1] == pytest.approx([0.0, 0.5, 1.0, 0.5], abs=0.05)


@given(share=st.floats(0.02, 0.95), absence=st.floats(1.0, 30.0))
@settings(max_examples=25, deadline=None)
def test_markov_absences_last_as_long_as_asked_or_as_they_must(share, absence):
    """A user away a share p of rounds has absences of the mean length asked for, or p/(1-p) if that is longer."""
    _, online = shares_away(MarkovOnOff([share], absence), rounds=30_000)
    away = ~online[:, 0]
    starts = np.count_nonzero(away[1:] & ~away[:-1])
    expected = max(absence, share / (1 - share))
    if starts > 200:
        assert away.sum() / starts == pytest.approx(expected, rel=0.25)


def test_groups_fall_out_together():
    """Users of one group are away together far more often than users of different groups."""
    _, online = shares_away(CorrelatedGroups([0.3] * 4, groups=[0, 0, 1, 1], outage=0.25))
    correlation = np.corrcoef(online.T)
    assert correlation[0, 1] > 0.6
    assert abs(correlation[0, 2]) < 0.06


def test_replay_gives_the_log_and_begins_again():
    """A replayed log is the recorded one, repeated."""
    online = np.random.default_rng(0).random((5, 3)) < 0.5
    _, seen = shares_away(Replay(AvailabilityLog(online)), rounds=12)
    np.testing.assert_array_equal(seen, np.concatenate((online, online, online[:2])))


def test_redrawn_dropout_is_another_population_each_time():
    """Each start draws new probabilities, from the given values only."""
    model = RedrawnDropout((0.0, 1.0), users=50)
    first, second = (next(model.rounds(np.random.default_rng(seed))) for seed in (1, 2))
    assert (first != second).any()
    np.testing.assert_array_equal(first, next(model.rounds(np.random.default_rng(1))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DailyCycle([0.5], [0.0], rounds_per_day=0), "a day has 0 rounds"),
        (lambda: DailyCycle([0.5], [0.0], swing=1.5), "swing"),
        (lambda: DailyCycle([0.5, 0.5], [0.0]), "one time zone per user"),
        (lambda: MarkovOnOff([0.5], absence=0.5), "an absence lasts 0.5 rounds"),
        (lambda: CorrelatedGroups([0.1], [0], outage=0.2), "lower the outage"),
        (lambda: CorrelatedGroups([0.3, 0.3], [0], outage=0.2), "one group per user"),
        (lambda: CorrelatedGroups([0.3], [-1], outage=0.2), "negative"),
    ],
)
def test_a_model_that_cannot_be_is_refused(call, message):
    """Impossible parameters are a UsageError with the value."""
    with pytest.raises(UsageError, match=message):
        call()
