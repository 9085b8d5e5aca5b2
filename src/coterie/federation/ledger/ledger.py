"""`Ledger`: what the server remembers of a federation, durably, and what it may do next.

`LedgerReader` reads the chain: what its records add up to, for callers, and whether anything in it is wrong.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.federation.ledger import events
from coterie.federation.ledger.events import Event, Exposed, Lists, Noted, encode, event_of
from coterie.federation.ledger.history import NOBODY, CurrentRound, History, Phase, Round, Snapshot
from coterie.federation.ledger.store import (
    BEGINNING,
    BusyError,
    DamagedError,
    Head,
    Location,
    NotFoundError,
    Record,
    StaleError,
    Store,
    file_of,
    is_postgres_url,
    open_store,
)
from coterie.files import writing
from coterie.values import BatchPlan, BoolArray, Cohort, IntArray, ParticipationLog
from coterie.values.checks import learned_set

# --- reading the chain


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


# --- the ledger

Clock: TypeAlias = Callable[[], int]
"""Gives the time: UTC, in milliseconds since 1970."""

_DIGEST_BYTES = 32  # of SHA-256
_PAUSE = 0.01  # seconds between two attempts to claim


def system_clock() -> int:
    """Return the time of this machine."""
    return time.time_ns() // 1_000_000


class Ledger(LedgerReader):
    """The memory of a federation: its users, plans, charters and rounds, as a chain of records.

    Every operation is checked against everything before it, then stored durably; when it returns, it happened.
    What the rules refuse raises a `UsageError` and changes nothing. Properties tell what is known here;
    `refresh` takes in what other processes appended. A ledger belongs to one thread at a time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.create(folder) as ledger:
    ...     _ = ledger.enrol(["ana", "bob", "cas", "dan"])
    ...     ledger.publish_plan(BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]]))
    ...     with ledger.claim():
    ...         cohort = Cohort(np.array([0, 1]), batches=np.array([0]))
    ...         round_ = ledger.open_round(cohort, sealed=True, protocol="open")
    ...         ledger.commit_round(round_, learned=[[0, 1]], metrics={"loss": 0.5})
    ...     ledger.next_round, ledger.counts.tolist(), ledger.log()
    (1, [1, 1, 0, 0], ParticipationLog(4 users, 1 rounds, 1 learned sets))
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        """Not for callers: use `create` or `open`."""
        super().__init__(store)
        self._clock = clock
        self._coordinator = secrets.token_hex(8)
        self._claimed = False

    @classmethod
    def create(cls, location: Location, *, clock: Clock = system_clock) -> Self:
        """Make a new ledger: `location` is a file, a folder (for a `ledger.sqlite` in it) or a PostgreSQL URL."""
        event = events.Created(events.VERSION, secrets.token_hex(16))
        first = Record.after(BEGINNING, 1, clock(), event.kind(), encode(event))
        return cls._over(open_store(location, first=first), clock)

    @classmethod
    def open(cls, location: Location, *, read_only: bool = False, clock: Clock = system_clock) -> Self:
        """Open a ledger and read all of it; a record that is not what was written there is refused."""
        return cls._over(open_store(location, read_only=read_only), clock)

    @classmethod
    def open_or_create(cls, location: Location, *, clock: Clock = system_clock) -> Self:
        """Open a ledger, or make it where there is none yet, with the folder that its file lies in."""
        if not is_postgres_url(location):
            with writing(file := file_of(location)):
                file.parent.mkdir(parents=True, exist_ok=True)
            return cls.open(file, clock=clock) if file.exists() else cls.create(file, clock=clock)
        try:
            return cls.open(location, clock=clock)
        except NotFoundError:
            return cls.create(location, clock=clock)

    @classmethod
    def _over(cls, store: Store, clock: Clock) -> Self:
        try:
            return cls(store, clock)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def enrol(self, names: Sequence[str], keys: Sequence[bytes | None] | None = None) -> range:
        """Add users; return their numbers, which follow those of the users before."""
        self._append(events.Enrolled(tuple(names), (None,) * len(names) if keys is None else tuple(keys)))
        return range(self.users - len(names), self.users)

    def publish_plan(self, plan: BatchPlan) -> None:
        """Put a plan into force; a batch that has taken part must stay whole in it, or retire whole.

        Raises `StaleError` if another plan came into force since this ledger was last read.
        """
        if plan.names is not None and plan.names != tuple(self._history.names[: plan.users]):
            raise UsageError("the plan has other user names than the ledger; make it of the ledger's users")
        order = np.lexsort((plan.members, np.repeat(np.arange(len(plan)), plan.sizes)))
        batches = Lists(plan.starts, plan.members[order])
        self._append(events.Planned(plan.users, plan.privacy, batches), fixed_plan=True)

    def add_charters(self, charters: Mapping[int, bytes]) -> None:
        """Keep the charters of batches of the plan in force; a batch has one for good."""
        batches = _numbers(charters)
        event = events.Chartered(self.plan_number, batches, [charters[batch] for batch in batches.tolist()])
        self._append(event, fixed_plan=True)

    def retire(self, batches: Iterable[int], reason: str) -> None:
        """Ask batches of the plan in force no more, for good."""
        self._append(events.Retired(self.plan_number, _numbers(batches), reason), fixed_plan=True)

    def override(self, batches: Iterable[int], reason: str) -> None:
        """Record that all owners in some batches of the plan in force permit that these are split.

        Their devices must have been told so by the owners themselves; a later plan may then put the users into
        other batches, and the audit judges the common refinement (`Snapshot.partition`).
        """
        self._append(events.Overridden(self.plan_number, _numbers(batches), reason), fixed_plan=True)

    def bind(self, files: Mapping[str, str]) -> None:
        """Bind the ledger to files, by name and SHA-256 in hexadecimal: each name once, and for good."""
        self._append(events.Bound(dict(files)))

    @contextmanager
    def claim(self, *, wait: float = 1.0) -> Iterator[int | None]:
        """Take the right to run rounds, alone, for the block; give the number of the round found open, if any.

        The coordinator that opened that round is gone, and it is recorded as unfinished. Raises `BusyError` when
        another live coordinator has the right for `wait` seconds more.
        """
        if self._claimed:
            raise UsageError(f"{self.place} is claimed already; leave that block first")
        with ExitStack() as stack:
            self._lease(stack, wait)
            self.refresh()
            current = self._history.open
            if current is not None:
                self._append(events.Unfinished(current.round.number, self._coordinator))
            self._claimed = True
            try:
                yield None if current is None else current.round.number
            finally:
                self._claimed = False

    def _lease(self, stack: ExitStack, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                stack.enter_context(self._store.lease())
            except BusyError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def open_round(self, cohort: Cohort, *, sealed: bool, protocol: str, terms_digest: bytes = b"") -> int:
        """Begin the next round and return its number, before anybody is asked.

        With a plan in force the cohort must come as batches of it; without, it comes as users. The digest of the
        terms is the one that devices make of what they are shown (32 bytes), or empty where they are shown none.
        Raises `StaleError` if the plan has changed.
        """
        self._check_claim()
        number, plan = self.plan_number, self._history.plan
        asked = cohort.batches if plan is not None else cohort.users
        items = np.sort(np.asarray(asked, dtype=np.int64))
        if np.any(np.diff(items) == 0) or (len(items) and items[0] < 0):
            raise UsageError("the cohort names somebody twice, or with a negative number")
        if plan is not None and not np.array_equal(np.sort(cohort.users), plan.users_of(items[items < len(plan)])):
            raise UsageError(
                f"the cohort is not a union of whole batches of plan {number}; choose it from that plan"
            )
        if len(terms_digest) not in {0, _DIGEST_BYTES}:
            raise UsageError(
                f"the digest of the terms has {len(terms_digest)} bytes; give {_DIGEST_BYTES}, or none"
            )
        event = events.Opened(
            round=self.next_round,
            plan=number,
            sealed=bool(sealed),
            protocol=protocol,
            terms=terms_digest.hex(),
            coordinator=self._coordinator,
            asked=items,
        )
        self._append(event, fixed_plan=True)
        return event.round

    def commit_round(
        self,
        round_: int,
        learned: Iterable[ArrayLike],
        lost: Mapping[int, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        *,
        alone: ArrayLike = (),
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Close a round with a result: all sets, as users, whose sum the server could open.

        `alone` are users whose update by itself it could know. `lost` tells for each batch of the cohort that was
        lost (user, if there is no plan) why. `files` are digests of what was written down before.
        """
        self._close_round(round_, "", learned, alone, lost=lost, metrics=metrics, files=files)

    def abandon_round(
        self,
        round_: int,
        reason: str,
        learned: Iterable[ArrayLike] = (),
        lost: Mapping[int, str] | None = None,
        *,
        alone: ArrayLike = (),
    ) -> None:
        """Close a round without a result; sets that the server could open all the same are learned."""
        self._close_round(round_, reason or "no reason was given", learned, alone, lost=lost)

    def _close_round(
        self,
        round_: int,
        reason: str,
        learned: Iterable[ArrayLike],
        alone: ArrayLike,
        *,
        lost: Mapping[int, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._check_claim()
        current = self._history.check_open(round_, "closed")
        whole, places = current.places(self._sets(learned))
        reasons, losses = _losses(lost or {}, current)
        event = events.Closed(
            round=round_,
            committed=not reason,
            reason=reason,
            whole=whole,
            learned=places,
            alone=current.places_of_users(self._users(alone)),
            reasons=reasons,
            lost=losses,
            metrics=_plain_metrics(metrics or {}),
            files=dict(files or {}),
        )
        self._append(event)

    def expose(self, round_: int, learned: Iterable[ArrayLike], alone: ArrayLike = ()) -> None:
        """Add to a round that is over what the server could open of it since, because messages came late."""
        self._append(events.Exposed(round_, Lists.of(self._sets(learned)), self._users(alone)))

    def skip_round(self, reason: str) -> int:
        """Count a round without a cohort; return its number."""
        self._check_claim()
        self._append(events.Skipped(self.next_round, reason))
        return self.next_round - 1

    def note(
        self, round_: int, metrics: Mapping[str, float] | None = None, files: Mapping[str, str] | None = None
    ) -> None:
        """Keep numbers about a round that came to be known after it, and digests of files made of it."""
        self._append(events.Noted(round_, _plain_metrics(metrics or {}), dict(files or {})))

    def announce(self, phase: Phase) -> None:
        """Tell those who watch what the open round is at; it is no part of the chain, and soon forgotten."""
        self._store.announce(str(phase))

    def _sets(self, learned: Iterable[ArrayLike]) -> list[IntArray]:
        return [learned_set(users, self.users).astype(np.int64) for users in learned]

    def _users(self, users: ArrayLike) -> IntArray:
        given = np.asarray(users)
        return learned_set(given, self.users).astype(np.int64) if given.size else NOBODY

    def _check_claim(self) -> None:
        if not self._claimed:
            raise UsageError(f"rounds are run by one coordinator at a time: claim {self.place} first")

    def _append(self, event: Event, *, fixed_plan: bool = False) -> None:
        """Store an event after all others; where somebody was faster, check it against what they stored."""
        try:
            body = encode(event)
        except UnicodeEncodeError as error:
            raise UsageError(f"{error.object!r:.60} is not valid text; change it") from None
        plan = self.plan_number
        while True:
            record = Record.after(self._head.hash, self._head.count + 1, self._clock(), event.kind(), body)
            change = self._history.prepare(event_of(record), record.time)
            try:
                self._store.append([record], self._head)
            except StaleError:
                self.refresh()
                if fixed_plan and self.plan_number != plan:
                    raise
            else:
                change()
                self._builder = None
                self._head = Head(record.seq, record.hash)
                return


def _numbers(batches: Iterable[int]) -> IntArray:
    return np.unique(np.array(list(batches), dtype=np.int64))


def _losses(lost: Mapping[int, str], current: CurrentRound) -> tuple[list[str], Lists]:
    """Return the reasons, sorted, and for each the places of what was lost among what was asked."""
    reasons = sorted(set(lost.values()))
    groups = [
        current.places_of(np.array(sorted(each for each, why in lost.items() if why == reason), dtype=np.int64))
        for reason in reasons
    ]
    return reasons, Lists.of(groups)


def _plain_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics as plain numbers; one that is infinite, or not a number, is kept as such."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            whole = isinstance(value, int | np.integer) and abs(value) < events.EXACT
            numbers[str(name)] = int(value) if whole else float(value)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"the metric {name!r} is {value!r:.40}; give a number") from None
    return numbers
