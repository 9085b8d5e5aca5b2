"""Plans, their successors, and the family of cohorts that they allow."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import reference
from coterie import AvailabilityLog, BatchPlan, UsageError
from coterie.leakage import StrongLevel
from coterie.selection import (
    BatchSelector,
    Family,
    by_availability,
    by_co_availability,
    consecutive,
    dealt,
    join,
    leave,
    merge,
    mix,
    shuffled,
)


def plan_of_kind(kind, users, privacy, seed):
    rng = np.random.default_rng(seed)
    match kind:
        case "consecutive":
            return consecutive(users, privacy)
        case "shuffled":
            return shuffled(users, privacy, rng)
        case "dealt":
            return dealt(users, privacy)
        case "by availability":
            return by_availability(rng.random(users), privacy)
        case "mixed":
            return mix(by_availability(rng.random(users), privacy), rng.random(), rng)
        case "by co-availability":
            return by_co_availability(AvailabilityLog(rng.random((5, users)) < 0.5), privacy)
    raise AssertionError(kind)


KINDS = ["consecutive", "shuffled", "dealt", "by availability", "mixed", "by co-availability"]


@pytest.mark.parametrize("kind", KINDS)
@given(users=st.integers(1, 60), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_plan_is_a_partition_into_even_batches(kind, users, data, seed):
    """Every user is in exactly one of ⌊N/T⌋ batches, whose sizes are at least T and differ by at most one."""
    privacy = data.draw(st.integers(1, users))
    plan = plan_of_kind(kind, users, privacy, seed)
    assert len(plan) == users // privacy
    assert plan.sizes.min() >= privacy
    assert np.ptp(plan.sizes) <= 1
    assert sorted(plan.members.tolist()) == list(range(users))


def test_sorting_by_availability_maximises_the_expected_number_of_whole_batches():
    """No plan of six users in pairs has more expected whole batches than the sorted one (all 90 tried)."""
    from itertools import permutations

    dropout = np.array([0.1, 0.6, 0.3, 0.2, 0.9, 0.4])

    def whole(order):
        return np.prod((1 - dropout)[np.reshape(order, (3, 2))], axis=1).sum()

    sorted_plan = by_availability(dropout, 2)
    assert whole(sorted_plan.members) == pytest.approx(max(whole(order) for order in permutations(range(6))))


def test_of_uneven_batches_the_larger_take_those_who_are_seldom_there():
    """With 7 users in batches of 4 and 3, the sorted plan has the most expected whole batches of all plans."""
    from itertools import combinations

    dropout = np.array([0.1, 0.6, 0.3, 0.2, 0.9, 0.4, 0.5])

    def whole(four):
        three = np.setdiff1d(np.arange(7), four)
        return np.prod(1 - dropout[list(four)]) + np.prod(1 - dropout[three])

    plan = by_availability(dropout, 3)
    assert whole(plan.batch(0).tolist()) == pytest.approx(max(whole(four) for four in combinations(range(7), 4)))


def test_mixing_of_one_forgets_availability_and_of_zero_keeps_the_order():
    """Mixing 0 is the sorted plan; mixing 1 places everyone at random."""
    dropout = np.linspace(0, 0.9, 1000)
    rng = np.random.default_rng(5)
    plan = by_availability(dropout, 10)
    assert mix(plan, 0.0, rng) == plan
    spread = [np.ptp(dropout[mix(plan, share, rng).members[:10]]) for share in (0, 1)]
    assert spread[0] < 0.01
    assert spread[1] > 0.3


def test_co_availability_finds_groups_that_single_probabilities_hide():
    """Users of two shifts with the same uptime are told apart: each batch is online together."""
    rng = np.random.default_rng(1)
    shift = rng.permutation(np.repeat([0, 1], 30))
    rounds = np.arange(200)[:, None] % 2
    online = (rounds == shift) & (rng.random((200, 60)) < 0.95)
    plan = by_co_availability(AvailabilityLog(online), 5)
    mixed_batches = sum(len(set(shift[plan.batch(b)])) > 1 for b in range(len(plan)))
    assert mixed_batches == 0


def test_co_availability_in_blocks_still_keeps_batches_whole(monkeypatch):
    """Beyond the block size, blocks are planned one by one and every user still has one batch."""
    monkeypatch.setattr("coterie.selection.plans.BLOCK", 16)
    log = AvailabilityLog(np.random.default_rng(2).random((9, 101)) < 0.7)
    plan = by_co_availability(log, 4)
    assert len(plan) == 25
    assert sorted(plan.members.tolist()) == list(range(101))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: consecutive(5, 0), "privacy is 0"),
        (lambda: consecutive(5, 6), "privacy 6 is more than the 5 users"),
        (lambda: by_availability([0.1, -0.2], 1), "-0.2"),
        (lambda: by_availability([0.1, float("nan")], 1), "nan"),
        (lambda: mix(consecutive(6, 3), 2.0, np.random.default_rng(0)), "mixing is 2.0"),
        (lambda: join(consecutive(6, 3), 2), "2 newcomers cannot form a batch of at least 3"),
        (lambda: merge(consecutive(6, 3), [1]), "merge at least two"),
        (lambda: merge(consecutive(6, 3), [1, 2]), "merge at least two of the batches 0 … 1"),
        (lambda: leave(consecutive(6, 3), [6]), "user 6 is not one of the 6 users"),
        (lambda: join(consecutive(6, 3), 3, names=["a", "b", "c"]), "name the newcomers exactly when"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_the_value(call, message):
    """Impossible parameters are a UsageError that says which rule is broken."""
    with pytest.raises(UsageError, match=message):
        call()


def test_leaving_twice_and_leaving_everyone_is_fine():
    """A retired user may be named again, and a plan may lose all its batches."""
    plan = leave(leave(consecutive(4, 2), [0]), [0, 1, 2])
    assert len(plan) == 0
    assert plan.retired.tolist() == [0, 1, 2, 3]


class ComingAndGoing(RuleBasedStateMachine):
    """Users join, merge and leave between rounds; the server learns every cohort it may choose."""

    MOST_USERS = 80

    def __init__(self):
        super().__init__()
        self.plan = consecutive(12, 3)
        self.level = StrongLevel(self.MOST_USERS)
        self.counts = np.zeros(self.MOST_USERS, dtype=np.int64)
        self.rng = np.random.default_rng(7)

    @precondition(lambda self: self.plan.users < self.MOST_USERS - 8)
    @rule(newcomers=st.integers(3, 8))
    def some_join(self, newcomers):
        self.plan = join(self.plan, newcomers)

    @precondition(lambda self: len(self.plan) >= 2)
    @rule(data=st.data())
    def two_merge(self, data):
        pair = data.draw(st.lists(st.integers(0, len(self.plan) - 1), min_size=2, max_size=2, unique=True))
        self.plan = merge(self.plan, pair)

    @rule(data=st.data())
    def one_leaves(self, data):
        self.plan = leave(self.plan, [data.draw(st.integers(0, self.plan.users - 1))])

    @precondition(lambda self: len(self.plan) > 0)
    @rule(seed=st.integers(0, 2**16), away=st.floats(0, 0.4))
    def a_round_runs(self, seed, away):
        rng = np.random.default_rng(seed)
        selector = BatchSelector(self.plan, self.plan.users)
        available = rng.random(self.plan.users) >= away
        for batch in self.plan.whole(available):
            # The server may learn any batch by itself: the worst cohorts are single batches.
            if rng.random() < 0.5:
                self.level.add(np.sort(self.plan.batch(int(batch))))
        cohort = selector.choose(available, self.counts[: self.plan.users], rng)
        if cohort is not None:
            self.level.add(cohort.users)
            self.counts[cohort.users] += 1

    @invariant()
    def the_level_holds(self):
        assert self.level.level >= 3


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(batches=st.integers(1, 7), privacy=st.integers(1, 4), data=st.data())
@settings(deadline=None)
def test_the_explicit_family_is_algorithm_1(batches, privacy, data):
    """For T dividing N and K the rows are those that the pseudocode writes, C(N/T, K/T) of them."""
    per_row = data.draw(st.integers(1, batches))
    family = Family(consecutive(batches * privacy, privacy), per_row * privacy)
    written = reference.algorithm_1(batches * privacy, per_row * privacy, privacy)
    assert family.size == len(written) == comb(batches, per_row)
    np.testing.assert_array_equal(family.matrix(), written)
    assert family.cohort_sizes == (per_row * privacy, per_row * privacy)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7), data=st.data())
@settings(deadline=None)
def test_rows_of_uneven_batches_are_the_maximal_unions(sizes, data):
    """Rows are exactly the sets of whole batches to which none can be added; size and bounds agree with them."""
    per_round = data.draw(st.integers(max(sizes), sum(sizes)))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    family = Family(BatchPlan(sum(sizes), 1, np.arange(sum(sizes)), starts), per_round)
    rows = reference.maximal_unions(sizes, per_round)
    assert sorted(family.rows()) == sorted(rows)
    assert family.size == len(rows)
    totals = [sum(sizes[b] for b in row) for row in rows]
    assert family.cohort_sizes == (min(totals), max(totals))
    assert family.batches_per_row == (min(map(len, rows)), max(map(len, rows)))


def test_sizes_of_real_populations_are_counted_not_listed():
    """The family of ten million users is counted exactly; writing it out is refused."""
    family = Family(consecutive(10**7, 10), 10_000)
    assert family.size == comb(10**6, 1000)
    with pytest.raises(UsageError, match="too many to write out"):
        family.matrix()


def test_a_batch_that_cannot_fit_is_refused():
    """A plan with a batch larger than K is refused, with both numbers."""
    with pytest.raises(UsageError, match="a batch of 6 users does not fit into 5 users per round"):
        Family(merge(consecutive(9, 3), [0, 1]), 5)


@given(users=st.integers(2, 200), data=st.data())
def test_users_who_are_dealt_out_stand_far_apart(users, data):
    """Members of a batch are at least as many places apart in the numbering as there are batches."""
    plan = dealt(users, data.draw(st.integers(1, users)))
    for batch in range(len(plan)):
        assert np.diff(plan.batch(batch)).min(initial=users) >= len(plan)
