"""Logs as JSON lines: an object per learned set, and a first line that says what rows cannot.

The first line `{"format":"coterie log","version":1,"first":0,"rounds":12,"users":["ana","bob"]}` names all users
in their order (or tells how many, if they have no names) and all rounds, so that the log comes back whole. Then
`{"round":3,"users":["ana","bob"]}` is a learned set of round 3, with `"set":0`, `"set":1` … where a round has
several. Without the first line a file means what the same rows would mean as CSV.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.logs.rows import MAX_NUMBER, Rows, name_problem, participation_log, set_numbers
from coterie.storage.files import reading
from coterie.values import IntArray, ParticipationLog
from coterie.values.log import learned_set

_T = TypeVar("_T")
_FORMAT = "coterie log"
_VERSION = 1

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**8)]
_User = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Kind(msgspec.Struct):
    """What tells a first line from a learned set."""

    format: str | None = None
    version: int = 0


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    first: _Number
    rounds: _Count
    users: list[str] | _User


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    round: _Number
    users: list[str | _User]
    set: _Number | None = None


def read_lines(path: Path, users: int | None, rounds: int | None) -> ParticipationLog:
    """Read a log from JSON lines; `users` and `rounds` are for files that do not tell them."""
    with reading(path), path.open("rb") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        number, line = next(lines, (0, b""))
        if not number:
            raise UsageError(f"{path} is empty; a log needs at least one line")
        kind = _decoded(path, number, line, _Kind)
        if kind.format is None:
            sets = [(number, _decoded(path, number, line, _Line)), *_sets(path, lines)]
            return participation_log(_rows(path, sets), users, rounds)
        if (kind.format, kind.version) != (_FORMAT, _VERSION):
            raise UsageError(
                f"{path} has the format {kind.format!r}, version {kind.version}; this Coterie reads {_FORMAT!r}, "
                f"version {_VERSION}"
            )
        head = _decoded(path, number, line, _Head)
        return _whole(path, head, list(_sets(path, lines)), users, rounds)


def _sets(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, _Line]]:
    decoder = msgspec.json.Decoder(_Line)
    for number, line in lines:
        try:
            yield number, decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield number, _decoded(path, number, line, _Line)  # says what is wrong


def _decoded(path: Path, number: int, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}, line {number}: this is not a learned set: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}, line {number}: this is not JSON, or is cut off: {error}") from error


def _rows(path: Path, sets: list[tuple[int, _Line]]) -> Rows:
    """Return the lines as the rows that they would be in a CSV file."""
    numbers: dict[str, int] = {}
    found: list[IntArray] = []
    for line, each in sets:
        _check_size(path, line, each)
        users = [numbers.setdefault(str(user), len(numbers)) for user in each.users]
        found.append(np.array(users, dtype=np.int64))
    sizes = [len(users) for users in found]
    return Rows(
        path,
        rounds=np.repeat(np.array([each.round for _, each in sets], dtype=np.int64), sizes),
        sets=np.repeat(_places(path, sets), sizes),
        users=np.concatenate(found),
        names=list(numbers),
        lines=np.repeat(np.array([line for line, _ in sets]), sizes),
    )


def _places(path: Path, sets: list[tuple[int, _Line]]) -> IntArray:
    """Return the number of each set among those of its round: the one it has, else the next."""
    seen: dict[tuple[int, int], int] = {}
    count: dict[int, int] = {}
    places = np.empty(len(sets), dtype=np.int64)
    for index, (line, each) in enumerate(sets):
        places[index] = count.get(each.round, 0) if each.set is None else each.set
        before = seen.setdefault((each.round, int(places[index])), line)
        if before != line:
            raise UsageError(
                f"{path}, line {line}: round {each.round} has its set {places[index]} in line {before} already; "
                f"give every set of a round a number of its own"
            )
        count[each.round] = count.get(each.round, 0) + 1
    return places


def _whole(
    path: Path, head: _Head, sets: list[tuple[int, _Line]], users: int | None, rounds: int | None
) -> ParticipationLog:
    """Return the log of a file that tells its users and rounds."""
    names = head.users if isinstance(head.users, list) else None
    total = head.users if isinstance(head.users, int) else len(head.users)
    for what, given, told in (("users", users, total), ("rounds", rounds, head.rounds)):
        if given is not None and given != told:
            raise UsageError(f"{path} tells {told} {what} itself; leave out the {given} given")
    for problem in filter(None, map(name_problem, names or ())):
        raise UsageError(f"{path}, line 1: {problem}")
    numbers: dict[str | int, int] = {name: index for index, name in enumerate(names or ())}
    order = np.lexsort((_places(path, sets), np.array([each.round for _, each in sets], dtype=np.int64)))
    found = []
    for line, each in (sets[index] for index in order):
        _check_size(path, line, each)
        if not head.first <= each.round < head.first + head.rounds:
            raise UsageError(f"{path}, line {line}: round {each.round} is none of those that line 1 tells")
        try:
            members = each.users if names is None else [numbers[user] for user in each.users]
            found.append(learned_set(members, total))
        except KeyError as error:
            raise UsageError(f"{path}, line {line}: the user {error} is none of those that line 1 tells") from None
        except UsageError as error:
            raise UsageError(f"{path}, line {line}: {error}") from error
    return ParticipationLog(
        users=total,
        rounds=head.rounds,
        set_rounds=np.array([sets[index][1].round for index in order], dtype=np.int64),
        starts=np.concatenate(([0], np.cumsum([len(each) for each in found], dtype=np.int64))),
        members=np.concatenate(found) if found else np.zeros(0, dtype=np.int32),
        names=None if names is None else tuple(names),
        first=head.first,
    )


def _check_size(path: Path, line: int, each: _Line) -> None:
    if not each.users:
        raise UsageError(f"{path}, line {line}: a learned set has no users; leave the line out")


def write_lines(log: ParticipationLog, file: BinaryIO) -> None:
    """Write a log as JSON lines; all of it comes back."""
    names = None if log.names is None else [msgspec.json.encode(name) for name in log.names]
    told = b"%d" % log.users if names is None else b"[" + b",".join(names) + b"]"
    file.write(
        b'{"format":"%b","version":%d,"first":%d,"rounds":%d,"users":%b}\n'
        % (_FORMAT.encode(), _VERSION, log.first, log.rounds, told)
    )
    numbers = set_numbers(log)
    for index, (round_, members) in enumerate(log.sets()):
        place = b"" if numbers is None else b'"set":%d,' % numbers[index]
        users = b",".join(b"%d" % user if names is None else names[user] for user in members.tolist())
        file.write(b'{"round":%d,%b"users":[%b]}\n' % (round_, place, users))
