"""Coterie's own JSON lines: an object for each learned set, and a first line that says what rows cannot.

The first line `{"format":"coterie log","version":1,"first":0,"rounds":12,"users":["ana","bob"]}` names all users
in their order (or says how many, if they have no names) and all rounds, so that the log comes back whole. Then
`{"round":3,"users":["ana","bob"]}` is a learned set of round 3, with `"set":0`, `"set":1` … where a round has
several.
"""

from typing import Annotated, BinaryIO, TypeVar

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.logs.json import decode, json_lines
from coterie.logs.rounds import MAX_NUMBER
from coterie.logs.rows import check_names, set_numbers
from coterie.logs.sets import LearnedSet, places
from coterie.logs.source import Source
from coterie.values import ParticipationLog
from coterie.values.log import learned_set

_T = TypeVar("_T")
FORMAT = "coterie log"
VERSION = 1

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**8)]
_User = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


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


def has_head(source: Source) -> bool:
    """Say whether the first line is one that names a format."""
    number, line = next(json_lines(source), (0, b"{}"))
    kind = decode(f"{source.name}, line {number}", line)
    if not isinstance(kind, dict) or "format" not in kind:
        return False
    if (kind["format"], kind.get("version")) != (FORMAT, VERSION):
        raise UsageError(
            f"{source.name} has the format {kind['format']!r}, version {kind.get('version')}; this Coterie reads "
            f"{FORMAT!r}, version {VERSION}"
        )
    return True


def read_lines(source: Source, users: int | None, rounds: int | None) -> ParticipationLog:
    """Read a log whose first line names its users and rounds; `users` and `rounds` must agree with it."""
    name, lines = source.name, json_lines(source)
    head = _typed(name, *next(lines), _Head)
    names = head.users if isinstance(head.users, list) else None
    total = head.users if isinstance(head.users, int) else len(head.users)
    for what, claim, content in (("users", users, total), ("rounds", rounds, head.rounds)):
        if claim is not None and claim != content:
            raise UsageError(f"{name} says itself that there are {content} {what}; leave out the {claim} given")
    check_names(names or (), lambda _: f"{name}, line 1")
    numbers: dict[str | int, int] = {user: index for index, user in enumerate(names or ())}
    sets: list[LearnedSet] = []
    members = []
    for line, text in lines:
        each = _typed(name, line, text, _Line)
        if not head.first <= each.round < head.first + head.rounds:
            raise UsageError(f"{name}, line {line}: round {each.round} is none of those that line 1 names")
        if not each.users:
            raise UsageError(f"{name}, line {line}: a learned set has no users; leave the line out")
        try:
            who = each.users if names is None else [numbers[user] for user in each.users]
            members.append(learned_set(who, total))
        except KeyError as error:
            raise UsageError(f"{name}, line {line}: the user {error} is none of those that line 1 names") from None
        except UsageError as error:
            raise UsageError(f"{name}, line {line}: {error}") from error
        sets.append(LearnedSet(line, str(each.round), (), each.set))
    sizes = np.array([len(who) for who in members], dtype=np.int64)
    learned = np.array([int(each.round) for each in sets], dtype=np.int64)
    order = np.lexsort((places(name, sets, learned), learned))
    return ParticipationLog(
        users=total,
        rounds=head.rounds,
        set_rounds=learned[order],
        starts=np.concatenate(([0], np.cumsum(sizes[order]))),
        members=np.concatenate([members[index] for index in order]) if members else np.zeros(0, dtype=np.int32),
        names=None if names is None else tuple(names),
        first=head.first,
    )


def _typed(name: str, number: int, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}, line {number}: this is not a learned set: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name}, line {number}: this is not JSON, or is cut off: {error}") from error


def write_lines(log: ParticipationLog, file: BinaryIO) -> None:
    """Write a log as JSON lines; all of it comes back."""
    names = None if log.names is None else [msgspec.json.encode(name) for name in log.names]
    users = b"%d" % log.users if names is None else b"[" + b",".join(names) + b"]"
    file.write(
        b'{"format":"%b","version":%d,"first":%d,"rounds":%d,"users":%b}\n'
        % (FORMAT.encode(), VERSION, log.first, log.rounds, users)
    )
    numbers = set_numbers(log)
    for index, (round_, members) in enumerate(log.sets()):
        place = b"" if numbers is None else b'"set":%d,' % numbers[index]
        users = b",".join(b"%d" % user if names is None else names[user] for user in members.tolist())
        file.write(b'{"round":%d,%b"users":[%b]}\n' % (round_, place, users))
