"""What a ledger knows: the state after all its records, and a snapshot of them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from coterie.errors import UsageError
from coterie.ledger.events import event_of
from coterie.ledger.history import History
from coterie.ledger.interface import BEGINNING, Damaged, Head, Record, Store
from coterie.ledger.rounds import Round
from coterie.ledger.snapshot import Snapshot, SnapshotBuilder, fold
from coterie.values import BatchPlan, BoolArray, IntArray, ParticipationLog


class Account:
    """The reading half of a ledger: what is known here, which `refresh` brings up to date."""

    def __init__(self, store: Store, *, keep_rounds: bool = False) -> None:
        """`keep_rounds` keeps in memory what `snapshot` needs, so that all records are read only once."""
        self._store = store
        self._builder = SnapshotBuilder() if keep_rounds else None
        self._history = History() if self._builder is None else self._builder.history
        self._head = Head(0, BEGINNING)
        self._named: tuple[int, BatchPlan] | None = None
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
        plan, number = self._history.plan, self._history.plans
        if plan is None:
            return None
        if self._named is None or self._named[0] != number:
            self._named = number, replace(plan, names=tuple(self._history.names[: plan.users]))
        return self._named[1]

    @property
    def plan_number(self) -> int:
        """How many plans there were: the number of the one in force, 0 if there is none yet."""
        return self._history.plans

    @property
    def charters(self) -> Mapping[int, bytes]:
        """The charters by batch of the plan in force; a batch that goes on unchanged keeps its charter."""
        return dict(self._history.charters)

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
    def open_round_record(self) -> Round | None:
        """The round that is open."""
        return self._history.open_round()

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
        return dict(self._history.files)

    def refresh(self) -> None:
        """Take in what others appended."""
        end = self._store.head()
        if end != self._head:
            for record in self._read(self._head, end):
                self._take(record)

    def snapshot(self) -> Snapshot:
        """Return what all records known here add up to; they are read for it, unless the rounds were kept."""
        if self._builder is not None and self._history.open is None:
            return self._builder.snapshot(self._head)
        return fold(self._read(Head(0, BEGINNING), self._head), self._head)

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
            raise Damaged(
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
            raise Damaged(f"{self.place} is damaged: record {record.seq} ({record.kind}): {error}") from error
        self._head = Head(record.seq, record.hash)
