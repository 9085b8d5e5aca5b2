"""The weak privacy level of a log in one call, for callers that show it beside other things."""

import numpy as np

from coterie.audit.engine import Audit, Bracket
from coterie.audit.weak import TimeLeft
from coterie.values import ParticipationLog


def weak_level(log: ParticipationLog, rng: np.random.Generator, left: TimeLeft) -> Bracket:
    """Return what can be proven of a log's weak level in the time that is `left`, in seconds.

    >>> log = ParticipationLog.from_dense([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    >>> weak_level(log, np.random.default_rng(0), left=lambda: 1.0).high
    1
    """
    audit = Audit.of(log, rng, stopped=lambda: left() <= 0)
    for _ in audit.refine(left):
        pass
    return audit.weak
