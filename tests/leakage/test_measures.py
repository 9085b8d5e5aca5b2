"""The three measures round by round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie import LogBuilder, ParticipationLog, UsageError
from coterie.leakage import RoundMeasures, RunningMeasures, measure, strong_level


@st.composite
def logs(draw):
    """Logs with rounds of no, one or several learned sets that may overlap."""
    users = draw(st.integers(1, 8))
    learned = stn.arrays(np.int64, users, elements=st.integers(0, 1))
    rounds = draw(st.lists(st.lists(learned, max_size=3), max_size=8))
    builder = LogBuilder(users, first=draw(st.integers(0, 5)))
    for sets in rounds:
        builder.append(*(np.flatnonzero(row) for row in sets if row.any()))
    return builder.build()


@settings(deadline=None)
@given(logs())
def test_equal_the_naive_computation(log):
    """At every round T, F and C are what numpy finds in the dense matrix up to that round."""
    measures = measure(log)
    assert len(measures) == log.rounds
    dense, row_rounds = log.to_dense().astype(np.int64), log.row_rounds()
    for index in range(log.rounds):
        round_ = log.first + index
        took_part = np.array(
            [dense[row_rounds == r].max(axis=0) for r in range(log.first, round_ + 1)]
        )  # once per round
        counts = took_part.sum(axis=0)
        completed = int(took_part.any(axis=1).sum())
        gap = int(counts.max() - counts.min())
        assert measures[index] == RoundMeasures(
            strong=strong_level(log.window(log.first, round_ + 1)),
            fairness_gap=gap / (index + 1),
            fairness_gap_completed=gap / completed if completed else 0.0,
            cardinality=counts.sum() / (index + 1),
            skipped=index + 1 - completed,
        )
        assert measures.participation.shape == (log.users,)
    if log.rounds:
        assert measures.participation.tolist() == counts.tolist()
        assert measures.final == measures[log.rounds - 1]


@settings(deadline=None)
@given(logs())
def test_running_measures_agree(log):
    """Fed round by round, the running measures are those of the log so far."""
    running = RunningMeasures(log.users)
    assert running.now == RoundMeasures(log.users, 0.0, 0.0, 0.0, 0)
    measures = measure(log)
    for index, (_, sets) in enumerate(log.by_round()):
        running.add_round(sets)
        assert running.now == measures[index]
    assert running.now == measures.final
    assert (running.rounds, running.completed) == (log.rounds, log.completed)
    assert running.participation.tolist() == measures.participation.tolist()


def test_long_logs_stay_exact():
    """The largest and the smallest count are right after many more rounds than the histogram began with."""
    rng = np.random.default_rng(1)
    dense = (rng.random((300, 7)) < [0.1, 0.9, 0.5, 0.5, 0.2, 1.0, 0.7]).astype(np.int64)
    dense[100:120] = 0
    measures = measure(ParticipationLog.from_dense(dense))
    counts = np.cumsum(dense, axis=0)
    elapsed = np.arange(1, 301)
    assert np.array_equal(measures.fairness_gap, (counts.max(axis=1) - counts.min(axis=1)) / elapsed)
    assert np.array_equal(measures.cardinality, counts.sum(axis=1) / elapsed)
    assert measures.final.skipped == int((~dense.any(axis=1)).sum()) >= 20
    assert measures.strong.dtype == measures.skipped.dtype == np.int64
    assert measures.fairness_gap.dtype == np.float64


def test_a_log_without_rounds_has_final_values():
    """Before the first round T is N and the rest is 0."""
    assert measure(LogBuilder(users=4).build()).final == RoundMeasures(4, 0.0, 0.0, 0.0, 0)


def test_a_bad_round_changes_nothing():
    """If one set of a round cannot be, no set of the round is taken in."""
    running = RunningMeasures(4)
    with pytest.raises(UsageError, match="user 9"):
        running.add_round([[0, 1], [9]])
    assert running.now == RoundMeasures(4, 0.0, 0.0, 0.0, 0)
    assert running.rounds == 0
    with pytest.raises(ValueError, match="read-only"):
        running.participation[0] = 1
