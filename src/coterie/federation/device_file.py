"""What a device must never forget or replay: its identity and one record per data scope, in one SQLite file.

The content is opaque bytes here; docs/protocol.md says what goes in. Chain keys and round counter are one record,
moved on in one durable transaction before anything leaves the device (§3).

In: a device's records, as bytes.
Out: the same records after a crash, and never older ones.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol, Self

from coterie.errors import UsageError
from coterie.files import DURABLE, FileKind, connect, error_code, sync_folder, writing

_VERSION = 2

_TABLES = (
    # The checksum is over the identity, the generation (how often anything was stored, in 8 bytes) and every
    # record's scope and digest: a record that is deleted, doubled or put back to an older one does not fit it,
    # however well it fits its own digest.
    "CREATE TABLE device (identity BLOB NOT NULL, generation BLOB NOT NULL, checksum BLOB NOT NULL)",
    # No index, which could disagree with the table. The content is last, so that reading all digests does not
    # read the pages it overflows to.
    "CREATE TABLE record (scope BLOB NOT NULL, digest BLOB NOT NULL, content BLOB NOT NULL)",
)

_LARGEST = 1 << 29  # bytes of content; SQLite ends at 10^9 for a row

# SQLite's own waiting grows to 100 ms between two attempts, and would starve beside a busy process.
_PAUSE = 0.001  # seconds


def _damaged(path: str | Path, what: str) -> UsageError:
    return UsageError(
        f"{path} is damaged: {what}; do not put an old copy in its place, which could seal a round twice: retire "
        f"this device's batches, and create a new file"
    )


def _not_understood(place: str, error: sqlite3.Error | UnicodeDecodeError) -> UsageError:
    # SQLite's own words can quote the file, which holds secrets.
    return _damaged(place, f"SQLite says {getattr(error, 'sqlite_errorname', 'SQLITE_CORRUPT')}")


_KIND = FileKind(
    noun="a device's file",
    application=0x436F7444,  # "CotD"
    # secure_delete writes zeros over what a record leaves; temp_store keeps its pages out of temporary files, and
    # cache_spill keeps them in memory until all of the journal is written.
    settings=f"{DURABLE} PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_spill = OFF;",
    page=16_384,  # 6.7 MB are stored in 40 to 54 ms, against 60 ms with the usual 4096
    refusals={
        sqlite3.SQLITE_BUSY: "is in use: another process or thread, or an enclosing transaction, has held it for "
        "all of {wait:g} seconds; let that end, then try again",
        sqlite3.SQLITE_NOTADB: "is not a device's file, or its beginning is damaged; check the path",
    },
    damaged=_not_understood,
)


class MonotonicCounter(Protocol):
    """A number kept outside the file where nobody can put it back: in a secure element, a TPM, or at a service."""

    def read(self) -> int:
        """Return the number; a new counter has 0."""
        ...

    def advance(self, value: int) -> None:
        """Raise the number, durably, to at least this; two processes of one device may both do so."""
        ...


class _Slot:
    """The record of one scope inside a transaction: read `content`, assign the bytes that are to follow it."""

    __slots__ = ("content",)

    def __init__(self, content: bytes | None) -> None:
        self.content = content


class DeviceFile:
    """A device's memory in one file: `create` it once, `open` it at every start.

    What holds: a transaction that was left is on the disk; a process or a machine that dies at any instant leaves
    the record before or the record after, and the one after if the transaction was left; two transactions never
    overlap, in whatever threads and processes; a file that is damaged, or that lost a record, is refused. A
    committed record leaves nothing of the one before it in the file, or in a file beside it.

    What does not hold: blocks that the file system took back (the journal's) and flash memory may keep old chain
    keys until they are written over, so encrypt the disk; and an older copy of the whole file is noticed only if a
    `MonotonicCounter` is given, which the file must never be behind. Without one, **exclude it from backups, and
    never copy it**: a restored or cloned device can be made to seal one round twice, which reveals the difference
    of two of its own vectors (nothing, if it is the same update under the same terms: these give the same bytes).
    With one, a clone is refused from its first transaction after the other's on. Keep it on a local disk (locks on
    network file systems are unreliable), and let nothing else in the process open it (on POSIX that drops SQLite's
    locks).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with DeviceFile.create(Path(folder) / "device", identity=b"secret") as device:
    ...         with device.transaction("photos") as slot:
    ...             slot.content = b"round 1"
    ...     with DeviceFile.open(Path(folder) / "device") as device:
    ...         with device.transaction("photos") as slot:
    ...             device.identity, slot.content
    (b'secret', b'round 1')
    """

    def __init__(self, path: Path, identity: bytes, wait: float, counter: MonotonicCounter | None) -> None:
        """Not for callers: `create` and `open` check what they give."""
        self._path = path
        self._identity: bytes | None = identity
        self._wait = wait
        self._counter = counter

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], identity: bytes, counter: MonotonicCounter | None = None
    ) -> Self:
        """Make the file of a new device, durably; `path` is whole from its first instant, or not there.

        An existing file is refused. On POSIX nobody but its owner can open the new one, from its first byte on.
        """
        if not identity:
            raise UsageError("the identity of a device must not be empty")
        target = Path(os.path.realpath(path))
        _KIND.create(
            target,
            lambda connection: _fill(connection, identity, 0 if counter is None else counter.read()),
            ", and a device's memory is never replaced; open it, or choose another name",
        )
        return cls.open(target, counter=counter)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, wait: float = 5.0, counter: MonotonicCounter | None = None
    ) -> Self:
        """Open a device's file after checking all of it.

        A file is refused that is missing, empty, not a device's, of another version, damaged, open to others,
        under two names, or that cannot be written. `wait` is for how many seconds this and every transaction
        waits for other processes and threads at most.
        """
        target = Path(os.path.realpath(path))
        with closing(_begin(target, wait)) as connection, _explaining(target):
            if connection.execute("PRAGMA integrity_check(1)").fetchall() != [(b"ok",)]:
                raise _damaged(target, "SQLite's integrity check fails")
            memory = _Memory(connection, target)
            memory.check_generation(counter)
            for scope in memory.digests:
                memory.read(scope)
        return cls(target, memory.identity, wait, counter)

    @property
    def identity(self) -> bytes:
        """The secret that the file was created with."""
        if self._identity is None:
            raise UsageError(f"{self._path} was closed; open it again")
        return self._identity

    @property
    def scopes(self) -> tuple[str, ...]:
        """The data scopes of which there is a record."""
        with closing(_begin(self._path, self._wait)) as connection, _explaining(self._path):
            return tuple(sorted(scope.decode() for scope in _Memory(connection, self._path).digests))

    @contextmanager
    def transaction(self, scope: str) -> Iterator[_Slot]:
        """Give the record of a data scope, None if there is none yet, and store what is assigned to it.

        Leaving the block stores the new content durably, and only then goes on; an exception from the block
        leaves the record as it was. Nothing else can read or write the file meanwhile. If storing itself fails,
        that is raised, and the record is the one before; only after an error of the disk it can be the one
        after.
        """
        identity, name, process = self.identity, _encode_scope(scope), os.getpid()
        # A connection for every transaction: none is carried through a fork, or keeps a page that is stale.
        # Closing it rolls back what was not committed.
        with closing(_begin(self._path, self._wait)) as connection:
            with _explaining(self._path):
                memory = _Memory(connection, self._path)
                if memory.identity != identity:
                    raise UsageError(f"{self._path} is another device's file now; open it again")
                memory.check_generation(self._counter)
                content = memory.read(name)
            slot = _Slot(content)
            yield slot
            if os.getpid() != process:
                raise UsageError(f"{self._path}: a transaction must end in the process that began it")
            following = slot.content
            if following == content:
                return
            if not isinstance(following, bytes) or len(following) > _LARGEST:
                what = f"{len(following)}" if isinstance(following, bytes) else type(following).__name__
                raise UsageError(f"{self._path}: a record must be bytes, at most {_LARGEST} of them, not {what}")
            with _explaining(self._path):
                memory.write(name, following)
                connection.execute("COMMIT")
            if self._counter is not None:
                self._counter.advance(memory.generation)

    def close(self) -> None:
        """Forget the identity and begin no more transactions; one that is under way can still end."""
        self._identity = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Memory:
    """What the file holds, read and written while one connection holds it alone."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        headers = connection.execute("SELECT identity, generation, checksum FROM device").fetchall()
        records = connection.execute("SELECT scope, digest FROM record").fetchall()
        if not all(isinstance(field, bytes) for row in (*headers, *records) for field in row):
            raise _damaged(path, "it holds a value of a wrong type")
        if len(headers) != 1 or headers[0][2] != _checksum(headers[0][0], headers[0][1], records):
            raise _damaged(path, "its records are not those that were stored last")
        self.identity: bytes = headers[0][0]
        self.generation = int.from_bytes(headers[0][1], "little")
        self.digests: dict[bytes, bytes] = dict(records)

    def check_generation(self, counter: MonotonicCounter | None) -> None:
        """Refuse a file that is behind its counter; one that is ahead was stored, and its process then died."""
        if counter is None:
            return
        value = counter.read()
        if self.generation < value:
            raise UsageError(
                f"{self._path} is an older copy: it was stored {self.generation} times, its counter says {value}; "
                f"using it could seal a round twice: retire this device's batches, and create a new file"
            )
        if self.generation > value:
            counter.advance(self.generation)

    def read(self, scope: bytes) -> bytes | None:
        if scope not in self.digests:
            return None
        rows = self._connection.execute("SELECT content FROM record WHERE scope = ?", (scope,)).fetchall()
        content = rows[0][0] if len(rows) == 1 else None
        if not isinstance(content, bytes) or _sha256(b"record", scope, content) != self.digests[scope]:
            raise _damaged(self._path, f"the record of {scope.decode()!r} is not the one that was stored")
        return content

    def write(self, scope: bytes, content: bytes) -> None:
        digest = _sha256(b"record", scope, content)
        statement = (
            "UPDATE record SET digest = :digest, content = :content WHERE scope = :scope"
            if scope in self.digests
            else "INSERT INTO record VALUES (:scope, :digest, :content)"
        )
        self._change(statement, {"scope": scope, "digest": digest, "content": content})
        self.digests[scope] = digest
        self.generation += 1
        generation = _generation(self.generation)
        checksum = _checksum(self.identity, generation, list(self.digests.items()))
        statement = "UPDATE device SET generation = :generation, checksum = :checksum"
        self._change(statement, {"generation": generation, "checksum": checksum})

    def _change(self, statement: str, values: dict[str, bytes]) -> None:
        if self._connection.execute(statement, values).rowcount != 1:
            raise _damaged(self._path, "a row cannot be found again")


def _generation(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _checksum(identity: bytes, generation: bytes, records: list[tuple[bytes, bytes]]) -> bytes:
    return _sha256(b"device", identity, generation, *(field for record in sorted(records) for field in record))


def _sha256(*fields: bytes) -> bytes:
    """Return the SHA-256 of the fields, each after its length, so that no two lists of fields look alike."""
    state = sha256()
    for field in fields:
        state.update(len(field).to_bytes(8, "little"))
        state.update(field)
    return state.digest()


def _encode_scope(scope: str) -> bytes:
    try:
        return scope.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the scope {scope!r} is not valid text; change it") from None


def _begin(path: Path, wait: float) -> sqlite3.Connection:
    """Return a connection that holds the file alone, once it has proved to be a device's file."""
    _check_file(path)
    with _explaining(path, wait):
        connection = connect(path, "rw")
        try:
            connection.text_factory = bytes  # a damaged text need not be UTF-8
            _lock(connection, wait)
            _check_kind(connection, path)
            # Another process may have been killed after deleting its journal and before syncing the folder: what
            # it stored can be read, but a power cut could undo it. Nobody may act on it before it is durable.
            with writing(path):
                sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return connection


def _check_file(path: Path) -> None:
    """Refuse what can be seen from outside."""
    mode = _KIND.check_file(path)
    if os.name == "posix" and mode & 0o077:
        raise UsageError(
            f"{path} holds secrets, and its mode {mode:04o} lets other users of this machine read it; "
            f"make sure that nobody copied it, then set its mode to 0600"
        )
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        # SQLite would go on without the lock, and fail only when it stores.
        raise UsageError(f"{path} cannot be written: it, its folder or the disk is read-only; permit writing")


def _fill(connection: sqlite3.Connection, identity: bytes, generation: int) -> None:
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    for table in _TABLES:
        connection.execute(table)
    number = _generation(generation)
    connection.execute("INSERT INTO device VALUES (?, ?, ?)", (identity, number, _checksum(identity, number, [])))


def _lock(connection: sqlite3.Connection, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            # The settings read the file too, and can find it locked.
            connection.executescript(f"{_KIND.settings} BEGIN EXCLUSIVE;")
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    _KIND.check_application(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _VERSION:
        raise UsageError(
            f"{path} has the version {version}; this Coterie reads version {_VERSION}: use the one that wrote it"
        )
    if connection.execute("PRAGMA journal_mode").fetchone() != (b"delete",):
        raise _damaged(path, "another program changed its journal mode")
    tables = connection.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall()
    if tables != [(table.encode(),) for table in _TABLES]:
        raise _damaged(path, "its tables are not those of a device")


def _explaining(path: Path, wait: float = 0) -> AbstractContextManager[None]:
    """Turn what SQLite refuses into a UsageError that says what to do."""
    return _KIND.explaining(str(path), wait=wait)
