"""The verdict on a log: everything a report needs, right whatever was asked."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, LogBuilder, ParticipationLog, UsageError
from coterie.leakage import Breach, Evidence, Question, breaches, examine, measure, strong_level, window_level
from support.leakage import rational
from support.leakage.hard_logs import dense, random_selection, small_logs


def verdict_on(log, question=None, **options):
    return examine(log, question, rng=np.random.default_rng(0), **{"time_left": lambda: 60.0, **options})


@settings(deadline=None, max_examples=60)
@given(small_logs())
def test_the_verdict_is_what_the_parts_say(log):
    """Levels, classes, measures and isolated users are those of the definitions, and proofs hold in the log."""
    verdict = verdict_on(log)
    rows, final = dense(log), measure(log).final
    assert verdict.strong == rational.strong_level(rows) == final.strong
    assert (verdict.weak.low, verdict.weak.high) == (rational.weak_level(rows),) * 2
    since = {user: log.row_rounds()[row] for user, row in rational.isolated_since(rows).items()}
    assert [(found.round, found.user) for found in verdict.isolated] == sorted(
        (r, user) for user, r in since.items()
    )
    assert verdict.isolation_known
    assert all(found.proof.isolates(found.user, log) for found in verdict.isolated)
    assert verdict.measures == pytest.approx(final)
    assert len(verdict.witness) == (verdict.weak.high if len(log.set_rounds) else 0)
    columns = list(zip(*rows, strict=True))
    for users in verdict.classes.smallest:
        assert len(users) == verdict.strong
        assert len({columns[user] for user in users}) == 1
    for user, size in zip(verdict.classes.participants, verdict.classes.sizes, strict=True):
        assert size == columns.count(columns[user])
    if verdict.classes.falls:
        assert verdict.classes.falls[-1][1] == verdict.strong
    json.dumps(verdict.record())


@settings(deadline=None, max_examples=60)
@given(small_logs(), st.integers(0, 3))
def test_so_many_colluders_wherever_they_stand(log, count):
    """The levels with c colluders are the lowest over all placements of up to c, by brute force."""
    rows = dense(log)
    if count >= log.users or not any(map(any, rows)):
        return
    verdict = verdict_on(log, Question(colluders=count))
    strong, weak = [], []
    for chosen in (each for size in range(count + 1) for each in combinations(range(log.users), size)):
        left = rational.without(rows, chosen)
        if any(map(any, left)):
            strong.append(rational.strong_level(left))
            weak.append(rational.weak_level(left))
    assert verdict.strong_left == min(strong)
    assert (verdict.weak_left.low, verdict.weak_left.high) == (min(weak), min(weak))


@settings(deadline=None, max_examples=60)
@given(small_logs(), st.integers(1, 9))
@example(ParticipationLog.from_dense([[0, 0, 0], [0, 0, 1]]), 1)  # the only sum is not in the first window
def test_the_worst_window(log, width):
    """The window's level is the lowest over all windows of so many rounds, and it is where it is said to be."""
    starts = range(log.first, log.first + max(log.rounds - width, 0) + 1)
    rows, rounds = np.array(dense(log)), log.row_rounds()
    inside = [rows[(rounds >= start) & (rounds < start + width)].tolist() for start in starts]
    levels = [rational.strong_level(part) for part in inside]
    found = window_level(log, width)
    assert found.level == min(levels)
    assert strong_level(log.window(found.first, found.first + width)) == found.level
    assert found.complete
    assert found == verdict_on(log, Question(window=width)).window
    assert not window_level(log, width, should_stop=lambda: True).complete or not len(log.set_rounds)


def test_what_is_required():
    """Met is proven only: the strong level counts, less the colluders."""
    log = ParticipationLog.from_dense([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    assert verdict_on(log).met is None
    asked = Question(required=3)
    assert verdict_on(log, asked).met
    assert not verdict_on(log, replace(asked, required=4)).met
    assert not verdict_on(log, replace(asked, colluders=1)).met


def test_a_plan_is_held_against_the_log():
    """A part of a batch is a breach, with who was missing; so are users of no batch; whole batches are none."""
    plan = BatchPlan.from_batches(users=6, privacy=2, batches=[[0, 1], [2, 3, 4]])
    log = ParticipationLog.from_dense([[1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 0, 1]])
    assert verdict_on(log).breaches is None
    numbers = np.array([0, 1, 2, 3, 4, -1])
    assert verdict_on(Evidence(log, plan=plan, plan_numbers=numbers)).breaches == (
        Breach(1, None, (5,), ()),
        Breach(1, 0, (0,), (1,)),
    )
    renamed = breaches(Evidence(log, plan=plan, plan_numbers=np.array([1, 0, 3, 2, 4, -1])))
    assert renamed == [Breach(1, None, (5,), ()), Breach(1, 0, (0,), (0,))]
    with pytest.raises(UsageError, match="the log has 7 users, the plan 6"):
        Evidence(ParticipationLog.from_dense([[1] * 7]), plan=plan)
    later = Evidence(log, plan=plan, plan_numbers=numbers, plan_since=2)
    assert breaches(later) == []  # the plan came after these rounds


def test_a_log_may_claim_any_number_of_users_and_rounds():
    """Two thousand million users and a hundred million rounds cost nothing unless they took part."""
    log = ParticipationLog(
        users=2**31 - 1,
        rounds=10**8,
        set_rounds=np.array([0, 10**7, 9 * 10**7]),
        starts=np.array([0, 2, 3, 5]),
        members=np.array([0, 2**31 - 2, 5, 0, 5]),
    )
    verdict = verdict_on(log)
    assert verdict.strong == 1
    assert [found.user for found in verdict.isolated] == [5, 0, 2**31 - 2]
    assert verdict.measures.cardinality == 5 / 10**8
    assert verdict.measures.skipped == 10**8 - 3
    assert strong_level(log) == 1
    assert verdict_on(ParticipationLog.from_dense([[1, 1]]), Question(users=10**15)).users == 10**15


def test_stopped_at_once_the_verdict_is_still_right():
    """Whenever it is stopped a verdict says nothing wrong, and says what it does not know."""
    log = random_selection(20, 5, 25, np.random.default_rng(0))
    whole, stopped = verdict_on(log), verdict_on(log, should_stop=lambda: True)
    assert len(whole.isolated) == 20
    assert stopped.strong == whole.strong
    assert (stopped.isolated, stopped.isolation_known) == ((), False)
    assert stopped.weak.low <= whole.weak.low <= whole.weak.high <= stopped.weak.high
    assert {omission.part for omission in stopped.omissions} >= {"who is isolated", "the forecast"}
    hurried = verdict_on(log, time_left=lambda: 0.0)
    assert len(hurried.isolated) == 20
    assert hurried.forecast is None


def test_combinations_are_given_for_as_many_as_asked():
    """Twenty users come with their combination, the others with the proof by rank; or all, or none."""
    log = random_selection(30, 6, 40, np.random.default_rng(1))
    for wanted, given_ in ((20, 20), (None, 30), (0, 0)):
        verdict = verdict_on(log, Question(combinations=wanted))
        assert len(verdict.isolated) == 30
        assert sum(hasattr(found.proof, "numerators") for found in verdict.isolated) >= given_
        assert all(found.proof.isolates(found.user, log) for found in verdict.isolated)
        listed = verdict.record()["isolated"]
        assert all((one["combination"] is None) == ("full_rank" in one) for one in listed)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Question(users=2), "the log has 3 users, more than the 2 given"),
        (Question(colluders=3), "3 of 3 users cannot collude"),
        (Question(colluders=-1), "the number of colluders is -1"),
        (Question(required=0), "the required level is 0"),
        (Question(window=0), "the window is 0"),
    ],
)
def test_questions_that_cannot_be(question, message):
    """A question that makes no sense is refused, with its value."""
    with pytest.raises(UsageError, match=message):
        verdict_on(ParticipationLog.from_dense([[1, 1, 1]]), question)


def test_an_empty_log():
    """Without any sum the levels are N, and there is no witness, class or forecast."""
    verdict = verdict_on(LogBuilder(4).build())
    assert (verdict.strong, verdict.weak.low, verdict.weak.high) == (4, 4, 4)
    assert (verdict.witness, verdict.isolated, verdict.classes.smallest, verdict.forecast) == ({}, (), (), None)
