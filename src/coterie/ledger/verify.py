"""Verification: walk the raw records, trust nothing, and name everything that is wrong."""

from collections.abc import Iterator
from dataclasses import dataclass

from coterie.errors import UsageError
from coterie.ledger.events import event_of
from coterie.ledger.history import History
from coterie.ledger.interface import BEGINNING, Damaged, Head, Record, Store
from coterie.ledger.location import Location, open_store

_BEFORE_ALL = -(1 << 63)


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: at which record, of what kind (`head` for the head row), and what."""

    seq: int
    kind: str
    what: str


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    `head` is what the walk ends with, and `later` how many records follow the one whose hash was kept elsewhere
    (None if none was given, or it is not there).
    """

    head: Head
    findings: tuple[Finding, ...]
    later: int | None

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(location: Location, earlier: bytes | None = None) -> Verification:
    """Check every record of a ledger: numbers, hashes, bodies, the rules, the head, and a head kept elsewhere.

    Whoever can write to the database can write a whole chain anew that is sound in itself; only the hash of an
    earlier head that is kept elsewhere shows that. It must be the hash of one of the records.
    """
    store = open_store(location, read_only=True)
    try:
        return _verification(store, earlier)
    finally:
        store.close()


def _verification(store: Store, earlier: bytes | None) -> Verification:
    walk = _Walk(earlier)
    try:
        end = walk.through(store)
    except Damaged as error:
        walk.report(walk.head.count + 1, "", f"nothing can be read from here on: {error}")
        end = walk.head
    if end.count > walk.head.count:
        walk.report(end.count, "head", f"{_records(walk.head.count + 1, end.count)} missing at the end")
    elif end != walk.head:
        walk.report(end.count, "head", "the head row is not where the records end")
    if earlier is not None and walk.later is None:
        walk.report(
            0,
            "head",
            f"no record has the hash {earlier.hex()}: this is another ledger, or it was written anew, or cut",
        )
    return Verification(walk.head, tuple(walk.findings), walk.later)


class _Walk:
    """The way through the records, as far as it has come."""

    def __init__(self, earlier: bytes | None) -> None:
        self.head = Head(0, BEGINNING)
        self.findings: list[Finding] = []
        self.later: int | None = None
        self._earlier = earlier
        self._history = History()

    def report(self, seq: int, kind: str, what: str) -> None:
        self.findings.append(Finding(seq, kind, what))

    def through(self, store: Store) -> Head:
        """Go to the end, which can move on meanwhile, and return the head that the store tells."""
        after = _BEFORE_ALL
        while True:
            for record in store.read(after):
                after = record.seq
                self._step(record)
            end = store.head()
            if end.count <= self.head.count or not _any(store.read(after)):
                return end

    def _step(self, record: Record) -> None:
        expected = self.head.count + 1
        if record.seq < expected:
            self.report(record.seq, record.kind, "no record of a ledger has this number")
            return
        if record.seq > expected:
            self.report(expected, "", f"{_records(expected, record.seq - 1)} missing")
        elif not record.follows(self.head.hash):
            self.report(
                record.seq, record.kind, f"the hash does not fit the content and the hash of {record.seq - 1}"
            )
        try:
            self._history.apply(event_of(record), record.time)
        except UsageError as error:
            self.report(record.seq, record.kind, str(error))
        self.head = Head(record.seq, record.hash)
        if self.later is not None:
            self.later += 1
        elif record.hash == self._earlier:
            self.later = 0


def _records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def _any(records: Iterator[Record]) -> bool:
    return next(records, None) is not None
