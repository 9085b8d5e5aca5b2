"""What the records of a ledger add up to, and the rules that every further record must keep.

First each round, who was asked and what the server could open, and a snapshot of it all; then the rules.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, singledispatchmethod
from typing import ClassVar, TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.federation.ledger import events
from coterie.federation.ledger.events import Lists, Opened
from coterie.federation.ledger.store import Head
from coterie.values import BatchPlan, BoolArray, Cohort, IntArray, LogBuilder, ParticipationLog

NOBODY: IntArray = np.zeros(0, dtype=np.int64)
PLAIN = "plain"
"""The protocol of rounds in which the server sees every update by itself."""


class State(StrEnum):
    """How far a round has come."""

    OPEN = "open"
    COMMITTED = "committed"
    ABANDONED = "abandoned"
    UNFINISHED = "unfinished"
    SKIPPED = "skipped"


def time_text(milliseconds: int, *, exact: bool = False) -> str:
    """Return a time in UTC as text, `exact` in ISO 8601, otherwise to be read; one that no calendar has, as it is.

    >>> time_text(1_700_000_000_123)
    '2023-11-14 22:13:20'
    >>> time_text(1_700_000_000_123, exact=True)
    '2023-11-14T22:13:20.123+00:00'
    >>> time_text(2**62)
    '4611686018427387904'
    """
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(milliseconds)
    return time.isoformat(timespec="milliseconds") if exact else f"{time:%Y-%m-%d %H:%M:%S}"


def exposed_sets(learned: tuple[IntArray, ...], alone: IntArray) -> tuple[IntArray, ...]:
    """Return every set whose sum must be taken as known: the learned sets, and each user alone by itself.

    This is the one rule for what enters the participation log (docs/protocol.md, §8).
    """
    return (*learned, *np.split(alone, len(alone))) if len(alone) else learned


@dataclass(frozen=True, eq=False)
class Round:
    """One round; times are UTC in milliseconds since 1970.

    `learned` are the sets of users whose sum the server could open from the bytes that it received, and `alone`
    the users of whom it could know, or did see, the update by itself. Both are what the coordinator reported; of
    a round that is unfinished or still open nobody did, and they are the worst that can have been (`assumed`).
    `included` are the users of the round's result, if it was committed.
    `late` counts the learned sets that came after the round was closed; they are in `learned`, at the end.
    `lost` tells for each batch that was lost (each user, where the cohort has no batches) why. `cohort` is None
    for a skipped round.
    """

    number: int
    state: State
    opened: int
    closed: int | None = None
    cohort: Cohort | None = None
    plan: int = 0
    sealed: bool = False
    protocol: str = ""
    terms: str = ""
    coordinator: str = ""
    learned: tuple[IntArray, ...] = ()
    alone: IntArray = field(default_factory=lambda: NOBODY)
    included: IntArray = field(default_factory=lambda: NOBODY)
    assumed: bool = False
    late: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def exposure(self) -> tuple[IntArray, ...]:
        """Every set whose sum must be taken as known."""
        return exposed_sets(self.learned, self.alone)

    @property
    def plain(self) -> bool:
        """Whether the server saw every update by itself."""
        return self.protocol == PLAIN

    @property
    def unknown(self) -> bool:
        """Whether it is not known what was learned: users count as alone although nobody saw them so."""
        return len(self.alone) > 0 and not self.plain

    @property
    def aggregation(self) -> str:
        """How the sum was taken, for a reader: the protocol, if there was one, and whether batches were sealed."""
        if self.plain or not self.protocol:
            return self.protocol
        return f"{self.protocol}, {'sealed' if self.sealed else 'not sealed'}"

    def metric(self, name: str) -> float | None:
        """Return a number that was noted about the round, if it was and is finite."""
        value = self.metrics.get(name, math.nan)
        return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Phase:
    """What a round is at: a phase, counted from 0, in which so many users were asked. No record holds it.

    >>> Phase.parse(str(Phase(round=3, number=1, asked=12)))
    Phase(round=3, number=1, asked=12)
    """

    round: int
    number: int
    asked: int

    _FORM: ClassVar = re.compile(r"coterie round (\d{1,15}) phase (\d{1,6}) asked (\d{1,12})")

    def __str__(self) -> str:
        return f"coterie round {self.round} phase {self.number} asked {self.asked}"

    @classmethod
    def parse(cls, text: str) -> "Phase | None":
        """Return the phase that a text is; None if it is none."""
        match = cls._FORM.fullmatch(text)
        return None if match is None else cls(*map(int, match.groups()))


@dataclass(frozen=True, eq=False)
class CurrentRound:
    """The round that is open: what was asked, batches of the plan or users, and the users that this means."""

    round: Round
    asked: IntArray
    plan: BatchPlan | None
    users: IntArray

    @classmethod
    def of(cls, event: Opened, time: int, plan: BatchPlan | None) -> "CurrentRound":
        """Look the batches up in their plan, and assume the worst that can have been learned without a report.

        If the round is sealed, nothing smaller than one batch's sum can come out: every batch that is asked counts
        as learned by itself. Otherwise any sum can be known, and every user counts as alone.
        """
        users = event.asked if plan is None else plan.users_of(event.asked)
        batches = plan if event.sealed else None
        assumed = Round(
            number=event.round,
            state=State.OPEN,
            opened=time,
            cohort=Cohort(users, NOBODY if plan is None else event.asked),
            plan=event.plan,
            sealed=event.sealed,
            protocol=event.protocol,
            terms=event.terms,
            coordinator=event.coordinator,
            learned=() if batches is None else tuple(np.sort(batches.batch(each)) for each in event.asked),
            alone=users if batches is None else NOBODY,
            assumed=True,
        )
        return cls(assumed, event.asked, plan, users)

    def users_at(self, places: Lists, *, whole: bool) -> tuple[IntArray, ...]:
        """Return as users the lists of places in what was asked, if whole, else in the users."""
        source = self.asked if whole else self.users
        if len(places.members) and int(places.members.max()) >= len(source):
            raise UsageError(f"round {self.round.number}: a learned set names a user who was not asked")
        if self.plan is None or not whole:
            return tuple(source[each] for each in places)
        # Most rounds learn the sum of all that was asked, and that is at hand.
        return tuple(
            self.users if len(each) == len(source) else self.plan.users_of(source[each]) for each in places
        )

    def places(self, learned: Sequence[IntArray]) -> tuple[bool, Lists]:
        """Return learned sets as places: in what was asked, if all are unions of that, else in the users."""
        among_users = [self.places_of_users(users) for users in learned]
        if self.plan is None:
            return True, Lists.of(among_users)
        batches = [np.unique(self.plan.batch_of[users]) for users in learned]
        covered = [int(self.plan.sizes[each].sum()) for each in batches]
        if covered == [len(users) for users in learned]:
            return True, Lists.of([self.places_of(each) for each in batches])
        return False, Lists.of(among_users)

    def places_of(self, asked: IntArray) -> IntArray:
        """Return the places of some of what was asked: of batches, or of users where there is no plan."""
        return self._places(asked, self.asked, "user" if self.plan is None else "batch")

    def places_of_users(self, users: IntArray) -> IntArray:
        """Return the places of some users of the cohort."""
        return self._places(users, self.users, "user")

    def losses(self, reasons: Sequence[str], places: Lists) -> dict[int, str]:
        """Return why each of what was asked was lost, from a list of places for each reason."""
        if len(places) != len(reasons):
            raise UsageError(
                f"round {self.round.number}: {len(reasons)} reasons are given for {len(places)} losses"
            )
        if len(places.members) and int(places.members.max()) >= len(self.asked):
            raise UsageError(f"round {self.round.number}: what is named as lost was not asked")
        groups = zip(reasons, places, strict=True)
        lost = {each: reason for reason, at in groups for each in self.asked[at].tolist()}
        if len(lost) != len(places.members):
            raise UsageError(f"round {self.round.number}: something was lost for two reasons")
        return lost

    def users_lost(self, lost: Iterable[int]) -> IntArray:
        """Return the users that were lost, by themselves or with their batches."""
        numbers = np.array(sorted(lost), dtype=np.int64)
        return numbers if self.plan is None else self.plan.users_of(numbers)

    def included(self, learned: Sequence[IntArray], alone: IntArray, lost: Mapping[int, str]) -> IntArray:
        """Return the users of the result: a user in several sets once, one of a sealed batch that was lost not."""
        sets = [users for users in (*learned, alone) if len(users)]
        if self.round.sealed and lost:
            left_out = self.users_lost(lost)
        elif len(sets) == 1:
            return sets[0]  # most rounds: the same array serves twice
        else:
            left_out = NOBODY
        return np.setdiff1d(np.concatenate((NOBODY, *sets)), left_out)

    def _places(self, wanted: IntArray, source: IntArray, what: str) -> IntArray:
        at: IntArray = np.minimum(np.searchsorted(source, wanted), len(source) - 1)
        strangers = wanted[source[at] != wanted]
        if len(strangers):
            raise UsageError(f"{what} {strangers[0]} was not asked in round {self.round.number}")
        return at


@dataclass(frozen=True, eq=False)
class BatchChange:
    """Users whose batch was retired or overridden before the round numbered `since`, and why."""

    since: int
    users: IntArray
    reason: str


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a ledger holds up to a head; nothing in it changes when the ledger goes on.

    `rounds` have everything that came to be known about them, also later. `times_asked`, `times_included` and
    `times_lost` count rounds for each batch of the plan in force; of a merged batch, for the member that took part
    least.
    """

    id: str
    head: Head
    names: tuple[str, ...]
    plan: BatchPlan | None
    plan_number: int
    charters: Mapping[int, bytes]
    files: Mapping[str, str]
    """SHA-256 of the files that the ledger belongs to, by name."""
    rounds: tuple[Round, ...]
    steps: int
    counts: IntArray
    """In how many committed rounds each user was included (f_i)."""
    times_asked: IntArray
    times_included: IntArray
    times_lost: IntArray
    retired: tuple[BatchChange, ...]
    """Batches that are asked no more."""
    overrides: tuple[BatchChange, ...]
    """Batches that their owners permitted to be split."""
    partition: IntArray
    """The common refinement of all batches that were ever asked: users with the same number were always asked
    together. Users who were never asked as part of a batch have -1."""

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.names)

    @property
    def next_round(self) -> int:
        """The number of the next round."""
        return len(self.rounds)

    @property
    def open_round(self) -> Round | None:
        """The round that is open, which is the last."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].state is State.OPEN else None

    @property
    def waiting(self) -> int:
        """How many users are enrolled and in no plan yet."""
        return self.users - (self.plan.users if self.plan is not None else 0)

    @property
    def states(self) -> Mapping[State, int]:
        """How many rounds ended in which way."""
        counts = Counter(each.state for each in self.rounds)
        return {state: counts[state] for state in State}

    @property
    def assumed_rounds(self) -> tuple[int, ...]:
        """The sealed rounds that ended without a report: every batch asked counts as learned by itself."""
        return tuple(each.number for each in self.rounds if each.assumed and each.sealed)

    @property
    def unknown_rounds(self) -> tuple[int, ...]:
        """The rounds without a seal of which it is not known what was learned: their users count as alone."""
        return tuple(each.number for each in self.rounds if each.unknown)

    @property
    def plain_rounds(self) -> tuple[int, ...]:
        """The rounds in which the server saw every update by itself."""
        return tuple(each.number for each in self.rounds if each.plain)

    @cached_property
    def log(self) -> ParticipationLog:
        """All that the server could open, for the audit to judge (`Round.exposure`)."""
        builder = LogBuilder(self.users, self.names)
        for each in self.rounds:
            builder.append(*each.exposure)
        return builder.build()


# --- the rules

FREE = -1
"""The batch of a user who was never asked as part of one."""


def check_successor(plan: BatchPlan, before: BatchPlan | None, last_batch: IntArray, retired: BoolArray) -> None:
    """Refuse a plan that would let rounds to come single out fewer than T users.

    Users whose rounds so far are alike must stay so, or be at least T where they part:

    - a batch that was ever asked goes on inside one batch of the new plan, or retires whole and for good;
    - inside a batch of the new plan, every such batch has at least T users (the new T), and so have the users
      who were never asked: the few who differ from the rest of their batch would be visible by themselves.

    `last_batch` has for each user the batch in which it was asked last, by its smallest user, or FREE, and
    `retired` whether its batch was retired.

    >>> before = BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])
    >>> state = before, np.array([0, 0, FREE, FREE]), np.zeros(4, dtype=np.bool_)
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 1, 2, 3]]), *state)
    >>> check_successor(BatchPlan.from_batches(4, 2, [[0, 2], [1, 3]]), *state)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    coterie.errors.UsageError: the plan splits batch 0, which has taken part: users 0 and 1 are parted; ...
    """
    now = np.pad(plan.batch_of.astype(np.int64), (0, len(last_batch) - plan.users), constant_values=-1)
    _check_whole(now, before, last_batch)
    if before is not None:
        _check_retired(now, before, retired)
    present: IntArray = np.flatnonzero(now >= 0)
    # One key per batch of the new plan and part of it.
    parts, first, sizes = np.unique(
        now[present] * (len(last_batch) + 1) + last_batch[present] + 1, return_index=True, return_counts=True
    )
    small = np.flatnonzero(sizes < plan.privacy)
    if len(small) == 0:
        return
    batch, part = divmod(int(parts[small[0]]), len(last_batch) + 1)
    size, user = int(sizes[small[0]]), int(present[first[small[0]]])
    if part == 0:
        raise UsageError(
            f"batch {batch} of the plan has {size} users who never took part (user {user} is one), fewer than "
            f"{plan.privacy}; let them wait until {plan.privacy} come together"
        )
    raise UsageError(
        f"batch {batch} of the plan takes over a batch of {size} users (user {user} is one), fewer than the "
        f"privacy level {plan.privacy}; keep the level at {size}, or retire that batch"
    )


def _check_whole(now: IntArray, before: BatchPlan | None, last_batch: IntArray) -> None:
    """Refuse a batch that is split."""
    users: IntArray = np.flatnonzero(last_batch != FREE)
    parted = users[now[users] != now[last_batch[users]]]
    if len(parted):
        user, other = int(parted[0]), int(last_batch[parted[0]])
        number = -1 if before is None or user >= before.users else int(before.batch_of[user])
        batch = f"batch {number}" if number >= 0 else "a batch"
        raise UsageError(
            f"the plan splits {batch}, which has taken part: users {other} and {user} are parted; keep the "
            f"batch whole, merge it whole with others, retire it whole, or have all its owners override it"
        )


def _check_retired(now: IntArray, before: BatchPlan, retired: BoolArray) -> None:
    """Refuse a retired batch that comes back; one that the plan before still lists may stay in it as it is."""
    old = np.pad(before.batch_of, (0, len(now) - before.users), constant_values=-1)
    here: IntArray = np.flatnonzero(retired & (now >= 0))
    with_others = np.isin(now[here], now[~retired & (now >= 0)])
    back = np.concatenate((here[old[here] < 0], here[with_others]))
    if len(back):
        raise UsageError(
            f"the plan brings user {back[0]} back, whose batch was retired; a retired batch never takes part again"
        )


Change: TypeAlias = Callable[[], Round | None]
"""Makes the change that an event means, and returns the round that it closes."""
Rule: TypeAlias = Iterator[Round | None]
"""Checks an event, and changes nothing up to its first yield; then it makes the change, and yields the round that
this closes, if it does."""


class History:
    """The state of a federation after some events; an event that breaks a rule raises and changes nothing.

    >>> history = History()
    >>> created, enrolled = events.Created(2, "x"), events.Enrolled(["ana"], [None])
    >>> for event in (created, enrolled, events.Skipped(0, "nobody is there")):
    ...     _ = history.apply(event, time=0)
    >>> history.names, history.next_round, history.steps
    (['ana'], 1, 1)
    >>> history.apply(events.Skipped(0, "again"), time=0)
    Traceback (most recent call last):
    coterie.errors.UsageError: round 0 cannot be skipped: the next round is 1
    """

    def __init__(self) -> None:
        self.ledger = ""
        self.names: list[str] = []
        self.keys: list[bytes | None] = []
        self.plan: BatchPlan | None = None
        self.plans = 0
        self.charters: Mapping[int, bytes] = {}
        self.files: Mapping[str, str] = {}
        """Neither is ever changed in place: whoever was given one keeps what it was."""
        self.open: CurrentRound | None = None
        self.next_round = 0
        self.steps = 0
        """How many rounds came to an end."""
        self.times_asked, self.times_lost = NOBODY, NOBODY
        """In how many rounds each user was asked, and lost, by itself or with its batch."""
        self.counts = NOBODY
        """In how many committed rounds each user was included."""
        self.last_batch = NOBODY
        """For each user the batch in which it was asked last, named by its smallest user; FREE if never."""
        self.failures = NOBODY
        """In how many rounds in a row each batch of the plan was lost."""
        self.retired_users: BoolArray = np.zeros(0, dtype=np.bool_)
        self.retirements: list[BatchChange] = []
        self.overrides: list[BatchChange] = []
        self._earlier_partition = NOBODY
        """What `partition` was when the plan came into force, or a batch of it was overridden."""
        self._name_set: set[str] = set()

    def apply(self, event: events.Event, time: int) -> Round | None:
        """Take an event in; return the round that it closes, if it does."""
        return self.prepare(event, time)()

    def prepare(self, event: events.Event, time: int) -> Change:
        """Check an event against the rules and return what it will change, for when it is stored."""
        if (self.ledger == "") != isinstance(event, events.Created):
            raise UsageError("a ledger begins with its creation, and has only one")
        rule = self._rule(event, time)
        next(rule)
        return lambda: next(rule, None)

    @property
    def retired(self) -> BoolArray:
        """For each batch of the plan in force, whether it was retired."""
        if self.plan is None or len(self.plan) == 0:
            return np.zeros(0, dtype=np.bool_)
        return self.retired_users[self.plan.members[self.plan.starts[:-1]]]

    def partition(self) -> IntArray:
        """Return the common refinement of all batches that were ever asked, as `Snapshot` describes it."""
        # Under one plan `last_batch` forgets only batches of plans before, which are in the earlier partition.
        partition = self._earlier_partition.copy()
        ever: IntArray = np.flatnonzero((partition >= 0) | (self.last_batch != FREE))
        keys = partition[ever] * (len(partition) + 1) + self.last_batch[ever]
        partition[ever] = np.unique(keys, return_inverse=True)[1]
        return partition

    @singledispatchmethod
    def _rule(self, event: events.Event, time: int) -> Rule:
        del time
        raise TypeError(f"there is no rule for events of the kind {type(event).__name__}")

    @_rule.register
    def _created(self, event: events.Created, _: int) -> Rule:
        if not event.ledger:
            raise UsageError("the ledger has no name of its own")
        if event.version != events.VERSION:
            raise UsageError(
                f"the records have the version {event.version}; this Coterie reads version {events.VERSION}: use "
                f"the one that wrote them"
            )
        yield None
        self.ledger = event.ledger

    @_rule.register
    def _bound(self, event: events.Bound, _: int) -> Rule:
        again = self.files.keys() & event.files.keys()
        if again or not event.files:
            which = f"{min(again)!r} is bound already" if again else "no file is named"
            raise UsageError(f"{which}; a file is bound once, and for good")
        yield None
        self.files = {**self.files, **event.files}

    @_rule.register
    def _enrolled(self, event: events.Enrolled, _: int) -> Rule:
        if not event.names or len(event.names) != len(event.keys):
            raise UsageError(f"{len(event.names)} names were given with {len(event.keys)} keys; give one per user")
        if not all(event.names) or any("\0" in name for name in event.names):
            raise UsageError("a user's name is empty, or has a NUL byte in it; give every user a name of text")
        fresh = set(event.names)
        again = fresh & self._name_set
        if again or len(fresh) < len(event.names):
            which = f"{min(again)!r} is enrolled already" if again else "two users have the same name"
            raise UsageError(f"{which}; every user needs a name of its own")
        yield None
        self._name_set.update(fresh)
        self.names.extend(event.names)
        self.keys.extend(event.keys)
        none, free = np.zeros(len(event.names), dtype=np.int64), np.full(len(event.names), FREE)
        self.times_asked = np.concatenate((self.times_asked, none))
        self.times_lost = np.concatenate((self.times_lost, none))
        self.counts = np.concatenate((self.counts, none))
        self.last_batch = np.concatenate((self.last_batch, free))
        self.retired_users = np.concatenate((self.retired_users, none > 0))
        self._earlier_partition = np.concatenate((self._earlier_partition, free))

    @_rule.register
    def _planned(self, event: events.Planned, _: int) -> Rule:
        if self.open is not None:
            raise UsageError(f"round {self.open.round.number} is open; a plan changes between rounds")
        oldest = 0 if self.plan is None else self.plan.users
        if not oldest <= event.users <= len(self.names):
            raise UsageError(
                f"the plan is for {event.users} users; give one for at least the {oldest} of the plan before and "
                f"at most the {len(self.names)} that are enrolled"
            )
        names = tuple(self.names[: event.users])
        plan = BatchPlan(event.users, event.privacy, event.batches.members, event.batches.starts, names)
        check_successor(plan, self.plan, self.last_batch, self.retired_users)
        yield None
        self._earlier_partition = self.partition()
        same, left_out = _successors(self.plan, plan)
        if self.plan is not None:
            left_out = left_out[~self.retired[left_out]]
            self.retirements += self._changes(self.plan, left_out, "the plan has it no more")
        failures = np.zeros(len(plan), dtype=np.int64)
        failures[list(same.values())] = self.failures[list(same)]
        self.failures = failures
        self.charters = {same[batch]: charter for batch, charter in self.charters.items() if batch in same}
        left = np.ones(len(self.names), dtype=np.bool_)
        left[plan.members] = False
        self.retired_users |= left & (self.last_batch != FREE)
        self.plan = plan
        self.plans += 1

    @_rule.register
    def _chartered(self, event: events.Chartered, _: int) -> Rule:
        given = [charter for charter in event.charters if charter is not None]
        if len(given) != len(event.batches) or len(given) != len(event.charters):
            raise UsageError(
                f"{len(given)} charters were given for {len(event.batches)} batches; each needs its own"
            )
        self._check_batches(event.plan, event.batches, "chartered")
        charters = dict(zip(event.batches.tolist(), map(bytes, given), strict=True))
        again = self.charters.keys() & charters.keys()
        if again:
            raise UsageError(f"batch {min(again)} has a charter already, which its members signed for good")
        yield None
        self.charters = {**self.charters, **charters}

    @_rule.register
    def _retired(self, event: events.Retired, _: int) -> Rule:
        plan = self._check_batches(event.plan, event.batches, "retired")
        users = plan.users_of(event.batches)
        retired = users[self.retired_users[users]]
        if len(retired):
            raise UsageError(f"the batch of user {retired[0]} was retired already")
        yield None
        self.retired_users[users] = True
        self.retirements += self._changes(plan, event.batches, event.reason)

    @_rule.register
    def _overridden(self, event: events.Overridden, _: int) -> Rule:
        plan = self._check_batches(event.plan, event.batches, "overridden")
        yield None
        self._earlier_partition = self.partition()
        self.last_batch[plan.members_of(event.batches)] = FREE
        self.charters = {b: c for b, c in self.charters.items() if b not in set(event.batches.tolist())}
        self.overrides += self._changes(plan, event.batches, event.reason)

    def _changes(self, plan: BatchPlan, batches: IntArray, reason: str) -> list[BatchChange]:
        return [BatchChange(self.next_round, np.sort(plan.batch(each)), reason) for each in batches.tolist()]

    def _check_batches(self, plan: int, batches: IntArray, done: str) -> BatchPlan:
        """Return the plan in force; refuse batches that are not of it."""
        known = 0 if self.plan is None else len(self.plan)
        if self.plan is None or plan != self.plans or len(batches) == 0:
            raise UsageError(
                f"{len(batches)} batches of plan {plan} cannot be {done}: plan {self.plans} is in force"
            )
        if int(batches[-1]) >= known:
            raise UsageError(f"batch {batches[-1]} cannot be {done}: the plan has {known} batches")
        return self.plan

    @_rule.register
    def _opened(self, event: events.Opened, time: int) -> Rule:
        self._check_next(event.round, "opened")
        if event.plan != self.plans:
            origin = f"of plan {event.plan}" if event.plan else "not of batches"
            raise UsageError(f"the cohort of round {event.round} is {origin}; plan {self.plans} is in force")
        if event.sealed and self.plan is None:
            raise UsageError(f"round {event.round} cannot be sealed: a seal is a batch's, and there is no plan")
        known, what = (len(self.names), "users") if self.plan is None else (len(self.plan), "batches")
        if len(event.asked) == 0 or int(event.asked[-1]) >= known:
            asked = f"has the number {event.asked[-1]}" if len(event.asked) else "is empty"
            raise UsageError(f"the cohort of round {event.round} {asked}; there are {known} {what} from 0 up")
        current = CurrentRound.of(event, time, self.plan)
        if self.retired_users[current.users].any():
            raise UsageError(
                f"round {event.round} asks a batch that was retired; a retired batch never takes part again"
            )
        yield None
        self.open = current
        self.next_round += 1
        self.times_asked[current.users] += 1
        if self.plan is not None:
            batches = self.plan.batch_of[current.users]
            _, smallest, batch = np.unique(batches, return_index=True, return_inverse=True)
            self.last_batch[current.users] = current.users[smallest[batch]]

    @_rule.register
    def _closed(self, event: events.Closed, time: int) -> Rule:
        current = self.check_open(event.round, "closed")
        learned = current.users_at(event.learned, whole=event.whole)
        if not event.whole and current.places(learned)[0]:
            raise UsageError(
                f"round {event.round}: the learned sets are whole batches; name them by batch, not by user"
            )
        if len(event.alone) and int(event.alone[-1]) >= len(current.users):
            raise UsageError(f"round {event.round}: a user is named as alone who was not asked")
        if current.round.plain and len(event.learned):
            raise UsageError(
                f"round {event.round} is plain, and the server sees every update in it: name its users as alone, "
                f"not as a sum"
            )
        if event.committed == bool(event.reason):
            raise UsageError(f"round {event.round}: give either a result or a reason why there is none")
        alone, lost = current.users[event.alone], current.losses(event.reasons, event.lost)
        yield None
        self.open = None
        self.steps += 1
        included = current.included(learned, alone, lost) if event.committed else NOBODY
        self.counts[included] += 1
        self.times_lost[current.users_lost(lost)] += 1
        if self.plan is not None and len(lost) < len(current.asked):
            # Where nobody came through, the fault may be anybody's: no batch's record is touched.
            failed = np.isin(current.asked, list(lost))
            self.failures[current.asked] = np.where(failed, self.failures[current.asked] + 1, 0)
        yield replace(
            current.round,
            state=State.COMMITTED if event.committed else State.ABANDONED,
            closed=time,
            learned=learned,
            alone=alone,
            included=included,
            assumed=False,
            lost=lost,
            reason=event.reason,
            metrics=event.metrics,
            files=event.files,
        )

    @_rule.register
    def _exposed(self, event: events.Exposed, _: int) -> Rule:
        self._check_known(event.round)
        if self.open is not None and self.open.round.number == event.round:
            raise UsageError(f"round {event.round} is still open; say what was learned in it when you close it")
        users = np.concatenate((event.learned.members, event.alone))
        if len(users) == 0 or int(users.max()) >= len(self.names):
            raise UsageError(f"round {event.round}: what came late names nobody, or a user who is not enrolled")
        yield None  # nothing that is counted here changes; a snapshot adds it to its round

    @_rule.register
    def _unfinished(self, event: events.Unfinished, time: int) -> Rule:
        current = self.check_open(event.round, "left unfinished")
        yield None
        self.open = None
        yield replace(current.round, state=State.UNFINISHED, closed=time)

    @_rule.register
    def _skipped(self, event: events.Skipped, time: int) -> Rule:
        self._check_next(event.round, "skipped")
        yield None
        self.next_round += 1
        self.steps += 1
        yield Round(event.round, State.SKIPPED, time, time, plan=self.plans, reason=event.reason)

    @_rule.register
    def _noted(self, event: events.Noted, _: int) -> Rule:
        self._check_known(event.round)
        yield None

    def _check_next(self, number: int, done: str) -> None:
        if self.open is not None:
            raise UsageError(f"round {number} cannot be {done}: round {self.open.round.number} is still open")
        if number != self.next_round:
            raise UsageError(f"round {number} cannot be {done}: the next round is {self.next_round}")

    def check_open(self, number: int, done: str) -> CurrentRound:
        """Return the open round, which must be this one."""
        if self.open is None or self.open.round.number != number:
            which = "no round is" if self.open is None else f"round {self.open.round.number} is"
            raise UsageError(f"round {number} cannot be {done}: {which} open")
        return self.open

    def _check_known(self, number: int) -> None:
        if number >= self.next_round:
            raise UsageError(f"round {number} is not known: the next round is {self.next_round}")


def _successors(before: BatchPlan | None, plan: BatchPlan) -> tuple[dict[int, int], IntArray]:
    """Return the new numbers of batches that go on as they are, by their old ones, and the batches left out."""
    if before is None or len(before) == 0:
        return {}, NOBODY
    now, begins = plan.batch_of[before.members], before.starts[:-1]
    low, high = np.minimum.reduceat(now, begins), np.maximum.reduceat(now, begins)
    same = (low == high) & (low >= 0)
    same[same] = plan.sizes[low[same]] == before.sizes[same]
    return dict(zip(np.flatnonzero(same).tolist(), low[same].tolist(), strict=True)), np.flatnonzero(high < 0)
