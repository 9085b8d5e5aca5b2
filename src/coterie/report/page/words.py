"""Numbers as people read them, the same on all pages."""

import numpy as np

from coterie.values import IntArray

SPACE = "\N{NARROW NO-BREAK SPACE}"
LONGEST_NAME = 40


def number(value: int) -> str:
    r"""Return a whole number, in groups of three from five digits on.

    >>> number(1200), number(1200000)
    ('1200', '1\u202f200\u202f000')
    """
    return f"{value:,}".replace(",", SPACE) if abs(value) >= 10_000 else str(value)  # noqa: PLR2004 - five digits


def counted(value: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "round"), counted(12, "round"), counted(2, "batch", "batches")
    ('1 round', '12 rounds', '2 batches')
    """
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def percent(share: float) -> str:
    r"""Return a share as a percentage.

    >>> percent(0.9125)
    '91.2\u202f%'
    """
    return f"{100 * share:.1f}{SPACE}%"


def shortened(name: str) -> str:
    """Return a user's name, cut where it is too long to stand in a plot or a table.

    >>> shortened("ana"), len(shortened("a" * 1000))
    ('ana', 40)
    """
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` of `count` places, evenly spaced, the first and the last among them.

    >>> evenly(5, 10).tolist(), evenly(101, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
