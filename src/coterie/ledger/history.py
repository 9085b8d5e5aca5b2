"""What the records add up to, and the rules that every further one must keep."""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatchmethod
from typing import TypeAlias

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.events import (
    VERSION,
    Bound,
    Chartered,
    Closed,
    Created,
    Enrolled,
    Event,
    Exposed,
    Noted,
    Opened,
    Overridden,
    Planned,
    Retired,
    Skipped,
    Unfinished,
)
from coterie.ledger.rounds import NOBODY, PLAIN, CurrentRound, Round, State
from coterie.ledger.succession import FREE, Bonds, check_successor
from coterie.values import BatchPlan, BoolArray, IntArray

Change: TypeAlias = Callable[[], Round | None]
"""Makes the change that an event means, and returns the round that it closes."""


class History:
    """The state of a federation after some events; an event that breaks a rule raises and changes nothing.

    >>> history = History()
    >>> for event in (Created(2, "x"), Enrolled(("ana", "bob"), (None, None)), Skipped(0, "nobody is there")):
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
        self.files: dict[str, str] = {}
        self.open: CurrentRound | None = None
        self.next_round = 0
        self.steps = 0
        self.counts: IntArray = np.zeros(0, dtype=np.int64)
        self.bonds: IntArray = np.zeros(0, dtype=np.int64)
        self.gone: BoolArray = np.zeros(0, dtype=np.bool_)
        self.failures: IntArray = np.zeros(0, dtype=np.int64)
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
        return None if self.open is None else self.open.without_report(State.OPEN)

    @property
    def retired(self) -> BoolArray:
        """For each batch of the plan in force, whether it was retired."""
        if self.plan is None or len(self.plan) == 0:
            return np.zeros(0, dtype=np.bool_)
        return self.gone[self.plan.members[self.plan.starts[:-1]]]

    @singledispatchmethod
    def _prepare(self, event: Event, time: int) -> Change:
        del time
        raise TypeError(f"there is no rule for events of the kind {type(event).__name__}")

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
    def _bound(self, event: Bound, _: int) -> Change:
        again = self.files.keys() & event.files.keys()
        if again or not event.files:
            which = f"{min(again)!r} is bound already" if again else "no file is named"
            raise UsageError(f"{which}; a file is bound once, and for good")
        return lambda: self.files.update(event.files)

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
            self.bonds = np.concatenate((self.bonds, added + FREE))
            self.gone = np.concatenate((self.gone, added > 0))

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
        check_successor(plan, self.plan, Bonds(self.bonds, self.gone))

        def change() -> None:
            same = _unchanged(self.plan, plan)
            failures = np.zeros(len(plan), dtype=np.int64)
            failures[list(same.values())] = self.failures[list(same)]
            self.failures = failures
            self.charters = {same[batch]: charter for batch, charter in self.charters.items() if batch in same}
            left = np.ones(len(self.names), dtype=np.bool_)
            left[plan.members] = False
            self.gone |= left & (self.bonds != FREE)
            self.plan = plan
            self.plans += 1

        return change

    @_prepare.register
    def _chartered(self, event: Chartered, _: int) -> Change:
        if len(event.batches) != len(event.charters) or not all(each is not None for each in event.charters):
            raise UsageError(f"{len(event.charters)} charters were given for {len(event.batches)} batches")
        self._check_batches(event.plan, event.batches, "chartered")
        charters = dict(zip(event.batches.tolist(), map(bytes, event.charters), strict=True))  # type: ignore[arg-type]
        again = self.charters.keys() & charters.keys()
        if again:
            raise UsageError(f"batch {min(again)} has a charter already, which its members signed for good")
        return lambda: self.charters.update(charters)

    @_prepare.register
    def _retired(self, event: Retired, _: int) -> Change:
        users = self._check_batches(event.plan, event.batches, "retired")
        if self.gone[users].any():
            raise UsageError("a batch was retired already")

        def change() -> None:
            self.gone[users] = True

        return change

    @_prepare.register
    def _overridden(self, event: Overridden, _: int) -> Change:
        users = self._check_batches(event.plan, event.batches, "overridden")

        def change() -> None:
            self.bonds[users] = FREE
            self.charters = {b: c for b, c in self.charters.items() if b not in set(event.batches.tolist())}

        return change

    def _check_batches(self, plan: int, batches: IntArray, done: str) -> IntArray:
        """Return the users of batches of the plan in force; refuse others."""
        known = 0 if self.plan is None else len(self.plan)
        if self.plan is None or plan != self.plans or len(batches) == 0:
            raise UsageError(
                f"{len(batches)} batches of plan {plan} cannot be {done}: plan {self.plans} is in force"
            )
        if int(batches[-1]) >= known:
            raise UsageError(f"batch {batches[-1]} cannot be {done}: the plan has {known} batches")
        return self.plan.users_of(batches)

    @_prepare.register
    def _opened(self, event: Opened, time: int) -> Change:
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
        if self.gone[current.users].any():
            raise UsageError(f"round {event.round} asks a batch that was retired; retired is for good")

        def change() -> None:
            self.open = current
            self.next_round += 1
            if self.plan is not None:
                sizes = self.plan.sizes[event.asked]
                smallest = np.minimum.reduceat(current.members, np.cumsum(sizes) - sizes)
                self.bonds[current.members] = np.repeat(smallest, sizes)

        return change

    @_prepare.register
    def _closed(self, event: Closed, time: int) -> Change:
        current = self._check_open(event.round, "closed")
        learned = current.expanded(event.learned, whole=event.whole)
        if not event.whole and current.places(learned)[0]:
            raise UsageError(f"round {event.round}: the learned sets are whole batches, and must be named as such")
        if len(event.alone) and int(event.alone[-1]) >= len(current.users):
            raise UsageError(f"round {event.round}: a user alone goes beyond the cohort")
        if current.event.protocol == PLAIN and len(event.learned):
            raise UsageError(
                f"round {event.round} is plain, and the server sees every update in it: name its users as alone, "
                f"not as a sum"
            )
        if event.committed == bool(event.reason):
            raise UsageError(f"round {event.round}: a round has a result, or a reason why it has none")
        alone, lost = current.users[event.alone], _lost(current, event)

        def change() -> Round:
            self.open = None
            self.steps += 1
            if event.committed:
                # A user in several sets of one round took part once; a sealed batch that was lost, not at all.
                left_out = current.users_asked(list(lost)) if current.event.sealed else NOBODY
                self.counts[np.setdiff1d(np.concatenate((*learned, alone)), left_out)] += 1
            if self.plan is not None and len(lost) < len(asked := current.event.asked):
                # Where nobody came through, the fault may be anybody's: no batch's record is touched.
                self.failures[asked] = np.where(np.isin(asked, list(lost)), self.failures[asked] + 1, 0)
            return replace(
                current.without_report(State.COMMITTED if event.committed else State.ABANDONED),
                closed=time,
                learned=learned,
                alone=alone,
                assumed=False,
                lost=lost,
                reason=event.reason,
                metrics=event.metrics,
                files=event.files,
            )

        return change

    @_prepare.register
    def _exposed(self, event: Exposed, _: int) -> Change:
        self._check_known(event.round)
        if self.open is not None and self.open.event.round == event.round:
            raise UsageError(f"round {event.round} is open: what was learned in it is told when it is closed")
        users = np.concatenate((event.learned.members, event.alone))
        if len(users) == 0 or int(users.max()) >= len(self.names):
            raise UsageError(f"round {event.round}: what came late names nobody, or a user who is not enrolled")
        return _nothing

    @_prepare.register
    def _unfinished(self, event: Unfinished, time: int) -> Change:
        current = self._check_open(event.round, "left unfinished")

        def change() -> Round:
            self.open = None
            return replace(current.without_report(State.UNFINISHED), closed=time)

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

    def _check_next(self, number: int, done: str) -> None:
        if self.open is not None:
            raise UsageError(f"round {number} cannot be {done}: round {self.open.event.round} is still open")
        if number != self.next_round:
            raise UsageError(f"round {number} cannot be {done}: the next round is {self.next_round}")

    def _check_open(self, number: int, done: str) -> CurrentRound:
        if self.open is None or self.open.event.round != number:
            which = "no round is" if self.open is None else f"round {self.open.event.round} is"
            raise UsageError(f"round {number} cannot be {done}: {which} open")
        return self.open

    def _check_known(self, number: int) -> None:
        if number >= self.next_round:
            raise UsageError(f"round {number} is not known; the last round is {self.next_round - 1}")


def _nothing() -> None:
    """Change nothing: the record says it all."""


def _lost(current: CurrentRound, event: Closed) -> dict[int, str]:
    if len(event.lost) != len(event.reasons):
        raise UsageError(
            f"round {event.round}: {len(event.reasons)} reasons are given for {len(event.lost)} losses"
        )
    places = event.lost.members
    if len(places) and int(places.max()) >= len(current.event.asked):
        raise UsageError(f"round {event.round}: what was lost goes beyond the cohort")
    lost = {
        asked: reason
        for reason, each in zip(event.reasons, event.lost, strict=True)
        for asked in current.event.asked[each].tolist()
    }
    if len(lost) != len(places):
        raise UsageError(f"round {event.round}: something was lost for two reasons")
    return lost


def _unchanged(before: BatchPlan | None, plan: BatchPlan) -> dict[int, int]:
    """Return the batches that go on with the same members, by their old number their new one."""
    if before is None or len(before) == 0:
        return {}
    begins = before.starts[:-1]
    now = plan.batch_of[before.members]
    low, high = np.minimum.reduceat(now, begins), np.maximum.reduceat(now, begins)
    same = (low == high) & (low >= 0)
    same[same] = plan.sizes[low[same]] == before.sizes[same]
    old: IntArray = np.flatnonzero(same)
    return dict(zip(old.tolist(), low[old].tolist(), strict=True))
