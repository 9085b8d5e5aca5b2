"""A ledger in a PostgreSQL database, in a schema of its own."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from coterie.errors import UsageError
from coterie.ledger import migrations
from coterie.ledger.interface import Behind, Busy, Damaged, Head, Record, sound_record

if TYPE_CHECKING:
    import psycopg

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PIECE = 256  # records read at a time

# Durable even where the server is set up not to be; and a coordinator whose machine is gone loses its lease within
# about a minute.
_SETTINGS = """
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET lock_timeout = '10s';
    SET tcp_keepalives_idle = 30;
    SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 3;
"""

# What to do about the refusals that people meet, by the beginning of SQLSTATE, the longest first.
_REFUSALS = {
    "28": "the user or the password is not accepted; check them",
    "3D": "the server has no such database; create it, or check the name",
    "42501": "the user lacks a right: creating a ledger needs CREATE on the database, running it the ownership",
    "42P06": "there is a ledger, or another schema, of this name; open that ledger, or choose another name",
    "25006": "it is open for reading only, or the server is a standby; write to the primary server",
    "53100": "the server's disk is full; make room there, then try again: nothing is lost",
    "53": "the server lacks a resource; try again later",
    "55P03": "another process has held it for all of 10 seconds; let that end, then try again",
    "57": "the server is stopping or was told to cancel; open the ledger again when it is back",
}


class PostgresStore:
    """The records of a ledger in the tables of one schema; several ledgers live in one database side by side.

    The URL is libpq's, with one option more: `?ledger=photos` names the ledger, `coterie` unless given. The right
    to run rounds is an advisory lock of the session: it ends with the connection, so connect to the server
    itself or through a pooler that keeps sessions.
    """

    def __init__(self, address: "_Address", connection: "psycopg.Connection[Any]") -> None:
        """Not for callers: `create` and `open` check what they give."""
        self._address = address
        self._connection = connection
        self._process = os.getpid()

    @classmethod
    def create(cls, url: str, first: Record) -> "PostgresStore":
        """Make the schema with its first record."""
        address = _Address(url)
        connection = address.connect(read_only=False)
        try:
            with address.explained(), connection.transaction():
                connection.execute(address.sql("CREATE SCHEMA {}"))
                for step in (steps := migrations.steps("postgres")):
                    connection.execute(step.encode())
                connection.execute("INSERT INTO format VALUES (%s)", (len(steps),))
                connection.execute(_INSERT, _row(first))
                connection.execute("INSERT INTO head VALUES (%s, %s)", (first.seq, first.hash))
        except BaseException:
            connection.close()
            raise
        return cls(address, connection)

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> "PostgresStore":
        """Connect to a ledger; an older version is brought up to date first, unless it is only read."""
        address = _Address(url)
        connection = address.connect(read_only=read_only)
        try:
            with address.explained():
                _check_kind(connection, address, read_only=read_only)
        except BaseException:
            connection.close()
            raise
        return cls(address, connection)

    @property
    def place(self) -> str:
        """The URL without a password."""
        return str(self._address)

    @property
    def durable(self) -> bool:
        """Whether the server syncs to its disk; one set up with fsync off can lose appends that returned."""
        with self._used():
            return self._connection.execute("SHOW fsync").fetchone() == ("on",)

    def head(self) -> Head:
        """Return the head that the last append left."""
        with self._used():
            return self._head("SELECT count, hash FROM head")

    def append(self, records: Sequence[Record], expected: Head) -> None:
        """Add records and move the head, durably and in one step."""
        with self._used(), self._connection.transaction():
            # The lock makes others wait; when their turn comes they see the head that this append leaves.
            if self._head("SELECT count, hash FROM head FOR UPDATE") != expected:
                raise Behind(f"{self.place}: another process appended first")
            with self._connection.cursor() as cursor:
                cursor.executemany(_INSERT, map(_row, records))
            moved = (records[-1].seq, records[-1].hash)
            self._connection.execute("UPDATE head SET count = %s, hash = %s", moved)

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records with a larger number than `after`, in order, as they are."""
        while True:
            with self._used():
                rows = self._connection.execute(
                    "SELECT seq, time, kind, body, hash FROM record WHERE seq > %s ORDER BY seq LIMIT %s",
                    (after, _PIECE),
                    binary=True,
                ).fetchall()
            if not rows:
                return
            yield from (sound_record(*row) for row in rows)
            after = rows[-1][0]

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the right to run rounds: an advisory lock, which the server drops when the connection ends."""
        key = int.from_bytes(sha256(b"coterie lease " + self._address.ledger.encode()).digest()[:8], signed=True)
        if not self._lock_call("SELECT pg_try_advisory_lock(%s)", key):
            raise Busy(f"{self.place}: another coordinator runs the rounds of this ledger")
        try:
            yield
        finally:
            with suppress(UsageError):  # a connection that is gone took the lock with it
                self._lock_call("SELECT pg_advisory_unlock(%s)", key)

    def _lock_call(self, statement: str, key: int) -> bool:
        with self._used():
            row = self._connection.execute(statement.encode(), (key,)).fetchone()
            return row == (True,)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _head(self, statement: str) -> Head:
        rows = self._connection.execute(statement.encode()).fetchall()
        if len(rows) != 1:
            raise Damaged(f"{self.place} is damaged: it does not say where it ends; run coterie ledger verify")
        return Head(*rows[0])

    @contextmanager
    def _used(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise UsageError(f"{self.place} was opened in another process; open it in this one")
        with self._address.explained():
            yield


_INSERT = "INSERT INTO record (seq, time, kind, hash, body) VALUES (%s, %s, %s, %s, %s)"


def _row(record: Record) -> tuple[int, int, str, bytes, bytes]:
    return record.seq, record.time, record.kind, record.hash, record.body


class _Address:
    """Where a ledger is: what libpq is given, the ledger's name, and a form for messages without secrets."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            options = parse_qsl(parts.query, keep_blank_values=True)
            host = parts.hostname or ""
            port = parts.port
        except ValueError:
            raise UsageError(
                "the PostgreSQL URL cannot be read; write it as postgresql://user@host:5432/database?ledger=name"
            ) from None
        names = [value for key, value in options if key == "ledger"]
        self.ledger = names[-1] if names else "coterie"
        if not _NAME.fullmatch(self.ledger):
            raise UsageError(
                f"the ledger's name is {self.ledger!r}: use up to 63 small letters, digits and underscores, a "
                f"letter first"
            )
        others = [(key, value) for key, value in options if key != "ledger"]
        self._url = _url(parts.scheme, parts.netloc, parts.path, others)
        public = [(key, value) for key, value in others if key in {"host", "port", "dbname", "user"}]
        user = f"{parts.username}@" if parts.username else ""
        where = f"[{host}]" if ":" in host else host
        where += f":{port}" if port else ""
        public += [("ledger", self.ledger)] if names else []
        self._public = _url(parts.scheme, user + where, parts.path, public)

    def __str__(self) -> str:
        return self._public

    def sql(self, statement: str) -> Any:  # noqa: ANN401 - psycopg is imported only when used
        """Put the schema's name into a statement."""
        from psycopg import sql

        return sql.SQL(statement).format(sql.Identifier(self.ledger))

    def connect(self, *, read_only: bool) -> "psycopg.Connection[Any]":
        """Connect, with the settings that durability needs."""
        try:
            import psycopg
        except ImportError:
            raise UsageError(
                "a ledger in PostgreSQL needs psycopg: pip install 'coterie[postgres]', or use a file"
            ) from None
        with self.explained():
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, application_name="coterie ledger"
            )
            connection.execute(_SETTINGS)
            connection.execute(self.sql("SET search_path TO {}"))
            if read_only:
                connection.execute("SET default_transaction_read_only = on")
            return connection

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what PostgreSQL refuses into a UsageError that says what to do, without the password."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise UsageError(f"{self}: {_reason(error)}") from None


def _url(scheme: str, authority: str, path: str, options: list[tuple[str, str]]) -> str:
    # urlunsplit would drop the slashes before an empty authority, which stands for a socket.
    query = urlencode(options, quote_via=quote, safe="/")
    return f"{scheme}://{authority}{path}{'?' if query else ''}{query}"


def _reason(error: "psycopg.Error") -> str:
    import psycopg

    state = error.sqlstate or ""
    for length in (5, 2):
        if state[:length] in _REFUSALS:
            return _REFUSALS[state[:length]]
    if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # Before a session there is no SQLSTATE; libpq's words can quote the URL.
        text = str(error)
        if any(word in text for word in ("password", "authentication", "role")):
            return _REFUSALS["28"]
        if "does not exist" in text:
            return _REFUSALS["3D"]
        return (
            "the server cannot be reached, or the connection is gone; see that it runs, then open the ledger again"
        )
    if state:
        return f"PostgreSQL says {state}: {error.diag.message_primary}"
    return "the URL is not one that PostgreSQL knows; check its options"


def _exists(connection: "psycopg.Connection[Any]", ledger: str) -> bool:
    rows = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (ledger,))
    return rows.fetchone() is not None


def _check_kind(connection: "psycopg.Connection[Any]", address: _Address, *, read_only: bool) -> None:
    if not _exists(connection, address.ledger):
        raise UsageError(f"{address} has no ledger {address.ledger!r}; check the name, or create the ledger")
    # A view in a table's place can go on without end, and must not be read.
    kinds = connection.execute(
        "SELECT relname, relkind::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = %s AND relkind <> 'i' LIMIT 100",
        (address.ledger,),
    ).fetchall()
    if sorted(kinds) != [("format", "r"), ("head", "r"), ("record", "r")]:
        raise UsageError(f"{address}: the schema {address.ledger!r} is not a ledger's; choose another name")
    lacking = _lacking(connection, address)
    if not lacking:
        return
    if read_only:
        raise UsageError(f"{address} is of an older Coterie; open it once for writing")
    with connection.transaction():
        connection.execute("LOCK TABLE format IN ACCESS EXCLUSIVE MODE")
        for step in _lacking(connection, address):
            connection.execute(step.encode())
            connection.execute("UPDATE format SET version = version + 1")


def _lacking(connection: "psycopg.Connection[Any]", address: _Address) -> list[str]:
    rows = connection.execute("SELECT version FROM format").fetchall()
    if len(rows) != 1:
        raise Damaged(f"{address} is damaged: it does not say which version it has")
    return migrations.missing_steps("postgres", rows[0][0], str(address))
