"""A ledger in one SQLite file."""

import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from coterie.errors import UsageError
from coterie.ledger import migrations
from coterie.ledger.bodies import LARGEST
from coterie.ledger.interface import Behind, Busy, Damaged, Head, Record, sound_record
from coterie.storage.files import reading, sync_folder, writing

_APPLICATION = 0x436F744C  # "CotL", in the field that SQLite keeps for saying whose file it is

# A rollback journal that is deleted to commit, not a write-ahead log: after a commit the ledger is in one file,
# which can be copied as it is. EXTRA syncs the folder after the deletion, where FULL would let a power cut bring
# the journal back and so undo a round.
_SETTINGS = """
    PRAGMA synchronous = EXTRA;
    PRAGMA fullfsync = ON;
    PRAGMA cell_size_check = ON;
    PRAGMA trusted_schema = OFF;
"""
_INSERT = "INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)"
_PAGE = 8192  # bytes
_WAIT = 10.0  # seconds that an append or a read waits for others; none holds the file for long
_PIECE = 256  # records read at a time; between two pieces others can append

# What to do about the refusals that people meet; anything else that SQLite cannot make sense of is damage.
_REFUSALS = {
    sqlite3.SQLITE_BUSY: f"is in use: another process has held it for all of {_WAIT:g} seconds; let that end, "
    "then try again",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full; make room, then try again: nothing is lost",
    sqlite3.SQLITE_READONLY: "cannot be written: it, its folder or the disk is read-only, or it was moved; permit "
    "writing, then try again",
    sqlite3.SQLITE_NOTADB: "is not a ledger, or its beginning is damaged; check the path",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or its journal beside it cannot ({error}); check the folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the system reports an error ({error}); check the disk and "
    "the limits on files, then try again: nothing is lost",
    sqlite3.SQLITE_TOOBIG: "cannot take a record as large as this; enrol or charter fewer at a time",
}


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
        target = Path(os.path.realpath(path))
        # Finished under a name that nobody knows, so that `path` is never half a file.
        temporary = target.parent / f".coterie-{secrets.token_hex(8)}.tmp"
        with writing(path):
            # It tells who took part when: at first, nobody but its owner can open it.
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                with _explained(str(path)), closing(_connect(temporary, "rw")) as connection:
                    _fill(connection, first)
                os.link(temporary, target)  # where a rename would replace, this refuses
            except FileExistsError:
                raise UsageError(f"{path} exists already; open that ledger, or choose another name") from None
            finally:
                temporary.unlink()
            sync_folder(target.parent)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> "SqliteStore":
        """Open a ledger's file; an older version is brought up to date first, unless it is only read.

        An append that was cut off is undone by whoever comes next and can write, even if only to read.
        """
        target = Path(os.path.realpath(path))
        _check_file(target)
        writable = os.access(target, os.W_OK) and os.access(target.parent, os.W_OK | os.X_OK)
        if not (read_only or writable):
            raise UsageError(f"{path} cannot be written: it, its folder or the disk is read-only; permit writing")
        with _explained(str(path)):
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
            yield from (sound_record(*row) for row in rows)
            after = rows[-1][0]

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the right to run rounds: a lock on a file beside, which the system drops when the process ends."""
        beside = Path(f"{os.path.realpath(self._path)}-lease")
        with _explained(str(beside)):
            connection = _connect(beside, "rwc")
        with closing(connection):
            with _explained(str(beside)):
                connection.execute("PRAGMA busy_timeout = 0")
                try:
                    connection.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError as error:
                    if _code(error) != sqlite3.SQLITE_BUSY:
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
        with _explained(self.place):
            yield


def _check_file(path: Path) -> None:
    """Refuse what can be seen from outside."""
    with reading(path):
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is a folder, a device or a pipe; give the path of a ledger")
    if status.st_size == 0:
        raise UsageError(f"{path} is empty, and a ledger never is; check the path")
    if status.st_nlink > 1:
        # The journal goes by the file's name: by another name, an append that was cut off is not seen.
        raise UsageError(f"{path} has {status.st_nlink} names (hard links); remove the others")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + _PAGE)  # a longer value is no record's
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged text need not be UTF-8
    return connection


def _fill(connection: sqlite3.Connection, first: Record) -> None:
    # A file that nobody knows yet needs no journal beside it.
    connection.executescript(f"PRAGMA page_size = {_PAGE}; PRAGMA journal_mode = MEMORY; {_SETTINGS} BEGIN;")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    _migrate(connection, migrations.steps("sqlite"), 0)
    connection.execute(_INSERT, _row(first))
    connection.execute("INSERT INTO head VALUES (?, ?)", (first.seq, first.hash))
    connection.execute("COMMIT")


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
    connection.executescript(_SETTINGS)
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
        raise UsageError(f"{path} is not a ledger; check the path")
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


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Turn what SQLite refuses into a UsageError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.ProgrammingError):
            raise UsageError(f"{place} was closed; open it again") from error
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise UsageError(
                f"{place}: the last append was cut off and must be undone first; open the ledger once where it "
                f"can be written"
            ) from error
        refusal = _REFUSALS.get(_code(error))
        if refusal is None:
            raise Damaged(f"{place} is damaged: SQLite says {error}; restore it from a copy") from error
        raise UsageError(f"{place} {refusal.format(error=error)}") from error


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF
