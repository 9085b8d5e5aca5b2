"""A log held against the plan it should have followed: which rounds split a batch, and who was missing."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coterie.audit.evidence import Evidence
from coterie.values import IntArray


@dataclass(frozen=True)
class Breach:
    """A learned set that holds part of a batch, or users of no batch (`batch` is None)."""

    round: int
    batch: int | None
    present: tuple[int, ...]
    missing: tuple[int, ...]


def breaches(evidence: Evidence) -> list[Breach] | None:
    """Return where a log left its plan; None without a plan.

    `present` are numbers of the log, `missing` numbers of the plan. In a plain round every user is a learned set
    of its own by the way of aggregation; there the plan is broken only if a batch did not come whole.

    >>> from coterie.values import BatchPlan, ParticipationLog
    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> breaches(Evidence(ParticipationLog.from_dense([[1, 1, 0, 0, 0], [1, 1, 1, 0, 1]]), plan=plan))
    [Breach(round=1, batch=1, present=(2, 4), missing=(3,))]
    """
    plan, numbers, batch_of = evidence.plan, evidence.plan_numbers, evidence.batch_of
    if plan is None or numbers is None or batch_of is None:
        return None
    left: list[Breach] = []
    for round_, members in cohorts(evidence):
        batches = batch_of[members]
        for batch, count in zip(*(part.tolist() for part in np.unique(batches, return_counts=True)), strict=True):
            present = tuple(members[batches == batch].tolist())
            if batch < 0:
                left.append(Breach(round_, None, present, ()))
            elif count < plan.sizes[batch]:
                missing = np.setdiff1d(plan.batch(batch), numbers[list(present)])
                left.append(Breach(round_, batch, present, tuple(missing.tolist())))
    return sorted(left, key=lambda breach: breach.round)


def cohorts(evidence: Evidence) -> Iterator[tuple[int, IntArray]]:
    """Yield the learned sets of the plan's rounds, those of a plain round as one."""
    log, plain = evidence.log, set(evidence.plain)
    for round_ in evidence.plain:
        if round_ >= evidence.plan_since:
            low, high = np.searchsorted(log.set_rounds, (round_, round_ + 1))
            yield round_, np.unique(log.members[log.starts[low] : log.starts[high]])
    for round_, members in log.sets():
        if round_ >= evidence.plan_since and round_ not in plain:
            yield round_, members
