"""A ledger in one SQLite file."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from coterie.errors import UsageError
from coterie.files import DURABLE, FileKind, connect, error_code, sync_folder, writing
from coterie.ledger.events import LARGEST
from coterie.ledger.store import (
    BusyError,
    DamagedError,
    Record,
    SqlStore,
    migrations,
    missing_migrations,
)

_WAIT = 10.0  # seconds that an append or a read waits for others; none holds the file for long


def _damaged(place: str, error: sqlite3.Error | UnicodeDecodeError) -> UsageError:
    if isinstance(error, sqlite3.ProgrammingError):
        return UsageError(f"{place} was closed; open it again")
    return DamagedError(f"{place} is damaged: SQLite says {error}; restore it from a copy")


_KIND = FileKind(
    noun="a ledger",
    application=0x436F744C,  # "CotL"
    settings=DURABLE,
    page=8192,
    refusals={
        sqlite3.SQLITE_BUSY: f"is in use: another process has held it for all of {_WAIT:g} seconds; let that end, "
        "then try again",
        sqlite3.SQLITE_READONLY_ROLLBACK: "cannot be read yet: the last append was cut off and must be undone "
        "first; open the ledger once where it can be written",
        sqlite3.SQLITE_NOTADB: "is not a ledger, or its beginning is damaged; check the path",
        sqlite3.SQLITE_TOOBIG: "cannot take a record as large as this; enrol or charter fewer at a time",
    },
    damaged=_damaged,
)


class SqliteStore(SqlStore):
    """The records of a ledger in a file; a file `…-lease` beside it is locked by whoever runs rounds.

    A file `…-phase` says what the round is at.

    A commit is on the disk when `append` returns; a process or a machine that dies at any instant leaves all of
    an append or nothing. Keep the file on a local disk: locks on network file systems are unreliable.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Not for callers: `create` and `open` check what they give."""
        super().__init__(os.fspath(path))
        self._connection = connection

    @classmethod
    def create(cls, path: Path, first: Record) -> "SqliteStore":
        """Make the file with its first record; `path` is whole from its first instant, or not there."""
        # It tells who took part when: at first, nobody but its owner can open it.
        exists = "; open that ledger, or choose another name"
        _KIND.create(path, lambda connection: cls._fill(path, connection, first), exists)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> "SqliteStore":
        """Open a ledger's file; an older version is brought up to date first, unless it is only read.

        An append that was cut off is undone by whoever comes next and can write, even if only to read.
        """
        target = Path(os.path.realpath(path))
        _KIND.check_file(target)
        writable = os.access(target, os.W_OK) and os.access(target.parent, os.W_OK | os.X_OK)
        if not (read_only or writable):
            raise UsageError(f"{path} cannot be written: it, its folder or the disk is read-only; permit writing")
        with _KIND.explaining(str(path)):
            connection = _connect(target, "rw" if writable else "ro")
            try:
                if read_only:
                    connection.execute("PRAGMA query_only = ON")
                _check_kind(connection, path, read_only=read_only)
                if not read_only:
                    # Another process may have been killed after deleting its journal and before syncing the
                    # folder: a power cut could still undo what can already be read.
                    with writing(path):
                        sync_folder(target.parent)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    def _fill(cls, path: Path, connection: sqlite3.Connection, first: Record) -> None:
        _migrate(connection, migrations("sqlite"), 0)
        cls(path, connection).begin(first)

    @property
    def durable(self) -> bool:
        """Always: every append is synced to the disk."""
        return True

    def _beside(self, what: str) -> Path:
        return Path(f"{os.path.realpath(self.place)}-{what}")

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the right to run rounds: a lock on a file beside, which the system drops when the process ends."""
        beside = self._beside("lease")
        with _KIND.explaining(str(beside)):
            connection = _connect(beside, "rwc")
        with closing(connection):
            with _KIND.explaining(str(beside)):
                connection.execute("PRAGMA busy_timeout = 0")
                try:
                    connection.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError as error:
                    if error_code(error) != sqlite3.SQLITE_BUSY:
                        raise
                    raise BusyError(f"{self.place}: another coordinator runs the rounds of this ledger") from None
            yield

    def announce(self, text: str) -> None:
        """Write it to a file `…-phase` beside, which no power cut need spare."""
        whole, part = self._beside("phase"), self._beside(f"phase-{os.getpid()}")
        with suppress(OSError):
            part.write_text(text, encoding="ascii")
            part.replace(whole)

    def announcement(self) -> str | None:
        """Return what stands in the file beside, if the lease is held."""
        try:
            # Whoever wants the lease at this instant waits for longer than this takes.
            with closing(connect(self._beside("lease"), "ro", 0)) as lease:
                lease.execute("SELECT 1 FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            if error_code(error) == sqlite3.SQLITE_BUSY:
                with suppress(OSError, ValueError):
                    return self._beside("phase").read_text(encoding="ascii")
                return ""
        return None

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def _explaining(self) -> AbstractContextManager[None]:
        return _KIND.explaining(self.place)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = connect(path, mode, _WAIT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + _KIND.page)  # a longer value is no record's
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged text need not be UTF-8
    return connection


def _migrate(connection: sqlite3.Connection, steps: Sequence[str], version: int) -> None:
    """Take steps, statement by statement, inside the transaction that is open."""
    for step in steps:
        statement = ""
        for line in step.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                connection.execute(statement)
                statement = ""
    connection.execute(f"PRAGMA user_version = {version + len(steps)}")


def _check_kind(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    connection.executescript(_KIND.settings)
    _KIND.check_application(connection, path)
    if connection.execute("PRAGMA journal_mode").fetchone() != ("delete",):
        raise DamagedError(f"{path} is damaged: another program changed its journal mode")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    missing = missing_migrations("sqlite", version, str(path))
    _check_schema(connection, path, version)
    if not missing:
        return
    if read_only:
        raise UsageError(f"{path} has the version {version} of an older Coterie; open it once for writing")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _migrate(connection, missing_migrations("sqlite", version, str(path)), version)
    connection.execute("COMMIT")


def _check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Refuse tables that no ledger made: a view in a table's place can be endless, and a trigger do anything."""
    query = "SELECT type, name, tbl_name, substr(sql, 1, 10000) FROM sqlite_schema ORDER BY name LIMIT 100"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        _migrate(model, migrations("sqlite")[:version], 0)
        expected = model.execute(query).fetchall()
    if connection.execute(query).fetchall() != expected:
        raise DamagedError(f"{path} is damaged: its tables are not those of a ledger; restore it from a copy")
