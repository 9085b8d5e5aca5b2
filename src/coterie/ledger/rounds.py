"""What a ledger tells: each round, who was asked and what the server could open, and a snapshot of it all."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.events import Lists, Opened
from coterie.ledger.store import Head
from coterie.values import BatchPlan, Cohort, IntArray, LogBuilder, ParticipationLog

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
