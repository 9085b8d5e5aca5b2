"""JSON: records of a user and a round, records with a list of users, lists by round, and Coterie's own lines."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, BinaryIO, TypeAlias

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.leakage.readers.columns import (
    LISTS,
    MAX_NUMBER,
    ROUNDS,
    SETS,
    TIMES,
    USERS,
    WEAK_USERS,
    Choice,
    column_named,
    name_columns,
    names_round,
    position,
)
from coterie.leakage.readers.layouts import LearnedSet, Sets, set_places
from coterie.leakage.readers.rows import check_names, set_numbers
from coterie.leakage.readers.source import Source, Understanding
from coterie.leakage.readers.table import LogTable, cell_text
from coterie.values import ParticipationLog
from coterie.values.checks import learned_set

MAX_DOCUMENT = 128 * 2**20
"""Bytes of a JSON document, or of a line: what is decoded at once takes up to twenty times as much memory."""

JsonObject: TypeAlias = dict[str, Any]


def is_json(source: Source) -> bool:
    """Say whether a log is JSON or JSON lines."""
    return source.content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def json_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
    start, number = 0, 0
    while start < len(source.content):
        stop = source.content.find(b"\n", start) + 1 or len(source.content)
        number += 1
        if stop - start > MAX_DOCUMENT:
            raise UsageError(
                f"{source.name}, line {number} has more than {MAX_DOCUMENT} bytes; write CSV, or JSON lines with "
                "a line for each round"
            )
        line = source.content[start:stop].strip()
        if line:
            yield number, line
        start = stop


def has_lines(source: Source) -> bool:
    """Say whether each line is JSON of its own; a single line is, if it is a record or names Coterie's format."""
    lines = json_lines(source)
    try:
        _, first = next(lines)
        record = msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A document over several lines has a line that ends in the middle; a record that is cut off has its end.
        return first.startswith(b"{") and b":" in first and not source.content.rstrip().endswith((b"}", b"]"))
    if next(lines, None) is not None:
        return True
    if not isinstance(record, dict):
        return False
    place = position(list(record), ROUNDS)
    return "format" in record or (place is not None and not isinstance(list(record.values())[place], list))


def decode(place: str, text: bytes, kind: Any = Any) -> Any:  # noqa: ANN401 - JSON holds anything
    """Decode JSON, and say where it is none, or not of a kind."""
    try:
        return msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: this is not a learned set: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{place}: this is not JSON, or is cut off: {error}") from error


def read_json_lines(source: Source, choice: Choice) -> LogTable | Sets:
    """Return what the lines hold: a table of records, or learned sets."""

    def records() -> Iterator[tuple[int, JsonObject]]:
        for number, line in json_lines(source):
            record = decode(f"{source.name}, line {number}", line)
            if not isinstance(record, dict):
                raise UsageError(
                    f"{source.name}, line {number}: this is not an object with a round and its users, such as "
                    f'{{"round": 3, "users": ["ann", "bob"]}}'
                )
            yield number, record

    return _from_records(source.name, "JSON lines", "line", records, choice)


def read_json(source: Source, choice: Choice) -> LogTable | Sets:
    """Return what a JSON document holds: a table of records, or learned sets."""
    if len(source.content) > MAX_DOCUMENT:
        raise UsageError(
            f"{source.name} is a JSON document of more than {MAX_DOCUMENT} bytes; write CSV, or JSON lines with a "
            "line for each round"
        )
    document = _body(source.name, decode(source.name, source.content))
    if isinstance(document, dict):
        _check_keys(source)
    by_round = document.items() if isinstance(document, dict) else enumerate(document)
    if isinstance(document, dict) or all(isinstance(each, list) for each in document):
        sets = [
            LearnedSet(index, str(key), _users(f"{source.name}, entry {index}", value))
            for index, (key, value) in enumerate(by_round, 1)
            if value
        ]
        rule = "an entry of the outermost list or object"
        return Sets(source.name, sets, Understanding("JSON", "sets", rule))
    for index, record in enumerate(document, 1):
        if not isinstance(record, dict):
            raise UsageError(
                f"{source.name}, entry {index}: this is neither a record with a round nor a list of users"
            )
    return _from_records(source.name, "JSON", "entry", lambda: enumerate(document, 1), choice)


def _check_keys(source: Source) -> None:
    """Refuse a key that stands twice: a decoder keeps the last, and the sum of the other would be lost."""

    def unique(pairs: list[tuple[str, Any]]) -> None:
        key, count = Counter(key for key, _ in pairs).most_common(1)[0] if pairs else ("", 0)
        if count > 1:
            raise UsageError(
                f"{source.name}: the key {key!r} stands {count} times; give every round a key of its own"
            )

    json.loads(source.content.decode("utf-8-sig"), object_pairs_hook=unique)


def _body(name: str, document: Any) -> list[Any] | dict[str, list[Any]]:  # noqa: ANN401
    """Return the part of a document that is a log: records, lists of users, or lists of users by round."""
    if isinstance(document, list):
        return document
    if isinstance(document, dict) and document:
        lists = {key: value for key, value in document.items() if isinstance(value, list)}
        if len(lists) == len(document) and all(map(names_round, document)):
            return document
        if position(list(lists), ROUNDS + TIMES) is not None and position(list(lists), USERS) is not None:
            return [dict(zip(lists, row, strict=False)) for row in zip(*lists.values(), strict=False)]
        inner = [value for value in document.values() if isinstance(value, list | dict)]
        if len(inner) == 1:
            return _body(name, inner[0])
    raise UsageError(
        f"{name}: this JSON holds no list of records that a log could be; give a list of objects with a round and "
        "its users"
    )


def _from_records(
    name: str,
    syntax: str,
    unit: str,
    records: Callable[[], Iterable[tuple[int, JsonObject]]],
    choice: Choice,
) -> LogTable | Sets:
    keys: dict[str, None] = {}
    lists: dict[str, None] = {}
    for _, record in records():  # all of them: a key that comes late can be the number of a set
        keys |= dict.fromkeys(record)
        lists |= {key: None for key, value in record.items() if isinstance(value, list)}
    header = tuple(keys)
    column = choice.user_column if choice.user_column in lists else None
    likely = position(list(lists), LISTS)
    if column is None and likely is not None and position(header, USERS) is None:
        column = list(lists)[likely]
    if column is not None:
        place = _round_key(name, header, choice)
        sets = [
            _learned_set(f"{name}, {unit} {line}", line, record, (header[place], column))
            for line, record in records()
        ]
        return Sets(name, sets, Understanding(syntax, "sets", "", header[place], column), unit)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for line, record in records():
            yield line, [cell_text(record.get(key)) for key in header]

    return LogTable(name, syntax, header, rows, unit=unit)


def _round_key(name: str, header: Sequence[str], choice: Choice) -> int:
    if choice.round_column is not None:
        return column_named(name, header, choice.round_column, "--round-column")
    place = position(header, ROUNDS + TIMES)
    if place is None:
        raise UsageError(f"{name}: no key is known to hold the round; {name_columns(header)}: give --round-column")
    return place


def _learned_set(place: str, line: int, record: JsonObject, keys: tuple[str, str]) -> LearnedSet:
    """Return a record with a list of users as a learned set; `keys` are those of its round and of the list."""
    key = position(list(record), SETS)
    number = None if key is None else record[list(record)[key]]
    if number is not None and not (type(number) is int and 0 <= number <= MAX_NUMBER):
        raise UsageError(f"{place}: the set {number!r} is not an integer from 0 to {MAX_NUMBER}")
    round_, users = cell_text(record.get(keys[0])), _users(place, record.get(keys[1], []))
    return LearnedSet(line, round_, users, number)


def _users(place: str, users: Any) -> list[str]:  # noqa: ANN401
    if not isinstance(users, list):
        raise UsageError(f"{place}: the users are {str(users)[:40]!r}; give a list of them")
    names = []
    for user in users:
        value = user
        if isinstance(user, dict):
            key = position(list(user), USERS + WEAK_USERS)
            value = None if key is None else user[list(user)[key]]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"{place}: the user {str(user)[:40]!r} is neither a name nor a number")
        names.append(str(value))
    return names


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


def read_lines(source: Source, choice: Choice) -> ParticipationLog:
    """Read a log whose first line names its users and rounds, with which the caller must agree."""
    name, lines = source.name, json_lines(source)
    top, text = next(lines)
    head: _Head = decode(f"{name}, line {top}", text, _Head)
    names = head.users if isinstance(head.users, list) else None
    total = head.users if isinstance(head.users, int) else len(head.users)
    for what, claim, content in (("users", choice.users, total), ("rounds", choice.rounds, head.rounds)):
        if claim is not None and claim != content:
            raise UsageError(f"{name} says itself that there are {content} {what}; leave out the {claim} given")
    check_names(names or (), lambda _: f"{name}, line 1")
    numbers: dict[str | int, int] = {user: index for index, user in enumerate(names or ())}
    sets: list[LearnedSet] = []
    members = []
    for line, text in lines:
        each: _Line = decode(f"{name}, line {line}", text, _Line)
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
    learned = np.array([int(each.round) for each in sets], dtype=np.int64)
    order = np.lexsort((set_places(name, sets, learned), learned))
    return ParticipationLog.from_sets(
        total,
        head.rounds,
        learned[order],
        [members[index] for index in order],
        names=None if names is None else tuple(names),
        first=head.first,
    )


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
