"""`Ledger`: what the server remembers of a federation, durably, and what it may do next."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.files import writing
from coterie.ledger import events
from coterie.ledger.events import Event, Lists, encode, event_of
from coterie.ledger.reading import LedgerReader
from coterie.ledger.rounds import NOBODY, CurrentRound, Phase
from coterie.ledger.store import (
    BEGINNING,
    BusyError,
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
from coterie.values import BatchPlan, Cohort, IntArray
from coterie.values.checks import learned_set

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
