"""Published data sets: which files they are, where a data folder may hold them, and how they are loaded."""

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

import numpy as np
import torch

from coterie.errors import UsageError
from coterie.storage.files import reading
from coterie.training.data.dataset import Dataset, Examples
from coterie.training.data.fetch import Download, Progress, digest_of, fetch, no_progress
from coterie.training.data.formats import ByteArray, Piece

Decoder: TypeAlias = Callable[[Sequence[Piece], int], tuple[ByteArray, ByteArray]]


@dataclass(frozen=True)
class Part:
    """One file: its path as published, and the digest of its content."""

    path: str
    digest: str


@dataclass(frozen=True)
class Layout:
    """One of the forms that a data set is published in: its files, the archive they come in, and their decoder."""

    train: tuple[Part, ...]
    test: tuple[Part, ...]
    decode: Decoder
    archive: str | None = None


@dataclass(frozen=True)
class Published:
    """A published data set: its forms, of which a data folder must hold one, and the files to fetch for one.

    `home` is the folder of a data set that comes with the package.
    """

    name: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...]
    home: Path | None = None


def load(
    source: Published, folder: str | os.PathLike[str] | None = None, progress: Progress = no_progress
) -> Dataset:
    """Load a data set from a data folder; files that the folder does not hold are fetched into it first.

    A file may lie at its published path, or directly in the folder, as it is or with .gz; or in the archive it
    is published in. Every file's digest is checked. A data set that comes with the package needs no folder.
    """
    if source.home is not None:
        folder = source.home
    elif folder is None:
        raise UsageError(f"{source.name} needs a data folder: one that holds its files, or where to fetch them to")
    folder = Path(folder)
    layout = _found(source, folder)
    if layout is None:
        try:
            for download in source.downloads:
                fetch(download, folder, progress)
        except UsageError as error:
            raise UsageError(f"{error}\n{_what_to_put(source, folder)}") from error
        layout = _found(source, folder)
    if layout is None:
        raise UsageError(_what_to_put(source, folder))
    pieces = _pieces(layout, folder)
    train, test = (
        _examples(layout.decode([pieces[part.path] for part in parts], source.classes))
        for parts in (layout.train, layout.test)
    )
    for part in (*layout.train, *layout.test):
        _check_digest(source, part, pieces[part.path])
    return Dataset(source.name, source.classes, train, test, source.mean, source.std)


def _found(source: Published, folder: Path) -> Layout | None:
    """Return the first form that the folder holds completely."""
    for layout in source.layouts:
        if layout.archive is not None and (folder / layout.archive).is_file():
            return layout
        if all(_place(part, folder) for part in (*layout.train, *layout.test)):
            return layout
    return None


def _place(part: Part, folder: Path) -> Path | None:
    """Return where the folder holds a file."""
    published = folder / part.path
    direct = folder / published.name
    candidates = [path.with_name(path.name + suffix) for path in (published, direct) for suffix in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def _pieces(layout: Layout, folder: Path) -> dict[str, Piece]:
    """Read a form's files, each under its published path: from the folder, or else from the archive."""
    parts = (*layout.train, *layout.test)
    places = [_place(part, folder) for part in parts]
    if layout.archive is not None and not all(places):
        return _archived(folder / layout.archive, [part.path for part in parts])
    return {
        part.path: Piece(str(place), _content(place)) for part, place in zip(parts, places, strict=True) if place
    }


def _content(path: Path) -> bytes:
    with reading(path):
        data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is not a whole gzip file ({error}); delete it and fetch it anew") from error


def _archived(archive: Path, wanted: Sequence[str]) -> dict[str, Piece]:
    """Read files out of a .tar.gz; nothing is written to the disk."""
    with reading(archive), archive.open("rb") as file:
        try:
            pieces = {path: Piece(f"{archive}: {path}", data) for path, data in _members(file, set(wanted))}
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{archive} is not a whole archive ({error}); delete it and fetch it anew") from error
    for path in wanted:
        if path not in pieces:
            raise UsageError(f"{archive} does not hold {path}; delete it and fetch it anew")
    return pieces


def _members(file: IO[bytes], wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file, mode="r|gz") as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            if path in wanted and member.isfile():
                content = archive.extractfile(member)
                if content is not None:
                    yield path, content.read()


def _check_digest(source: Published, part: Part, piece: Piece) -> None:
    found = digest_of(piece.data, like=part.digest)
    if found != part.digest:
        raise UsageError(
            f"{piece.name} is not the published file of {source.name}: its digest is {found} instead of "
            f"{part.digest}; delete it and fetch it anew"
        )


def _examples(arrays: tuple[ByteArray, ByteArray]) -> Examples:
    images, labels = arrays
    # Arrays that lie in a file's bytes cannot be written to, and torch wants to own what it gets.
    return Examples(torch.from_numpy(np.array(images)), torch.from_numpy(labels.astype(np.int64)))


def _what_to_put(source: Published, folder: Path) -> str:
    """Say which files would do, and where they can be had."""
    lines = [f"{folder} does not hold {source.name}; put one of these there (a file may end in .gz):"]
    for layout in source.layouts:
        if layout.archive is not None:
            lines.append(f"  {layout.archive}")
        paths = [PurePosixPath(part.path) for part in (*layout.train, *layout.test)]
        lines.append(f"  {paths[0].parent}/ with {', '.join(path.name for path in paths)}")
    if source.downloads:
        lines += ["They can be had from", *(f"  {download.address}" for download in source.downloads)]
    return "\n".join(lines)
