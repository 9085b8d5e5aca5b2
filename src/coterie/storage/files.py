"""Files: written whole or not at all, locked by one process at a time; and what the operating system refused."""

import errno
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

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
