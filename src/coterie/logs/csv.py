"""Delimited text: commas, semicolons, tabs, bars or blanks, with a header or without; and logs written as CSV."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

import numpy as np

from coterie.errors import UsageError
from coterie.logs.columns import LISTS, ROUNDS, TIMES, USERS, Choice, looks_like_round, position
from coterie.logs.rows import name_problem, set_numbers
from coterie.logs.source import Source
from coterie.logs.table import LogTable, Piece
from coterie.values import ParticipationLog

# Rows taken at a time: few enough that they stay in the cache and do not wake the garbage collector.
_PIECE = 256
_DELIMITERS = (",", ";", "\t", "|", " ")
_LOOKED_AT = 2**16  # characters in which the delimiter is looked for


class DelimitedText:
    """Delimited text: where its rows begin, and how their fields are parted."""

    def __init__(self, source: Source, choice: Choice) -> None:
        self._source = source
        utf16 = source.content.startswith((b"\xff\xfe", b"\xfe\xff"))
        self._encoding = "utf-16" if utf16 else "utf-8-sig"
        self._above = 0  # lines above the first row: comments, blank lines, and Excel's sep=
        self.delimiter = self._opening(choice.delimiter)
        line, first = next(self._rows(), (0, []))
        if not first:
            raise UsageError(f"{source.name} is empty; its first line should be round,user")
        if any(name_problem(field) for field in first if field):
            raise UsageError(f"{source.name}, line {line}: this is not text in UTF-8; save it in UTF-8")
        self.first = [field.strip() for field in first]

    def pieces(self, *, has_header: bool) -> Iterator[Piece]:
        """Yield the rows below the header, all of the full width, with the lines where they begin."""
        rows = islice(self._rows(), 1 if has_header else 0, None)
        width = len(self.first)
        while piece := list(islice(rows, _PIECE)):
            for line, row in piece:
                if len(row) != width:
                    raise UsageError(
                        f"{self._source.name}, line {line}: the header has {width} fields and this row "
                        f"{len(row)}; complete the row (the file may be cut off here), or say what parts fields "
                        "with --delimiter"
                    )
            yield np.array([line for line, _ in piece]), [row for _, row in piece]

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not blank, each with the line where it begins."""
        # A byte that is not UTF-8 is let through as a lone surrogate, which no valid text holds, and is refused
        # where it stands, with its line; the decoder would not know the line.
        errors = "surrogateescape" if self._encoding == "utf-8-sig" else "replace"
        text = io.TextIOWrapper(
            io.BytesIO(self._source.content), encoding=self._encoding, errors=errors, newline=""
        )
        for _ in range(self._above):
            text.readline()
        reader = csv.reader(text, delimiter=self.delimiter, strict=True, skipinitialspace=self.delimiter == " ")
        line = self._above + 1
        try:
            for row in reader:
                if row:
                    yield line, row
                line = self._above + reader.line_num + 1
        except csv.Error as error:
            raise UsageError(
                f"{self._source.name}, line {line}: the row that begins here is not CSV ({error}); close every "
                "quote, and write a quote inside a quoted name twice"
            ) from None

    def _opening(self, chosen: str | None) -> str:
        """Pass the lines above the first row, and return the delimiter: the one given, or the likeliest."""
        text = self._source.content[:_LOOKED_AT].decode(self._encoding, errors="replace")
        lines = text.splitlines() if len(self._source.content) < _LOOKED_AT else text.splitlines()[:-1]
        for line in lines:
            if line.startswith("sep=") and len(line) == len("sep=;"):
                chosen = chosen or line[-1]
            elif line.strip() and not line.startswith("#"):
                break
            self._above += 1
        if self._above == len(lines):
            self._above = 0  # nothing but such lines: let the reader say so
        if chosen is not None:
            chosen = chosen.replace("\\t", "\t")
            if len(chosen) != 1 or chosen in '\r\n"':
                raise UsageError(f"the delimiter is {chosen!r}; give one character, such as ';', or \\t for a tab")
            return chosen
        return max(_DELIMITERS, key=lambda each: _likelihood(lines[self._above : self._above + 20], each))


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


def csv_table(source: Source, choice: Choice) -> LogTable:
    """Return delimited text as a table; without a header the columns are called by their numbers."""
    text = DelimitedText(source, choice)
    # A matrix of rounds may have integers among the names of its columns.
    has_header = not any(map(looks_like_round, text.first)) or _known_names(text.first) > 0 or "" in text.first
    header = text.first if has_header else [str(number) for number in range(1, len(text.first) + 1)]
    return LogTable(
        source.name,
        "CSV",
        tuple(header),
        lambda: text.pieces(has_header=has_header),
        has_header=has_header,
        delimiter=text.delimiter,
    )


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
