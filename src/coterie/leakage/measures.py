"""The measures of a log: strong privacy level T, also within windows, fairness gap F, cardinality C."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values import FloatArray, IntArray, ParticipationLog
from coterie.values.checks import check_count, frozen, learned_set


class StrongLevel:
    """The strong privacy level after each learned set, kept up to date in O(n log n) for a set of n users.

    The level is the largest T for which every non-zero combination Pᵀz of the learned sums falls into groups
    of at least T users with one coefficient each. Users with the same column of P have the same coefficient
    in every combination; for a generic z users with different columns have different ones, and a special z
    only joins groups or cancels them. So

        T = size of the smallest class of users with identical, non-zero columns of P,

    and N while nothing was learned, since there is no sum over fewer. A new set cuts every class it meets
    into the part inside and the part outside, so T never rises.

    >>> strong = StrongLevel(users=6)
    >>> strong.level
    6
    >>> strong.add([0, 1, 2, 3])  # a new class, of users never seen
    array([-1])
    >>> strong.level
    4
    >>> strong.add([3, 4])  # two new ones: of user 4, and of user 3, cut from class 0
    array([-1,  0])
    >>> strong.level, strong.class_of.tolist(), strong.class_sizes().tolist()
    (1, [0, 0, 0, 2, 1, -1], [3, 3, 3, 1, 1, 0])
    """

    def __init__(self, users: int) -> None:
        if users < 0:
            raise UsageError(f"there cannot be {users} users")
        self._users = users
        self.level = users
        """The strong privacy level T of all sets added so far."""
        self.classes = 0
        """The number of classes; users never seen belong to none."""
        self._class_of = np.full(users, -1, dtype=np.int32)
        # Classes are disjoint and not empty, so N slots are enough. The slot after them is where class -1,
        # the users never seen, looks up its size: 0.
        self._sizes = np.zeros(users + 1, dtype=np.int32)

    @property
    def class_of(self) -> IntArray:
        """Each user's class, -1 for a user in no set so far: a read-only view that follows later sets."""
        return frozen(self._class_of.view())

    @property
    def sizes(self) -> IntArray:
        """The size of each class: a read-only view that follows later sets."""
        return frozen(self._sizes[: self.classes])

    def class_sizes(self) -> IntArray:
        """Return the size of each user's class, 0 for a user in no set so far: no sum tells of that user."""
        return self._sizes[self._class_of]

    def add(self, members: ArrayLike) -> IntArray:
        """Take in one more learned set; return what each new class was cut from, -1 for users never seen."""
        users = learned_set(members, self._users)
        # int64: as an index it needs no conversion, and the sort below is vectorised for it.
        classes, where, inside = np.unique(
            self._class_of[users].astype(np.int64), return_inverse=True, return_counts=True
        )
        before = self._sizes[classes]
        cut = inside != before  # part of a class, or users never seen before
        if not cut.any():
            return classes[:0]
        parts = inside[cut]
        fresh = np.arange(self.classes, self.classes + len(parts))
        self.classes += len(parts)
        self._sizes[fresh] = parts
        renamed = classes.copy()
        renamed[cut] = fresh
        self._class_of[users] = renamed[where]
        split = cut & (classes >= 0)
        left = before[split] - inside[split]
        self._sizes[classes[split]] = left
        self.level = min(self.level, int(parts.min()), int(left.min(initial=self.level)))
        parents: IntArray = classes[cut]
        return parents


def strong_level(log: ParticipationLog) -> int:
    """Return the strong privacy level T of a log (eq. def_privacy); N if it holds no learned set.

    >>> strong_level(ParticipationLog.from_dense([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]))
    2
    >>> strong_level(ParticipationLog.from_dense([[1, 1, 1, 0], [0, 1, 1, 0]]))
    1
    """
    participants = log.participants
    strong = StrongLevel(len(participants))
    for _, members in log.only(participants).sets():
        strong.add(members)
    return strong.level if len(participants) else log.users


@dataclass(frozen=True)
class WindowLevel:
    """The lowest strong level within `width` rounds in a row, and the first window (from `first` on) that has it.

    `complete` is False if the work was stopped before every window had been looked at.
    """

    width: int
    level: int
    first: int
    complete: bool


def window_level(
    log: ParticipationLog, width: int, should_stop: Callable[[], bool] = lambda: False
) -> WindowLevel:
    """Return the worst window of `width` rounds.

    The level never rises with a set, so only windows that end in a round with a result are looked at: every
    other one holds no more sets than one of these.

    >>> log = ParticipationLog.from_dense([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    >>> window_level(log, 1)
    WindowLevel(width=1, level=2, first=2, complete=True)
    >>> window_level(log, 2)
    WindowLevel(width=2, level=1, first=1, complete=True)
    """
    check_count(width, "the window")
    latest = log.first + max(log.rounds - width, 0)
    starts = np.unique(np.clip(np.unique(log.set_rounds) - width + 1, log.first, latest)).tolist()
    levels: list[tuple[int, int]] = []
    for first in starts:
        if should_stop():
            break
        levels.append((strong_level(log.window(first, first + width)), first))
    level, first = min(levels, default=(log.users, log.first))
    return WindowLevel(width, level, first, complete=len(levels) == len(starts))


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
        return RoundMeasures(*(getattr(self, name)[index].item() for name in RoundMeasures._fields))

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
        self.strong = StrongLevel(users)
        """The strong level of the sums so far, and the classes of users that they tell apart: for reading only."""
        self.rounds = 0
        self.completed = 0
        """The number of rounds with a result so far."""
        self._users = users
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
        self.rounds += 1
        if not checked:
            return
        self.completed += 1
        for members in checked:
            self.strong.add(members)
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
    def participation(self) -> IntArray:
        """How many rounds each user took part in: a read-only view that follows later rounds."""
        return frozen(self._counts.view())

    @property
    def state(self) -> tuple[int, int, int, int]:
        """What a round without a result leaves as it is: T, max n_i - min n_i, Σ n_i, rounds with a result."""
        return self.strong.level, self._high - self._low, self._total, self.completed

    @property
    def now(self) -> RoundMeasures:
        """The measures after the last round."""
        return RoundMeasures.of(*self.state, rounds=self.rounds)


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
