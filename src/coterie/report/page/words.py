"""Numbers as people read them, the same on all pages."""

import numpy as np

from coterie.values import IntArray
from coterie.values.words import LONGEST_NAME, SPACE, counted, number, shortened

__all__ = ["LONGEST_NAME", "SPACE", "counted", "evenly", "number", "percent", "shortened"]


def percent(share: float) -> str:
    r"""Return a share as a percentage.

    >>> percent(0.9125)
    '91.2\u202f%'
    """
    return f"{100 * share:.1f}{SPACE}%"


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` of `count` places, evenly spaced, the first and the last among them.

    >>> evenly(5, 10).tolist(), evenly(101, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
