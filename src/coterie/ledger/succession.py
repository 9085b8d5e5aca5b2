"""Which plan may follow: batches that took part stay whole, and newcomers come in groups of at least T."""

from typing import NamedTuple

import numpy as np

from coterie.errors import UsageError
from coterie.values import BatchPlan, BoolArray, IntArray

FREE = -1
"""The batch of a user who was never asked as part of one."""


class Bonds(NamedTuple):
    """What binds users to each other: an entry for each."""

    batch: IntArray
    """The batch in which a user was asked last, by that batch's smallest user; FREE if it never was."""
    gone: BoolArray
    """Whether the user's batch was retired."""


def check_successor(plan: BatchPlan, before: BatchPlan | None, bonds: Bonds) -> None:
    """Refuse a plan that would let rounds to come single out fewer than T users.

    Users whose rounds so far are alike must stay so, or be at least T where they part:

    - a batch that was ever asked goes on inside one batch of the new plan, or retires whole and for good;
    - inside a batch of the new plan, every such batch has at least T users (the new T), and so have the users
      who were never asked: the few who differ from the rest of their batch would be visible by themselves.

    >>> before = BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])
    >>> asked = Bonds(np.array([0, 0, FREE, FREE]), gone=np.zeros(4, dtype=np.bool_))
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 1, 2, 3]]), before, asked)
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 2], [1, 3]]), before, asked)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    coterie.errors.UsageError: the plan splits batch 0, which has taken part: user 1 is not where user 0 is; ...
    """
    bound = bonds.batch
    now = np.full(len(bound), -1, dtype=np.int64)
    now[: plan.users] = plan.batch_of
    _check_whole(now, before, bound)
    _check_gone(now, before, bonds.gone)
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


def _check_whole(now: IntArray, before: BatchPlan | None, bound: IntArray) -> None:
    """Refuse a batch that is split."""
    users: IntArray = np.flatnonzero(bound != FREE)
    parted = users[now[users] != now[bound[users]]]
    if len(parted):
        user, other = int(parted[0]), int(bound[parted[0]])
        raise UsageError(
            f"the plan splits {_name(before, user)}, which has taken part: user {user} is not where user {other} "
            f"is; keep the batch whole, merge it whole with others, retire it whole, or have all its owners "
            f"override it"
        )


def _check_gone(now: IntArray, before: BatchPlan | None, gone: BoolArray) -> None:
    """Refuse a retired batch that comes back; one that the plan before still lists may stay in it as it is."""
    if before is None:
        return
    old = np.full(len(now), -1, dtype=np.int64)
    old[: before.users] = before.batch_of
    back: IntArray = np.flatnonzero(gone & (now >= 0) & (old < 0))
    if len(back) == 0:
        listed: IntArray = np.flatnonzero(gone & (now >= 0))
        together = np.flatnonzero(~gone[: len(now)] & np.isin(now, now[listed]) & (now >= 0))
        back = listed[np.isin(now[listed], now[together])]
    if len(back):
        raise UsageError(f"the plan brings user {back[0]} back, whose batch was retired; retired is for good")


def _name(before: BatchPlan | None, user: int) -> str:
    if before is None or user >= before.users or before.batch_of[user] < 0:
        return "a batch"
    return f"batch {before.batch_of[user]}"
