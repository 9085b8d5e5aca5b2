"""What the records add up to, and the rules that every further one must keep."""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any, TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.events import (
    VERSION,
    Abandoned,
    Chartered,
    Checkpointed,
    Committed,
    Created,
    Enrolled,
    Event,
    Noted,
    Opened,
    Planned,
    Skipped,
    Unfinished,
)
from coterie.ledger.packing import Lists
from coterie.ledger.rounds import OpenRound, Round, State
from coterie.ledger.succession import FREE, check_successor
from coterie.values import BatchPlan, IntArray

Change: TypeAlias = Callable[[], Round | None]
"""Makes the change that an event means, and returns the round that it closes."""


class History:
    """The state of a federation after some events; an event that breaks a rule raises and changes nothing.

    >>> history = History()
    >>> for event in (Created(1, "x"), Enrolled(("ana", "bob"), (None, None)), Skipped(0, "nobody is there")):
    ...     _ = history.apply(event, time=0)
    >>> history.names, history.next_round, history.steps
    (['ana', 'bob'], 1, 1)
    >>> history.apply(Skipped(0, "again"), time=0)
    Traceback (most recent call last):
    coterie.errors.UsageError: round 0 cannot be skipped: the next round is 1
    """

    def __init__(self) -> None:
        self.ledger = ""
        self.names: list[str] = []
        self.keys: list[bytes | None] = []
        self.plan: BatchPlan | None = None
        self.plans = 0
        self.charters: dict[int, bytes] = {}
        self.open: OpenRound | None = None
        self.next_round = 0
        self.steps = 0
        self.counts: IntArray = np.zeros(0, dtype=np.int64)
        self.bound: IntArray = np.zeros(0, dtype=np.int64)
        self.assumed: list[int] = []
        self.unknown: list[int] = []
        self._taken: set[str] = set()

    def apply(self, event: Event, time: int) -> Round | None:
        """Take an event in; return the round that it closes, if it does."""
        return self.prepare(event, time)()

    def prepare(self, event: Event, time: int) -> Change:
        """Check an event against the rules and return what it will change, for when it is stored."""
        if (self.ledger == "") != isinstance(event, Created):
            raise UsageError("a ledger begins with its creation, and has only one")
        return self._prepare(event, time)

    def open_round(self) -> Round | None:
        """Return the round that is open."""
        return None if self.open is None else self.open.told(State.OPEN)

    @singledispatchmethod
    def _prepare(self, event: Event, time: int) -> Change:
        raise NotImplementedError  # every kind of event has a method of its own

    @_prepare.register
    def _created(self, event: Created, _: int) -> Change:
        if event.version != VERSION or not event.ledger:
            raise UsageError(
                f"the records have the version {event.version}; this Coterie reads version {VERSION}: use the one "
                f"that wrote them"
            )

        def change() -> None:
            self.ledger = event.ledger

        return change

    @_prepare.register
    def _enrolled(self, event: Enrolled, _: int) -> Change:
        if not event.names or len(event.names) != len(event.keys):
            raise UsageError(f"{len(event.names)} names were given with {len(event.keys)} keys; give one per user")
        if not all(event.names) or any("\0" in name for name in event.names):
            raise UsageError("a user's name is empty, or has a NUL byte in it; give every user a name of text")
        fresh = set(event.names)
        again = fresh & self._taken
        if again or len(fresh) < len(event.names):
            which = f"{min(again)!r} is enrolled already" if again else "two users have the same name"
            raise UsageError(f"{which}; every user needs a name of its own")

        def change() -> None:
            self._taken.update(fresh)
            self.names.extend(event.names)
            self.keys.extend(event.keys)
            added = np.zeros(len(event.names), dtype=np.int64)
            self.counts = np.concatenate((self.counts, added))
            self.bound = np.concatenate((self.bound, added + FREE))

        return change

    @_prepare.register
    def _planned(self, event: Planned, _: int) -> Change:
        if self.open is not None:
            raise UsageError(f"round {self.open.event.round} is open; a plan changes between rounds")
        oldest = 0 if self.plan is None else self.plan.users
        if not oldest <= event.users <= len(self.names):
            raise UsageError(
                f"the plan is for {event.users} users; give one for at least the {oldest} of the plan before and "
                f"at most the {len(self.names)} that are enrolled"
            )
        plan = BatchPlan(event.users, event.privacy, event.batches.members, event.batches.starts)
        check_successor(plan, self.plan, self.bound)

        def change() -> None:
            self.charters = _carried(self.charters, self.plan, plan)
            self.plan = plan
            self.plans += 1

        return change

    @_prepare.register
    def _chartered(self, event: Chartered, _: int) -> Change:
        batches = 0 if self.plan is None else len(self.plan)
        if event.plan != self.plans or not event.charters:
            raise UsageError(
                f"{len(event.charters)} charters were given for plan {event.plan}; plan {self.plans} is in force"
            )
        for batch in event.charters:
            if batch >= batches:
                raise UsageError(f"a charter was given for batch {batch}; the plan has {batches} batches")
            if batch in self.charters:
                raise UsageError(f"batch {batch} has a charter already, which its members signed for good")

        def change() -> None:
            self.charters.update(event.charters)

        return change

    @_prepare.register
    def _opened(self, event: Opened, time: int) -> Change:
        self._check_next(event.round, "opened")
        if event.plan != self.plans:
            told = f"of plan {event.plan}" if event.plan else "not of batches"
            raise UsageError(f"the cohort of round {event.round} is {told}; plan {self.plans} is in force")
        if event.sealed and self.plan is None:
            raise UsageError(f"round {event.round} cannot be sealed: a seal is a batch's, and there is no plan")
        known, what = (len(self.names), "users") if self.plan is None else (len(self.plan), "batches")
        if len(event.asked) == 0 or int(event.asked[-1]) >= known:
            asked = f"has the number {event.asked[-1]}" if len(event.asked) else "is empty"
            raise UsageError(f"the cohort of round {event.round} {asked}; there are {known} {what} from 0 up")
        found = OpenRound.of(event, time, self.plan)

        def change() -> None:
            self.open = found
            self.next_round += 1
            if self.plan is not None:
                sizes = self.plan.sizes[event.asked]
                smallest = np.minimum.reduceat(found.members, np.cumsum(sizes) - sizes)
                self.bound[found.members] = np.repeat(smallest, sizes)

        return change

    @_prepare.register
    def _committed(self, event: Committed, time: int) -> Change:
        found = self._check_open(event.round, "committed")
        learned = _learned(found, event.learned, whole=event.whole)
        lost = _lost(found, event)

        def change() -> Round:
            self.steps += 1
            if learned:
                # A user in several sets of one round took part once.
                self.counts[learned[0] if len(learned) == 1 else np.unique(np.concatenate(learned))] += 1
            return self._closed(found, State.COMMITTED, time, learned=learned, lost=lost, metrics=event.metrics)

        return change

    @_prepare.register
    def _abandoned(self, event: Abandoned, time: int) -> Change:
        found = self._check_open(event.round, "abandoned")
        learned = _learned(found, event.learned, whole=event.whole)

        def change() -> Round:
            self.steps += 1
            return self._closed(found, State.ABANDONED, time, learned=learned, reason=event.reason)

        return change

    @_prepare.register
    def _unfinished(self, event: Unfinished, time: int) -> Change:
        found = self._check_open(event.round, "left unfinished")

        def change() -> Round:
            (self.assumed if found.event.sealed else self.unknown).append(event.round)
            return self._closed(found, State.UNFINISHED, time)

        return change

    @_prepare.register
    def _skipped(self, event: Skipped, time: int) -> Change:
        self._check_next(event.round, "skipped")

        def change() -> Round:
            self.next_round += 1
            self.steps += 1
            return Round(event.round, State.SKIPPED, time, time, plan=self.plans, reason=event.reason)

        return change

    @_prepare.register
    def _noted(self, event: Noted, _: int) -> Change:
        self._check_known(event.round)
        return _nothing

    @_prepare.register
    def _checkpointed(self, event: Checkpointed, _: int) -> Change:
        self._check_known(event.round)
        if not event.sha256 or not event.name:
            raise UsageError("a checkpoint needs a name and the SHA-256 of its file")
        return _nothing

    def _closed(self, found: OpenRound, state: State, time: int, **told: Any) -> Round:  # noqa: ANN401
        self.open = None
        return replace(found.told(state), closed=time, **told)

    def _check_next(self, number: int, done: str) -> None:
        if self.open is not None:
            raise UsageError(f"round {number} cannot be {done}: round {self.open.event.round} is still open")
        if number != self.next_round:
            raise UsageError(f"round {number} cannot be {done}: the next round is {self.next_round}")

    def _check_open(self, number: int, done: str) -> OpenRound:
        if self.open is None or self.open.event.round != number:
            which = "no round is" if self.open is None else f"round {self.open.event.round} is"
            raise UsageError(f"round {number} cannot be {done}: {which} open")
        return self.open

    def _check_known(self, number: int) -> None:
        if number >= self.next_round:
            raise UsageError(f"round {number} is not known; the last round is {self.next_round - 1}")


def _nothing() -> None:
    """Change nothing: the record says it all."""


def _learned(found: OpenRound, places: Lists, *, whole: bool) -> tuple[IntArray, ...]:
    learned = found.expanded(places, whole=whole)
    if not whole and found.places(learned)[0]:
        raise UsageError(
            f"round {found.event.round}: the learned sets are whole batches, and must be told as such"
        )
    return learned


def _lost(found: OpenRound, event: Committed) -> dict[int, str]:
    if len(event.lost) != len(event.reasons):
        raise UsageError(
            f"round {event.round}: {len(event.reasons)} reasons are given for {len(event.lost)} losses"
        )
    places = event.lost.members
    if len(places) and int(places.max()) >= len(found.event.asked):
        raise UsageError(f"round {event.round}: what was lost goes beyond the cohort")
    lost = {
        asked: reason
        for reason, each in zip(event.reasons, event.lost, strict=True)
        for asked in found.event.asked[each].tolist()
    }
    if len(lost) != len(places):
        raise UsageError(f"round {event.round}: something was lost for two reasons")
    return lost


def _carried(charters: dict[int, bytes], before: BatchPlan | None, plan: BatchPlan) -> dict[int, bytes]:
    """Return the charters of the batches that go on with the same members, by their new numbers."""
    if before is None or not charters:
        return {}
    old = np.array(sorted(charters), dtype=np.int64)
    sizes = before.sizes[old]
    begins = np.cumsum(sizes) - sizes
    now = plan.batch_of[before.listed(old)]
    low, high = np.minimum.reduceat(now, begins), np.maximum.reduceat(now, begins)
    same = (low == high) & (low >= 0)
    same[same] = plan.sizes[low[same]] == sizes[same]
    return {int(new): charters[int(batch)] for batch, new in zip(old[same], low[same], strict=True)}
