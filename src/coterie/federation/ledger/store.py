"""What a ledger is made of: records in a hash chain, where they are, and the little that a database must do.

A ledger in one SQLite file stands here too. One in PostgreSQL has a file of its own, because it needs a driver.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from coterie.errors import CoterieError, UsageError
from coterie.files import DURABLE, FileKind, connect, error_code, sync_folder, writing

BEGINNING = bytes(32)
"""The hash before the first record."""

LARGEST = 1 << 27
"""Bytes that a record's body has at most, uncompressed."""

_PIECE = 256  # records read at a time; between two pieces others can append

FILE = "ledger.sqlite"
"""The name of the ledger in a run's folder."""

# The SQL of the tables: 0001.sqlite.sql and 0001.postgres.sql make version 1. A new version adds files with the
# next number, and an older ledger is brought up to date, in one transaction, when it is opened for writing.
MIGRATIONS: Traversable = files(__package__) / "migrations"

Location: TypeAlias = str | os.PathLike[str]
"""A file, a run's folder, or a PostgreSQL URL."""


class StaleError(CoterieError):
    """Somebody else appended first: catch up, look again, and decide anew."""


class BusyError(CoterieError):
    """Another live coordinator runs the rounds of this ledger."""


class NotFoundError(UsageError):
    """The database can be reached, and has no ledger of that name."""


class DamagedError(UsageError):
    """What the database holds is not what a ledger wrote there."""


class Record(NamedTuple):
    """One entry of the chain: what happened (`kind`, `body`), as number `seq`, at `time` (UTC, milliseconds).

    Its hash covers everything before it too, so that no record can be changed, left out or moved later without
    changing the hash of the last one:

    hash = SHA-256(hash of the record before ‖ seq ‖ time ‖ kind ‖ body), each field after its length.

    >>> first = Record.after(BEGINNING, 1, time=0, kind="created", body=b"{}")
    >>> first.follows(BEGINNING), Record(1, 0, "created", b"{...}", first.hash).follows(BEGINNING)
    (True, False)
    """

    seq: int
    time: int
    kind: str
    body: bytes
    hash: bytes

    @classmethod
    def after(cls, previous: bytes, seq: int, time: int, kind: str, body: bytes) -> "Record":
        """Make the record that follows the one with the hash `previous`."""
        return cls(seq, time, kind, body, _hash(previous, seq, time, kind, body))

    def follows(self, previous: bytes) -> bool:
        """Return whether the hash fits the content and the hash before."""
        return self.hash == _hash(previous, self.seq, self.time, self.kind, self.body)


def _hash(previous: bytes, seq: int, time: int, kind: str, body: bytes) -> bytes:
    state = sha256()
    numbers = (number.to_bytes(8, "little", signed=True) for number in (seq, time))
    for field in (previous, *numbers, kind.encode(errors="surrogatepass"), body):
        state.update(len(field).to_bytes(8, "little"))
        state.update(field)
    return state.digest()


@dataclass(frozen=True)
class Head:
    """How many records a ledger has, and the hash of the last: it stands for all of them."""

    count: int
    hash: bytes


class Store(Protocol):
    """A database that keeps records; it knows nothing of what they mean."""

    place: str
    """Where the records are, for messages; never with a password."""

    @property
    def durable(self) -> bool:
        """Whether an append that returned survives a power cut."""
        ...

    def head(self) -> Head:
        """Return the head that the last append left."""
        ...

    def append(self, records: Sequence[Record], expected: Head) -> None:
        """Add records and move the head, durably, in one; raise `StaleError` if the head is not `expected`."""
        ...

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records with a larger number than `after`, in order, as they are: nothing is checked.

        A field of a wrong type comes as an empty one, which fits no hash.
        """
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Hold the right to run rounds, alone, until the block or the process ends; raise `BusyError` at once."""
        ...

    def announce(self, text: str) -> None:
        """Tell readers what the holder of the lease is at: up to 60 letters of ASCII, soon forgotten.

        It is no part of the chain, and nothing goes wrong where it cannot be told.
        """
        ...

    def announcement(self) -> str | None:
        """Return what the holder of the lease told last; None if nobody holds it."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


class SqlStore(ABC):
    """A store in an SQL database, with the tables `record` and `head`; it lives in the process that opened it."""

    lock = ""
    """What makes others wait who read the head to append, at the end of a SELECT."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._process = os.getpid()

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with a ? for each value, and return its rows."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[object]:
        """Run the block in one step: all of it is stored, durably, or nothing."""

    @abstractmethod
    def _explaining(self) -> AbstractContextManager[None]:
        """Turn what the database refuses into a UsageError that says what to do."""

    def begin(self, first: Record) -> None:
        """Store the first record, inside a transaction."""
        self._insert(first)
        self._execute("INSERT INTO head VALUES (?, ?)", (first.seq, first.hash))

    def head(self) -> Head:
        """Return the head that the last append left."""
        with self._guard():
            return self._head()

    def append(self, records: Sequence[Record], expected: Head) -> None:
        """Add records and move the head, durably and in one step."""
        with self._guard(), self._transaction():
            if self._head(self.lock) != expected:
                raise StaleError(f"{self.place}: another process appended first")
            for record in records:
                self._insert(record)
            self._execute("UPDATE head SET count = ?, hash = ?", (records[-1].seq, records[-1].hash))

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records with a larger number than `after`, in order, as they are."""
        empty = Record(0, 0, "", b"", b"")
        query = "SELECT seq, time, kind, body, hash FROM record WHERE seq > ? ORDER BY seq LIMIT ?"
        while True:
            with self._guard():
                rows = self._execute(query, (after, _PIECE))
            for row in rows:
                # A damaged tree can lead back to where it began, again and again.
                if not isinstance(row[0], int) or row[0] <= after:
                    raise DamagedError(f"{self.place} is damaged: its records are not in order")
                after = row[0]
                pairs = zip(row, empty, strict=True)
                yield Record._make(each if isinstance(each, type(none)) else none for each, none in pairs)
            if not rows:
                return

    def _insert(self, record: Record) -> None:
        self._execute("INSERT INTO record (seq, time, kind, body, hash) VALUES (?, ?, ?, ?, ?)", record)

    def _head(self, lock: str = "") -> Head:
        rows = self._execute(f"SELECT count, hash FROM head{lock}")  # noqa: S608 - one of our own words
        if len(rows) != 1 or not (isinstance(rows[0][0], int) and isinstance(rows[0][1], bytes)):
            raise DamagedError(
                f"{self.place} is damaged: it does not say where it ends; run coterie ledger verify"
            )
        return Head(*rows[0])

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise UsageError(f"{self.place} was opened in another process; open it in this one")
        with self._explaining():
            yield


def migrations(kind: str) -> list[str]:
    """Return the SQL that makes the tables of a kind of database; step n, counted from 1, makes version n.

    >>> [sql.startswith("-- ") for sql in migrations("sqlite")]
    [True]
    """
    entries = sorted(MIGRATIONS.iterdir(), key=lambda entry: entry.name)
    return [entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(f".{kind}.sql")]


def missing_migrations(kind: str, version: int, place: str) -> list[str]:
    """Return the steps that a ledger of some version lacks; refuse one that a later Coterie wrote."""
    known = migrations(kind)
    if not 1 <= version <= len(known):
        raise UsageError(
            f"{place} has the version {version}; this Coterie knows versions up to {len(known)}: use the one that "
            f"wrote it"
        )
    return known[version:]


def open_store(location: Location, *, first: Record | None = None, read_only: bool = False) -> Store:
    """Open the store at a location, or make one that holds the `first` record."""
    # Each database comes in only where it is used.
    if is_postgres_url(location):
        from coterie.federation.ledger.postgres import PostgresStore

        url = str(location)
        return PostgresStore.create(url, first) if first else PostgresStore.open(url, read_only=read_only)

    file = file_of(location)
    return SqliteStore.create(file, first) if first else SqliteStore.open(file, read_only=read_only)


def file_of(location: Location) -> Path:
    """Return the SQLite file of a location that is no PostgreSQL URL: itself, or the one in a folder."""
    scheme, mark, _ = str(location).partition("://")
    if mark:  # the rest of the URL may hold a password
        raise UsageError(
            f"{scheme}:// begins no ledger's URL; write it as postgresql://user@host:5432/database?ledger=name"
        )
    path = Path(location)
    return path / FILE if path.is_dir() else path


def is_postgres_url(location: Location) -> bool:
    """Return whether a location is a PostgreSQL URL.

    >>> is_postgres_url("postgresql://ana@host/federation?ledger=photos"), is_postgres_url("runs/1")
    (True, False)
    """
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://"))


# --- a ledger in one SQLite file

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
