"""What is known of a federation at one moment, and the watch on its ledger, which is read and never written."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.federation.audit import audit, evidence_of
from coterie.federation.coordinator import RETIRE_AFTER
from coterie.federation.ledger import Ledger, Phase, Round, Snapshot, State
from coterie.federation.ledger.ledger import Clock, system_clock
from coterie.federation.ledger.store import Location
from coterie.lab.experiments.result import BatchHealth
from coterie.leakage import Verdict
from coterie.leakage.measures import RoundMeasures, RunningMeasures
from coterie.values import BoolArray, IntArray

AUDIT_SECONDS = 1.0
"""Seconds that an audit may take for its forecast and the weak level."""
REAUDIT_FACTOR = 10.0
"""An audit is not begun again before so many times its own duration have passed."""
RECENT = 100
"""Rounds that reasons for losses are counted over."""
METRICS = {"accuracy": "accuracy", "loss": "loss", "training_loss": "train-loss"}
"""What was measured of a model after a round, and the metric of the ledger that it is noted as."""
CLOSE = RETIRE_AFTER // 2
"""Rounds in a row that a batch was lost in, from which on it is close to being retired."""


@dataclass(frozen=True, eq=False)
class FederationState:
    """A federation as its ledger shows it.

    `snapshot` has all rounds, the open one last; measures and verdict are of those that are over. The verdict can
    be some rounds behind: `audited` says how many it is about. `failures` and `retired` are by batch of the plan.
    """

    place: str
    changed: int
    """When something was last appended, as far as was seen: UTC, in milliseconds since 1970."""
    snapshot: Snapshot
    after: Sequence[RoundMeasures]
    """The measures after each round that is over."""
    measures: RoundMeasures
    groups: int
    """Groups of users that the sums so far tell apart."""
    verdict: Verdict | None
    audited: int
    live: bool
    """Whether a coordinator is in a round right now."""
    phase: Phase | None
    failures: IntArray
    retired: BoolArray
    required: int | None
    """The level that is demanded: as given, else the plan's."""

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds that are over."""
        return self.snapshot.rounds[: len(self.after)]

    @property
    def current(self) -> Round | None:
        """The round that is open."""
        return self.snapshot.open_round

    @property
    def cut_off(self) -> bool:
        """Whether a round is open and nobody works at it."""
        return self.current is not None and not self.live

    @property
    def learned(self) -> bool:
        """Whether the server could open any sum so far."""
        return self.measures.skipped < len(self.after)

    @property
    def level(self) -> int | None:
        """The strong level of the rounds that are over; None without a sum, or where sums are not known."""
        return None if not self.learned or self.snapshot.unknown_rounds else self.measures.strong

    @cached_property
    def health(self) -> BatchHealth | None:
        """How the batches of the plan fared in the rounds that are over."""
        return BatchHealth.of(self.snapshot)

    @cached_property
    def failing(self) -> IntArray:
        """The batches that are close to being retired, those closest first."""
        order = np.argsort(-self.failures, kind="stable")
        return order[(self.failures[order] >= CLOSE) & ~self.retired[order]]

    @cached_property
    def reasons(self) -> dict[int, Counter[str]]:
        """Why batches of the plan were lost in recent rounds, and how often."""
        reasons: dict[int, Counter[str]] = {}
        for each in self.snapshot.rounds[-RECENT:]:
            if each.plan == self.snapshot.plan_number and self.snapshot.plan is not None:
                for batch, reason in each.lost.items():
                    reasons.setdefault(batch, Counter())[reason] += 1
        return reasons

    @property
    def last_tested(self) -> Round | None:
        """The last round after which an accuracy was measured."""
        return next((each for each in reversed(self.rounds) if each.metric("accuracy") is not None), None)

    @property
    def fruitless(self) -> int:
        """How many rounds at the end gave no result, one after the other."""
        return len(tuple(takewhile(lambda each: not len(each.included), reversed(self.rounds))))

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The rounds that are over, each with the measures after it; None where nothing was measured."""
        return [
            {
                "round": each.number,
                "state": str(each.state),
                "included": len(each.included),
                **{name: each.metric(metric) for name, metric in METRICS.items()},
                "strong": after.strong,
                "fairness_gap": after.fairness_gap,
                "cardinality": after.cardinality,
            }
            for each, after in zip(self.rounds, self.after, strict=True)
        ]

    @cached_property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The history as columns, an array for each value; NaN where nothing was measured."""
        return {
            name: np.array([math.nan if each[name] is None else each[name] for each in self.history])
            for name in (self.history[0] if self.history else ())
        }


class LedgerWatch:
    """Looks at a ledger, again and again, from one thread.

    Measures are carried on round by round. An audit is made of all rounds at once, so of a large ledger it comes
    less often. The first look opens the ledger; what cannot be read now (a database that restarts) is tried again
    at the next.
    """

    def __init__(self, location: Location, required: int | None = None, clock: Clock = system_clock) -> None:
        self._location, self._required, self._clock = location, required, clock
        self._ledger: Ledger | None = None
        self._snapshot: Snapshot | None = None
        self._changed = 0
        self._measures, self._after = RunningMeasures(0), list[RoundMeasures]()
        self._measured_for = 0, 0
        self._verdict: Verdict | None = None
        self._audited, self._audit_again = 0, 0.0

    def look(self) -> FederationState:
        """Return how things stand; raise UsageError if the ledger cannot be read."""
        if self._ledger is None:
            self._ledger = Ledger.open(self._location, read_only=True)
        ledger = self._ledger
        try:
            live, phase = ledger.coordinated, ledger.phase
            ledger.refresh()
            if self._snapshot is None or self._snapshot.head != ledger.head:
                self._snapshot, self._changed = ledger.snapshot(), self._clock()
        except UsageError:
            self.close()
            raise
        snapshot = self._snapshot
        is_open = bool(snapshot.rounds) and snapshot.rounds[-1].state is State.OPEN
        closed = snapshot.rounds[:-1] if is_open else snapshot.rounds
        self._measure(snapshot.users, closed)
        self._audit(replace(snapshot, rounds=closed), ledger.place)
        plan, current = snapshot.plan, snapshot.rounds[-1].number if is_open else None
        return FederationState(
            place=ledger.place,
            changed=self._changed,
            snapshot=snapshot,
            after=tuple(self._after),
            measures=self._measures.now,
            groups=self._measures.strong.classes,
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

    def _measure(self, users: int, rounds: tuple[Round, ...]) -> None:
        """Carry the measures on over new rounds; begin anew where users joined, or sums came late."""
        measured_for = users, sum(each.late for each in rounds)
        if measured_for != self._measured_for:
            self._measured_for, self._measures, self._after = measured_for, RunningMeasures(users), []
        for each in rounds[len(self._after) :]:
            self._measures.add_round(each.exposure)
            self._after.append(self._measures.now)

    def _audit(self, snapshot: Snapshot, place: str) -> None:
        """Audit the rounds that are over, if there are new ones and the last audit is long enough ago."""
        rounds, begun = len(snapshot.rounds), time.monotonic()
        if rounds == self._audited or begun < self._audit_again:
            return
        self._verdict = audit(evidence_of(snapshot, place), require=self._required, budget=AUDIT_SECONDS)
        self._audited, done = rounds, time.monotonic()
        self._audit_again = done + REAUDIT_FACTOR * (done - begun)
