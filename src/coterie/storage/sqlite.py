"""Durable SQLite files, for ledger and device: made whole or not at all, and their refusals explained."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import UsageError
from coterie.storage.files import reading, sync_folder, unfinished_file, writing

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
