"""A ledger in a PostgreSQL database, in a schema of its own."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from coterie.errors import UsageError
from coterie.federation.ledger.store import (
    BusyError,
    DamagedError,
    NotFoundError,
    Record,
    SqlStore,
    migrations,
    missing_migrations,
)

if TYPE_CHECKING:
    import psycopg

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

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


class PostgresStore(SqlStore):
    """The records of a ledger in the tables of one schema; several ledgers live in one database side by side.

    The URL is libpq's, with one option more: `?ledger=photos` names the ledger, `coterie` unless given. The right
    to run rounds is an advisory lock of the session: it ends with the connection, so connect to the server
    itself or through a pooler that keeps sessions.
    """

    # When their turn comes, others see the head that the append before left.
    lock = " FOR UPDATE"

    def __init__(self, address: "_Address", connection: "psycopg.Connection[Any]") -> None:
        """Not for callers: `create` and `open` check what they give."""
        super().__init__(str(address))
        self._address = address
        self._connection = connection

    @classmethod
    def create(cls, url: str, first: Record) -> "PostgresStore":
        """Make the schema with its first record."""
        address = _Address(url)
        connection = address.connect(read_only=False)
        try:
            with address.explaining(), connection.transaction():
                connection.execute(address.sql("CREATE SCHEMA {}"))
                for step in (steps := migrations("postgres")):
                    connection.execute(step.encode())
                connection.execute("INSERT INTO format VALUES (%s)", (len(steps),))
                store = cls(address, connection)
                store.begin(first)
        except BaseException:
            connection.close()
            raise
        return store

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> "PostgresStore":
        """Connect to a ledger; an older version is brought up to date first, unless it is only read."""
        address = _Address(url)
        connection = address.connect(read_only=read_only)
        try:
            with address.explaining():
                _check_kind(connection, address, read_only=read_only)
        except BaseException:
            connection.close()
            raise
        return cls(address, connection)

    @property
    def durable(self) -> bool:
        """Whether the server syncs to its disk; one set up with fsync off can lose appends that returned."""
        with self._guard():
            return self._execute("SHOW fsync") == [("on",)]

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the right to run rounds: an advisory lock, which the server drops when the connection ends."""
        key = self._lease_key
        with self._guard():
            locked = self._execute("SELECT pg_try_advisory_lock(?)", (key,))
        if locked != [(True,)]:
            raise BusyError(f"{self.place}: another coordinator runs the rounds of this ledger")
        try:
            yield
        finally:
            with suppress(UsageError), self._guard():  # a connection that is gone took the lock with it
                self._execute("SELECT pg_advisory_unlock(?)", (key,))

    @property
    def _lease_key(self) -> int:
        return int.from_bytes(sha256(b"coterie lease " + self._address.ledger.encode()).digest()[:8], signed=True)

    def announce(self, text: str) -> None:
        """Make it the name of this connection, which everybody can see and which ends with it."""
        with suppress(UsageError), self._guard():
            self._execute("SELECT set_config('application_name', ?, false)", (text,))

    def announcement(self) -> str | None:
        """Return the name of the connection that holds the lease."""
        high, low = divmod(self._lease_key % (1 << 64), 1 << 32)
        with self._guard():
            rows = self._execute(
                "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'advisory' AND granted AND classid::bigint = ? AND objid::bigint = ? "
                "AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                (high, low),
            )
        return str(rows[0][0] or "") if rows else None

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.replace("?", "%s").encode(), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _transaction(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def _explaining(self) -> AbstractContextManager[None]:
        return self._address.explaining()


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
        with self.explaining():
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, application_name="coterie ledger"
            )
            connection.execute(_SETTINGS)
            connection.execute(self.sql("SET search_path TO {}"))
            if read_only:
                connection.execute("SET default_transaction_read_only = on")
            return connection

    @contextmanager
    def explaining(self) -> Iterator[None]:
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


def _check_kind(connection: "psycopg.Connection[Any]", address: _Address, *, read_only: bool) -> None:
    schema = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.ledger,))
    if schema.fetchone() is None:
        raise NotFoundError(f"{address} has no ledger {address.ledger!r}; check the name, or create the ledger")
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
        raise DamagedError(f"{address} is damaged: it does not say which version it has")
    return missing_migrations("postgres", rows[0][0], str(address))
