"""A table of text, whatever file it comes from: what its columns say, and the rows of a log that they make."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.logs.columns import (
    LISTS,
    OUTCOMES,
    PARTICIPATIONS,
    ROUNDS,
    SETS,
    TIMES,
    USERS,
    WEAK_USERS,
    YES_NO,
    Choice,
    column_named,
    looks_like_round,
    name_columns,
    names_round,
    number_rounds,
    number_sets,
    position,
    truth,
)
from coterie.logs.rows import Rows, check_rows, place_of
from coterie.logs.source import Understanding
from coterie.values import BoolArray, IntArray

Piece: TypeAlias = tuple[IntArray, list[list[str]]]
"""Some rows, with the lines where they begin."""
Column: TypeAlias = tuple[list[str], IntArray]
"""The different texts of a column, in the order of their first rows, and each row's place among them."""
_LOOKED_AT = 100  # rows in which a column's content is looked at
_VALUES_SHOWN = 4
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class LogTable:
    """Named columns of text, and its rows in pieces, as often as they are asked for."""

    name: str
    syntax: str
    header: tuple[str, ...]
    pieces: Callable[[], Iterator[Piece]]
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
        rows: list[list[str]] = []
        for _, piece in self.pieces():
            rows += piece
            if len(rows) >= _LOOKED_AT:
                break
        return rows[:_LOOKED_AT]

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
        for piece_lines, rows in self.pieces():
            lines.append(piece_lines)
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


def describe_columns(table: LogTable, layout: TableLayout, rule: str = "") -> Understanding:
    """Say what was understood of a table's columns."""
    used = {layout.round, layout.user, layout.set, layout.participation}
    unused = [name for column, name in enumerate(table.header) if column not in used]

    def name_of(column: int | None) -> str | None:
        return None if column is None else table.header[column] or str(column + 1)

    return Understanding(
        table.syntax,
        layout.form,
        rule,
        round_column=name_of(layout.round),
        user_column=name_of(layout.user),
        set_column=name_of(layout.set),
        delimiter=table.delimiter,
        ignored_columns=tuple(unused) if layout.form == "long" else (),
    )


def long_rows(table: LogTable, layout: TableLayout) -> tuple[Rows, Understanding]:
    """Return the rows of a long table: a row for each user and round."""
    round_, user = layout.round or 0, layout.user or 0
    outcome = position(table.header, OUTCOMES)
    outcome = None if outcome in {round_, user} else outcome
    columns, lines = table.columns(round_, user, layout.set, layout.participation, other=outcome)
    count = len(columns[user][1])
    if layout.participation is not None:
        took_part = _took_part(table, layout.participation, columns[layout.participation], lines)
        columns = {index: _only_rows(column, took_part) for index, column in columns.items()}
        lines = np.flatnonzero(took_part) + 1 if lines is None else lines[took_part]
    (labels, codes), (names, users) = columns[round_], columns[user]
    check_rows(table.name, len(users))
    rounds = number_rounds(
        table.header[round_] or str(round_ + 1),
        labels,
        codes,
        users,
        lambda row: place_of(table.name, lines, row, table.unit),
    )
    understanding = describe_columns(table, layout, rounds.rule)
    plain = {name for name in table.header if name in {"round", "user", "set"}}
    return Rows(
        table.name,
        rounds=rounds.numbers,
        sets=None if layout.set is None else number_sets(*columns[layout.set]),
        users=users,
        names=names,
        lines=lines,
        unit=table.unit,
    ), replace(
        understanding,
        left_out=count - len(users),
        warnings=() if outcome is None else tuple(_warnings(table.header[outcome], columns[outcome][0])),
        exact=rounds.exact and len(plain) == len(table.header) and understanding.delimiter in {",", None},
    )


def _took_part(table: LogTable, column: int, content: Column, lines: IntArray | None) -> BoolArray:
    """Return which rows' users took part, as a column says."""
    texts, codes = content
    values = [YES_NO.get(text.strip().lower()) for text in texts]
    if None in values:
        bad = values.index(None)
        where = place_of(table.name, lines, int(np.argmax(codes == bad)), table.unit)
        raise UsageError(
            f"{where}: the column {table.header[column]!r} has {texts[bad]!r}; write 0 or 1, true or false"
        )
    return np.array(values, dtype=np.bool_)[codes]


def _only_rows(column: Column, rows: BoolArray) -> Column:
    """Return some rows of a column, without the texts that stand in none of them."""
    texts, codes = column
    used, first, places = np.unique(codes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [texts[code] for code in used[order].tolist()], np.argsort(order)[places]


def _warnings(outcome: str, values: list[str]) -> Iterator[str]:
    """Warn of a column that was not used, if it may say that users did not take part after all."""
    if len(values) > 1:
        more = " …" if len(values) > _VALUES_SHOWN else ""
        yield (
            f"the column {outcome!r} ({', '.join(map(repr, values[:_VALUES_SHOWN]))}{more}) was not used; if it "
            "marks users who did not take part in the end, remove their rows"
        )


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
