"""The forecast: what plan and seal promise holds for every continuation, and what they do not is simulated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, LogBuilder, ParticipationLog
from coterie.leakage import Evidence, Omission, Policy, Question, examine, forecast
from coterie.leakage.forecast import fitted_policy
from support.leakage import rational
from support.leakage.hard_logs import dense, random_selection, small_logs
from support.leakage.verdicts import batch_log, split_log

RNG = np.random.default_rng


def coming(log, level=2, trials=10, should_stop=lambda: False, **known):
    return forecast(Evidence(log, **known), level, trials, RNG(0), should_stop)


@settings(deadline=None, max_examples=80)
@given(small_logs(), st.data())
def test_sealed_batches_keep_what_is_promised_and_no_more(log, data):
    """Whatever whole batches follow, the level stays at the floor; and there are rounds that bring it there."""
    batch_of = data.draw(st.lists(st.integers(0, 2), min_size=log.users, max_size=log.users))
    batches = [[user for user in range(log.users) if batch_of[user] == batch] for batch in sorted(set(batch_of))]
    plan = BatchPlan.from_batches(users=log.users, privacy=1, batches=batches)
    floor = coming(log, plan=plan, sealed=True).floor
    rows = [[int(user in batch) for user in range(log.users)] for batch in batches]
    further = data.draw(st.lists(st.sets(st.sampled_from(range(len(batches))), min_size=1), max_size=4))
    sums = [np.sum([rows[batch] for batch in asked], axis=0).tolist() for asked in further]
    assert rational.strong_level(dense(log) + sums) >= floor
    assert rational.strong_level(dense(log) + rows) == floor


def test_a_sealed_run_is_not_called_random():
    """A log of few sealed rounds, which looks random by itself, keeps its level by the plan and the seal."""
    log, plan = batch_log(rounds=2)
    assert coming(log).policy is Policy.RANDOM
    sealed = coming(log, level=6, plan=plan, sealed=True)
    assert (sealed.policy, sealed.floor, sealed.falls.median) == (Policy.SEALED, 6, None)
    assert coming(log, level=7, plan=plan, sealed=True).falls.median == 0
    assert coming(LogBuilder(60).build(), plan=plan, sealed=True).floor == 6
    honest = coming(log, level=6, plan=plan)
    assert (honest.policy, honest.floor) == (Policy.PLAN, 6)


def test_a_plan_that_lost_users_goes_on_losing_them():
    """Without the seal, batches that lost users are simulated with such losses: the level falls further."""
    log, plan = split_log()
    lossy = coming(log, level=2, trials=5, plan=plan)
    assert (lossy.policy, lossy.trials, lossy.floor) == (Policy.LOSSES, 5, None)
    assert lossy.first_isolated.median is not None


def test_plain_rounds_show_everyone():
    """After a plain round further ones are plain too, and nothing needs to be simulated."""
    log, plan = batch_log(rounds=5)
    assert coming(log, plan=plan, plain=(4,)).policy is Policy.PLAIN


def test_unknown_rounds_leave_no_level_to_keep():
    """Users who count as alone stay so: the floor is 1."""
    log, plan = batch_log(rounds=5)
    assert coming(log, plan=plan, sealed=True, unknown={3: [0]}).floor == 1


def test_random_selection_isolates_everyone_when_the_rank_is_full():
    """Users drawn at random are told apart, then isolated, and all within about N rounds."""
    rng = RNG(0)
    random = random_selection(20, 5, 15, rng)
    told = forecast(Evidence(random), 2, 10, rng)
    assert told.policy is Policy.RANDOM
    assert told.falls.median <= told.first_isolated.median <= told.all_isolated.median
    assert 5 <= told.all_isolated.low <= told.all_isolated.median <= told.all_isolated.high < 30
    early = forecast(Evidence(random_selection(20, 5, 1, rng)), 2, 10, rng)
    assert 0 < early.falls.low <= early.falls.median < early.first_isolated.median
    finished = coming(random_selection(10, 3, 40, rng), trials=3)
    assert finished.all_isolated.median == finished.first_isolated.median == 0
    everyone = ParticipationLog.from_dense(np.ones((6, 5), dtype=int))
    assert fitted_policy(Evidence(everyone)) is Policy.RANDOM
    assert coming(everyone, trials=2).all_isolated.median is None


def test_groups_that_always_came_together_go_on_so():
    """A log whose later half splits no class of the earlier half shows batches."""
    log, _ = batch_log(12, 6, 3, 20)
    steady = coming(log, level=3)
    assert (steady.policy, steady.floor, steady.falls.median) == (Policy.BATCHES, 3, None)
    assert coming(log, level=4).falls.median == 0


def test_what_cannot_be_simulated_is_said():
    """Too many users, too little time and no sums each have their reason."""
    log = random_selection(20, 5, 15, RNG(0))
    assert "too short" in coming(log, should_stop=lambda: True).reason
    for known in ({}, {"sealed": True}, {"unknown": {0: [1]}}):
        assert "no sum" in coming(LogBuilder(4).build(), **known).reason
    many = random_selection(2500, 5, 15, RNG(0))
    assert isinstance(coming(many), Omission)
    assert "2500 users are more than" in coming(many).reason


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_the_weak_level_does_not_take_the_forecasts_time(seconds):
    """The forecast has a share of its own; if that is nothing, the verdict says that it was left out."""
    looks = iter(np.linspace(seconds, 0, 3000).tolist())
    verdict = examine(
        random_selection(60, 8, 30, RNG(0)), Question(), rng=RNG(0), time_left=lambda: next(looks, 0.0)
    )
    parts = {omission.part for omission in verdict.omissions}
    assert (verdict.forecast is None) == ("the forecast" in parts) == (seconds == 0)
    assert any("Left out: the forecast" in sentence for sentence in verdict.words.sentences) == (seconds == 0)
