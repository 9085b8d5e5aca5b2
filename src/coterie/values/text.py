"""Numbers, names and rounds as people read them: the same on the console, on pages and in JSON."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "good", "warning"]
"""How a number or a statement is meant: as it is, as it should be, or as something to look at."""


@dataclass(frozen=True)
class KeyNumber:
    """A key number: what it is called, its value, and one line that says what it means."""

    label: str
    value: str
    meaning: str
    tone: Tone = "plain"


SPACE = "\N{NARROW NO-BREAK SPACE}"
MOST_NAMES = 12
MOST_SPANS = 20
LONGEST_NAME = 40
_LONGEST_READ = 100  # letters of a name that are looked at


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


def shortened(name: str, most: int = LONGEST_NAME) -> str:
    """Return a name, cut where it is too long to stand in a plot or a table.

    >>> shortened("ana"), len(shortened("a" * 1000)), shortened("device-with-a-long-name", 10)
    ('ana', 40, 'device-wi…')
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def printable(text: str) -> str:
    r"""Return text as it can stand in a terminal: what does not print (an escape, a line end) is spelled out.

    >>> print(printable("ann\u202e\x1b[31m\n"))
    ann\u202e\x1b[31m\n
    """
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def display_name(name: str) -> str:
    """Return a user's name as it can stand anywhere: printable, and not too long.

    >>> len(display_name("a" * 5000))
    40
    """
    return shortened(printable(name[:_LONGEST_READ]))


def listing(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return some names, and how many more there are.

    >>> listing(["ann", "bob", "cem"], most=2)
    'ann, bob and 1 more'
    """
    known = list(names)
    more = f" and {number(len(known) - most)} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def spans(rounds: Iterable[int]) -> str:
    """Return rounds in order, those in a row as a span.

    >>> spans([3, 9, 4, 5])
    '3 to 5, 9'
    """
    places = enumerate(sorted(set(rounds)))
    runs = [[round_ for _, round_ in run] for _, run in groupby(places, key=lambda pair: pair[1] - pair[0])]
    return listing((str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs), MOST_SPANS)
