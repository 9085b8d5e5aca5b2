"""A log held against the plan it should have followed: which rounds split a batch, and who was missing."""

from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.values import BatchPlan, IntArray, ParticipationLog


@dataclass(frozen=True)
class Breach:
    """A learned set that holds part of a batch, or users of no batch (`batch` is None)."""

    round: int
    batch: int | None
    present: tuple[int, ...]
    missing: tuple[int, ...]


def breaches(log: ParticipationLog, plan: BatchPlan, planned: IntArray | None = None) -> list[Breach]:
    """Return where a log left the plan; `planned` gives each user's number in the plan, -1 if it has none.

    `present` are numbers of the log, `missing` numbers of the plan.

    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> breaches(ParticipationLog.from_dense([[1, 1, 0, 0, 0], [1, 1, 1, 0, 1]]), plan)
    [Breach(round=1, batch=1, present=(2, 4), missing=(3,))]
    """
    if planned is None:
        if log.users > plan.users:
            raise UsageError(f"the log has {log.users} users, the plan {plan.users}; give the plan of this log")
        planned = np.arange(log.users)
    batch_of = np.append(plan.batch_of, -1)[planned]
    found = []
    for round_, members in log.sets():
        batches = batch_of[members]
        for batch, count in zip(*(part.tolist() for part in np.unique(batches, return_counts=True)), strict=True):
            present = tuple(members[batches == batch].tolist())
            if batch < 0:
                found.append(Breach(round_, None, present, ()))
            elif count < plan.sizes[batch]:
                missing = np.setdiff1d(plan.batch(batch), planned[list(present)])
                found.append(Breach(round_, batch, present, tuple(missing.tolist())))
    return found
