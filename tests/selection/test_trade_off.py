"""What `coterie plan` is built on: exact trade-offs where they exist, honest simulations elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import AvailabilityLog, UsageError
from coterie.selection import (
    BatchSelector,
    IndependentDropout,
    by_availability,
    by_co_availability,
    consecutive,
    draw_dropout,
    leave,
    shuffled,
    simulation,
    trade_off,
)
from coterie.selection.theory import cardinality
from coterie.selection.trade_off import KnownDropout, RecordedAvailability, feasible_levels, recommend

PAPER = [0.1, 0.2, 0.3, 0.4, 0.5]


def options_of(population, levels, per_round, churn=None, *, mixing=0.0, deal=False):
    """The options at some levels, with plans made and judged on the same users."""
    makers = trade_off.plan_makers(population, mixing, 0, deal=deal)
    return list(trade_off.options(levels, per_round, makers, population, churn))


@pytest.mark.parametrize(
    ("privacy", "maker", "expected", "draws"),
    [
        (6, "consecutive", 8.40, 800),
        (12, "consecutive", 1.56, 800),
        (4, "consecutive", 11.83, 800),
        (3, "consecutive", 12.00, 200),  # draws differ by a thousandth: after 200 only the digits of 12.00 count
        (6, "by-availability", 11.29, 800),
        (12, "by-availability", 6.55, 800),
    ],
)
def test_mean_cardinality_over_the_papers_dropouts(privacy, maker, expected, draws):
    """Averaged over draws of p_i from {0.1 … 0.5} at N = 120, K = 12, C has its known value."""
    values = []
    for seed in range(draws):
        population = KnownDropout(draw_dropout(PAPER, 120, np.random.default_rng(seed)), seed)
        plan = trade_off.plan_makers(population, 0.0, seed)[maker](privacy)
        values.append(population.trade(plan, 12).cardinality)
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / math.sqrt(len(values)) + 0.005)


@given(dropout=st.floats(0, 0.9), privacy=st.sampled_from([1, 2, 3, 4, 6, 12]))
@settings(deadline=None)
def test_equal_dropout_gives_theorem_1(dropout, privacy):
    """With one dropout probability C is Theorem 1's closed form and F is 0, for both kinds of plan."""
    population = KnownDropout(np.full(120, dropout), 0)
    for option in options_of(population, [privacy], 12):
        assert option.trade.cardinality == pytest.approx(
            cardinality(120, 12, privacy, dropout), rel=1e-9, abs=1e-12
        )
        assert option.trade.fairness_gap == 0
        assert option.trade.skipped == pytest.approx(1 - option.trade.cardinality / 12, abs=1e-9)


@pytest.mark.parametrize(("users", "per_round", "privacy"), [(60, 12, 4), (60, 13, 7), (50, 8, 3)])
def test_exact_trade_agrees_with_running_the_selector(users, per_round, privacy):
    """C, skipped rounds and F computed in closed form are what the real selector gives over many rounds."""
    rng = np.random.default_rng(3)
    dropout = draw_dropout(PAPER, users, rng)
    plan = by_availability(dropout, privacy)
    trade = KnownDropout(dropout, 0).trade(plan, per_round)
    assert trade.exact
    rounds, counts = 6000, np.zeros(users, dtype=np.int64)
    selector, model = BatchSelector(plan, per_round), IndependentDropout(dropout)
    skipped = 0
    for _ in range(rounds):
        cohort = selector.choose(model.sample(rng), counts, rng)
        if cohort is None:
            skipped += 1
        else:
            counts[cohort.users] += 1
    assert skipped / rounds == pytest.approx(trade.skipped, abs=0.03)
    assert counts.sum() / rounds == pytest.approx(trade.cardinality, abs=0.03 * per_round)
    assert np.ptp(counts) / rounds == pytest.approx(trade.fairness_gap, abs=0.03)


@pytest.mark.parametrize(("users", "per_round", "privacy"), [(23, 15, 7), (100, 25, 12), (100, 21, 7)])
def test_what_is_not_exact_is_simulated_with_the_real_selector(users, per_round, privacy):
    """Where not every choice of k batches fits, no closed form is used, and the numbers are the selector's."""
    rng = np.random.default_rng(3)
    dropout = rng.uniform(0.02, 0.08, users)
    plan = by_availability(dropout, privacy)
    trade = KnownDropout(dropout, 0).trade(plan, per_round)
    assert not trade.exact
    counts, skipped = np.zeros(users, dtype=np.int64), 0
    selector, model = BatchSelector(plan, per_round), IndependentDropout(dropout)
    for _ in range(3000):
        cohort = selector.choose(model.sample(rng), counts, rng)
        skipped += cohort is None
        if cohort is not None:
            counts[cohort.users] += 1
    assert trade.skipped == pytest.approx(skipped / 3000, abs=0.08)
    assert trade.cardinality == pytest.approx(counts.sum() / 3000, abs=0.08 * per_round)


def test_uneven_cohorts_are_simulated_and_say_so():
    """Where cohorts differ in their number of batches, the numbers come from a simulation, not from a formula."""
    population = KnownDropout(np.full(100, 0.1), 0)
    trade = population.trade(consecutive(100, 7), per_round=21)
    assert not trade.exact
    assert 15 <= trade.cardinality <= 21
    assert population.trade(consecutive(100, 7), per_round=21) == trade


def test_a_replayed_log_gives_its_own_frequencies():
    """Replaying a log in which a batch is whole every other round skips every other round."""
    online = np.ones((10, 4), dtype=bool)
    online[::2, 0] = online[::2, 2] = False
    population = RecordedAvailability(AvailabilityLog(online), 0)
    trade = population.trade(consecutive(4, 2), per_round=2)
    assert (trade.cardinality, trade.skipped) == (1.0, 0.5)
    assert population.random_cardinality(2) == 2.0


def test_a_plan_is_never_judged_on_the_rounds_it_was_made_from():
    """On pure noise co-availability gains nothing on held-out rounds, though it would on its own."""
    rng = np.random.default_rng(0)
    log = AvailabilityLog(rng.random((60, 120)) < 0.6)
    made_from, judged_on = trade_off.halves(RecordedAvailability(log, 0))
    assert (made_from.log.rounds, judged_on.log.rounds) == (30, 30)
    plan = by_co_availability(made_from.log, 6)
    flattering, honest = made_from.trade(plan, 12).cardinality, judged_on.trade(plan, 12).cardinality
    plain = judged_on.trade(consecutive(120, 6), 12).cardinality
    assert flattering > honest
    assert honest == pytest.approx(plain, abs=2.0)


def test_one_recorded_round_is_too_few():
    """A log of one round is refused: nothing could be held out."""
    with pytest.raises(UsageError, match="one round"):
        trade_off.halves(RecordedAvailability(AvailabilityLog(np.ones((1, 4), dtype=bool)), 0))


@given(users=st.integers(1, 300), data=st.data())
@settings(deadline=None)
def test_levels_shown_are_feasible_and_few(users, data):
    """Every level dividing N and K is shown, all fit, no two give the same plan, and they stay readable."""
    per_round = data.draw(st.integers(1, users))
    levels = feasible_levels(users, per_round)
    dividing = [t for t in range(1, per_round + 1) if users % t == 0 and per_round % t == 0]
    assert set(dividing) <= set(levels)
    assert len(levels) <= max(30, len(dividing))
    assert len({users // level for level in levels}) == len(levels)
    for level in levels:
        BatchSelector(consecutive(users, level), per_round)


def test_the_rule_picks_the_strongest_level_that_is_cheap_and_fair():
    """The recommendation is the largest T within the limits on rounds and fairness; the fairer plan wins a tie."""
    population = KnownDropout(draw_dropout(PAPER, 120, np.random.default_rng(0)), 0)
    found = options_of(population, feasible_levels(120, 12), 12)
    choice, met = recommend(found, 120, 12)
    assert met
    assert choice.rounds_factor <= trade_off.ROUNDS_LIMIT
    assert choice.trade.fairness_gap <= 12 / 120
    better = [
        option
        for option in found
        if option.privacy > choice.privacy
        and option.rounds_factor <= trade_off.ROUNDS_LIMIT
        and option.trade.fairness_gap <= 12 / 120
    ]
    assert better == []


def test_when_nothing_meets_the_rule_the_nearest_is_offered():
    """With users away three times in four no T > 1 is cheap: the one needing fewest rounds is returned, marked."""
    population = KnownDropout(np.full(120, 0.75), 0)
    choice, met = recommend(options_of(population, [1, 2, 3, 4], 12), 120, 12)
    assert not met
    assert choice.privacy == 2
    said = trade_off.plan(users=120, per_round=12, dropout=0.75, privacy=2).verdict
    assert said.startswith("No plan to choose from has a T of 2 or more that needs at most 1.25 times the rounds")
    assert said.endswith("Fewest rounds: T = 2, plan consecutive.")


def test_nothing_that_runs_no_round_is_recommended():
    """With users away nine times in ten even T = 2 skips all rounds but one in thousands: nothing is offered."""
    population = KnownDropout(np.full(120, 0.9), 0)
    tried = options_of(population, [1, 2, 3, 4], 12)
    assert recommend(tried, 120, 12) == (None, False)
    assert recommend(tried[:1], 120, 12)[0] is tried[0]


@pytest.mark.parametrize(
    ("users", "per_round", "privacy", "dropout", "churn"),
    [
        (60, 10, 5, 0.1, 0.05),
        (12, 12, 3, 0.0, 0.1),
        (120, 60, 12, 0.01, 0.1),
        (40, 40, 4, 0.02, 0.2),
        (23, 15, 7, 0.05, 0.1),
    ],
)
def test_churn_equals_a_simulated_year(users, per_round, privacy, dropout, churn):
    """Retired batches, stranded users and C after a year agree with drawing leavers and running the selector."""
    population = KnownDropout(np.full(users, dropout), 0)
    option = options_of(population, [privacy], per_round, churn)[0]
    rng = np.random.default_rng(0)
    plan = consecutive(users, privacy)
    retired, stranded, served = [], [], []
    for _ in range(2500):
        gone = np.flatnonzero(rng.random(users) < churn)
        left = leave(plan, gone)
        retired.append(1 - len(left) / len(plan))
        stranded.append(len(left.retired) - len(gone))
        cohort = None
        if len(left):
            available = rng.random(users) >= dropout
            cohort = BatchSelector(left, per_round).choose(available, np.zeros(users, int), rng)
        served.append(0 if cohort is None else len(cohort))
    tolerance = 5 * np.std(served) / 50 + (0 if option.trade.exact and users != 23 else 0.6)
    assert option.churn.retired_batches == pytest.approx(np.mean(retired), abs=0.02)
    assert option.churn.stranded_users == pytest.approx(np.mean(stranded), abs=0.6)
    assert option.churn.cardinality == pytest.approx(np.mean(served), abs=tolerance)


def test_homogeneous_batches_are_warned_of_and_mixed_ones_are_not():
    """A sorted plan over different dropouts is warned of; plans that mix are not."""
    population = KnownDropout(draw_dropout(PAPER, 120, np.random.default_rng(0)), 0)
    found = {option.kind: option for option in options_of(population, [6], 12, mixing=0.6)}
    assert "--mixing 0.3" in trade_off.homogeneity_warning(found["by-availability"], 0.0)
    assert "raise --mixing" in trade_off.homogeneity_warning(found["by-availability"], 0.1)
    assert trade_off.homogeneity_warning(found["consecutive"], 0.0) is None
    assert trade_off.homogeneity_warning(found["mixed"], 0.6) is None


def test_dealing_separates_neighbours():
    """Users in the order of their dropout: consecutive batches are homogeneous, dealt ones are not.

    T stays, and where users are equal, so does everything else.
    """
    population = KnownDropout(np.repeat(PAPER, 24), 0)
    (sorted_, *_), (dealt_, *_) = (options_of(population, [6], 12, deal=deal) for deal in (False, True))
    assert (sorted_.kind, dealt_.kind) == ("consecutive", "dealt")
    assert dealt_.privacy == sorted_.privacy
    assert dealt_.homogeneity < 0.2 < sorted_.homogeneity
    equal = [trade_off.plan(users=120, per_round=12, dropout=0.3, deal=deal) for deal in (False, True)]
    assert equal[0].columns["cardinality"].tolist() == equal[1].columns["cardinality"].tolist()
    assert equal[1].plan.batch(0).tolist()[:2] == [0, len(equal[1].plan)]


def test_who_asks_to_deal_gets_a_dealt_plan():
    """Where users are away unequally often, plans by availability skip fewer rounds, and still are not taken."""
    asked = {"users": 24, "per_round": 12, "dropout": [0.1, 0.2, 0.3], "privacy": 6}
    assert trade_off.plan(**asked).recommended.kind == "by-availability"
    dealt = trade_off.plan(**asked, deal=True)
    assert dealt.recommended.kind == "dealt"
    assert {option.kind for option in dealt.options} == {"dealt", "by-availability"}
    assert dealt.plan.batch(0).tolist() == [0, 4, 8, 12, 16, 20]


@given(users=st.integers(4, 60), dropout=st.floats(0.01, 0.9), data=st.data())
@settings(deadline=None)
def test_equal_users_are_never_called_homogeneous(users, dropout, data):
    """With one dropout for all there is nothing in which batches could differ."""
    privacy = data.draw(st.integers(2, users // 2))
    population = KnownDropout(np.full(users, dropout), 0)
    assert population.homogeneity(consecutive(users, privacy)) == 0


def test_random_pairs_are_not_called_homogeneous():
    """A plan that ignores availability is not warned of, also at T = 2, where half of the variance is chance."""
    for seed in range(6):
        population = KnownDropout(draw_dropout([0.1, 0.5], 120, np.random.default_rng(seed)), 0)
        assert population.homogeneity(consecutive(120, 2)) < 0.4


def test_batches_of_one_time_zone_are_seen_in_a_record():
    """Users of equal uptime but different hours: batches of one time zone are homogeneous, mixed ones are not."""
    rng = np.random.default_rng(0)
    zone = np.repeat(np.arange(6), 10)
    online = (np.arange(120)[:, None] + 4 * zone) % 24 < 12
    population = RecordedAvailability(AvailabilityLog(online & (rng.random(online.shape) < 0.95)), 0)
    assert population.homogeneity(consecutive(60, 5)) > 0.5
    assert population.homogeneity(shuffled(60, 5, rng)) < 0.2


def test_a_large_federation_of_reliable_users_meets_the_rule():
    """A simulated gap of one count does not fail the rule where K/N is below one in the simulated rounds."""
    rng = np.random.default_rng(0)
    log = RecordedAvailability(AvailabilityLog(rng.random((40, 5000)) < 0.999), 0)
    choice, met = recommend(options_of(log, [5, 10], 10), 5000, 10)
    assert met
    assert choice.privacy == 10


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_a_churn_that_is_no_share_is_refused(rate):
    """Churn must be a probability."""
    population = KnownDropout(np.full(12, 0.1), 0)
    with pytest.raises(UsageError, match="churn"):
        options_of(population, [3], 6, rate)


def test_dropout_can_be_an_array():
    """One probability or several: a number, a list and an array of them give the same."""
    for array, same in ((np.array([0.1, 0.2]), [0.1, 0.2]), (np.float64(0.1), 0.1), ([0.1], 0.1)):
        first, second = (trade_off.plan(users=12, per_round=6, dropout=each) for each in (array, same))
        assert first.record() == second.record()


@pytest.mark.parametrize("call", [trade_off.plan, simulation.simulate])
def test_a_record_of_other_users_is_refused(call):
    """A number of users beside a record must be the record's."""
    log = AvailabilityLog(np.ones((4, 12), dtype=bool))
    with pytest.raises(UsageError, match="the record is of 12 users, not of 13; leave users out"):
        call(users=13, per_round=6, availability=log)
