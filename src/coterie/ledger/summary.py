"""A ledger at a glance: how its rounds ended, how its batches fare, and who was retired."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from coterie.ledger.account import Account
from coterie.ledger.events import Checkpointed, Event, Noted, Planned, event_of
from coterie.ledger.history import History
from coterie.ledger.rounds import Round, State
from coterie.values import BatchPlan, IntArray


@dataclass(frozen=True, eq=False)
class Retired:
    """A batch that is in no plan any more, from the round numbered `since` on."""

    since: int
    users: IntArray


@dataclass(frozen=True, eq=False)
class Summary:
    """What a person wants to see first.

    `asked`, `learned` and `lost` count rounds for each batch of the plan in force; of a merged batch, for the
    member that took part least. A batch that is seldom asked where selection serves the least served first is
    seldom whole in time.
    """

    rounds: Mapping[State, int]
    last: tuple[Round, ...]
    asked: IntArray
    learned: IntArray
    lost: IntArray
    retired: tuple[Retired, ...]
    waiting: int


def summarise(account: Account, last: int | None) -> Summary:
    """Read a ledger once, keeping the `last` rounds (all if None)."""
    tally = _Tally(last)
    for record in account.records():
        tally.add(record.time, event_of(record))
    return tally.summary()


class _Tally:
    """Counts while events go by."""

    def __init__(self, last: int | None) -> None:
        self._history = History()
        self._rounds: deque[Round] = deque(maxlen=last)
        self._states: Counter[State] = Counter()
        self._metrics: dict[int, dict[str, float]] = {}
        self._files: dict[int, dict[str, str]] = {}
        self._asked = np.zeros(0, dtype=np.int64)
        self._lost = np.zeros(0, dtype=np.int64)
        self._retired: list[Retired] = []

    def add(self, time: int, event: Event) -> None:
        """Take an event in."""
        before = self._history.plan
        closed = self._history.apply(event, time)
        match event:
            case Noted():
                self._metrics.setdefault(event.round, {}).update(event.metrics)
            case Checkpointed():
                self._files.setdefault(event.round, {})[event.name] = event.sha256
            case Planned() if before is not None and len(before) and self._history.plan is not None:
                self._retire(before, self._history.plan)
        if closed is not None:
            self._close(closed)

    def _retire(self, before: BatchPlan, plan: BatchPlan) -> None:
        gone = np.flatnonzero(np.maximum.reduceat(plan.batch_of[before.members], before.starts[:-1]) < 0)
        since = self._history.next_round
        self._retired.extend(Retired(since, np.sort(before.batch(batch))) for batch in gone.tolist())

    def _close(self, closed: Round) -> None:
        self._rounds.append(closed)
        self._states[closed.state] += 1
        if closed.cohort is None:
            return
        missing = len(self._history.names) - len(self._asked)
        if missing:
            self._asked, self._lost = (np.pad(counts, (0, missing)) for counts in (self._asked, self._lost))
        self._asked[closed.cohort.users] += 1
        lost = np.array(sorted(closed.lost), dtype=np.int64)
        plan = self._history.plan
        self._lost[lost if plan is None else plan.listed(lost)] += 1

    def summary(self) -> Summary:
        """Return what was counted."""
        history = self._history
        still = history.open_round()
        if still is not None:
            self._close(still)
        plan = history.plan
        asked, lost = (
            np.pad(counts, (0, len(history.names) - len(counts))) for counts in (self._asked, self._lost)
        )
        return Summary(
            rounds={state: self._states[state] for state in State},
            last=tuple(self._told(each) for each in self._rounds),
            asked=_least(asked, plan),
            learned=_least(history.counts, plan),
            lost=_least(lost, plan),
            retired=tuple(self._retired),
            waiting=len(history.names) - (plan.users if plan is not None else 0),
        )

    def _told(self, each: Round) -> Round:
        metrics = {**each.metrics, **self._metrics.get(each.number, {})}
        return replace(each, metrics=metrics, checkpoints=self._files.get(each.number, {}))


def _least(counts: IntArray, plan: BatchPlan | None) -> IntArray:
    """Return the least count in every batch."""
    if plan is None or len(plan) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(np.minimum.reduceat(counts[plan.members], plan.starts[:-1]))
