"""The paper's measures round by round: strong privacy level T, fairness gap F, cardinality C."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coterie.audit.strong import StrongLevel
from coterie.values import FloatArray, IntArray, ParticipationLog
from coterie.values.log import learned_set


class RoundMeasures(NamedTuple):
    """The measures after one round; `Measures` says what each of them is."""

    strong: int
    fairness_gap: float
    fairness_gap_completed: float
    cardinality: float
    skipped: int

    @classmethod
    def of(cls, strong: int, gap: int, total: int, completed: int, rounds: int) -> "RoundMeasures":
        """Return the measures from T, max n_i - min n_i, Σ n_i, the rounds with a result, and all rounds."""
        return cls(
            strong=strong,
            fairness_gap=gap / max(rounds, 1),
            fairness_gap_completed=gap / max(completed, 1),
            cardinality=total / max(rounds, 1),
            skipped=rounds - completed,
        )


@dataclass(frozen=True, eq=False)
class Measures:
    """The measures after every round t of a log, and how often each user took part.

    With n_i(t), the number of rounds up to t in which user i took part (once per round, however many learned
    sets of the round it is in):

    - `strong`: the strong privacy level T (eq. def_privacy);
    - `fairness_gap`: the paper's F(t) = (max_i n_i(t) - min_i n_i(t)) / (t + 1), over all rounds;
    - `fairness_gap_completed`: the same divided by the rounds with a result, 0 while there are none;
    - `cardinality`: the paper's C(t) = Σ_i n_i(t) / (t + 1), users per round over all rounds;
    - `skipped`: how many rounds gave no result;
    - `participation`: n_i after the last round, per user.
    """

    strong: IntArray
    fairness_gap: FloatArray
    fairness_gap_completed: FloatArray
    cardinality: FloatArray
    skipped: IntArray
    participation: IntArray

    def __len__(self) -> int:
        return len(self.strong)

    def __getitem__(self, index: int) -> RoundMeasures:
        """Return the measures after the round at `index`, counted from the log's first round."""
        return RoundMeasures(
            strong=int(self.strong[index]),
            fairness_gap=float(self.fairness_gap[index]),
            fairness_gap_completed=float(self.fairness_gap_completed[index]),
            cardinality=float(self.cardinality[index]),
            skipped=int(self.skipped[index]),
        )

    @property
    def final(self) -> RoundMeasures:
        """The measures after the last round; those of an empty log are T = N and zeros."""
        if len(self) == 0:
            return RoundMeasures.of(len(self.participation), gap=0, total=0, completed=0, rounds=0)
        return self[-1]


class RunningMeasures:
    """The measures of a log that is still growing; a round costs no more than the size of its sets.

    >>> running = RunningMeasures(users=4)
    >>> running.add_round([[0, 1]])
    >>> running.add_round([])  # skipped
    >>> running.now.strong, running.now.fairness_gap, running.now.fairness_gap_completed
    (2, 0.5, 1.0)
    >>> running.now.cardinality, running.now.skipped, running.participation.tolist()
    (1.0, 1, [1, 1, 0, 0])
    """

    def __init__(self, users: int) -> None:
        self._strong = StrongLevel(users)
        self._users = users
        self._rounds = 0
        self._completed = 0
        self._total = 0  # Σ_i n_i
        self._counts = np.zeros(users, dtype=np.int64)
        # How many users took part n times. With it the largest and the smallest n_i move by one step at most
        # each round, and no round looks at all users.
        self._users_with = np.zeros(16, dtype=np.int64)
        self._users_with[0] = users
        self._low = 0
        self._high = 0

    def add_round(self, sets: Iterable[ArrayLike]) -> None:
        """Take in the next round with the sets learned in it; none means that the round gave no result.

        A bad set raises and nothing changes.
        """
        checked = [learned_set(members, self._users) for members in sets]
        self._rounds += 1
        if not checked:
            return
        self._completed += 1
        for members in checked:
            self._strong.add(members)
        self._count(checked[0] if len(checked) == 1 else np.unique(np.concatenate(checked)))

    def _count(self, users: IntArray) -> None:
        """Count one more round for each of the users."""
        if self._high + 1 == len(self._users_with):
            self._users_with = np.concatenate((self._users_with, np.zeros_like(self._users_with)))
        before = self._counts[users]
        self._counts[users] = before + 1
        np.subtract.at(self._users_with, before, 1)
        np.add.at(self._users_with, before + 1, 1)
        self._total += len(users)
        self._high += int(self._users_with[self._high + 1] > 0)
        self._low += int(self._users_with[self._low] == 0)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._rounds

    @property
    def completed(self) -> int:
        """The number of rounds with a result so far."""
        return self._completed

    @property
    def participation(self) -> IntArray:
        """How many rounds each user took part in: a read-only view that follows later rounds."""
        view = self._counts.view()
        view.flags.writeable = False
        return view

    @property
    def state(self) -> tuple[int, int, int, int]:
        """What a round without a result leaves as it is: T, max n_i - min n_i, Σ n_i, rounds with a result."""
        return self._strong.level, self._high - self._low, self._total, self._completed

    @property
    def now(self) -> RoundMeasures:
        """The measures after the last round."""
        return RoundMeasures.of(*self.state, rounds=self._rounds)


def measure(log: ParticipationLog) -> Measures:
    """Return the measures of a log after every round.

    >>> measures = measure(ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]]))
    >>> measures.strong.tolist(), measures.fairness_gap.tolist()
    ([2, 2, 2], [1.0, 0.5, 0.0])
    >>> measures.final.cardinality, measures.final.skipped
    (1.3333333333333333, 1)
    """
    running = RunningMeasures(log.users)
    rounds, starts = np.unique(log.set_rounds, return_index=True)
    bounds = np.append(starts, len(log.set_rounds)).tolist()
    # What changes with a result only: T, the gap in rounds, Σ_i n_i, and the rounds with a result.
    states = np.zeros((4, len(rounds) + 1), dtype=np.int64)
    states[0, 0] = log.users
    for index, (low, high) in enumerate(pairwise(bounds), start=1):
        running.add_round([log.members[log.starts[s] : log.starts[s + 1]] for s in range(low, high)])
        states[:, index] = running.state
    lengths = np.diff(np.concatenate(([0], rounds - log.first, [log.rounds])))
    strong, gap, total, completed = np.repeat(states, lengths, axis=1)
    elapsed = np.arange(1, log.rounds + 1)
    return Measures(
        strong=strong,
        fairness_gap=gap / elapsed,
        fairness_gap_completed=gap / np.maximum(completed, 1),
        cardinality=total / elapsed,
        skipped=elapsed - completed,
        participation=running.participation,
    )


def final_measures(log: ParticipationLog, users: int, strong: int) -> RoundMeasures:
    """Return the measures after a log's last round, for N = `users` and its strong level.

    What this costs does not depend on the number of rounds without a result, nor on users never seen.

    >>> log = ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]])
    >>> final_measures(log, users=4, strong=2) == measure(log).final
    True
    """
    counts = participation_counts(log)
    most, participants = int(counts.max(initial=0)), int(np.sum(counts > 0))
    least = int(counts.min(initial=most)) if participants == users else 0
    return RoundMeasures.of(strong, most - least, int(counts.sum()), log.completed, log.rounds)


def participation_counts(log: ParticipationLog) -> IntArray:
    """Return in how many rounds each user was in a learned set.

    >>> log = ParticipationLog.from_dense([[1, 1, 0], [0, 1, 0], [1, 0, 0]], rounds=[0, 1, 1])
    >>> participation_counts(log).tolist()
    [2, 2, 0]
    """
    rounds = np.repeat(log.set_rounds, np.diff(log.starts))
    order = np.lexsort((rounds, log.members))
    users, rounds = log.members[order], rounds[order]
    fresh = np.ones(len(users), dtype=np.bool_)
    fresh[1:] = (users[1:] != users[:-1]) | (rounds[1:] != rounds[:-1])
    return np.bincount(users[fresh], minlength=log.users)
