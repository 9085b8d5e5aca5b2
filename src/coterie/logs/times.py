"""Times as logs write them: ISO 8601 and its relatives, days, and seconds since 1970 in several units."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

SECOND = 10**9
"""Times are counted in nanoseconds since 1970."""
# From 1985 to 2112: no federation has had so many rounds, and no log such times.
_LEAST, _MOST = 5 * 10**8, 45 * 10**8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL = re.compile(r"[0-9]{9,10}\.[0-9]+", re.ASCII)
_DOTTED = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})(.*)", re.ASCII)
_SLASHED = re.compile(r"([0-9]{4})/([0-9]{1,2})/([0-9]{1,2})(.*)", re.ASCII)
_DAY = re.compile(r"(?:19|20)[0-9]{6}", re.ASCII)


def parse_time(text: str) -> int | None:
    """Return a time in nanoseconds since 1970, or None if the text is none; without a zone it counts as UTC.

    Known are 2026-05-01T12:30:00Z and what else ISO 8601 allows, 2026/05/01 12:30, 1.5.2026 12:30, 20260501, and
    seconds since 1970 with a fraction. Days written as 5/1/2026 are not: which is the month?

    >>> parse_time("1970-01-02T00:00:00.5+00:00"), parse_time("2.1.1970"), parse_time("3")
    (86400500000000, 86400000000000, None)
    """
    text = text.strip()
    if _DECIMAL.fullmatch(text):
        seconds, _, fraction = text.partition(".")
        return int(seconds) * SECOND + int(fraction[:9].ljust(9, "0")) if _LEAST <= int(seconds) <= _MOST else None
    if text.isascii() and text.isdigit() and not _DAY.fullmatch(text):
        return None
    if match := _DOTTED.fullmatch(text):
        text = f"{match[3]}-{match[2]:0>2}-{match[1]:0>2}{match[4]}"
    elif match := _SLASHED.fullmatch(text):
        text = f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}{match[4]}"
    text = re.sub(r"\s*UTC$", "Z", text)
    # fromisoformat knows at most six digits of a second.
    text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000


def epoch_unit(values: Sequence[int]) -> int | None:
    """Return the nanoseconds in the unit in which integers count from 1970, or None if they are no times.

    >>> epoch_unit([1_790_000_000, 1_790_000_060]), epoch_unit([1_790_000_000_000]), epoch_unit([0, 1, 2])
    (1000000000, 1000000, None)
    """
    low, high = min(values), max(values)
    for scale in (1, 10**3, 10**6, 10**9):
        if _LEAST * scale <= low and high <= _MOST * scale:
            return SECOND // scale
    return None


def moment(time: int) -> str:
    """Return a time as a person reads it.

    >>> moment(86400 * SECOND), moment(86430 * SECOND)
    ('1970-01-02', '1970-01-02 00:00:30 UTC')
    """
    when = _EPOCH + timedelta(microseconds=time // 1000)
    return when.strftime("%Y-%m-%d" if time % (86400 * SECOND) == 0 else "%Y-%m-%d %H:%M:%S UTC")


def duration(time: int) -> str:
    """Return a duration as a person reads it.

    >>> duration(90 * SECOND), duration(SECOND // 2), duration(36 * 3600 * SECOND)
    ('90 s', '0.5 s', '36 h')
    """
    seconds = time / SECOND
    for unit, name, least in ((86400, "days", 3 * 86400), (3600, "h", 3 * 3600), (60, "min", 600)):
        if seconds >= least:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
