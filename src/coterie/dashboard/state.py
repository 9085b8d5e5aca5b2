"""What is known of a federation at one moment: all that the dashboard shows."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from coterie.audit import Verdict
from coterie.audit.measures import RoundMeasures
from coterie.coordinator.coordinator import RETIRE_AFTER
from coterie.ledger import Phase, Round, Snapshot
from coterie.report.run.result import BatchHealth
from coterie.values import BoolArray, IntArray

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
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The rounds that are over as columns, an array for each number of a round and of the measures after it.

        NaN stands where nothing was measured.
        """
        columns: dict[str, list[float]] = {
            "round": [each.number for each in self.rounds],
            "included": [len(each.included) for each in self.rounds],
        }
        for name, metric in METRICS.items():
            columns[name] = [math.nan if (value := each.metric(metric)) is None else value for each in self.rounds]
        for name in ("strong", "fairness_gap", "cardinality"):
            columns[name] = [getattr(each, name) for each in self.after]
        return {name: np.array(values) for name, values in columns.items()}
