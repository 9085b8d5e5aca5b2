"""The strong level within every window of W rounds: what a server that keeps W rounds' sums can do."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.audit.strong import strong_level
from coterie.values import ParticipationLog
from coterie.values.checks import check_count


@dataclass(frozen=True)
class WindowLevel:
    """The lowest strong level within `width` rounds in a row, and the first window (from `first` on) that has it.

    `complete` is False if the work was stopped before every window had been looked at.
    """

    width: int
    level: int
    first: int
    complete: bool


def window_level(log: ParticipationLog, width: int, stopped: Callable[[], bool] = lambda: False) -> WindowLevel:
    """Return the worst window of `width` rounds.

    The level never rises with a set, so only windows that end in a round with a result are looked at: every
    other one holds no more sets than one of these.

    >>> log = ParticipationLog.from_dense([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    >>> window_level(log, 1)
    WindowLevel(width=1, level=2, first=2, complete=True)
    >>> window_level(log, 2)
    WindowLevel(width=2, level=1, first=1, complete=True)
    """
    check_count(width, "the window")
    latest = log.first + max(log.rounds - width, 0)
    worst = WindowLevel(width, log.users, log.first, complete=True)
    starts = np.minimum(np.maximum(np.unique(log.set_rounds) - width + 1, log.first), latest)
    for first in np.unique(starts).tolist():
        if stopped():
            return WindowLevel(width, worst.level, worst.first, complete=False)
        level = strong_level(log.window(first, first + width))
        if level < worst.level:
            worst = WindowLevel(width, level, first, complete=True)
    return worst
