"""No level is ever above the truth: what is shown plainly, or not known, counts as the worst that it can be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, LogBuilder, ParticipationLog, UsageError
from coterie.leakage import Evidence, Question, breaches, examine
from support.leakage import rational
from support.leakage.hard_logs import dense, small_logs


def verdict_on(evidence, question=None):
    return examine(evidence, question, rng=np.random.default_rng(0), time_left=lambda: 60.0)


def plainly(log, plain):
    """The rows that the server has if the rounds in `plain` showed each user alone, from the definition."""
    rows = []
    for row, round_ in zip(dense(log), log.row_rounds().tolist(), strict=True):
        if round_ in plain:
            rows += [[int(other == user) for other in range(log.users)] for user in range(log.users) if row[user]]
        else:
            rows.append(row)
    return rows or [[0] * log.users]


@settings(deadline=None, max_examples=80)
@given(small_logs(), st.data())
def test_a_plain_round_shows_everyone_who_took_part_alone(log, data):
    """With plain rounds levels and isolated users are those of the log in which each update stands by itself."""
    rounds = range(log.first, log.first + log.rounds)
    plain = data.draw(st.sets(st.sampled_from(list(rounds))))
    verdict = verdict_on(Evidence(log, plain=tuple(plain)), Question(required=2))
    rows = plainly(log, plain)
    assert verdict.strong == rational.strong_level(rows)
    assert (verdict.weak.low, verdict.weak.high) == (rational.weak_level(rows),) * 2
    assert sorted(each.user for each in verdict.isolated) == rational.isolated_users(rows)
    assert verdict.isolation_known
    assert all(each.proof.isolates(each.user, verdict.log) for each in verdict.isolated)
    assert verdict.met == (verdict.strong >= 2)
    shown = {user for round_, users in log.sets() if round_ in plain for user in users.tolist()}
    assert shown <= {each.user for each in verdict.isolated}


@settings(deadline=None, max_examples=80)
@given(small_logs(), st.data())
def test_a_reported_level_is_at_most_the_true_one_whatever_was_learned_unseen(log, data):
    """For any sums that the server may have learned in unknown rounds, no level is above the true one."""
    users = st.sets(st.integers(0, log.users - 1), min_size=1)
    sender = data.draw(users)
    unknown_round = data.draw(st.integers(0, log.first + log.rounds + 1))
    verdict = verdict_on(Evidence(log, unknown={unknown_round: sorted(sender)}), Question(required=2))
    unseen = [data.draw(st.sets(st.sampled_from(sorted(sender)), min_size=1)) for _ in range(2)]
    truth = dense(log) + [[int(user in members) for user in range(log.users)] for members in unseen]
    assert verdict.strong <= rational.strong_level(truth)
    assert verdict.weak.low <= rational.weak_level(truth) <= verdict.weak.high
    isolated = set(rational.isolated_users(truth))
    assert {each.user for each in verdict.isolated} <= isolated
    assert isolated & sender <= {each.user for each in verdict.isolated} | set(verdict.maybe_isolated.tolist())
    assert verdict.strong == 1
    assert verdict.met is False
    assert not verdict.certain


def test_what_is_certain_of_unknown_rounds():
    """The level before the first unknown round is that of the rounds before it; who may be isolated is named."""
    log = ParticipationLog.from_dense([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], names=["a", "b", "c", "d"])
    verdict = verdict_on(Evidence(log, unknown={2: [2, 3]}))
    assert verdict.before_unknown == 2
    assert verdict_on(Evidence(log, unknown={0: [0]})).before_unknown == 4
    written = verdict.record()
    assert (written["strong"]["level"], written["weak"]["low"], written["weak"]["exact"]) == (1, 1, False)
    assert (written["isolated"], written["maybe_isolated"], written["isolation_known"]) == ([], ["c", "d"], False)
    assert written["unknown_rounds"] == [2]
    assert verdict.columns["group"].tolist() == [2, 2, 1, 1]
    assert verdict.columns["unknown"].tolist() == [False, False, True, True]


def test_nobody_who_sent_something_leaves_all_certain():
    """A round that ended before anybody sent anything gives nothing away."""
    log = ParticipationLog.from_dense([[1, 1, 1]])
    verdict = verdict_on(Evidence(log, unknown={1: []}), Question(required=3))
    assert (verdict.certain, verdict.strong, verdict.met) == (True, 3, True)
    with pytest.raises(UsageError, match="round 1 names user 9, but the log has 3 users"):
        Evidence(log, unknown={1: [9]})


def test_plain_rounds_of_more_users_than_can_be_eliminated():
    """Five thousand users seen alone are all isolated, each by its own set, though no elimination is made."""
    builder = LogBuilder(5000)
    for start in range(0, 5000, 500):
        builder.append(range(start, start + 500))
    verdict = verdict_on(Evidence(builder.build(), plain=tuple(range(10))))
    assert len(verdict.isolated) == 5000
    assert (verdict.isolation_known, verdict.strong, verdict.weak.high, verdict.weak.exact) == (True, 1, 1, True)
    assert all(each.round == each.user // 500 for each in verdict.isolated)


def test_plain_rounds_of_whole_batches_keep_the_plan():
    """A plain round breaks a plan only if a batch did not come whole."""
    plan = BatchPlan.from_batches(users=4, privacy=2, batches=[[0, 1], [2, 3]])
    log = ParticipationLog.from_dense([[1, 1, 1, 1], [1, 1, 1, 0]])
    assert [breach.round for breach in breaches(Evidence(log, plan=plan, plain=(0, 1)))] == [1]


def test_named_colluders_are_not_missing_from_their_batch():
    """Without the named colluders the level falls, and the plan is as it was kept."""
    plan = BatchPlan.from_batches(users=6, privacy=3, batches=[[0, 1, 2], [3, 4, 5]])
    log = ParticipationLog.from_dense([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    verdict = verdict_on(Evidence(log, plan=plan, unknown={5: [1, 4]}), Question(named_colluders=(1,)))
    assert verdict.breaches == ()
    assert verdict.users == 5
    assert verdict.maybe_isolated.tolist() == [3]  # user 4, counted without the colluder
    assert verdict_on(Evidence(log, plan=plan), Question(named_colluders=(1,))).strong == 2
