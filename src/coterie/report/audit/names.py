"""Users, rounds and long integers of an audit, as a page can show them."""

from collections.abc import Iterable
from itertools import groupby

from coterie.audit.record import integer_text, name, planned_name
from coterie.audit.verdict import Verdict
from coterie.report.page.words import number, shortened
from coterie.values import ParticipationLog

MOST_NAMES = 12
MOST_SPANS = 20
_LONGEST_READ = 100  # letters of a name that are looked at
_UNGROUPED = 4  # digits
_THIN = "\N{THIN SPACE}"  # a line may end there


def user_name(log: ParticipationLog, user: int) -> str:
    """Return what to call a user of the log: its name, or its number.

    >>> user_name(ParticipationLog.from_dense([[1, 1]]), 1)
    'user 1'
    """
    return f"user {user}" if log.names is None else printable(name(log, user))


def planned_user_name(verdict: Verdict, user: int) -> str:
    """Return what to call a user of the plan that the log was held against."""
    plan = verdict.question.plan
    return f"user {user}" if plan is None or plan.names is None else printable(planned_name(verdict, user))


def printable(text: str) -> str:
    r"""Return a name that keeps its place: what does not print (a line end, a change of direction) is written out.

    >>> printable("ann\u202e\n"), len(printable("a" * 5000))
    ('ann\\u202e\\n', 40)
    """
    letters = text[:_LONGEST_READ]
    return shortened("".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in letters))


def brief(name: str, most: int) -> str:
    """Return a name cut to so many letters, for places where a long word cannot be broken.

    >>> brief("device-with-a-long-name", 10)
    'device-wi…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def listed(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return some names, and how many more there are.

    >>> listed(["ann", "bob", "cem"], most=2)
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
    return listed((str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs), MOST_SPANS)


def long_integer(value: int) -> str:
    r"""Return an integer of any length, in groups of three digits between which a line may end.

    >>> long_integer(-1234567), long_integer(1200)
    ('−1\u2009234\u2009567', '1200')
    """
    digits = integer_text(abs(value))
    sign = "−" if value < 0 else ""
    if len(digits) <= _UNGROUPED:
        return sign + digits
    ends = range(len(digits), 0, -3)
    return sign + _THIN.join(reversed([digits[max(end - 3, 0) : end] for end in ends]))
