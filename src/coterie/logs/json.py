"""JSON and JSON lines: records of a user and a round, records with a list of users, or lists by round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np

from coterie.errors import UsageError
from coterie.logs.columns import (
    LISTS,
    ROUNDS,
    SETS,
    TIMES,
    USERS,
    WEAK_USERS,
    Choice,
    column_named,
    name_columns,
    position,
)
from coterie.logs.rounds import names_round
from coterie.logs.sets import LearnedSet
from coterie.logs.source import Source
from coterie.logs.table import Piece, Table

MAX_DOCUMENT = 128 * 2**20
"""Bytes of a JSON document, or of a line: what is decoded at once takes up to twenty times as much memory."""
_PIECE = 256
_LOOKED_AT = 100  # records in which keys are looked for

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Sets:
    """Learned sets, and the names of the keys of their rounds and users where they have any."""

    syntax: str
    sets: list[LearnedSet]
    round_column: str | None = None
    user_column: str | None = None
    unit: str = "entry"


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
                f"{source.name}, line {number} has more than {MAX_DOCUMENT} bytes; write CSV, or JSON lines "
                "with a "
                f"line for each round"
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


def decode(place: str, text: bytes) -> Any:  # noqa: ANN401 - JSON holds anything
    """Decode JSON, and say where it is none."""
    try:
        return msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{place}: this is not JSON, or is cut off: {error}") from error


def read_json_lines(source: Source, choice: Choice) -> Table | Sets:
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

    return _recorded(source.name, "JSON lines", "line", records, choice)


def read_json(source: Source, choice: Choice) -> Table | Sets:
    """Return what a JSON document holds: a table of records, or learned sets."""
    if len(source.content) > MAX_DOCUMENT:
        raise UsageError(
            f"{source.name} is a JSON document of more than {MAX_DOCUMENT} bytes; write CSV, or JSON lines with "
            "a line "
            f"for each round"
        )
    document = _body(source.name, decode(source.name, source.content))
    if isinstance(document, dict):
        sets = [
            LearnedSet(index, key, _users(source.name, "entry", index, value))
            for index, (key, value) in enumerate(document.items(), 1)
            if value
        ]
        return Sets("JSON", sets)
    if all(isinstance(each, list) for each in document):
        sets = [
            LearnedSet(index, str(index - 1), _users(source.name, "entry", index, value))
            for index, value in enumerate(document, 1)
            if value
        ]
        return Sets("JSON", sets)
    for index, record in enumerate(document, 1):
        if not isinstance(record, dict):
            raise UsageError(
                f"{source.name}, entry {index}: this is neither a record with a round nor a list of users"
            )
    return _recorded(source.name, "JSON", "entry", lambda: enumerate(document, 1), choice)


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
        f"{name}: this JSON holds no list of records that a log could be; give a list of objects with a round "
        "and its "
        f"users"
    )


def _recorded(
    name: str,
    syntax: str,
    unit: str,
    records: Any,  # noqa: ANN401 - a function that iterates over the records anew
    choice: Choice,
) -> Table | Sets:
    keys: dict[str, None] = {}
    lists: dict[str, None] = {}
    for index, (_, record) in enumerate(records()):
        keys |= dict.fromkeys(record)
        lists |= {key: None for key, value in record.items() if isinstance(value, list)}
        if index == _LOOKED_AT:
            break
    header = tuple(keys)
    column = choice.user_column if choice.user_column in lists else None
    likely = position(list(lists), LISTS)
    if column is None and likely is not None and position(header, USERS) is None:
        column = list(lists)[likely]
    if column is not None:
        place = _round_key(name, header, choice)
        sets = [_learned_set(name, unit, line, record, (header[place], column)) for line, record in records()]
        return Sets(syntax, sets, header[place], column, unit)

    def pieces() -> Iterator[Piece]:
        rows: list[list[str]] = []
        lines: list[int] = []
        for line, record in records():
            lines.append(line)
            rows.append([_text(record.get(key)) for key in header])
            if len(rows) == _PIECE:
                yield np.array(lines), rows
                rows, lines = [], []
        if rows:
            yield np.array(lines), rows

    return Table(name, syntax, header, pieces, unit=unit)


def _round_key(name: str, header: Sequence[str], choice: Choice) -> int:
    if choice.round_column is not None:
        return column_named(name, header, choice.round_column, "--round-column")
    place = position(header, ROUNDS + TIMES)
    if place is None:
        raise UsageError(f"{name}: no key is known to hold the round; {name_columns(header)}: give --round-column")
    return place


def _learned_set(name: str, unit: str, line: int, record: JsonObject, keys: tuple[str, str]) -> LearnedSet:
    """Return a record with a list of users as a learned set; `keys` are those of its round and of the list."""
    place = position(list(record), SETS)
    number = None if place is None else record[list(record)[place]]
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        raise UsageError(f"{name}, {unit} {line}: the set {number!r} is not an integer of 0 or more")
    return LearnedSet(line, _text(record.get(keys[0])), _users(name, unit, line, record.get(keys[1], [])), number)


def _users(name: str, unit: str, line: int, users: Any) -> list[str]:  # noqa: ANN401
    if not isinstance(users, list):
        raise UsageError(f"{name}, {unit} {line}: the users are {str(users)[:40]!r}; give a list of them")
    names = []
    for user in users:
        value = user
        if isinstance(user, dict):
            place = position(list(user), USERS + WEAK_USERS)
            value = None if place is None else user[list(user)[place]]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"{name}, {unit} {line}: the user {str(user)[:40]!r} is neither a name nor a number")
        names.append(str(value))
    return names


def _text(value: Any) -> str:  # noqa: ANN401
    """Return a value as a table's cell; what is nested has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or isinstance(value, list | dict) else str(value)
