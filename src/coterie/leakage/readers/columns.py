"""The columns of a log: which says the round, which the user, and the rounds that numbers, times or texts make."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np

from coterie.errors import UsageError
from coterie.values import IntArray
from coterie.values.text import listing

# In the order of trust: the first name that a table has is taken.
ROUNDS = (
    "round", "server_round", "round_number", "round_num", "round_no", "round_id", "round_idx", "round_index",
    "fl_round", "current_round", "comm_round", "communication_round", "global_round", "training_round", "rnd",
    "iteration", "iter", "global_epoch", "epoch", "global_step", "step",
)  # fmt: skip
TIMES = (
    "timestamp", "time_stamp", "datetime", "date_time", "time", "ts", "event_time", "completed_at", "finished_at",
    "ended_at", "end_time", "logged_at", "created_at", "started_at", "start_time", "date", "day",
)  # fmt: skip
USERS = (
    "user", "user_id", "user_name", "client", "client_id", "cid", "client_name", "participant", "participant_id",
    "device", "device_id", "node", "node_id", "partition_id",
)  # fmt: skip
WEAK_USERS = (
    "party", "party_id", "member", "member_id", "worker", "worker_id", "site", "site_id", "hospital", "name", "id",
)  # fmt: skip
"""Names of a user's column that may also be those of users themselves."""
LISTS = (
    "users", "user_ids", "clients", "client_ids", "cids", "participants", "participant_ids", "devices",
    "device_ids", "nodes", "node_ids", "members", "cohort", "selected_clients", "sampled_clients", "parties",
    "sites", "workers",
)  # fmt: skip
"""Columns that hold all users of a round in a list."""
SETS = ("set", "set_id", "learned_set")
PARTICIPATIONS = (
    "participated", "participates", "participation", "took_part", "included", "aggregated", "contributed",
)  # fmt: skip
"""Columns that say whether the user of the row took part."""
OUTCOMES = (
    "status", "state", "outcome", "result", "success", "succeeded", "completed", "selected", "dropped", "failed",
    "event",
)  # fmt: skip
"""Columns that may say that the user of the row did not take part after all."""

YES_NO = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}
MARKS = {"": False, "x": True}


@dataclass(frozen=True)
class Choice:
    """What the caller says of a file: what is guessed wrongly, and how many users and rounds there are in all."""

    round_column: str | None = None
    user_column: str | None = None
    delimiter: str | None = None
    users: int | None = None
    rounds: int | None = None


def position(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the first column of one of the names, whatever their case, dashes, dots and prefixes.

    >>> position(["Timestamp", "fl.Client-ID"], USERS), position(["a", "b"], USERS)
    (1, None)
    """
    places = _spellings(tuple(header))
    return next((places[name] for name in map(_plain, names) if name in places), None)


def column_named(place: str, header: Sequence[str], name: str, option: str) -> int:
    """Return the column that the caller names: by its name, or by its number, counted from 1."""
    if header.count(name) > 1:
        raise UsageError(f"{place}: the column {name!r} stands there twice; give its number to {option}")
    if name in header:
        return header.index(name)
    if name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= len(header):
        return int(name) - 1
    raise UsageError(f"{place}: there is no column {name!r} for {option}; {name_columns(header)}")


def name_columns(header: Sequence[str]) -> str:
    """Name the columns of a table."""
    return f"the columns are {listing(map(repr, header))}" if header else "there are no columns"


def truth(cells: set[str]) -> dict[str, bool] | None:
    """Return how the cells of a table say who took part, or None if they do not."""
    low = {cell.strip().lower() for cell in cells}
    if low and low <= YES_NO.keys():
        return YES_NO
    return MARKS if "x" in low and low <= MARKS.keys() else None


@lru_cache(maxsize=16)
def _spellings(header: tuple[str, ...]) -> dict[str, int]:
    """Return where each plain name stands first, whole names before those without their prefix."""
    places: dict[str, int] = {}
    for spelled in (header, [re.split(r"[./:]", column)[-1] for column in header]):
        for place, column in enumerate(spelled):
            places.setdefault(_plain(column), place)
    return places


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


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


def coded(texts: Iterable[str]) -> tuple[list[str], IntArray]:
    """Return the different texts, in the order in which they come, and each one's place among them."""
    places: dict[str, int] = {}
    codes = [places.setdefault(text, len(places)) for text in texts]
    return list(places), np.array(codes, dtype=np.int64)


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
    """Number the rounds of a column, called `column`: row r holds `labels[rows[r]]` for the user `users[r]`.

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
        return Rounds(np.array(values, dtype=np.int64)[rows], f"the number in {column}", exact=True)
    moments = [parse_time(label) for label in labels]
    if all(each is not None for each in moments):
        return _times(column, np.array(moments, dtype=np.int64), rows, users)
    _refuse_other_numbers(labels, whole, moments, lambda label: place(_row(rows, label)))
    numbered = [_NUMBERED.fullmatch(label.strip()) for label in labels]
    if all(numbered) and len({match[1] for match in numbered if match}) == 1:
        numbers = np.array([int(match[2]) for match in numbered if match], dtype=np.int64)
        return Rounds(numbers[rows], f"the number in values such as {labels[0]!r} of {column}")
    if 2 * len(labels) > len(rows):
        raise UsageError(
            f"{place(0)}: the round {labels[rows[0]]!r} is not an integer of 0 or more nor a time, and nearly "
            f"every row has another one; say which column holds the round with --round-column"
        )
    return Rounds(rows, f"each value of {column}, in the order of their first rows")


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
        if _count_repeats(numbers, users) <= MAX_REPEATED * len(rows):
            return Rounds(
                numbers,
                f"times in {column} without a pause of more than {duration(int(pause))} between them "
                f"({numbers.max() + 1} rounds, {span})",
            )
    if len(moments) == 1 or 2 * len(moments) <= len(rows):
        count = "1 round" if len(moments) == 1 else f"{len(moments)} rounds"
        return Rounds(when, f"rows with the same time in {column} ({count}, {span})")
    raise UsageError(
        f"the times in {column} ({span}) fall into no clear rounds: there are {len(moments)} "
        f"different ones in {len(rows)} rows, and no pause stands out; add a column with the round, or say which "
        "one it is with --round-column"
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


def _count_repeats(numbers: IntArray, users: IntArray) -> int:
    """Count the rows whose user stands in the same round already."""
    return len(numbers) - len(np.unique(numbers * (int(users.max()) + 1) + users))


def number_sets(labels: Sequence[str], rows: IntArray) -> IntArray:
    """Number the learned sets of a column: by their numbers, or texts in the order of their first rows."""
    whole = [_INTEGER.fullmatch(label) for label in labels]
    values = [_value(match[1]) for match in whole if match]
    if not all(whole) or max(values) > MAX_NUMBER:
        return rows
    return np.array(values, dtype=np.int64)[rows]
