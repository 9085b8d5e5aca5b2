"""Logs as CSV: the header `round,user` (or with `set`), then a row per user and learned set."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from coterie.errors import UsageError
from coterie.logs.rows import MAX_NUMBER, Rows, check_columns, name_problem, set_numbers
from coterie.storage.files import reading
from coterie.values import IntArray, ParticipationLog

# Rows taken at a time: few enough that they stay in the cache and do not wake the garbage collector.
_PIECE = 256


class _Reader(Protocol):
    """What csv.reader gives; its type has no public name."""

    @property
    def line_num(self) -> int: ...
    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


@contextmanager
def csv_rows(path: Path) -> Iterator[_Reader]:
    """Open a CSV file, in UTF-8 with or without a byte-order mark."""
    # A byte that is not UTF-8 is let through as a lone surrogate, which no valid text holds, and is refused
    # where it stands, with its line; the decoder would not know the line.
    with (
        reading(path),
        path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        yield csv.reader(file, strict=True)


def read_csv(path: Path, known: Sequence[str]) -> Rows:
    """Read the columns of a CSV file; `known` may occur."""
    # A name's number is its rank among the names in the order of their first rows.
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    rounds, sets, users, lines = ([np.zeros(0, dtype=np.int64)] for _ in range(4))
    with csv_rows(path) as reader:
        header = csv_header(path, reader)
        check_columns(f"{path}, line 1", header, known)
        for piece_lines, rows in csv_pieces(path, reader, len(header)):
            columns = dict(zip(header, zip(*rows, strict=True), strict=True))
            rounds.append(csv_integers(path, "round", columns["round"], piece_lines))
            users.append(np.fromiter(map(numbers.__getitem__, columns["user"]), np.int64, len(rows)))
            if "set" in columns:
                sets.append(csv_integers(path, "set", columns["set"], piece_lines))
            lines.append(piece_lines)
    return Rows(
        path,
        rounds=np.concatenate(rounds),
        sets=np.concatenate(sets) if "set" in header else None,
        users=np.concatenate(users),
        names=list(numbers),
        lines=np.concatenate(lines),
    )


def csv_header(path: Path, reader: _Reader) -> list[str]:
    """Return the first row, which is text."""
    header = next(_rows(path, reader, 1), [])
    if not header:
        raise UsageError(f"{path} is empty; its first line must be round,user")
    if any(name_problem(column) for column in header[0] if column):
        raise UsageError(f"{path}, line 1: this is not text in UTF-8; save the file as CSV in UTF-8")
    return header[0]


def _rows(path: Path, reader: _Reader, size: int) -> Iterator[list[list[str]]]:
    """Yield the rows of the file in pieces of `size`."""
    while True:
        start = reader.line_num
        rows: list[list[str]] = []
        try:
            rows.extend(islice(reader, size))
        except csv.Error as error:
            # What came before the error stays in the list, so the line where the bad row begins is known.
            line = start + 1 + sum(map(_height, rows))
            raise UsageError(
                f"{path}, line {line}: the row that begins here is not CSV ({error}); close every quote, and "
                f"write a quote inside a quoted name twice"
            ) from None
        if not rows:
            return
        yield rows


def csv_pieces(path: Path, reader: _Reader, width: int) -> Iterator[tuple[IntArray, list[list[str]]]]:
    """Yield the rows, all of the full width, with the lines where they begin; blank lines are left out."""
    start = reader.line_num
    for rows in _rows(path, reader, _PIECE):
        lines = np.arange(start + 1, start + len(rows) + 1)
        if reader.line_num != lines[-1]:  # a quoted name goes over several lines
            heights = np.fromiter(map(_height, rows), np.int64, len(rows))
            lines = start + 1 + np.cumsum(heights) - heights
        start = reader.line_num
        if set(map(len, rows)) != {width}:
            lines = lines[np.fromiter(map(bool, rows), np.bool_, len(rows))]
            rows = [row for row in rows if row]  # noqa: PLW2901
            for line, row in zip(lines, rows, strict=True):
                if len(row) != width:
                    raise UsageError(
                        f"{path}, line {line}: the header has {width} fields and this row {len(row)}; "
                        f"complete the row (the file may be cut off here)"
                    )
        if rows:
            yield lines, rows


def _height(row: list[str]) -> int:
    """Return over how many lines a row goes."""
    return 1 + sum(field.count("\n") + field.count("\r") - field.count("\r\n") for field in row)


def csv_integers(path: Path, what: str, column: Sequence[str], lines: IntArray) -> IntArray:
    """Return a column of integers, 0 or more; int() alone would also let 1_000, ' 7' or '٣' pass."""
    text = "".join(column)
    digits = len(str(MAX_NUMBER))
    if not (text.isascii() and text.isdigit() and all(column) and max(map(len, column)) <= digits):
        for line, value in zip(lines, column, strict=True):
            if not (value.isascii() and value.isdigit()):
                raise UsageError(f"{path}, line {line}: the {what} {value!r} is not an integer of 0 or more")
            if len(value) > digits:
                raise UsageError(f"{path}, line {line}: the {what} {value} has more than {digits} digits")
    return np.fromiter(map(int, column), np.int64, len(column))


def write_csv(log: ParticipationLog, file: BinaryIO) -> None:
    """Write a log as CSV in UTF-8."""
    names = None if log.names is None else [_quoted(name) for name in log.names]
    numbers = set_numbers(log)
    file.write(b"round,user\n" if numbers is None else b"round,set,user\n")
    for index, (round_, members) in enumerate(log.sets()):
        start = f"{round_}," if numbers is None else f"{round_},{numbers[index]},"
        written = members.tolist() if names is None else [names[user] for user in members]
        file.write("".join(f"{start}{user}\n" for user in written).encode())


def _quoted(name: str) -> str:
    """Return a name as a CSV field; csv.writer may leave a carriage return bare, and that ends a row."""
    if any(mark in name for mark in ',"\r\n'):
        return '"' + name.replace('"', '""') + '"'
    return name
