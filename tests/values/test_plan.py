"""Batch plans and cohorts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import BatchPlan, Cohort, UsageError


@st.composite
def plans(draw):
    """Any plan: users in any order, batches of any sizes, some users retired."""
    privacy = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(privacy, privacy + 3), max_size=5))
    users = sum(sizes) + draw(st.integers(0, 3))
    order = draw(st.permutations(range(users)))
    starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    return BatchPlan(users, privacy, np.array(order[: sum(sizes)], dtype=np.int64), starts)


@given(plans(), st.randoms())
def test_whole_batches_are_those_with_all_users(plan, random):
    """A batch is whole if and only if each of its users is available."""
    available = np.array([random.random() < 0.8 for _ in range(plan.users)], dtype=np.bool_)
    expected = [b for b in range(len(plan)) if all(available[user] for user in plan.batch(b))]
    assert plan.whole(available).tolist() == expected


@given(plans(), st.data())
def test_users_of_batches(plan, data):
    """The users of several batches are the sorted union of the batches."""
    picked = data.draw(st.lists(st.sampled_from(range(len(plan))), unique=True)) if len(plan) else []
    users = plan.users_of(np.array(picked, dtype=np.int64))
    assert users.tolist() == sorted(user for b in picked for user in plan.batch(b).tolist())


@given(plans())
def test_batch_of_and_retired(plan):
    """Each user is in the batch that lists it, or in none and retired."""
    for user in range(plan.users):
        batches = [b for b in range(len(plan)) if user in plan.batch(b)]
        assert plan.batch_of[user] == (batches[0] if batches else -1)
        assert (user in plan.retired) == (not batches)
    assert plan.sizes.sum() + len(plan.retired) == plan.users


@given(plans(), st.randoms())
def test_equality_ignores_the_order_in_a_batch(plan, random):
    """Plans with the same batches are equal, in whatever order a batch lists its users."""
    batches = [random.sample(batch, len(batch)) for batch in (plan.batch(b).tolist() for b in range(len(plan)))]
    twin = BatchPlan.from_batches(plan.users, plan.privacy, batches)
    assert twin == plan
    assert plan != BatchPlan.from_batches(plan.users + 1, plan.privacy, batches)
    assert plan != BatchPlan.from_batches(
        plan.users, plan.privacy, batches, names=[str(user) for user in range(plan.users)]
    )
    assert plan != "plan"


@pytest.mark.parametrize(
    ("users", "privacy", "batches", "message"),
    [
        (4, 2, [[0, 1], [2]], "a batch has 1 users, fewer than the privacy level 2"),
        (4, 2, [[0, 1], [1, 2]], "in two batches"),
        (4, 2, [[0, 0]], "in two batches"),
        (4, 2, [[0, 4]], "user 4 is not one of the 4 users"),
        (4, 2, [[0, -1]], "user -1 is not one of the 4 users"),
        (4, 0, [[0, 1]], "privacy is 0"),
        (4, 2, [[0, 2**40]], "must lie between"),
        (-1, 2, [], "-1 users"),
    ],
)
def test_bad_plans_are_refused(users, privacy, batches, message):
    """What is no partition into batches of at least T is refused, with the reason."""
    with pytest.raises(UsageError, match=message):
        BatchPlan.from_batches(users, privacy, batches)


@pytest.mark.parametrize("starts", [[], [0, 1], [1, 2], [0, 2, 1, 2]])
def test_bad_starts_are_refused(starts):
    """Starts that do not bound the batches are refused."""
    with pytest.raises(UsageError):
        BatchPlan(2, 1, np.array([0, 1]), np.array(starts, dtype=np.int64))


def test_names():
    """A plan keeps one distinct name per user."""
    assert BatchPlan.from_batches(2, 1, [[0], [1]], names=["a", "b"]).names == ("a", "b")
    with pytest.raises(UsageError, match="1 names were given for 2 users"):
        BatchPlan.from_batches(2, 1, [[0], [1]], names=["a"])
    with pytest.raises(UsageError, match="same name"):
        BatchPlan.from_batches(2, 1, [[0], [1]], names=["a", "a"])


def test_frozen():
    """Nothing in a plan can be changed, and a caller's array stays the caller's own."""
    members = np.array([0, 1, 2, 3], dtype=np.int32)
    plan = BatchPlan(4, 2, members, np.array([0, 2, 4]))
    members[0] = 3
    assert plan.members.tolist() == [0, 1, 2, 3]
    for array in (plan.members, plan.starts, plan.sizes, plan.batch_of, plan.batch(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        hash(plan)


def test_availability_of_another_population_is_refused():
    """Availability must be given for exactly the plan's users."""
    plan = BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])
    with pytest.raises(UsageError, match="the plan has 4"):
        plan.whole(np.ones(5, dtype=np.bool_))


def test_repr():
    """The printed form says the sizes, not the members."""
    assert repr(BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])) == "BatchPlan(4 users, 2 batches of 2, privacy 2)"
    assert repr(BatchPlan.from_batches(4, 2, [])) == "BatchPlan(4 users, no batches, privacy 2)"


def test_cohorts_are_equal_by_content():
    """Two cohorts are equal if they ask the same users as the same batches."""
    cohort = Cohort(np.array([0, 1]), np.array([0]))
    assert cohort == Cohort(np.array([0, 1]), np.array([0]))
    assert cohort != Cohort(np.array([0, 1]), np.array([], dtype=np.int64))
    assert cohort != Cohort(np.array([0, 2]), np.array([0]))
    assert cohort != [0, 1]
    assert len(cohort) == 2
