"""Cohorts are what the paper's algorithms would choose, only faster."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import reference
from coterie import BatchPlan, UsageError
from coterie.selection import (
    BatchSelector,
    BernoulliSelector,
    Family,
    IndependentDropout,
    RandomSelector,
    WeightedRandomSelector,
    consecutive,
    draw_dropout,
    least_served,
    leave,
    merge,
    one_least_served,
    shuffled,
    uniform,
    user_partition,
)

ORDERS = [least_served, one_least_served, uniform]


def frequencies(selector, available, counts, draws, seed):
    """Draw many cohorts and count how often each came."""
    rng = np.random.default_rng(seed)
    seen = {}
    for _ in range(draws):
        cohort = tuple(selector.choose(available, counts, rng).users.tolist())
        seen[cohort] = seen.get(cohort, 0) + 1
    return seen


def assert_distribution(seen, expected):
    """The observed cohorts come with the expected probabilities (chi-square; the seed is fixed)."""
    assert set(seen) <= set(expected)
    draws = sum(seen.values())
    observed = [seen.get(cohort, 0) for cohort in expected]
    if len(expected) > 1:
        assert chisquare(observed, [draws * p for p in expected.values()]).pvalue > 1e-3


@st.composite
def situations(draw):
    """A plan, K, who is available and how often everyone took part."""
    users = draw(st.integers(2, 40))
    privacy = draw(st.integers(1, users))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    plan = shuffled(users, privacy, rng)
    if len(plan) > 3 and draw(st.booleans()):
        plan = merge(plan, [0, 2])
    if len(plan) > 2 and draw(st.booleans()):
        plan = leave(plan, plan.batch(1)[:1])
    per_round = draw(st.integers(int(plan.sizes.max()), users))
    available = rng.random(users) >= draw(st.sampled_from([0.0, 0.1, 0.5]))
    return plan, per_round, available, rng.integers(0, 3, users), rng


@pytest.mark.parametrize("order", ORDERS)
@given(situations())
@settings(deadline=None, max_examples=150)
def test_a_cohort_is_always_a_union_of_whole_available_batches(order, situation):
    """Every cohort consists of whole available batches, holds at most K users, and leaves no room for another."""
    plan, per_round, available, counts, rng = situation
    cohort = BatchSelector(plan, per_round, order).choose(available, counts, rng)
    if cohort is None:
        return
    assert available[cohort.users].all()
    assert set(cohort.batches) <= set(plan.whole(available))
    assert sorted(cohort.users) == sorted(np.concatenate([plan.batch(b) for b in cohort.batches]))
    left = np.delete(plan.sizes, cohort.batches)
    assert len(cohort) <= per_round < len(cohort) + left.min(initial=per_round + 1)
    low, high = Family(plan, per_round).cohort_sizes
    assert low <= len(cohort) <= high


@pytest.mark.parametrize("order", ORDERS)
@given(batches=st.integers(1, 12), privacy=st.integers(1, 4), data=st.data(), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_cohort_has_k_users_or_the_round_is_skipped(order, batches, privacy, data, seed):
    """Where T divides N and K, a round has exactly K users, or too few batches are whole and it is skipped."""
    per_row = data.draw(st.integers(1, batches))
    rng = np.random.default_rng(seed)
    plan = shuffled(batches * privacy, privacy, rng)
    available = rng.random(plan.users) < 0.8
    cohort = BatchSelector(plan, per_row * privacy, order).choose(available, np.zeros(plan.users, int), rng)
    assert (cohort is None) == (len(plan.whole(available)) < per_row)
    assert cohort is None or len(cohort) == per_row * privacy


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_batch_cohorts_have_the_distribution_of_algorithms_1_and_2(order, seed):
    """The fast selector draws each row of the enumerated family as often as Algorithm 2 does."""
    rng = np.random.default_rng(seed)
    users, per_round, privacy = 12, 6, 2
    counts = np.repeat(rng.integers(0, 2 + seed, users // privacy), privacy)
    available = np.repeat(np.arange(users // privacy) != seed, privacy)
    family = reference.algorithm_1(users, per_round, privacy)
    expected = reference.algorithm_2(family, available, counts, privacy, order.__name__)
    selector = BatchSelector(consecutive(users, privacy), per_round, order)
    assert_distribution(frequencies(selector, available, counts, 4000, seed), expected)


@given(situations())
@settings(deadline=None, max_examples=150)
def test_a_round_of_at_most_two_batch_sizes_is_skipped_only_if_no_row_is_there(situation):
    """With sizes that differ by one, a round runs exactly when some row of the family is wholly available."""
    plan, per_round, available, counts, rng = situation
    if np.ptp(plan.sizes) > 1 or len(plan) > 9:
        return
    whole = set(plan.whole(available).tolist())
    possible = any(set(row) <= whole for row in reference.maximal_unions(plan.sizes.tolist(), per_round))
    for order in ORDERS:
        assert (BatchSelector(plan, per_round, order).choose(available, counts, rng) is not None) == possible


def test_availability_may_be_zeros_and_ones():
    """Availability given as integers means the same as booleans."""
    selector = BatchSelector(consecutive(4, 2), 2)
    cohort = selector.choose(np.array([1, 1, 0, 1]), np.zeros(4, int), np.random.default_rng(0))
    assert cohort.users.tolist() == [0, 1]


def test_uneven_batches_are_taken_in_a_uniformly_random_order():
    """With sizes 3, 2, 2, 2 and K = 5, λ = 0 draws each row as often as filling in all 24 orders gives it."""
    plan = BatchPlan.from_batches(9, 2, [[0, 1, 2], [3, 4], [5, 6], [7, 8]])
    expected = {}
    for order in permutations(range(4)):
        row, room = [], 5
        for batch in order:
            if plan.sizes[batch] <= room:
                row.append(batch)
                room -= plan.sizes[batch]
        users = tuple(plan.users_of(np.array(row)).tolist())
        expected[users] = expected.get(users, 0) + 1 / 24
    everyone = np.ones(9, dtype=bool)
    seen = frequencies(BatchSelector(plan, 5, uniform), everyone, np.zeros(9, int), 4000, 3)
    assert_distribution(seen, expected)


def test_random_selection_draws_every_set_of_k_available_users_alike():
    """K-uniform selection is uniform over the K-subsets of the available users."""
    available = np.array([True, True, False, True, True, True])
    expected = dict.fromkeys(combinations([0, 1, 3, 4, 5], 3), 1 / 10)
    seen = frequencies(RandomSelector(3), available, np.zeros(6, int), 4000, 0)
    assert_distribution(seen, expected)


def test_weighted_random_takes_the_least_served_and_breaks_ties_evenly():
    """The least-served available users come first; among the tied ones each is equally likely."""
    available = np.array([True, True, True, True, True, False])
    counts = np.array([0, 2, 2, 2, 3, 0])
    expected = {(0, 1, 2): 1 / 3, (0, 1, 3): 1 / 3, (0, 2, 3): 1 / 3}
    seen = frequencies(WeightedRandomSelector(3), available, counts, 3000, 0)
    assert_distribution(seen, expected)


def test_bernoulli_takes_k_users_on_average():
    """I.i.d. selection takes K users on average under its dropout probability."""
    selector = BernoulliSelector.expecting(users=200, per_round=20, dropout=0.4)
    model, rng = IndependentDropout(np.full(200, 0.4)), np.random.default_rng(0)
    cohorts = [selector.choose(model.sample(rng), np.zeros(200, int), rng) for _ in range(3000)]
    sizes = np.array([0 if cohort is None else len(cohort) for cohort in cohorts])
    assert sizes.mean() == pytest.approx(20, abs=4 * sizes.std() / np.sqrt(len(sizes)))


@pytest.mark.parametrize("selector", [RandomSelector(3), WeightedRandomSelector(3)])
def test_unbatched_rounds_are_skipped_when_too_few_are_available(selector):
    """Fewer than K available users: the round is skipped."""
    available = np.array([True, True, False, False])
    assert selector.choose(available, np.zeros(4, int), np.random.default_rng(0)) is None


def test_bernoulli_skips_when_no_coin_falls():
    """A round in which nobody's coin falls has no cohort."""
    assert BernoulliSelector(0.0).choose(np.ones(3, bool), np.zeros(3, int), np.random.default_rng(0)) is None


@given(users=st.integers(1, 200), data=st.data())
def test_user_partition_has_groups_of_at_most_k_and_takes_one(users, data):
    """The baseline has ⌈N/K⌉ groups of at most K users, and every cohort is one of them."""
    per_round = data.draw(st.integers(1, users))
    selector = user_partition(users, per_round)
    assert len(selector.plan) == -(-users // per_round)
    assert selector.plan.sizes.max() <= per_round
    cohort = selector.choose(np.ones(users, bool), np.zeros(users, int), np.random.default_rng(0))
    assert len(cohort.batches) == 1


def test_the_least_served_reading_is_the_fairer_one():
    """Over many rounds the row of least total frequency leaves a far smaller gap than one least-served batch."""
    gaps = {}
    for order in (least_served, one_least_served):
        rng = np.random.default_rng(0)
        model = IndependentDropout(draw_dropout([0.1, 0.2, 0.3, 0.4, 0.5], 120, rng))
        selector, counts = BatchSelector(consecutive(120, 3), 12, order), np.zeros(120, dtype=np.int64)
        for _ in range(1500):
            cohort = selector.choose(model.sample(rng), counts, rng)
            if cohort is not None:
                counts[cohort.users] += 1
        gaps[order] = np.ptp(counts) / 1500
    assert gaps[least_served] < 0.01
    assert gaps[one_least_served] > 3 * gaps[least_served]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BatchSelector(consecutive(8, 4), 3), "privacy T = 4 is above K = 3"),
        (lambda: BatchSelector(consecutive(8, 4), 9), "K = 9 users per round is above N = 8"),
        (lambda: BatchSelector(consecutive(11, 4), 5), "a batch of 6 users does not fit"),
        (lambda: BernoulliSelector.expecting(10, 8, 0.5), "8 users per round are too many"),
        (lambda: user_partition(5, 0), "K is 0"),
        (lambda: RandomSelector(0), "K is 0"),
        (lambda: WeightedRandomSelector(-1), "K is -1"),
        (lambda: BernoulliSelector(7.0), "is 7.0"),
    ],
)
def test_impossible_parameters_are_refused(call, message):
    """Impossible parameters are a UsageError that says which rule is broken."""
    with pytest.raises(UsageError, match=message):
        call()


def test_a_merged_batch_counts_as_its_least_served_user():
    """After a merger the batch is as urgent as the least-served of its users (ℓ_min of Algorithm 2)."""
    plan = merge(consecutive(8, 2), [0, 1])  # batches {4, 5}, {6, 7} and {0, 1, 2, 3}
    counts = np.array([9, 9, 0, 0, 3, 3, 4, 4])
    rng = np.random.default_rng(0)
    cohort = BatchSelector(plan, 4).choose(np.ones(8, bool), counts, rng)
    assert cohort.users.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", ORDERS)
@given(spare=st.integers(0, 8), away=st.sets(st.integers(0, 19), max_size=12), seed=st.integers(0, 2**32))
def test_spare_batches_are_asked_beyond_k_where_they_are_available(order, spare, away, seed):
    """A cohort has its K users and up to `spare` whole available batches more; without K there is no cohort."""
    plan = consecutive(20, 2)
    available = np.ones(20, dtype=bool)
    available[list(away)] = False
    counts = np.repeat(np.random.default_rng(seed).integers(0, 9, 10), 2)
    cohort = BatchSelector(plan, per_round=6, order=order, spare=spare).choose(
        available, counts, np.random.default_rng(seed)
    )
    whole = plan.whole(available)
    if len(whole) < 3:
        assert cohort is None
    else:
        assert len(cohort.batches) == min(3 + spare, len(whole))
        assert set(cohort.batches.tolist()) <= set(whole.tolist())
        assert cohort.users.tolist() == plan.users_of(cohort.batches).tolist()


@pytest.mark.parametrize("batches", [[2, 2, 2, 2], [2, 3, 2, 3]])
def test_with_a_least_size_a_round_goes_on_with_the_batches_that_are_there(batches):
    """A row that is not full is every whole batch there is, if those have enough users; else it is skipped."""
    ends = np.cumsum(batches)
    members = [range(end - size, end) for size, end in zip(batches, ends, strict=True)]
    plan = BatchPlan.from_batches(sum(batches), 2, members)
    available = np.ones(plan.users, dtype=bool)
    available[0] = available[ends[2]] = False  # of the first batch and of the last
    counts, rng = np.zeros(plan.users, dtype=np.int64), np.random.default_rng(0)
    there = plan.users_of(np.array([1, 2])).tolist()
    assert BatchSelector(plan, plan.users).choose(available, counts, rng) is None
    for least in (1, len(there)):
        assert (
            BatchSelector(plan, plan.users, least_users=least).choose(available, counts, rng).users.tolist()
            == there
        )
    assert BatchSelector(plan, plan.users, least_users=len(there) + 1).choose(available, counts, rng) is None
    nobody = np.zeros(plan.users, dtype=bool)
    assert BatchSelector(plan, plan.users, least_users=1).choose(nobody, counts, rng) is None


def test_the_least_served_spare_batches_are_asked():
    """Spare batches are taken in the selector's order too."""
    selector = BatchSelector(consecutive(8, 2), per_round=2, spare=2)
    served = np.repeat([3, 0, 2, 1], 2)
    cohort = selector.choose(np.ones(8, dtype=bool), served, np.random.default_rng(0))
    assert cohort.batches.tolist() == [1, 2, 3]
