"""How many more rounds of the present policy until the level falls and users are isolated, by simulation."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coterie.audit.strong import StrongLevel, strong_level
from coterie.audit.weak.isolation import IsolatedUsers
from coterie.values import IntArray, ParticipationLog
from coterie.values.checks import check_count

MOST_USERS = 500
"""Elimination costs N² a round, in every trial."""
_ROUNDS_PER_USER = 10  # a trial ends after so many rounds for each user


@dataclass(frozen=True)
class Span:
    """Further rounds until something happens: the median, and the range of nine trials in ten.

    None stands for "not within the rounds that were simulated".
    """

    low: int | None
    median: int | None
    high: int | None


@dataclass(frozen=True)
class Forecast:
    """What goes on as it was, and what comes of it.

    `policy` is "batches" (classes of users that always came together go on whole: nothing falls) or "random"
    (each round takes as many users as a past round, drawn anew from all). The spans count from the log's end; 0
    means that it has happened: that the strong level is below `level`, a first user is isolated, everyone is.
    """

    policy: str
    trials: int
    level: int
    falls: Span
    first_isolated: Span
    all_isolated: Span


def fitted_policy(log: ParticipationLog) -> str:
    """Return "batches" if the second half of the sets split no class of the first half's, else "random".

    One class, or classes of one, are no batches.

    >>> fitted_policy(ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]]))
    'batches'
    >>> fitted_policy(ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 1, 0]]))
    'random'
    """
    strong = StrongLevel(log.users)
    sets = [log.members[start:stop] for start, stop in pairwise(log.starts.tolist())]
    cut = [bool((strong.add(members) >= 0).any()) for members in sets]
    steady = not any(cut[len(cut) // 2 :])
    return "batches" if steady and strong.level > 1 and strong.classes > 1 else "random"


def forecast(
    log: ParticipationLog,
    level: int,
    trials: int,
    rng: np.random.Generator,
    stopped: Callable[[], bool] = lambda: False,
) -> Forecast | None:
    """Simulate the log's own policy from its end; None if it has no sets, or too many users to simulate."""
    check_count(trials, "the number of trials")
    if len(log.set_rounds) == 0 or log.users > MOST_USERS:
        return None
    policy = fitted_policy(log)
    if policy == "batches":
        never = Span(None, None, None)
        fallen = Span(0, 0, 0) if strong_level(log) < level else never
        return Forecast(policy, 0, level, fallen, never, never)
    now = IsolatedUsers(log.users)
    for _, members in log.sets():
        now.add(members)
    sizes = _sizes_by_round(log)
    results = []
    for _ in range(trials):
        if stopped():
            break
        results.append(_trial(deepcopy(now), level, sizes, rng))
    if not results:
        return None
    return Forecast(policy, len(results), level, *map(_span, zip(*results, strict=True)))


def _sizes_by_round(log: ParticipationLog) -> list[IntArray]:
    """Return the sizes of each round's sets; one empty list stands for each round without a result."""
    rounds, starts = np.unique(log.set_rounds, return_index=True)
    sizes = np.split(np.diff(log.starts), starts[1:])
    # Of very many rounds without a result, no more are kept than would change a draw.
    empty = min(log.rounds - len(rounds), 100 * len(rounds))
    return [*sizes, *([np.zeros(0, dtype=np.int64)] * empty)]


def _trial(
    state: IsolatedUsers, level: int, sizes: list[IntArray], rng: np.random.Generator
) -> tuple[int | None, int | None, int | None]:
    """Return after how many further rounds the level falls, the first user is isolated, and everyone is."""
    users = state.everyone
    falls: int | None = None
    first: int | None = None
    for rounds in range(_ROUNDS_PER_USER * users + 1):
        if falls is None and state.strong_level < level:
            falls = rounds
        if first is None and len(state.users):
            first = rounds
        if state.rank == users:
            return falls, first, rounds
        for size in sizes[int(rng.integers(len(sizes)))]:
            state.add(rng.choice(users, size=size, replace=False))
    return falls, first, None


def _span(counts: tuple[int | None, ...]) -> Span:
    ordered = sorted(counts, key=lambda count: (count is None, count))
    low, median, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95))
    return Span(low, median, high)
