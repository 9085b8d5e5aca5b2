"""A ledger in one SQLite file."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from coterie.errors import UsageError
from coterie.ledger import migrations
from coterie.ledger.bodies import LARGEST
from coterie.ledger.interface import Behind, Busy, Damaged, Head, Record, sound_record
from coterie.storage.files import sync_folder, writing
from coterie.storage.sqlite import DURABLE, FileKind, connect, error_code

_INSERT = "INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)"
_WAIT = 10.0  # seconds that an append or a read waits for others; none holds the file for long
_PIECE = 256  # records read at a time; between two pieces others can append


def _damaged(place: str, error: sqlite3.Error | UnicodeDecodeError) -> UsageError:
    if isinstance(error, sqlite3.ProgrammingError):
        return UsageError(f"{place} was closed; open it again")
    return Damaged(f"{place} is damaged: SQLite says {error}; restore it from a copy")


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


class SqliteStore:
    """The records of a ledger in a file; a file `…-lease` beside it is locked by whoever runs rounds.

    A commit is on the disk when `append` returns; a process or a machine that dies at any instant leaves all of
    an append or nothing. Keep the file on a local disk: locks on network file systems are unreliable.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Not for callers: `create` and `open` check what they give."""
        self._path = path
        self._connection = connection
        self._process = os.getpid()

    @classmethod
    def create(cls, path: Path, first: Record) -> "SqliteStore":
        """Make the file with its first record; `path` is whole from its first instant, or not there."""
        # It tells who took part when: at first, nobody but its owner can open it.
        _KIND.create(
            path, lambda connection: _fill(connection, first), "; open that ledger, or choose another name"
        )
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
        with _KIND.explained(str(path)):
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

    @property
    def place(self) -> str:
        """The path, as it was given."""
        return os.fspath(self._path)

    @property
    def durable(self) -> bool:
        """Always: every append is synced to the disk."""
        return True

    def head(self) -> Head:
        """Return the head that the last append left."""
        with self._used():
            return self._head()

    def append(self, records: Sequence[Record], expected: Head) -> None:
        """Add records and move the head, durably and in one step."""
        with self._used(), self._transaction():
            if self._head() != expected:
                raise Behind(f"{self._path}: another process appended first")
            self._connection.executemany(_INSERT, map(_row, records))
            self._connection.execute("UPDATE head SET count = ?, hash = ?", (records[-1].seq, records[-1].hash))

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records with a larger number than `after`, in order, as they are."""
        while True:
            with self._used():
                rows = self._connection.execute(
                    "SELECT seq, time, kind, body, hash FROM record WHERE seq > ? ORDER BY seq LIMIT ?",
                    (after, _PIECE),
                ).fetchall()
            if not rows:
                return
            for row in rows:
                # A damaged tree can lead back to where it began, again and again.
                if not isinstance(row[0], int) or row[0] <= after:
                    raise Damaged(f"{self._path} is damaged: its records are not in order")
                after = row[0]
                yield sound_record(*row)

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the right to run rounds: a lock on a file beside, which the system drops when the process ends."""
        beside = Path(f"{os.path.realpath(self._path)}-lease")
        with _KIND.explained(str(beside)):
            connection = _connect(beside, "rwc")
        with closing(connection):
            with _KIND.explained(str(beside)):
                connection.execute("PRAGMA busy_timeout = 0")
                try:
                    connection.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError as error:
                    if error_code(error) != sqlite3.SQLITE_BUSY:
                        raise
                    raise Busy(f"{self._path}: another coordinator runs the rounds of this ledger") from None
            yield

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _head(self) -> Head:
        rows = self._connection.execute("SELECT count, hash FROM head").fetchall()
        if len(rows) != 1 or not (isinstance(rows[0][0], int) and isinstance(rows[0][1], bytes)):
            raise Damaged(f"{self._path} is damaged: it does not say where it ends; run coterie ledger verify")
        return Head(*rows[0])

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

    @contextmanager
    def _used(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise UsageError(f"{self._path} was opened in another process; open it in this one")
        with _KIND.explained(self.place):
            yield


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = connect(path, mode, _WAIT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + _KIND.page)  # a longer value is no record's
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged text need not be UTF-8
    return connection


def _fill(connection: sqlite3.Connection, first: Record) -> None:
    _migrate(connection, migrations.steps("sqlite"), 0)
    connection.execute(_INSERT, _row(first))
    connection.execute("INSERT INTO head VALUES (?, ?)", (first.seq, first.hash))


def _row(record: Record) -> tuple[int, int, str, bytes, bytes]:
    return record.seq, record.time, record.kind, record.hash, record.body


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
        raise Damaged(f"{path} is damaged: another program changed its journal mode")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    missing = migrations.missing_steps("sqlite", version, str(path))
    _check_schema(connection, path, version)
    if not missing:
        return
    if read_only:
        raise UsageError(f"{path} has the version {version} of an older Coterie; open it once for writing")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _migrate(connection, migrations.missing_steps("sqlite", version, str(path)), version)
    connection.execute("COMMIT")


def _check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Refuse tables that no ledger made: a view in a table's place can be endless, and a trigger do anything."""
    query = "SELECT type, name, tbl_name, substr(sql, 1, 10000) FROM sqlite_schema ORDER BY name LIMIT 100"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        _migrate(model, migrations.steps("sqlite")[:version], 0)
        expected = model.execute(query).fetchall()
    if connection.execute(query).fetchall() != expected:
        raise Damaged(f"{path} is damaged: its tables are not those of a ledger; restore it from a copy")
