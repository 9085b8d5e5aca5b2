"""Delimited text: commas, semicolons, tabs, bars or blanks, with a header or without; and logs written as CSV."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from coterie.errors import UsageError
from coterie.leakage.readers.columns import LISTS, ROUNDS, TIMES, USERS, Choice, looks_like_round, position
from coterie.leakage.readers.rows import name_problem, set_numbers
from coterie.leakage.readers.source import Source
from coterie.leakage.readers.table import LogTable
from coterie.values import ParticipationLog

_DELIMITERS = (",", ";", "\t", "|", " ")
_LOOKED_AT = 2**16  # characters in which the delimiter is looked for


def csv_table(source: Source, choice: Choice) -> LogTable:
    """Return delimited text as a table; without a header the columns are called by their numbers."""
    encoding = "utf-16" if source.content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    above, delimiter = _opening(source, encoding, choice.delimiter)
    line, first = next(_rows(source, encoding, above, delimiter), (0, []))
    if not first:
        raise UsageError(f"{source.name} is empty; its first line should be round,user")
    if any(name_problem(field) for field in first if field):
        raise UsageError(f"{source.name}, line {line}: this is not text in UTF-8; save it in UTF-8")
    first = [field.strip() for field in first]
    # A matrix of rounds may have integers among the names of its columns.
    has_header = not any(map(looks_like_round, first)) or _known_names(first) > 0 or "" in first
    header = first if has_header else [str(number) for number in range(1, len(first) + 1)]

    def rows() -> Iterator[tuple[int, list[str]]]:
        for line, row in islice(_rows(source, encoding, above, delimiter), int(has_header), None):
            if len(row) != len(first):
                raise UsageError(
                    f"{source.name}, line {line}: the header has {len(first)} fields and this row {len(row)}; "
                    "complete the row (the file may be cut off here), or say what parts fields with --delimiter"
                )
            yield line, row

    return LogTable(source.name, "CSV", tuple(header), rows, has_header=has_header, delimiter=delimiter)


def _rows(source: Source, encoding: str, above: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line where it begins, but for the lines `above` them."""
    # A byte that is not UTF-8 is let through as a lone surrogate, which no valid text holds, and is refused
    # where it stands, with its line; the decoder would not know the line.
    errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
    text = io.TextIOWrapper(io.BytesIO(source.content), encoding=encoding, errors=errors, newline="")
    for _ in range(above):
        text.readline()
    reader = csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=delimiter == " ")
    line = above + 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = above + reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            f"{source.name}, line {line}: the row that begins here is not CSV ({error}); close every quote, and "
            "write a quote inside a quoted name twice"
        ) from None


def _opening(source: Source, encoding: str, chosen: str | None) -> tuple[int, str]:
    """Return how many lines stand above the first row (comments, blanks, Excel's sep=), and the delimiter.

    That is the one chosen, or the likeliest.
    """
    text = source.content[:_LOOKED_AT].decode(encoding, errors="replace")
    lines = text.splitlines() if len(source.content) < _LOOKED_AT else text.splitlines()[:-1]
    above = 0
    for line in lines:
        if line.startswith("sep=") and len(line) == len("sep=;"):
            chosen = chosen or line[-1]
        elif line.strip() and not line.startswith("#"):
            break
        above += 1
    if above == len(lines):
        above = 0  # nothing but such lines: let the reader say so
    if chosen is not None:
        chosen = chosen.replace("\\t", "\t")
        if len(chosen) != 1 or chosen in '\r\n"':
            raise UsageError(f"the delimiter is {chosen!r}; give one character, such as ';', or \\t for a tab")
        return above, chosen
    return above, max(_DELIMITERS, key=lambda each: _likelihood(lines[above : above + 20], each))


def _likelihood(lines: list[str], delimiter: str) -> tuple[int, int, int]:
    """Rate a delimiter: how many columns have a known name, whether all rows are alike, and how wide they are."""
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " "))
    except csv.Error:
        return 0, 0, 0
    rows = [row for row in rows if row]
    if not rows or len(rows[0]) == 1:
        return 0, 0, 0
    return _known_names(rows[0]), len({len(row) for row in rows}) == 1, len(rows[0])


def _known_names(row: list[str]) -> int:
    """Count the kinds of columns that a row names."""
    return sum(position(row, names) is not None for names in (ROUNDS, TIMES, USERS, LISTS))


def write_csv(log: ParticipationLog, file: BinaryIO) -> None:
    """Write a log as CSV in UTF-8."""
    names = None if log.names is None else [_quote(name) for name in log.names]
    numbers = set_numbers(log)
    file.write(b"round,user\n" if numbers is None else b"round,set,user\n")
    for index, (round_, members) in enumerate(log.sets()):
        start = f"{round_}," if numbers is None else f"{round_},{numbers[index]},"
        written = members.tolist() if names is None else [names[user] for user in members]
        file.write("".join(f"{start}{user}\n" for user in written).encode())


def _quote(name: str) -> str:
    """Return a name as a CSV field; csv.writer may leave a carriage return bare, and that ends a row."""
    if any(mark in name for mark in ',"\r\n'):
        return '"' + name.replace('"', '""') + '"'
    return name
