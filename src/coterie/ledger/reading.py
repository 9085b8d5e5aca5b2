"""Reading the chain: what its records add up to, for callers, and whether anything in it is wrong."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.events import Exposed, Noted, event_of
from coterie.ledger.history import History
from coterie.ledger.rounds import Phase, Round, Snapshot
from coterie.ledger.store import BEGINNING, DamagedError, Head, Location, Record, Store, open_store
from coterie.values import BatchPlan, BoolArray, IntArray, ParticipationLog


def _with_later(each: Round, later: Noted | Exposed) -> Round:
    """Return a round with what came to be known of it after it was closed."""
    if isinstance(later, Noted):
        return replace(each, metrics={**each.metrics, **later.metrics}, files={**each.files, **later.files})
    return replace(
        each,
        learned=(*each.learned, *later.learned),
        alone=np.union1d(each.alone, later.alone),
        late=each.late + len(later.learned),
    )


class SnapshotBuilder:
    """Folds records into a snapshot, one after the other: a history that keeps its rounds."""

    def __init__(self) -> None:
        self.history = History()
        self._rounds: list[Round] = []
        self._later: defaultdict[int, list[Noted | Exposed]] = defaultdict(list)

    def add(self, record: Record) -> None:
        """Take a record in; one that breaks a rule raises."""
        event = event_of(record)
        closed = self.history.apply(event, record.time)
        if closed is not None:
            self._rounds.append(closed)
        elif isinstance(event, Noted | Exposed):
            self._later[event.round].append(event)

    def snapshot(self, head: Head) -> Snapshot:
        """Return what was folded, the round that is open included."""
        history, plan = self.history, self.history.plan
        rounds = self._rounds if history.open is None else [*self._rounds, history.open.round]
        return Snapshot(
            id=history.ledger,
            head=head,
            names=tuple(history.names),
            plan=plan,
            plan_number=history.plans,
            charters=history.charters,
            files=history.files,
            rounds=tuple(reduce(_with_later, self._later.get(each.number, ()), each) for each in rounds),
            steps=history.steps,
            counts=history.counts.copy(),
            times_asked=_least(history.times_asked, plan),
            times_included=_least(history.counts, plan),
            times_lost=_least(history.times_lost, plan),
            retired=tuple(history.retirements),
            overrides=tuple(history.overrides),
            partition=history.partition(),
        )


def _least(counts: IntArray, plan: BatchPlan | None) -> IntArray:
    """Return the least count in every batch."""
    if plan is None or len(plan) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(np.minimum.reduceat(counts[plan.members], plan.starts[:-1]))


class LedgerReader:
    """The reading half of a ledger: what is known here, which `refresh` brings up to date.

    Until the ledger is first written to from here, what `snapshot` needs is kept from the first reading on;
    a coordinator would keep a long history for nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._builder: SnapshotBuilder | None = SnapshotBuilder()
        self._history = self._builder.history
        self._head = Head(0, BEGINNING)
        self.refresh()

    @property
    def id(self) -> str:
        """A name that no other ledger has."""
        return self._history.ledger

    @property
    def place(self) -> str:
        """Where the ledger is, for messages."""
        return self._store.place

    @property
    def durable(self) -> bool:
        """Whether what was stored survives a power cut; a PostgreSQL server can be set up so that it does not."""
        return self._store.durable

    @property
    def head(self) -> Head:
        """How many records there are, and the hash of the last: kept elsewhere, it proves a rewriting."""
        return self._head

    @property
    def users(self) -> int:
        """The number of users; they are 0 … users - 1 for good."""
        return len(self._history.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The users' names."""
        return tuple(self._history.names)

    def key_of(self, user: int) -> bytes | None:
        """Return the identity key that a user was enrolled with."""
        if not 0 <= user < self.users:
            raise UsageError(f"user {user} is not one of the {self.users} users that are enrolled")
        return self._history.keys[user]

    @property
    def plan(self) -> BatchPlan | None:
        """The plan in force."""
        return self._history.plan

    @property
    def plan_number(self) -> int:
        """How many plans there were: the number of the one in force, 0 if there is none yet."""
        return self._history.plans

    @property
    def charters(self) -> Mapping[int, bytes]:
        """The charters by batch of the plan in force; a batch that goes on unchanged keeps its charter."""
        return self._history.charters

    @property
    def next_round(self) -> int:
        """The number of the next round; the first is 0, and none is used twice."""
        return self._history.next_round

    @property
    def steps(self) -> int:
        """How many rounds are closed and not unfinished: an unfinished round's work is to be done again."""
        return self._history.steps

    @property
    def counts(self) -> IntArray:
        """In how many committed rounds each user was included (f_i)."""
        return self._history.counts.copy()

    @property
    def coordinated(self) -> bool:
        """Whether a live coordinator is in a round right now; a round that is open without one was cut off."""
        return self._store.announcement() is not None

    @property
    def phase(self) -> Phase | None:
        """What the round of a live coordinator is at, as far as it was told."""
        return Phase.parse(self._store.announcement() or "")

    @property
    def failures(self) -> IntArray:
        """For each batch of the plan in force, how many rounds in a row it was lost in."""
        return self._history.failures.copy()

    @property
    def retired(self) -> BoolArray:
        """For each batch of the plan in force, whether it was retired."""
        return self._history.retired

    @property
    def files(self) -> Mapping[str, str]:
        """The SHA-256 of the files that the ledger belongs to, by name."""
        return self._history.files

    def refresh(self) -> None:
        """Take in what others appended."""
        end = self._store.head()
        if end != self._head:
            for record in self._read(self._head, end):
                self._take(record)

    def snapshot(self) -> Snapshot:
        """Return what all records known here add up to; they are read again for it, once some were appended."""
        builder = self._builder
        if builder is None:
            builder = SnapshotBuilder()
            for record in self._read(Head(0, BEGINNING), self._head):
                builder.add(record)
        return builder.snapshot(self._head)

    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds in order, with everything that is known about them."""
        return self.snapshot().rounds

    def log(self) -> ParticipationLog:
        """Return what the server could open in all rounds, for the audit to judge."""
        return self.snapshot().log

    def _read(self, begin: Head, end: Head) -> Iterator[Record]:
        """Yield the records between two heads, each checked against the one before."""
        before = begin
        if end.count > begin.count:
            for record in self._store.read(begin.count):
                if record.seq != before.count + 1 or not record.follows(before.hash):
                    break
                yield record
                before = Head(record.seq, record.hash)
                if before.count == end.count:
                    break
        if before != end:
            raise DamagedError(
                f"{self.place} is damaged: record {before.count + 1} is not the one that was written; run coterie "
                f"ledger verify to see all that is wrong"
            )

    def _take(self, record: Record) -> None:
        try:
            if self._builder is None:
                self._history.apply(event_of(record), record.time)
            else:
                self._builder.add(record)
        except UsageError as error:
            raise DamagedError(f"{self.place} is damaged: record {record.seq} ({record.kind}): {error}") from error
        self._head = Head(record.seq, record.hash)


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
    with closing(open_store(location, read_only=True)) as store:
        walk = _Walk(earlier)
        try:
            end = walk.through(store)
        except DamagedError as error:
            walk.report(walk.head.count + 1, "", f"nothing can be read from here on: {error}")
            end = walk.head
    if end.count > walk.head.count:
        walk.report(end.count, "head", f"{_records(walk.head.count + 1, end.count)} missing at the end")
    elif end != walk.head:
        walk.report(end.count, "head", "the head row is not where the records end")
    if earlier is not None and walk.later is None:
        what = f"no record has the hash {earlier.hex()}: this is another ledger, or it was written anew, or cut"
        walk.report(0, "head", what)
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
        after = -(1 << 63)
        while True:
            for record in store.read(after):
                after = record.seq
                self._step(record)
            end = store.head()
            if end.count <= self.head.count or next(store.read(after), None) is None:
                return end

    def _step(self, record: Record) -> None:
        expected = self.head.count + 1
        if record.seq < expected:
            self.report(record.seq, record.kind, "no record of a ledger has this number")
            return
        if record.seq > expected:
            self.report(expected, "", f"{_records(expected, record.seq - 1)} missing")
        elif not record.follows(self.head.hash):
            what = f"the hash does not fit the content and the hash of {record.seq - 1}"
            self.report(record.seq, record.kind, what)
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
