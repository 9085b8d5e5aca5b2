"""A table of text, whatever file it comes from, and what its columns say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.leakage.readers.columns import (
    LISTS,
    PARTICIPATIONS,
    ROUNDS,
    SETS,
    TIMES,
    USERS,
    WEAK_USERS,
    Choice,
    column_named,
    looks_like_round,
    name_columns,
    names_round,
    position,
    truth,
)
from coterie.leakage.readers.rows import check_rows
from coterie.values import IntArray

Column: TypeAlias = tuple[list[str], IntArray]
"""The different texts of a column, in the order of their first rows, and each row's place among them."""
_LOOKED_AT = 100  # rows in which a column's content is looked at
# Rows taken at a time: few enough that they stay in the cache and do not wake the garbage collector.
_PIECE = 256
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class LogTable:
    """Named columns of text, and its rows, each with its line, as often as they are asked for."""

    name: str
    syntax: str
    header: tuple[str, ...]
    rows: Callable[[], Iterator[tuple[int, list[str]]]]
    has_header: bool = True
    delimiter: str | None = None
    unit: str = "line"
    """What the numbers of its rows count."""
    column: Callable[..., Column] | None = None
    """Reads one column by itself, where the file has columns; `strict` refuses what no round or user can be."""

    @property
    def place(self) -> str:
        """Where the columns are named."""
        return f"{self.name}, line 1" if self.syntax == "CSV" else self.name

    def first_rows(self) -> list[list[str]]:
        """Return the rows in which to look at what columns hold."""
        return [row for _, row in islice(self.rows(), _LOOKED_AT)]

    def columns(self, *wanted: int | None, other: int | None = None) -> tuple[dict[int, Column], IntArray | None]:
        """Return columns that are wanted and one that may hold anything, if there are, and the line of each row.

        Without lines, rows are numbered from 1.
        """
        indices = {index for index in (*wanted, other) if index is not None}
        if self.column is not None:
            return {index: self.column(index, strict=index in wanted) for index in indices}, None
        numbers: dict[int, dict[str, int]] = {index: {} for index in indices}
        codes = {index: [_NO_ROWS] for index in indices}
        lines = [_NO_ROWS]
        numbered = self.rows()
        while piece := list(islice(numbered, _PIECE)):
            where, rows = zip(*piece, strict=True)
            lines.append(np.array(where))
            for index, texts in numbers.items():
                places = [texts.setdefault(row[index], len(texts)) for row in rows]
                codes[index].append(np.array(places, dtype=np.int64))
        columns = {index: (list(texts), np.concatenate(codes[index])) for index, texts in numbers.items()}
        return columns, np.concatenate(lines)


@dataclass(frozen=True)
class TableLayout:
    """Which columns say what; `form` is one of those of `Understanding`."""

    form: str
    round: int | None = None
    user: int | None = None
    set: int | None = None
    participation: int | None = None
    users: tuple[int, ...] = ()
    """The columns of the users, where the table is wide."""


def cell_text(value: Any) -> str:  # noqa: ANN401 - a typed file holds anything
    """Return a typed value as a table's cell; what is nested has none.

    >>> cell_text(True), cell_text(3), cell_text(None), cell_text(["ann"])
    ('true', '3', '', '')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or isinstance(value, list | dict) else str(value)


_SEVERAL = 2
_MOST_BESIDE = 3


def guess_layout(table: LogTable, choice: Choice) -> TableLayout:
    """Guess what the columns of a table say; refuse where there is more than one way to guess."""
    header, rows = table.header, table.first_rows()
    check_rows(table.name, len(rows) if header else 0)
    round_, user = _known_columns(table, choice)
    time = position(header, TIMES)
    marked = [truth({row[column] for row in rows}) is not None for column in range(len(header))]
    if user is None:
        lists = position(header, LISTS)
        if lists is not None:
            return TableLayout("sets", _first(round_, time), lists)
        wide = _wide(table, _first(round_, time), rows[0], marked)
        if wide is not None:
            return wide
    user = _first(user, position(header, WEAK_USERS))
    if user is not None and round_ is None and _transposed(header, user, marked):
        return TableLayout("transposed", user=user)
    round_, user = _by_content(table, rows, _first(round_, time), user)
    _check_once(table, round_, user)
    participation = position(header, PARTICIPATIONS)
    return TableLayout(
        "long",
        round_,
        user,
        position(header, SETS),
        participation if participation not in {round_, user} else None,
    )


def _known_columns(table: LogTable, choice: Choice) -> tuple[int | None, int | None]:
    """Return the columns of round and user whose names say so: those that the caller gives, else known ones."""
    round_, user = position(table.header, ROUNDS), position(table.header, USERS)
    if choice.round_column is not None:
        round_ = column_named(table.place, table.header, choice.round_column, "--round-column")
    if choice.user_column is not None:
        user = column_named(table.place, table.header, choice.user_column, "--user-column")
    if round_ is not None and round_ == user:
        if choice.round_column is None:
            return None, user
        if choice.user_column is None:
            return round_, None
        raise UsageError(f"{table.place}: --round-column and --user-column both name {table.header[user]!r}")
    return round_, user


def _first(*columns: int | None) -> int | None:
    return next((column for column in columns if column is not None), None)


def _wide(table: LogTable, round_: int | None, first: list[str], marked: list[bool]) -> TableLayout | None:
    """Return the layout of a column for each user, if the table has it."""
    header = table.header
    if round_ is None and table.has_header and header[0].lower() in {"", "index", "unnamed: 0"}:
        round_ = 0
    others = [column for column in range(len(header)) if column != round_]
    if not others or position(header, SETS) is not None or (not table.has_header and len(header) <= _SEVERAL):
        return None
    if truth({first[column] for column in others}) is not None:
        return TableLayout("wide", round_, users=tuple(others))
    # Other columns may stand beside those of many users.
    users = [column for column in others if marked[column]]
    if round_ is not None and len(users) >= max(_SEVERAL, len(others) - _MOST_BESIDE):
        return TableLayout("wide", round_, users=tuple(users))
    return None


def _transposed(header: tuple[str, ...], user: int, marked: list[bool]) -> bool:
    others = [column for column in range(len(header)) if column != user]
    return len(others) >= _SEVERAL and all(marked[column] and names_round(header[column]) for column in others)


def _by_content(table: LogTable, rows: list[list[str]], round_: int | None, user: int | None) -> tuple[int, int]:
    """Find the round or the user, whose column has no known name, by what the columns hold."""
    columns = range(len(table.header))
    if round_ is None:
        likely = [c for c in columns if c != user and all(looks_like_round(row[c]) for row in rows)]
        if len(likely) == 1 or (not table.has_header and len(columns) == _SEVERAL and likely):
            round_ = likely[0]
        else:
            raise UsageError(
                f"{table.place}: no column is known to hold the round; {name_columns(table.header)}: say which "
                "one it is with --round-column"
            )
    if user is None:
        set_ = position(table.header, SETS)
        others = [column for column in columns if column not in {round_, set_}]
        if len(others) != 1:
            raise UsageError(
                f"{table.place}: no column is known to hold the user; {name_columns(table.header)}: say which one "
                "it is with --user-column"
            )
        user = others[0]
    return round_, user


def _check_once(table: LogTable, *columns: int) -> None:
    for column in columns:
        if table.has_header and table.header.count(table.header[column]) > 1:
            raise UsageError(
                f"{table.place}: the column {table.header[column]!r} stands there twice; say by its number, "
                "counted from 1, which one is meant: --round-column or --user-column"
            )
