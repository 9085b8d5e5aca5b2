"""The rounds of a log, from whatever its round column holds: numbers, names with a number, times, or texts."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.logs.times import SECOND, duration, epoch_unit, moment, parse_time
from coterie.values import IntArray

MAX_NUMBER = 10**18 - 1  # of a round or a set: 18 digits always fit in 64 bits
CLEAR_PAUSE = 4.0
"""Pauses between rounds are at least so many times as long as those within one."""
MAX_REPEATED = 0.01
"""Share of rows whose user stands twice in a round; more means that rounds were put together wrongly."""
_INTEGER = re.compile(r"\s*\+?([0-9]+)(?:\.0*)?\s*", re.ASCII)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII | re.DOTALL)

_NO_ROUND = re.compile(r"\s*(?:[-+]?[0-9][0-9_.,]*)?\s*", re.ASCII)  # nothing, or another number
_FIRST_DAY = 19_000_101  # 1 January 1900 as an integer
_NAMED_ROUND = re.compile(r"(?:r|rnd|round|t|step|iter|iteration|epoch)[-_ .]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, eq=False)
class Rounds:
    """The number of the round of each row, and how it was made."""

    numbers: IntArray
    rule: str
    exact: bool = False
    """Whether the numbers are the file's own."""


def number_rounds(
    column: str, labels: Sequence[str], rows: IntArray, users: IntArray, place: Callable[[int], str]
) -> Rounds:
    """Number the rounds of a column: row r holds `labels[rows[r]]` for the user `users[r]`.

    `place` says where a row stands. Numbers stay as they are. Times are grouped into rounds, which are numbered
    from 0; so are texts, in the order of their first rows.
    """
    whole = [_INTEGER.fullmatch(label) for label in labels]
    if all(whole):
        values = [_value(match[1]) for match in whole if match]
        times = _integer_times(labels, values)
        if times is not None:
            return _times(column, times, rows, users)
        if max(values) > MAX_NUMBER:
            bad = int(np.argmax([value > MAX_NUMBER for value in values]))
            raise UsageError(f"{place(_row(rows, bad))}: the round {labels[bad]} is above {MAX_NUMBER}")
        return Rounds(np.array(values, dtype=np.int64)[rows], f"the number in the column {column!r}", exact=True)
    moments = [parse_time(label) for label in labels]
    if all(each is not None for each in moments):
        return _times(column, np.array(moments, dtype=np.int64), rows, users)
    _refuse_other_numbers(labels, whole, moments, lambda label: place(_row(rows, label)))
    numbered = [_NUMBERED.fullmatch(label.strip()) for label in labels]
    if all(numbered) and len({match[1] for match in numbered if match}) == 1:
        numbers = np.array([int(match[2]) for match in numbered if match], dtype=np.int64)
        return Rounds(numbers[rows], f"the number in values such as {labels[0]!r} of the column {column!r}")
    if 2 * len(labels) > len(rows):
        raise UsageError(
            f"{place(0)}: the round {labels[rows[0]]!r} is not an integer of 0 or more nor a time, and nearly "
            f"every row has another one; say which column holds the round with --round-column"
        )
    return Rounds(rows, f"each value of the column {column!r}, in the order of their first rows")


def _refuse_other_numbers(
    labels: Sequence[str],
    whole: Sequence[re.Match[str] | None],
    moments: Sequence[int | None],
    place: Callable[[int], str],
) -> None:
    """Refuse texts among numbers or times, and numbers that are no round's."""
    kind = "a time" if any(moments) and not any(whole) else "an integer of 0 or more"
    readable = whole if any(whole) else moments
    for label, value in enumerate(readable):
        if value is None and (any(readable) or _NO_ROUND.fullmatch(labels[label])):
            raise UsageError(
                f"{place(label)}: the round {labels[label]!r} is not {kind}; mend it, or say which column "
                f"holds the round with --round-column"
            )


def looks_like_round(text: str) -> bool:
    """Say whether a field is a round's number or time, and no name of a column."""
    return _INTEGER.fullmatch(text) is not None or parse_time(text) is not None


def names_round(text: str) -> bool:
    """Say whether a column's name is that of a round: 7, round-7, r7, or a time."""
    return looks_like_round(text) or _NAMED_ROUND.fullmatch(text.strip().lower()) is not None


def _value(digits: str) -> int:
    """Return the number of some digits; of too many, a number that is above all limits."""
    return int(digits) if len(digits) <= len(str(MAX_NUMBER)) + 1 else 10 * MAX_NUMBER


def _row(rows: IntArray, label: int) -> int:
    """Return the first row that holds a label."""
    return int(np.argmax(rows == label))


def _integer_times(labels: Sequence[str], values: list[int]) -> IntArray | None:
    """Return integers as times, in nanoseconds, if they count from 1970 or are days such as 20260501."""
    unit = epoch_unit(values)
    if unit is not None:
        return np.array([value * unit for value in values], dtype=np.int64)
    days = [parse_time(label) for label in labels] if min(values) >= _FIRST_DAY else [None]
    return np.array(days, dtype=np.int64) if all(day is not None for day in days) else None


def _times(column: str, times: IntArray, rows: IntArray, users: IntArray) -> Rounds:
    """Group times (in nanoseconds) into rounds: by a clear pause, else by equal times."""
    moments, inverse = np.unique(times, return_inverse=True)
    when, span = inverse[rows], f"{moment(int(moments[0]))} to {moment(int(moments[-1]))}"
    gaps = np.diff(moments)
    for pause in _pauses(gaps):
        numbers = np.concatenate(([0], np.cumsum(gaps > pause)))[when]
        if _repeated(numbers, users) <= MAX_REPEATED * len(rows):
            return Rounds(
                numbers,
                f"times in the column {column!r} without a pause of more than {duration(int(pause))} between them "
                f"({numbers.max() + 1} rounds, {span})",
            )
    if len(moments) == 1 or 2 * len(moments) <= len(rows):
        count = "1 round" if len(moments) == 1 else f"{len(moments)} rounds"
        return Rounds(when, f"rows with the same time in the column {column!r} ({count}, {span})")
    raise UsageError(
        f"the times in the column {column!r} ({span}) fall into no clear rounds: there are {len(moments)} "
        "different ones "
        f"in {len(rows)} rows, and no pause stands out; add a column with the round, or say which one it is with "
        f"--round-column"
    )


def _pauses(gaps: IntArray) -> list[int]:
    """Return the longest gaps within a round that a far longer gap follows, the clearest first.

    Gaps below a second count as a second first: a hundred milliseconds instead of one are no pause between rounds.
    """
    pauses: list[int] = []
    for least in (SECOND, 1):
        ordered = np.unique(np.maximum(gaps, least))
        leaps = ordered[1:] / ordered[:-1]
        pauses += [int(ordered[i]) for i in np.argsort(-leaps, kind="stable")[:16] if leaps[i] >= CLEAR_PAUSE]
    return pauses


def _repeated(numbers: IntArray, users: IntArray) -> int:
    """Count the rows whose user stands in the same round already."""
    return len(numbers) - len(np.unique(numbers * (int(users.max()) + 1) + users))


def number_sets(labels: Sequence[str], rows: IntArray) -> IntArray:
    """Number the learned sets of a column: numbers by their order, texts in the order of their first rows."""
    whole = [_INTEGER.fullmatch(label) for label in labels]
    if not all(whole):
        return rows
    values = [_value(match[1]) for match in whole if match]
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return np.array([ranks[value] for value in values], dtype=np.int64)[rows]
