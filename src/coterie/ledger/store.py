"""What a ledger is made of: records in a hash chain, where they are, and the little that a database must do."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from coterie.errors import CoterieError, UsageError

BEGINNING = bytes(32)
"""The hash before the first record."""

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
        from coterie.ledger.postgres import PostgresStore

        url = str(location)
        return PostgresStore.create(url, first) if first else PostgresStore.open(url, read_only=read_only)
    from coterie.ledger.sqlite import SqliteStore

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
