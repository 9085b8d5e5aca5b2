"""A ledger read once: everything that its records add up to, for reports, audits and people."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.ledger.events import Event, Exposed, Noted, Opened, Overridden, Planned, Retired, event_of
from coterie.ledger.history import History
from coterie.ledger.interface import Head, Record
from coterie.ledger.rounds import NOBODY, PLAIN, Round, State
from coterie.values import BatchPlan, BoolArray, IntArray, LogBuilder, ParticipationLog


@dataclass(frozen=True, eq=False)
class BatchChange:
    """Users whose batch was retired or overridden before the round numbered `since`, and why."""

    since: int
    users: IntArray
    reason: str


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a ledger holds up to a head; nothing in it changes when the ledger goes on.

    `rounds` have everything that came to be known about them, also later. `asked`, `included` and `lost` count
    rounds for each batch of the plan in force; of a merged batch, for the member that took part least.
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
    asked: IntArray
    included: IntArray
    lost: IntArray
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
        return tuple(each.number for each in self.rounds if each.protocol == PLAIN)

    @cached_property
    def log(self) -> ParticipationLog:
        """All that the server could open, for the audit to judge (`Round.exposure`)."""
        builder = LogBuilder(self.users, self.names)
        for each in self.rounds:
            builder.append(*each.exposure)
        return builder.build()


@dataclass
class _Additions:
    """What came to be known of a round after it was closed."""

    learned: list[IntArray] = field(default_factory=list)
    alone: list[IntArray] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def added_to(self, each: Round) -> Round:
        return replace(
            each,
            learned=(*each.learned, *self.learned),
            alone=np.unique(np.concatenate((each.alone, *self.alone))) if self.alone else each.alone,
            late=len(self.learned),
            metrics={**each.metrics, **self.metrics},
            files={**each.files, **self.files},
        )


class SnapshotBuilder:
    """Folds records into a snapshot, one after the other."""

    def __init__(self) -> None:
        self.history = History()
        self._rounds: list[Round] = []
        self._additions: dict[int, _Additions] = {}
        self._asked, self._lost = NOBODY, NOBODY
        self._retired: list[BatchChange] = []
        self._overrides: list[BatchChange] = []
        self._partition = NOBODY
        self._asked_batches: set[int] = set()

    def add(self, record: Record) -> None:
        """Take a record in; one that breaks a rule raises."""
        self._add(event_of(record), record.time)

    def _add(self, event: Event, time: int) -> None:
        history, before = self.history, self.history.plan
        if isinstance(event, Planned):
            self._partition = self._refined()
            self._asked_batches.clear()
        gone = history.gone.copy() if isinstance(event, Planned) else history.gone
        closed = history.apply(event, time)
        match event:
            case Opened():
                self._asked_batches.update(event.asked.tolist() if event.plan else ())
            case Noted():
                known = self._addition(event.round)
                known.metrics.update(event.metrics)
                known.files.update(event.files)
            case Exposed():
                known = self._addition(event.round)
                known.learned.extend(event.learned)
                known.alone.append(event.alone)
            case Retired() | Overridden() if before is not None:
                changes = self._retired if isinstance(event, Retired) else self._overrides
                for batch in event.batches.tolist():
                    changes.append(BatchChange(history.next_round, np.sort(before.batch(batch)), event.reason))
            case Planned() if before is not None:
                self._drop(before, gone)
        if closed is not None:
            self._close(closed)

    def _addition(self, round_: int) -> _Additions:
        return self._additions.setdefault(round_, _Additions())

    def _drop(self, before: BatchPlan, gone: BoolArray) -> None:
        """Count the batches that a new plan leaves out as retired."""
        plan = self.history.plan
        for batch in range(len(before)):
            users = np.sort(before.batch(batch))
            if plan is not None and plan.batch_of[users].max() < 0 and not gone[users].any():
                self._retired.append(BatchChange(self.history.next_round, users, "the plan has it no more"))

    def _close(self, closed: Round) -> None:
        self._rounds.append(closed)
        if closed.cohort is None:
            return
        if len(self._asked) < len(self.history.names):
            self._asked, self._lost = (self._padded(counts) for counts in (self._asked, self._lost))
        self._asked[closed.cohort.users] += 1
        lost = np.array(sorted(closed.lost), dtype=np.int64)
        plan = self.history.plan
        self._lost[lost if plan is None else plan.members_of(lost)] += 1

    def _padded(self, counts: IntArray) -> IntArray:
        return np.pad(counts, (0, len(self.history.names) - len(counts)))

    def _refined(self) -> IntArray:
        """Return the partition after the batches that were asked under the plan in force."""
        plan, users = self.history.plan, len(self.history.names)
        classes = np.pad(self._partition, (0, users - len(self._partition)), constant_values=-1)
        if plan is None or not self._asked_batches:
            return classes
        batches = np.full(users, -1, dtype=np.int64)
        asked = np.array(sorted(self._asked_batches), dtype=np.int64)
        batches[plan.members_of(asked)] = np.repeat(asked, plan.sizes[asked])
        ever = (classes >= 0) | (batches >= 0)
        refined = np.full(users, -1, dtype=np.int64)
        pairs = np.stack((classes[ever], batches[ever]), axis=1)
        refined[ever] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        return refined

    def snapshot(self, head: Head) -> Snapshot:
        """Return what was folded."""
        history = self.history
        current = history.open_round()
        if current is not None:
            self._close(current)
        plan = history.plan
        nothing = _Additions()
        asked, included, lost = (
            _least(self._padded(counts), plan) for counts in (self._asked, history.counts, self._lost)
        )
        return Snapshot(
            id=history.ledger,
            head=head,
            names=tuple(history.names),
            plan=None if plan is None else replace(plan, names=tuple(history.names[: plan.users])),
            plan_number=history.plans,
            charters=dict(history.charters),
            files=dict(history.files),
            rounds=tuple(self._additions.get(each.number, nothing).added_to(each) for each in self._rounds),
            steps=history.steps,
            counts=history.counts.copy(),
            asked=asked,
            included=included,
            lost=lost,
            retired=tuple(self._retired),
            overrides=tuple(self._overrides),
            partition=self._refined(),
        )


def fold(records: Iterable[Record], head: Head) -> Snapshot:
    """Return the snapshot of records that were checked, up to a head."""
    builder = SnapshotBuilder()
    for record in records:
        builder.add(record)
    return builder.snapshot(head)


def _least(counts: IntArray, plan: BatchPlan | None) -> IntArray:
    """Return the least count in every batch."""
    if plan is None or len(plan) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(np.minimum.reduceat(counts[plan.members], plan.starts[:-1]))
