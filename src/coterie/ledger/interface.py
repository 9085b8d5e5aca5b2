"""What a ledger is made of: records in a hash chain, and the little that a database must do for them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from coterie.errors import CoterieError, UsageError

BEGINNING = bytes(32)
"""The hash before the first record."""


class Behind(CoterieError):  # noqa: N818 - nobody's error: it names what happened
    """Somebody else appended first: catch up, look again, and decide anew."""


class Busy(CoterieError):  # noqa: N818 - nobody's error: it names what is the case
    """Another live coordinator runs the rounds of this ledger."""


class Damaged(UsageError):  # noqa: N818 - it names what the database is
    """What the database holds is not what a ledger wrote there."""


@dataclass(frozen=True)
class Record:
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

    @property
    def place(self) -> str:
        """Where the records are, for messages; never with a password."""
        ...

    @property
    def durable(self) -> bool:
        """Whether an append that returned survives a power cut."""
        ...

    def head(self) -> Head:
        """Return the head that the last append left."""
        ...

    def append(self, records: Sequence[Record], expected: Head) -> None:
        """Add records and move the head, durably and in one step; raise `Behind` if the head is not `expected`."""
        ...

    def read(self, after: int) -> Iterator[Record]:
        """Yield the records with a larger number than `after`, in order, as they are: nothing is checked.

        A field of a wrong type comes as an empty one, which fits no hash.
        """
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Hold the right to run rounds, alone, until the block or the process ends; raise `Busy` at once."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


def sound_record(seq: object, time: object, kind: object, body: object, hash_: object) -> Record:
    """Make a record of a row of any types, as `Store.read` must."""
    return Record(
        seq if isinstance(seq, int) else 0,
        time if isinstance(time, int) else 0,
        kind if isinstance(kind, str) else "",
        body if isinstance(body, bytes) else b"",
        hash_ if isinstance(hash_, bytes) else b"",
    )
