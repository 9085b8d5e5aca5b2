"""One process at a time: a lock on a file, which the operating system drops when its holder dies."""

import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from coterie.errors import UsageError
from coterie.storage.files import writing

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

    def __init__(self, path: Path, what: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
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
        about = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": now().isoformat(timespec="seconds"),
        }
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _holder(file: int) -> str:
    """Return who holds a lock, as its file says; between taking a lock and writing that, it says nothing."""
    try:
        about = json.loads(os.pread(file, 4096, 0))
        return f"process {about['process']} on {about['host']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
