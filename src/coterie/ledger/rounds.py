"""A round as the ledger tells it: who was asked, what the server could open, how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.bodies import Lists
from coterie.ledger.events import Opened
from coterie.values import BatchPlan, Cohort, IntArray

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


@dataclass(frozen=True, eq=False)
class Round:
    """One round; times are UTC in milliseconds since 1970.

    `learned` are the sets of users whose sum the server could open from the bytes that it received, and `alone`
    the users of whom it could know, or did see, the update by itself. Both are what the coordinator reported; of
    a round that is unfinished or still open nobody did, and they are the worst that can have been (`assumed`).
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
    assumed: bool = False
    late: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def exposure(self) -> tuple[IntArray, ...]:
        """Every set whose sum must be taken as known: the learned sets, and each user of `alone` by itself.

        This is the one rule for what enters the participation log (docs/protocol.md, §8).
        """
        return (*self.learned, *np.split(self.alone, len(self.alone))) if len(self.alone) else self.learned

    @property
    def unknown(self) -> bool:
        """Whether it is not known what was learned: users count as alone although nobody saw them so."""
        return len(self.alone) > 0 and self.protocol != PLAIN


@dataclass(frozen=True, eq=False)
class CurrentRound:
    """The round that is open: what was asked, and the users that this means, batch after batch and sorted."""

    event: Opened
    time: int
    plan: BatchPlan | None
    members: IntArray
    users: IntArray

    @classmethod
    def of(cls, event: Opened, time: int, plan: BatchPlan | None) -> "CurrentRound":
        """Look the batches up in their plan."""
        if plan is None:
            return cls(event, time, None, event.asked, event.asked)
        members = plan.members_of(event.asked)
        return cls(event, time, plan, members, np.sort(members))

    @property
    def cohort(self) -> Cohort:
        """The users asked, and the batches they come as."""
        return Cohort(self.users, self.event.asked if self.plan is not None else NOBODY)

    def without_report(self, state: State) -> Round:
        """Return the round as it stands, with the worst that can have been learned in it.

        If it was sealed, nothing smaller than one batch's sum can have come out: every batch that was asked counts
        as learned by itself. Otherwise any sum can be known, and every user counts as alone.
        """
        event = self.event
        batches = self.plan if event.sealed else None
        return Round(
            number=event.round,
            state=state,
            opened=self.time,
            cohort=self.cohort,
            plan=event.plan,
            sealed=event.sealed,
            protocol=event.protocol,
            terms=event.terms,
            coordinator=event.coordinator,
            learned=() if batches is None else tuple(np.sort(batches.batch(each)) for each in event.asked),
            alone=self.users if batches is None else NOBODY,
            assumed=True,
        )

    def expanded(self, places: Lists, *, whole: bool) -> tuple[IntArray, ...]:
        """Return as users the lists of places in what was asked, if whole, else in the users."""
        source = self.event.asked if whole else self.users
        if len(places.members) and int(places.members.max()) >= len(source):
            raise UsageError(f"round {self.event.round}: a learned set goes beyond the cohort")
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
        return self._places(asked, self.event.asked, "user" if self.plan is None else "batch")

    def places_of_users(self, users: IntArray) -> IntArray:
        """Return the places of some users of the cohort."""
        return self._places(users, self.users, "user")

    def users_asked(self, asked: Sequence[int]) -> IntArray:
        """Return the users of some of what was asked."""
        items = np.array(sorted(asked), dtype=np.int64)
        return items if self.plan is None else self.plan.users_of(items)

    def _places(self, wanted: IntArray, source: IntArray, what: str) -> IntArray:
        at: IntArray = np.minimum(np.searchsorted(source, wanted), len(source) - 1)
        strangers = wanted[source[at] != wanted]
        if len(strangers):
            raise UsageError(f"{what} {strangers[0]} was not asked in round {self.event.round}")
        return at
