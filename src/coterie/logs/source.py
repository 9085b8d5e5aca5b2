"""The bytes of a log: read once from a file or from standard input, their digest, and what they unpack to."""

import hashlib
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from coterie.errors import UsageError
from coterie.storage.files import reading

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
    with reading(path):
        if os.fspath(path) == "-":
            stored = _read(name, sys.stdin.buffer)
        else:
            with Path(path).open("rb") as file:
                stored = _read(name, file)
    for mark, what in _FOREIGN.items():
        if stored.startswith(mark):
            raise UsageError(f"{name} is {what}")
    sha256 = hashlib.sha256(stored).hexdigest()
    if stored.startswith(_GZIP):
        return Source(name, _unpacked(name, stored), sha256, "gzip")
    return Source(name, stored, sha256)


def check_growth(name: str, stored: int, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than any log does."""
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_GROWTH * stored))
    if unpacked > limit:
        raise UsageError(
            f"{name} unpacks to more than {limit} bytes, though it has only {stored}; a log does not pack so "
            "well: "
            f"if it is one, unpack it, or give its rounds in parts"
        )


def _read(name: str, file: BinaryIO) -> bytes:
    """Read all bytes, piece by piece: a pipe or a device does not say how many there are."""
    pieces: list[bytes] = []
    size = 0
    while piece := file.read(16 * _PIECE):
        size += len(piece)
        if size > MAX_BYTES:
            raise UsageError(f"{name} has more than {MAX_BYTES} bytes; give its rounds in parts")
        pieces.append(piece)
    return b"".join(pieces)


def _unpacked(name: str, stored: bytes) -> bytes:
    """Unpack gzip, member after member, piece by piece, so that a bomb is refused before it fills the memory."""
    pieces: list[bytes] = []
    size, rest = 0, stored
    while rest:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            while not unpacker.eof:
                piece = unpacker.decompress(rest, _PIECE)
                rest = unpacker.unconsumed_tail
                if not piece and not rest and not unpacker.eof:
                    raise UsageError(f"{name} is cut off: it is packed with gzip and its end is missing")
                pieces.append(piece)
                size += len(piece)
                check_growth(name, len(stored), size)
        except zlib.error as error:
            raise UsageError(f"{name} is damaged: it is packed with gzip, but {error}") from error
        rest = unpacker.unused_data.lstrip(b"\0")
    return b"".join(pieces)
