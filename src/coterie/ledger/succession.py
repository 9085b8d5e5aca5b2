"""Which plan may follow: batches that took part stay whole, and newcomers come in groups of at least T."""

import numpy as np

from coterie.errors import UsageError
from coterie.values import BatchPlan, IntArray

FREE = -1
"""The batch of a user who was never asked as part of one."""


def check_successor(plan: BatchPlan, before: BatchPlan | None, bound: IntArray) -> None:
    """Refuse a plan that would let rounds to come single out fewer than T users.

    `bound[i]` stands for the batch in which user i was asked last (by that batch's smallest user), FREE if it
    never was. Users whose rounds so far are alike must stay so, or be at least T where they part:

    - a batch that was ever asked goes on inside one batch of the new plan, or retires whole and for good;
    - inside a batch of the new plan, every such batch has at least T users (the new T), and so have the users
      who were never asked: the few who differ from the rest of their batch would be visible by themselves.

    >>> before = BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])
    >>> asked = np.array([0, 0, FREE, FREE])
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 1, 2, 3]]), before, asked)
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 2], [1, 3]]), before, asked)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    coterie.errors.UsageError: the plan splits batch 0, which has taken part: user 1 is not where user 0 is; ...
    """
    now = np.full(len(bound), -1, dtype=np.int64)
    now[: plan.users] = plan.batch_of
    bound_users = np.flatnonzero(bound != FREE)
    _check_whole(bound_users, now, before, bound)
    present: IntArray = np.flatnonzero(now >= 0)
    # One key per batch of the new plan and part of it.
    parts, first, sizes = np.unique(
        now[present] * (len(bound) + 1) + bound[present] + 1, return_index=True, return_counts=True
    )
    small = np.flatnonzero(sizes < plan.privacy)
    if len(small) == 0:
        return
    batch, part = divmod(int(parts[small[0]]), len(bound) + 1)
    size, user = int(sizes[small[0]]), int(present[first[small[0]]])
    if part == 0:
        raise UsageError(
            f"batch {batch} of the plan has {size} users who never took part (user {user} is one), fewer than "
            f"{plan.privacy}; let them wait until {plan.privacy} come together"
        )
    raise UsageError(
        f"batch {batch} of the plan takes over a batch of {size} users (user {user} is one), fewer than the "
        f"privacy level {plan.privacy}; keep the level at {size}, or retire that batch"
    )


def _check_whole(users: IntArray, now: IntArray, before: BatchPlan | None, bound: IntArray) -> None:
    """Refuse a batch that is split, and one that comes back."""
    parted = users[now[users] != now[bound[users]]]
    if len(parted):
        user, other = int(parted[0]), int(bound[parted[0]])
        raise UsageError(
            f"the plan splits {_name(before, user)}, which has taken part: user {user} is not where user {other} "
            f"is; keep the batch whole, merge it whole with others, or retire it whole"
        )
    if before is None:
        return
    gone = np.full(len(bound), -1, dtype=np.int64)
    gone[: before.users] = before.batch_of
    back = users[(gone[users] < 0) & (now[users] >= 0)]
    if len(back):
        raise UsageError(f"the plan brings user {back[0]} back, whose batch was retired; retired is for good")


def _name(before: BatchPlan | None, user: int) -> str:
    if before is None or user >= before.users or before.batch_of[user] < 0:
        return "a batch"
    return f"batch {before.batch_of[user]}"
