"""Fetching a published file: it goes on where it was cut off, and is checked before it gets its name."""

import hashlib
import http.client
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from coterie.errors import UsageError
from coterie.storage.files import sync_folder, writing

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and how many it will have, where that is known."""

_BYTES_AT_ONCE = 1 << 18
_SECONDS_OF_SILENCE = 30
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


@dataclass(frozen=True)
class Download:
    """A published file: where it is, where it goes inside a data folder, and its digest ("md5:…")."""

    address: str
    path: str
    digest: str


def no_progress(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def digest_of(data: bytes, like: str) -> str:
    """Return the digest of `data`, made as `like` was.

    >>> digest_of(b"", like="md5:")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    kind = like.partition(":")[0]
    return f"{kind}:{hashlib.new(kind, data, usedforsecurity=False).hexdigest()}"


def fetch(download: Download, folder: Path, progress: Progress = no_progress) -> None:
    """Fetch a file into a data folder, unless it is there.

    Bytes gather in a file that ends in .part; a later call goes on from there. A file that is not the published
    one never gets its final name.
    """
    target = folder / download.path
    if target.exists():
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    went_on = _size(part) > 0
    _receive(download.address, part, progress)
    if went_on and not _is(part, download.digest):
        # What was there may be the start of another version: once more, from the first byte.
        part.unlink()
        _receive(download.address, part, progress)
    if not _is(part, download.digest):
        part.unlink()
        raise UsageError(
            f"what {download.address} gave is not the published file: its digest is not {download.digest}; "
            f"get the file from another place and put it at {target}"
        )
    with writing(target):
        part.replace(target)
        sync_folder(target.parent)


def _receive(address: str, part: Path, progress: Progress) -> None:
    """Ask for what is missing until all is there; give up on a connection that brings nothing more."""
    while True:
        had = _size(part)
        total = _receive_once(address, part, progress)
        have = _size(part)
        if total is None or have >= total:
            return
        if have <= had:
            raise UsageError(
                f"{address} stopped after {have} of {total} bytes; they are kept in {part}: run again to go on"
            )


def _receive_once(address: str, part: Path, progress: Progress) -> int | None:
    """Add what one connection brings to the part; return the whole file's size, where it is known."""
    have = _size(part)
    request = Request(address, headers={"User-Agent": "coterie", **({"Range": f"bytes={have}-"} if have else {})})  # noqa: S310 - addresses are constants of this package
    try:
        response = urlopen(request, timeout=_SECONDS_OF_SILENCE)  # noqa: S310 - the same
    except HTTPError as error:
        with error:
            if error.code == _RANGE_NOT_SATISFIABLE:
                return None  # nothing comes after what is there; the digest tells whether it is the file
            raise UsageError(
                f"{address} cannot be fetched: the server answers {error.code} {error.reason}"
            ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise UsageError(f"{address} cannot be fetched: {reason}") from error
    with response:
        start = _start(response, have)
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        with writing(part), part.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.truncate()
            while data := _next(response):
                file.write(data)
                progress(part.name.removesuffix(".part"), file.tell(), total)
            os.fsync(file.fileno())
    return total


def _start(response: http.client.HTTPResponse, have: int) -> int:
    """Return where the answer's bytes belong: a server may give all of them instead of the rest."""
    place = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return have if response.status == _PARTIAL_CONTENT and place and int(place[1]) == have else 0


def _next(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BYTES_AT_ONCE)
    except (OSError, http.client.HTTPException):
        return b""  # cut off: the length tells how much is missing


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is(path: Path, digest: str) -> bool:
    return path.exists() and digest_of(path.read_bytes(), like=digest) == digest
