"""The rows of a log file, checked, and the logs they make: the same for every file form."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Literal, TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.leakage.readers.columns import MAX_NUMBER
from coterie.values import AvailabilityLog, IntArray, ParticipationLog

_FREE_ROUNDS = 2 * 10**7
_MAX_GAP = 1000  # rounds for each row of the file, if the caller does not say how many there were
_MAX_ROUNDS = 10**8
_MAX_USERS = 2**31 - 1  # users are numbered in 32 bits
_MAX_UNSEEN = 10**7  # a claimed number must not decide how much memory is taken
_MAX_CELLS = 10**9  # rounds × users of an availability log, a byte each
_FREE_CELLS = 10**7
_INTEGER = re.compile(r"0|[1-9][0-9]*")


UserOrder: TypeAlias = Literal["sorted", "file", "number"]
"""How users are numbered: by name, as in the file with their names, or as in the file without names."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a log: row r is of the user `names[users[r]]` and the round `named_rounds[where[r]]`.

    The log has all the rounds named, also those without a row; `origin` says where one of them stands. Without
    `where` they are row by row.
    """

    path: str
    named_rounds: IntArray
    origin: Callable[[int], str]
    users: IntArray
    names: Sequence[str]
    sets: IntArray | None = None
    where: IntArray | None = None
    order: UserOrder = "sorted"

    def __post_init__(self) -> None:
        check_names(self.names, lambda index: self.place(int(np.argmax(self.users == index))))

    @property
    def rounds(self) -> IntArray:
        """The round of each row."""
        return self.named_rounds if self.where is None else self.named_rounds[self.where]

    def place(self, row: int) -> str:
        """Say where a row stands."""
        return self.origin(row if self.where is None else int(self.where[row]))


def places_in(path: str, lines: IntArray | None, unit: str = "line") -> Callable[[int], str]:
    """Return what says where a row of a file stands: in which line, where it has lines."""
    return lambda row: f"{path}, row {row + 1}" if lines is None else f"{path}, {unit} {lines[row]}"


def check_rows(path: str, count: int) -> None:
    """Refuse a log without a row."""
    if count == 0:
        raise UsageError(f"{path} holds no rows; a log needs at least one (round, user)")


def check_names(names: Sequence[str], place: Callable[[int], str]) -> None:
    """Refuse names that no file form can hold; `place` says where a name stands."""
    if all(names) and (text := "".join(names)).isascii() and "\0" not in text:
        return  # a million names at once
    for index, name in enumerate(names):
        problem = name_problem(name)
        if problem:
            raise UsageError(f"{place(index)}: {problem}")


def name_problem(name: str) -> str | None:
    """Say what is wrong with a user's name and what to do, or None if it can stand in every file form.

    >>> name_problem("O'Neil, Zoë"), name_problem("")
    (None, 'a user has no name; give every user one')
    """
    if not name:
        return "a user has no name; give every user one"
    if "\0" in name:
        return f"the user {name!r} has a NUL byte in its name; the file is damaged, or not text in UTF-8"
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        return f"the user {name!r} is not text in UTF-8; save the file as UTF-8"
    return None


def check_log(log: ParticipationLog) -> None:
    """Refuse to write a log that could not be read again."""
    if len(log.set_rounds) and log.set_rounds[0] < 0:
        raise UsageError(f"round {log.set_rounds[0]} cannot be written; number the rounds from 0")
    check_names(log.names or (), lambda _: "the log cannot be written")


def set_numbers(log: ParticipationLog) -> IntArray | None:
    """Return each learned set's number within its round, or None if no round has several."""
    if not np.any(np.diff(log.set_rounds) == 0):
        return None
    return np.arange(len(log.set_rounds)) - np.searchsorted(log.set_rounds, log.set_rounds)


def participation_log(
    rows: Rows, users: int | None, rounds: int | None
) -> tuple[ParticipationLog, int, tuple[str, ...]]:
    """Make the log of the rows; `coterie.leakage.readers.read_log` says what `users` and `rounds` do.

    Rows that say the same count once; how many were left out comes with the log, and a warning.
    """
    members, names, total = _number_users(rows, users)
    first, length = _span(rows, rounds)
    groups = rows.rounds - first
    if rows.sets is not None:  # else a round is a learned set
        labels, ranks = np.unique(rows.sets, return_inverse=True)
        pairs, groups = np.unique(groups * len(labels) + ranks, return_inverse=True)
    # One key per row, so that one sort orders rounds, sets and users; it stays far below 2^63.
    keys = groups * total + members
    ordered = np.sort(keys)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    warnings: tuple[str, ...] = ()
    if len(repeated):
        warnings = (_repeat_warning(rows, np.flatnonzero(keys == ordered[repeated[0]]), len(repeated)),)
        ordered = np.delete(ordered, repeated)
    groups, members = np.divmod(ordered, total)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    learned = groups[starts] if rows.sets is None else pairs // len(labels)
    bounds = np.append(starts, len(members))
    log = ParticipationLog(total, length, learned + first, bounds, members, names, first)
    return log, len(repeated), warnings


def availability_log(path: str, log: ParticipationLog, *, gaps_allowed: bool) -> AvailabilityLog:
    """Make the record of who was online of a log whose learned sets are the users online in a round."""
    gaps = np.flatnonzero(np.diff(log.set_rounds) > 1)
    if len(gaps) and not gaps_allowed:
        raise UsageError(
            f"{path} has a gap: no row for round {log.set_rounds[gaps[0]] + 1}, though it goes on to round "
            f"{log.first + log.rounds - 1}; a round that was not recorded cannot be told from one with nobody "
            f"online: number the recorded rounds one after the other"
        )
    limit = min(_MAX_CELLS, max(_FREE_CELLS, 1000 * len(log.members)))
    if log.rounds * log.users > limit:
        raise UsageError(
            f"{path} has {log.rounds} rounds × {log.users} users, more than {limit} in all; give the record of "
            "fewer rounds, or of a sample of the users"
        )
    online = np.zeros((log.rounds, log.users), dtype=np.bool_)
    online[np.repeat(log.set_rounds - log.first, np.diff(log.starts)), log.members] = True
    return AvailabilityLog(online, log.names)


def _span(rows: Rows, rounds: int | None) -> tuple[int, int]:
    """Return the first of the rounds that a log holds, and how many there are."""
    numbers = rows.named_rounds
    first, last = int(numbers.min()), int(numbers.max())
    count = last - first + 1
    if rounds is None:
        # One mistyped number must not ask for the memory of all the rounds up to it.
        limit = max(_FREE_ROUNDS, _MAX_GAP * len(numbers))
        if count > limit:
            raise UsageError(
                f"{rows.origin(int(np.argmax(numbers)))}: from round {first} to round {last} there are {count} "
                f"rounds, more than {limit} for the {len(numbers)} rows; number the rounds one after the other, "
                "or say with --rounds how many there were, or with --round-column which column holds them"
            )
        return first, count
    if rounds < count:
        raise UsageError(
            f"{rows.path} goes from round {first} to round {last}: {count} rounds, more than the {rounds} "
            f"given; give the number of all rounds, with a result or without"
        )
    if rounds > _MAX_ROUNDS:
        raise UsageError(f"{rounds} rounds were given; a log holds at most {_MAX_ROUNDS}")
    return first, rounds


def _number_users(rows: Rows, users: int | None) -> tuple[IntArray, tuple[str, ...] | None, int]:
    """Return each row's user by number, the users' names (None if they are the numbers), and N."""
    count = len(rows.names)
    if users is not None and not 1 <= users <= _MAX_USERS:
        raise UsageError(f"{users} users were given; there must be between 1 and {_MAX_USERS}")
    if users is not None and users < count:
        raise UsageError(
            f"{rows.path} names {count} users, more than the {users} given; give the number of all users"
        )
    if rows.order == "number":
        return rows.users, None, users or count
    if rows.order == "file":
        names = _with_unseen(rows.path, rows.names, users)
        return rows.users, names, len(names)
    integers = all(map(_INTEGER.fullmatch, rows.names))
    if users is not None and integers:
        # Longer ones are no user's number, and so long ones int() would refuse.
        digits = len(str(users))
        if all(len(name) <= digits and int(name) < users for name in rows.names):
            numbers = np.fromiter(map(int, rows.names), np.int64, count)
            return numbers[rows.users], None, users
    order = _order(rows.names, integers=integers)
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count)
    names = _with_unseen(rows.path, [rows.names[index] for index in order.tolist()], users)
    return numbers[rows.users], names, len(names)


def _order(names: Sequence[str], *, integers: bool) -> IntArray:
    """Return the places of the names in numeric order, if they are integers, else in lexicographic order."""
    if integers and max(map(len, names)) <= len(str(MAX_NUMBER)):
        return np.argsort(np.fromiter(map(int, names), np.int64, len(names)))
    # For integers without leading zeros, the shorter and then the lexicographic order is the numeric one.
    key = (lambda index: (len(names[index]), names[index])) if integers else names.__getitem__
    return np.array(sorted(range(len(names)), key=key), dtype=np.int64)


def _with_unseen(path: str, names: Sequence[str], users: int | None) -> tuple[str, ...]:
    """Return the names of all `users`: those given, and `unseen-1` and so on for users the file does not name."""
    missing = 0 if users is None else users - len(names)
    if missing == 0:
        return tuple(names)
    if missing > _MAX_UNSEEN:
        raise UsageError(
            f"{path} names {len(names)} users; {missing} more were given, and names are made up for at most "
            f"{_MAX_UNSEEN}: check the number of users"
        )
    in_use = frozenset(names)
    fresh = (name for name in map("unseen-{}".format, count(1)) if name not in in_use)
    return (*names, *islice(fresh, missing))


def _repeat_warning(rows: Rows, same: IntArray, count: int) -> str:
    """Say that rows say the same, and where the first of them stand."""
    before, row = (int(index) for index in same[:2])
    learned = "" if rows.sets is None else f"set {rows.sets[row]} of "
    others = "" if count == 1 else f", the first of {count} such rows"
    return (
        f"{rows.place(row)}: the user {rows.names[rows.users[row]]!r} stands twice in {learned}round "
        f"{rows.rounds[row]} (before: {rows.place(before)}){others}; counted once"
    )
