"""Write files whole or not at all, lock them, and explain what the operating system refuses.

Three kinds of files build on this: plain files, which appear under their name only when they are complete; arrays
whose digest a ledger knows, so that a changed file is refused; and SQLite databases that survive a power cut.

In: paths, and bytes or arrays.
Out: files that are complete or absent, and errors that name the path and say what to do.
"""

import errno
import hashlib
import io
import json
import os
import secrets
import socket
import sqlite3
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError

# What to do about the refusals that people meet; any other is shown in the system's own words.
_READING = {
    errno.ENOENT: "there is no such file; check the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder; check the path",
    errno.EISDIR: "it is a folder; give the path of a file in it",
    errno.EACCES: "you have no permission to read it; ask its owner, or copy it to where you have",
}
_WRITING = {
    errno.ENOENT: "its folder does not exist; create it first",
    errno.ENOTDIR: "a part of the path is a file, not a folder; check the path",
    errno.EISDIR: "there is a folder of this name; give the path of a file",
    errno.EEXIST: "there is a file of this name; give the path of a folder",
    errno.EACCES: "you have no permission to write there; choose another folder",
    errno.EPERM: "you have no permission to write there; choose another folder",
    errno.EROFS: "that disk is read-only; choose another folder",
    errno.ENOSPC: "the disk is full; make room, or choose another folder",
    errno.EDQUOT: "your disk quota is used up; make room, or choose another folder",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


_UNFINISHED = ".coterie-"


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError inside the block into a UsageError that says why `path` cannot be read.

    >>> with reading("missing.csv"):
    ...     open("missing.csv")
    Traceback (most recent call last):
    coterie.errors.UsageError: missing.csv cannot be read: there is no such file; check the path
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be read: {_reason(error, _READING)}") from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError inside the block into a UsageError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} cannot be written: {_reason(error, _WRITING)}") from error


def _reason(error: OSError, known: dict[int, str]) -> str:
    return known.get(error.errno or 0) or error.strerror or str(error)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that `atomic_write` would refuse, before long work is done for nothing.

    >>> check_writable("missing/plan.json")
    Traceback (most recent call last):
    coterie.errors.UsageError: missing/plan.json cannot be written: its folder does not exist; create it first
    """
    with writing(path):
        target = _target(path)
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def make_folder_of(path: Path) -> None:
    """Make the folder of a file that will be written; refuse the path before long work is done for nothing."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    check_writable(path)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a binary file whose content becomes `path`, whole, when the block ends without an exception.

    Until then, and after any failure, `path` is as it was. The bytes go into a temporary file in the same
    folder, down to the disk, and only then under the final name. A link is followed; the permissions of a
    file that is replaced are kept.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "note.txt") as file:
    ...         _ = file.write(b"hello")
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['note.txt']
    """
    with writing(path):
        target = _target(path)
        temporary = unfinished_file(target.parent)
        file = temporary.open("xb")
        try:
            with file:
                if target.exists():
                    temporary.chmod(target.stat().st_mode & 0o777)
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds; a UsageError says why it cannot be read."""
    with reading(path):
        return Path(path).read_bytes()


def write_file(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file whole or not at all, as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(content)


def unfinished_file(folder: Path) -> Path:
    """Return a new name for a file that is not whole yet: made from its final name it might be too long."""
    return folder / f"{_UNFINISHED}{secrets.token_hex(8)}.tmp"


def remove_unfinished(folder: Path) -> None:
    """Remove what writes that a crash cut off have left anywhere below a folder."""
    for left in folder.rglob(f"{_UNFINISHED}*"):
        left.unlink(missing_ok=True)


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file that `path` leads to; refuse what a new file must not take the place of."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not target.is_file():
        raise UsageError(f"{os.fspath(path)} cannot be written: it is a device or a pipe; give a file's path")
    target.parent.stat()
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return target


def sync_folder(folder: Path) -> None:
    """Bring the new name down to the disk as well, where a folder can be opened for that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]


class FileLock:
    """Holds a file locked until it is released, or its process ends in whatever way.

    It is the kernel's lock on the file itself (flock), not the file's being there: nothing is left over by a
    crash, and processes in several containers that share a disk exclude each other as those of one machine do.
    Between machines it holds on network disks whose server passes such locks on (NFS with its lock service). The
    file says who holds it. Where the system has no such locks (Windows) nothing is excluded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, FileLock(Path(folder) / "lock", "this folder"):
    ...     FileLock(Path(folder) / "lock", "this folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    coterie.errors.UsageError: this folder is in use by process ... on ..., since ...; wait for it, or stop it
    """

    def __init__(self, path: Path, what: str) -> None:
        """Take the lock of a file, or say who has it; `what` is what the lock is for."""
        with writing(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._file)
            os.close(self._file)
            raise UsageError(f"{what} is in use by {holder}; wait for it, or stop it") from None
        except OSError as error:
            os.close(self._file)
            raise UsageError(f"{path} cannot be locked: {error.strerror}; use a disk that has locks") from None
        # A child that was forked would hold the lock beyond our own death.
        os.register_at_fork(after_in_child=self.release)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        with writing(path):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(about).encode(), 0)

    def release(self) -> None:
        """Let others have it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def wait_for_lock(file: BinaryIO) -> None:
    """Wait until no other process holds the lock of an open file; it is dropped when the file is closed."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


def _holder(file: int) -> str:
    """Return who holds a lock, as its file says; between taking a lock and writing that, it says nothing."""
    try:
        about = json.loads(os.pread(file, 4096, 0))
        return f"process {about['process']} on {about['host']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


# --- arrays whose digest is known elsewhere, in a ledger


def encode_arrays(arrays: Mapping[str, object]) -> tuple[memoryview, str]:
    """Return arrays as the bytes of an npz file, and their SHA-256 in hexadecimal."""
    buffer, values = io.BytesIO(), {name: np.asarray(value) for name, value in arrays.items()}
    if any(value.dtype.hasobject for value in values.values()):
        raise UsageError("an array of Python objects cannot be stored; give numbers or texts")
    np.savez(buffer, **values)  # type: ignore[arg-type]  # its own switch for that is newer than numpy 2.0
    data = buffer.getbuffer()
    return data, hashlib.sha256(data).hexdigest()


def read_arrays(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, after its bytes have proved to be those that were written."""
    data = read_file(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise changed_file(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged: {error}; put a sound copy there, or start anew") from None


def map_array(path: Path, name: str) -> NDArray[Any]:
    """Return one array of a file as a private map: it may be written to, the file stays."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        header = member.tell()
        place = archive.getinfo(f"{name}.npy").header_offset
    with path.open("rb") as raw:  # the archive's own header of a file ends with its name and an extra field
        raw.seek(place + 26)
        name_length, extra_length = np.frombuffer(raw.read(4), dtype="<u2").tolist()
    start = place + 30 + name_length + extra_length + header
    return np.memmap(path, dtype=dtype, mode="c", offset=start, shape=shape)


def changed_file(path: Path, where: str = "") -> UsageError:
    """Return what to raise about a file of which the ledger has another digest."""
    return UsageError(
        f"{path}{where} was changed since it was written: the ledger has another digest; put the right copy "
        f"there, or start anew"
    )


# --- durable SQLite files, for ledger and device

# A rollback journal that is deleted to commit (SQLite's DELETE mode), not a write-ahead log: after a commit the
# content is in one file, which can be copied or moved as it is. EXTRA syncs the folder after the deletion, where
# FULL would let a power cut bring the journal back and so undo a commit.
DURABLE = """
    PRAGMA synchronous = EXTRA;
    PRAGMA fullfsync = ON;
    PRAGMA cell_size_check = ON;
    PRAGMA trusted_schema = OFF;
"""

# What to do about the refusals that people meet; {error} is SQLite's own word for it.
_REFUSALS = {
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full; make room, then try again: nothing is lost",
    sqlite3.SQLITE_READONLY: "cannot be written: it, its folder or the disk is read-only, or it was moved; permit "
    "writing, then try again",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or its journal beside it cannot ({error}); check the folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the system reports an error ({error}); check the disk and "
    "the limits on files, then try again: nothing is lost",
}


@dataclass(frozen=True)
class FileKind:
    """One kind of SQLite file, and how it differs from others."""

    noun: str
    """What such a file is, for messages: a ledger, a device's file."""
    application: int
    """What stands in the field that SQLite keeps for saying whose file it is."""
    settings: str
    """Pragmas for every connection."""
    page: int
    """Bytes of a page."""
    refusals: Mapping[int, str]
    """What to say about some of SQLite's result codes, beside what is said about every file."""
    damaged: Callable[[str, sqlite3.Error | UnicodeDecodeError], UsageError]
    """Makes the error about a file, by its name, of which SQLite can make no sense."""

    def create(
        self, path: str | os.PathLike[str], fill: Callable[[sqlite3.Connection], None], exists: str
    ) -> None:
        """Make a file that `fill` fills in one transaction; `path` is whole from its first instant, or not there.

        A file that is there is refused with the words `exists`. On POSIX nobody but its owner can open the new
        one, from its first byte on.
        """
        target = Path(os.path.realpath(path))
        temporary = unfinished_file(target.parent)
        with writing(path):
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                with self.explaining(os.fspath(path)), closing(connect(temporary, "rw")) as connection:
                    # A file that nobody knows yet needs no journal beside it.
                    connection.executescript(
                        f"PRAGMA page_size = {self.page}; PRAGMA journal_mode = MEMORY; {self.settings} BEGIN;"
                    )
                    connection.execute(f"PRAGMA application_id = {self.application}")
                    fill(connection)
                    connection.execute("COMMIT")
                os.link(temporary, target)  # where a rename would replace, this refuses
            except FileExistsError:
                raise UsageError(f"{os.fspath(path)} exists already{exists}") from None
            finally:
                temporary.unlink()
            sync_folder(target.parent)

    def check_file(self, path: Path) -> int:
        """Refuse what can be seen from outside; return the permissions.

        Opening and closing the file would drop SQLite's locks on it.
        """
        with reading(path):
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is a folder, a device or a pipe; give the path of {self.noun}")
        if status.st_size == 0:
            raise UsageError(f"{path} is empty, and {self.noun} never is; check the path")
        if status.st_nlink > 1:
            # The journal goes by the file's name: by another name, a transaction that was cut off is not seen.
            raise UsageError(f"{path} has {status.st_nlink} names (hard links); remove the others")
        return stat.S_IMODE(status.st_mode)

    def check_application(self, connection: sqlite3.Connection, path: Path) -> None:
        """Refuse another program's file."""
        if connection.execute("PRAGMA application_id").fetchone() != (self.application,):
            raise UsageError(f"{path} is not {self.noun}; check the path")

    @contextmanager
    def explaining(self, place: str, **words: object) -> Iterator[None]:
        """Turn what SQLite refuses into a UsageError that says what to do; `words` go into the messages."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            known = {**_REFUSALS, **self.refusals}
            exact = int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT))
            refusal = known.get(exact, known.get(error_code(error)))
            if refusal is None:
                raise self.damaged(place, error) from None
            raise UsageError(f"{place} {refusal.format(error=error, **words)}") from error


def connect(path: Path, mode: str, timeout: float = 0) -> sqlite3.Connection:
    """Return a connection to a file, whose transactions are begun and ended by hand."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


def error_code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    """Return SQLite's primary result code; words of its own that are not UTF-8 can only come from damage."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF
