"""The file of a log: its bytes, read once, and what a reader understood of them."""

import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from coterie.errors import UsageError
from coterie.files import reading
from coterie.values import ParticipationLog
from coterie.values.text import counted, listing

MAX_BYTES = 4 * 2**30
"""Of a log, as it is stored and unpacked."""
MAX_GROWTH = 200
"""A log packs to a tenth or a thirtieth; what grows by more is made to fill the memory."""
FREE_BYTES = 64 * 2**20
"""Any file may unpack to so many."""
_PIECE = 2**20
_GZIP = b"\x1f\x8b"
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or an Excel workbook; unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"SQLite format 3\0": "an SQLite database; give its table as CSV (coterie audit reads a ledger itself)",
    b"BZh": "packed with bzip2; unpack it, or pack it with gzip",
    b"\xfd7zXZ\0": "packed with xz; unpack it, or pack it with gzip",
    b"(\xb5/\xfd": "packed with zstd; unpack it, or pack it with gzip",
}


@dataclass(frozen=True)
class Source:
    """The content of a log file; `sha256` is of the bytes as they are stored, packed or not."""

    name: str
    content: bytes
    sha256: str
    compression: str | None = None


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a file, or standard input where the path is "-", and unpack it where it is packed with gzip."""
    name = "standard input" if os.fspath(path) == "-" else os.fspath(path)

    def check_size(size: int) -> None:
        if size > MAX_BYTES:
            raise UsageError(f"{name} has more than {MAX_BYTES} bytes; give its rounds in parts")

    with reading(path):
        if os.fspath(path) == "-":
            stored = _read(sys.stdin.buffer, check_size)
        else:
            with Path(path).open("rb") as file:
                stored = _read(file, check_size)
    for mark, what in _FOREIGN.items():
        if stored.startswith(mark):
            raise UsageError(f"{name} is {what}")
    sha256 = hashlib.sha256(stored).hexdigest()
    if stored.startswith(_GZIP):
        return Source(name, _unpack(name, stored), sha256, "gzip")
    return Source(name, stored, sha256)


def check_growth(name: str, stored: int, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than any log does."""
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_GROWTH * stored))
    if unpacked > limit:
        raise UsageError(
            f"{name} unpacks to more than {limit} bytes, though it has only {stored}; a log does not pack so "
            "well: if it is one, unpack it, or give its rounds in parts"
        )


def _read(file: BinaryIO | gzip.GzipFile, check_size: Callable[[int], None]) -> bytes:
    """Read all bytes, piece by piece: a pipe does not say how many there are, and a bomb would fill the memory."""
    pieces: list[bytes] = []
    size = 0
    while piece := file.read(_PIECE):
        size += len(piece)
        check_size(size)
        pieces.append(piece)
    return b"".join(pieces)


def _unpack(name: str, stored: bytes) -> bytes:
    """Unpack gzip, also of several parts one after the other."""
    try:
        with gzip.open(io.BytesIO(stored)) as file:
            return _read(file, lambda size: check_growth(name, len(stored), size))
    except EOFError:
        raise UsageError(f"{name} is cut off: it is packed with gzip and its end is missing") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{name} is damaged: it is packed with gzip, but {error}") from error


_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "blanks"}


@dataclass(frozen=True)
class Understanding:
    """How a log was understood, so that its owner can see whether the guess is right.

    `form` is "long" (a row for each user and round), "wide" (a column for each user), "transposed" (a column for
    each round) or "sets" (the users of a round in a list). `exact` says that nothing was guessed: the file has one
    of Coterie's own forms.

    >>> understanding = Understanding("CSV", "long", "its number", "round", "cid", delimiter=";")
    >>> understanding.sentences()[0]
    "CSV with semicolons, a row for each user and round: rounds from the column 'round', users from 'cid'."
    """

    syntax: str
    form: str
    round_rule: str
    round_column: str | None = None
    user_column: str | None = None
    set_column: str | None = None
    delimiter: str | None = None
    compression: str | None = None
    ignored_columns: tuple[str, ...] = ()
    duplicates: int = 0
    left_out: int = 0
    """Rows that say that their user did not take part."""
    warnings: tuple[str, ...] = ()
    exact: bool = False

    def sentences(self) -> list[str]:
        """Say what was understood, in plain sentences; the warnings are apart."""
        sentences = [f"{self._syntax()}, {self._form()}."]
        if self.round_rule:
            sentences.append(f"A round: {self.round_rule}.")
        if self.ignored_columns:
            sentences.append(f"Not used: {listing(self.ignored_columns, most=8)}.")
        if self.left_out:
            sentences.append(f"{counted(self.left_out, 'row')} said that the user did not take part.")
        return sentences

    def _syntax(self) -> str:
        name = self.syntax
        if self.delimiter is not None and self.delimiter != ",":
            name += f" with {_DELIMITERS.get(self.delimiter, repr(self.delimiter))}"
        return name if self.compression is None else f"{name}, packed with {self.compression}"

    def _form(self) -> str:
        match self.form:
            case "wide":
                rounds = f"rounds from {self.round_column!r}" if self.round_column else "a round in each row"
                return f"a column for each user: {rounds}"
            case "transposed":
                return f"a column for each round: users from {self.user_column!r}"
            case "sets":
                return "the users of a round in a list" + (
                    f": rounds from {self.round_column!r}, users from {self.user_column!r}"
                    if self.round_column and self.user_column
                    else ""
                )
        return (
            f"a row for each user and round: rounds from the column {self.round_column!r}, users from "
            f"{self.user_column!r}" + (f", learned sets from {self.set_column!r}" if self.set_column else "")
        )


@dataclass(frozen=True)
class LogFile:
    """A participation log with what was understood of its file, and the digest of the bytes that were read."""

    log: ParticipationLog
    understanding: Understanding = field(repr=False)
    name: str
    sha256: str
