"""A round as the ledger tells it: who was asked, what was learned, how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.events import Opened
from coterie.ledger.packing import Lists
from coterie.values import BatchPlan, Cohort, IntArray


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

    `learned` are the learned sets, as users, that the coordinator reported. Of a round that is unfinished, or
    still open, nobody reported any: if it was sealed, no smaller sum than one batch's can have come out, and the
    worst is `assumed`, each batch by itself; otherwise what was learned is `unknown`. `lost` tells for each batch
    that was lost (each user, where the cohort has no batches) why. `cohort` is None for a skipped round.
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
    assumed: tuple[IntArray, ...] = ()
    unknown: bool = False
    lost: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class OpenRound:
    """The round that is open: what was asked, and the users that this means, batch after batch and sorted."""

    event: Opened
    time: int
    plan: BatchPlan | None
    members: IntArray
    users: IntArray

    @classmethod
    def of(cls, event: Opened, time: int, plan: BatchPlan | None) -> "OpenRound":
        """Look the batches up in their plan."""
        if plan is None:
            return cls(event, time, None, event.asked, event.asked)
        members = plan.listed(event.asked)
        return cls(event, time, plan, members, np.sort(members))

    @property
    def cohort(self) -> Cohort:
        """The users asked, and the batches they come as."""
        return Cohort(self.users, self.event.asked if self.plan is not None else np.zeros(0, dtype=np.int64))

    def told(self, state: State) -> Round:
        """Return the round as it stands, or as it stood when it was left unfinished."""
        event, left = self.event, state in (State.OPEN, State.UNFINISHED)
        alone = self.plan if left and event.sealed else None
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
            assumed=() if alone is None else tuple(np.sort(alone.batch(batch)) for batch in event.asked),
            unknown=left and not event.sealed,
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
        among_users = [self._found(users, self.users, "user") for users in learned]
        if self.plan is None:
            return True, Lists.of(among_users)
        batches = [np.unique(self.plan.batch_of[users]) for users in learned]
        covered = [int(self.plan.sizes[each].sum()) for each in batches]
        if covered == [len(users) for users in learned]:
            return True, Lists.of([self.places_of(each) for each in batches])
        return False, Lists.of(among_users)

    def places_of(self, asked: IntArray) -> IntArray:
        """Return the places of some of what was asked: of batches, or of users where there is no plan."""
        return self._found(asked, self.event.asked, "user" if self.plan is None else "batch")

    def _found(self, wanted: IntArray, source: IntArray, what: str) -> IntArray:
        at: IntArray = np.minimum(np.searchsorted(source, wanted), len(source) - 1)
        strangers = wanted[source[at] != wanted]
        if len(strangers):
            raise UsageError(f"{what} {strangers[0]} was not asked in round {self.event.round}")
        return at
