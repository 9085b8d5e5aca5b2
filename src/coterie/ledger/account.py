"""What a ledger knows: the state after all its records, and its rounds one by one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from coterie.errors import UsageError
from coterie.ledger.events import Checkpointed, Noted, event_of
from coterie.ledger.history import History
from coterie.ledger.interface import BEGINNING, Damaged, Head, Record, Store
from coterie.ledger.rounds import Round
from coterie.values import BatchPlan, IntArray, LogBuilder, ParticipationLog


class Account:
    """The reading half of a ledger: what is known here, which `refresh` brings up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history = History()
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
        """In how many committed rounds each user was in a learned set (f_i)."""
        return self._history.counts.copy()

    @property
    def open_round_record(self) -> Round | None:
        """The round that is open."""
        return self._history.open_round()

    @property
    def assumed_rounds(self) -> tuple[int, ...]:
        """The sealed rounds that ended without a report: `log` takes every batch asked as learned by itself."""
        return self._left(sealed=True)

    @property
    def unknown_rounds(self) -> tuple[int, ...]:
        """The rounds without a seal that ended without a report: what they gave away cannot be known."""
        return self._left(sealed=False)

    def _left(self, *, sealed: bool) -> tuple[int, ...]:
        found = self._history.open
        ended = self._history.assumed if sealed else self._history.unknown
        return (*ended, *((found.event.round,) if found and found.event.sealed == sealed else ()))

    def refresh(self) -> None:
        """Take in what others appended."""
        end = self._store.head()
        if end != self._head:
            for record in self._read(self._head, end):
                self._take(record)

    def records(self) -> Iterator[Record]:
        """Yield the records known here, each checked against the one before."""
        return self._read(Head(0, BEGINNING), self._head)

    def stream(self) -> Iterator[Round]:
        """Yield the rounds in order, reading the records once; notes that came after a round are not in it."""
        history = History()
        for record in self.records():
            closed = history.apply(event_of(record), record.time)
            if closed is not None:
                yield closed
        still = history.open_round()
        if still is not None:
            yield still

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds in order, with everything that is known about them."""
        metrics: dict[int, dict[str, float]] = {}
        files: dict[int, dict[str, str]] = {}
        for record in self.records():
            if record.kind in ("noted", "checkpointed"):
                event = event_of(record)
                if isinstance(event, Noted):
                    metrics.setdefault(event.round, {}).update(event.metrics)
                elif isinstance(event, Checkpointed):
                    files.setdefault(event.round, {})[event.name] = event.sha256
        for each in self.stream():
            number = each.number
            yield replace(
                each, metrics={**each.metrics, **metrics.get(number, {})}, checkpoints=files.get(number, {})
            )

    def log(self) -> ParticipationLog:
        """Return what the server learned in all rounds, for the audit to judge.

        A round that ended without a report counts with what must be assumed (`assumed_rounds`); for one that was
        not sealed there is nothing sound to assume, and the log says nothing about it (`unknown_rounds`).
        """
        builder = LogBuilder(self.users, self.names)
        for each in self.stream():
            builder.append(*each.learned, *each.assumed)
        return builder.build()

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
            self._history.apply(event_of(record), record.time)
        except UsageError as error:
            raise Damaged(f"{self.place} is damaged: record {record.seq} ({record.kind}): {error}") from error
        self._head = Head(record.seq, record.hash)
