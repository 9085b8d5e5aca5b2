"""A table of text, whatever file it comes from: what its columns say, and the rows of a log that they make."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.logs.columns import OUTCOMES, YES_NO, position
from coterie.logs.rounds import number_rounds, number_sets
from coterie.logs.rows import Rows, check_rows, place_of
from coterie.logs.understanding import Understanding
from coterie.values import IntArray

Piece: TypeAlias = tuple[IntArray, list[list[str]]]
"""Some rows, with the lines where they begin."""
_LOOKED_AT = 100  # rows in which a column's content is looked at
_VALUES_SHOWN = 4


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of text, and its rows in pieces, as often as they are asked for."""

    name: str
    syntax: str
    header: tuple[str, ...]
    pieces: Callable[[], Iterator[Piece]]
    headed: bool = True
    delimiter: str | None = None
    unit: str = "line"
    """What the numbers of its rows count."""

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


def describe_columns(table: Table, layout: TableLayout, rule: str = "") -> Understanding:
    """Say what was understood of a table's columns."""
    used = {layout.round, layout.user, layout.set, layout.participation}
    unused = [name for column, name in enumerate(table.header) if column not in used]

    def named(column: int | None) -> str | None:
        return None if column is None else table.header[column] or str(column + 1)

    return Understanding(
        table.syntax,
        layout.form,
        rule,
        round_column=named(layout.round),
        user_column=named(layout.user),
        set_column=named(layout.set),
        delimiter=table.delimiter,
        ignored_columns=tuple(unused) if layout.form == "long" else (),
    )


def long_rows(table: Table, layout: TableLayout) -> tuple[Rows, Understanding]:
    """Return the rows of a long table: a row for each user and round."""
    outcome = position(table.header, OUTCOMES)
    indices = [
        layout.round,
        layout.user,
        layout.set,
        outcome if outcome not in {layout.round, layout.user} else None,
    ]
    # A text's number is its rank among the texts in the order of their first rows.
    numbers: list[defaultdict[str, int]] = [defaultdict() for _ in indices]
    for each in numbers:
        each.default_factory = each.__len__
    columns: list[list[IntArray]] = [[np.zeros(0, dtype=np.int64)] for _ in indices]
    lines, left_out = [np.zeros(0, dtype=np.int64)], 0
    for piece_lines, piece in table.pieces():
        rows, row_lines = piece, piece_lines
        if layout.participation is not None:
            took_part = [
                _took_part(table, layout.participation, row, line)
                for row, line in zip(piece, row_lines, strict=True)
            ]
            rows = [row for row, part in zip(piece, took_part, strict=True) if part]
            row_lines = piece_lines[np.array(took_part, dtype=np.bool_)]
            left_out += len(piece) - len(rows)
        for column, index, texts in zip(columns, indices, numbers, strict=True):
            if index is not None:
                column.append(np.fromiter((texts[row[index]] for row in rows), np.int64, len(rows)))
        lines.append(row_lines)
    where = np.concatenate(lines)
    codes = [np.concatenate(column) for column in columns]
    check_rows(table.name, len(where))
    rounds = number_rounds(
        table.header[layout.round or 0] or str((layout.round or 0) + 1),
        list(numbers[0]),
        codes[0],
        codes[1],
        lambda row: place_of(table.name, where, row, table.unit),
    )
    warnings = []
    if outcome is not None and indices[3] is not None and len(numbers[3]) > 1:
        values = ", ".join(map(repr, list(numbers[3])[:_VALUES_SHOWN]))
        values += " …" if len(numbers[3]) > _VALUES_SHOWN else ""
        warnings.append(
            f"the column {table.header[outcome]!r} ({values}) was not used; if it marks users who did not take "
            "part "
            "in the end, remove their rows"
        )
    understanding = describe_columns(table, layout, rounds.rule)
    plain = {name for name in table.header if name in {"round", "user", "set"}}
    return Rows(
        table.name,
        rounds=rounds.numbers,
        sets=None if layout.set is None else number_sets(list(numbers[2]), codes[2]),
        users=codes[1],
        names=list(numbers[1]),
        lines=where,
        unit=table.unit,
    ), replace(
        understanding,
        left_out=left_out,
        warnings=tuple(warnings),
        exact=rounds.exact and len(plain) == len(table.header) and understanding.delimiter in {",", None},
    )


def _took_part(table: Table, column: int, row: list[str], line: int) -> bool:
    value = YES_NO.get(row[column].strip().lower())
    if value is None:
        raise UsageError(
            f"{table.name}, {table.unit} {line}: the column {table.header[column]!r} has {row[column]!r}; write "
            "0 or 1, true or "
            f"false"
        )
    return value
