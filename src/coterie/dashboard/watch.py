"""Following a ledger: every look takes in what was appended since the one before, and nothing is ever written."""

import time
from contextlib import suppress
from dataclasses import replace

from coterie.audit import Verdict
from coterie.audit.measures import RoundMeasures, RunningMeasures
from coterie.auditing import audit, evidence_of
from coterie.dashboard.state import FederationState
from coterie.errors import UsageError
from coterie.ledger import Ledger, Round, Snapshot, State
from coterie.ledger.ledger import Clock, system_clock
from coterie.ledger.store import Location

AUDIT_SECONDS = 1.0
"""Seconds that an audit may take for its forecast and the weak level."""
REAUDIT_FACTOR = 10.0
"""An audit is not begun again before so many times its own duration have passed."""


class LedgerWatch:
    """Looks at a ledger, again and again, from one thread.

    Measures are carried on round by round. An audit is made of all rounds at once, so of a large ledger it comes
    less often. What cannot be read now (a database that restarts) is tried again at the next look.
    """

    def __init__(self, location: Location, required: int | None = None, clock: Clock = system_clock) -> None:
        self._location, self._required, self._clock = location, required, clock
        self._ledger: Ledger | None = Ledger.open(location, read_only=True)
        self._snapshot: Snapshot | None = None
        self._fold = _MeasuresCache(0)
        self._verdict: Verdict | None = None
        self._audited, self._audit_again = 0, 0.0
        self._head, self._changed = self._ledger.head, clock()

    def look(self) -> FederationState:
        """Return how things stand; raise UsageError if the ledger cannot be read."""
        if self._ledger is None:
            self._ledger = Ledger.open(self._location, read_only=True)
        ledger = self._ledger
        try:
            live, phase = ledger.coordinated, ledger.phase
            ledger.refresh()
            if self._snapshot is None or self._snapshot.head != ledger.head:
                self._snapshot = ledger.snapshot()
        except UsageError:
            self.close()
            raise
        snapshot = self._snapshot
        if ledger.head != self._head:
            self._head, self._changed = ledger.head, self._clock()
        is_open = bool(snapshot.rounds) and snapshot.rounds[-1].state is State.OPEN
        closed = snapshot.rounds[:-1] if is_open else snapshot.rounds
        self._fold = self._fold.updated(snapshot, closed)
        self._audit(replace(snapshot, rounds=closed), ledger.place)
        plan, current = snapshot.plan, snapshot.rounds[-1].number if is_open else None
        return FederationState(
            place=ledger.place,
            changed=self._changed,
            snapshot=snapshot,
            after=tuple(self._fold.after),
            measures=self._fold.measures.now,
            groups=self._fold.measures.strong.classes,
            verdict=self._verdict,
            audited=self._audited,
            live=live,
            phase=phase if phase is not None and phase.round == current else None,
            failures=ledger.failures,
            retired=ledger.retired,
            required=self._required if self._required is not None or plan is None else plan.privacy,
        )

    def close(self) -> None:
        """Let go of the database."""
        if self._ledger is not None:
            with suppress(UsageError):
                self._ledger.close()
            self._ledger = None

    def _audit(self, snapshot: Snapshot, place: str) -> None:
        """Audit the rounds that are over, if there are new ones and the last audit is long enough ago."""
        rounds, begun = len(snapshot.rounds), time.monotonic()
        if rounds == self._audited or begun < self._audit_again:
            return
        self._verdict = audit(evidence_of(snapshot, place), require=self._required, budget=AUDIT_SECONDS)
        self._audited, done = rounds, time.monotonic()
        self._audit_again = done + REAUDIT_FACTOR * (done - begun)


class _MeasuresCache:
    """The measures after each round that is over; `late` counts the sums of these rounds that came late."""

    def __init__(self, users: int, late: int = 0) -> None:
        self.measures = RunningMeasures(users)
        self.after: list[RoundMeasures] = []
        self._fixed = users, late

    def updated(self, snapshot: Snapshot, rounds: tuple[Round, ...]) -> "_MeasuresCache":
        """Return what comes of all these rounds; it begins anew where users joined, or sums came late."""
        fixed = snapshot.users, sum(each.late for each in rounds)
        return (self if fixed == self._fixed else _MeasuresCache(*fixed)).add(rounds)

    def add(self, rounds: tuple[Round, ...]) -> "_MeasuresCache":
        """Take in those of the rounds that are new; return this cache."""
        for each in rounds[len(self.after) :]:
            self.measures.add_round(each.exposure)
            self.after.append(self.measures.now)
        return self
