"""What further rounds will do to the levels: by the plan and the seal where there are any, else by simulation."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from coterie.leakage.elimination import IsolatedUsers
from coterie.leakage.evidence import Evidence, cohorts
from coterie.leakage.measures import StrongLevel
from coterie.values import IntArray, ParticipationLog
from coterie.values.checks import check_count
from coterie.values.text import counted

MOST_USERS = 2000
"""Of more users no trial is begun: elimination costs N² a round."""
_ROUNDS_PER_USER = 10  # a trial ends after so many rounds for each user

TrialResult: TypeAlias = tuple[int | None, int | None, int | None]
"""After how many further rounds the level falls, the first user is isolated, and everyone is."""
Draw: TypeAlias = Callable[[np.random.Generator], list[IntArray]]
"""Draws the learned sets of one further round."""


class Policy(StrEnum):
    """How rounds go on."""

    SEALED = "sealed"
    """The users' keys keep batches whole, whatever the server does."""
    PLAN = "plan"
    """The rounds followed a plan, and go on to do so as long as the server does."""
    BATCHES = "batches"
    """The log shows classes of users that always came together; they go on whole."""
    LOSSES = "losses"
    """Batches of a plan are asked whole, and lose users on the way as often as they did."""
    RANDOM = "random"
    """Each round takes as many users as a past round did, drawn anew from all."""
    PLAIN = "plain"
    """Every further round shows the update of everyone who takes part."""


@dataclass(frozen=True)
class Span:
    """Further rounds until something happens: the median, and the range of nine trials in ten.

    None stands for "not within the rounds that were simulated".
    """

    low: int | None
    median: int | None
    high: int | None


NEVER, ALREADY = Span(None, None, None), Span(0, 0, 0)


@dataclass(frozen=True)
class Forecast:
    """What goes on as it was, and what comes of it.

    Where batches stay whole nothing is simulated: `floor` is the strong level that no number of further rounds
    goes below. Otherwise `floor` is None, and the spans count rounds from the log's end; 0 means that it has
    happened: that the strong level is below `level`, a first user is isolated, everyone is.
    """

    policy: Policy
    level: int
    floor: int | None
    trials: int
    falls: Span
    first_isolated: Span
    all_isolated: Span


@dataclass(frozen=True)
class Omission:
    """A part of an audit that was left out, and why."""

    part: str
    reason: str


def forecast(
    evidence: Evidence,
    level: int,
    trials: int,
    rng: np.random.Generator,
    should_stop: Callable[[], bool] = lambda: False,
) -> Forecast | Omission:
    """Say what further rounds do, from the log's end on.

    A sealed plan, or one that was kept, holds every class to whole batches. Without one, the log itself is asked
    whether its users come in batches; if not, its continuation is simulated.

    >>> from coterie.values import BatchPlan
    >>> log = ParticipationLog.from_dense([[1, 1, 0, 0, 0]])
    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> outlook = forecast(Evidence(log, plan=plan, sealed=True), 2, 20, np.random.default_rng(0))
    >>> outlook.policy.value, outlook.floor, outlook.falls.median
    ('sealed', 2, None)
    """
    check_count(trials, "the number of trials")
    worst, policy = evidence.worst_case, fitted_policy(evidence)
    if len(evidence.log.set_rounds) == 0 and policy is not Policy.SEALED:
        return Omission("the forecast", "no sum is on record that could be continued")
    if policy is Policy.PLAIN:
        return Forecast(policy, level, 1, 0, ALREADY if level > 1 else NEVER, ALREADY, NEVER)
    if policy in (Policy.SEALED, Policy.PLAN, Policy.BATCHES):
        floor = lasting_level(evidence, policy)
        return Forecast(policy, level, floor, 0, ALREADY if floor < level else NEVER, NEVER, NEVER)
    if worst.users > MOST_USERS:
        return Omission(
            "the forecast", f"{counted(worst.users, 'user')} are more than the {MOST_USERS} that can be simulated"
        )
    draw = _draw_batches(evidence) if policy is Policy.LOSSES else _draw_users(evidence.log)
    now, results = IsolatedUsers(worst.users), list[TrialResult]()
    for _, members in worst.sets():
        if should_stop():
            break
        now.add(members)
    while len(results) < trials and not should_stop():
        result = _trial(deepcopy(now), level, draw, rng, should_stop)
        if result is None:
            break
        results.append(result)
    if not results:
        return Omission("the forecast", "its share of the time was too short for one continuation of the log")
    return Forecast(policy, level, None, len(results), *map(_span, zip(*results, strict=True)))


def fitted_policy(evidence: Evidence) -> Policy:
    """Return how rounds go on: as keys or a plan that was kept say, else as the log looks.

    Without a plan the log shows batches if the second half of its sets split no class of the first half's and
    meet some again. One class, or classes of one, are no batches.

    >>> fitted_policy(Evidence(ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]))).value
    'batches'
    >>> fitted_policy(Evidence(ParticipationLog.from_dense([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]))).value
    'random'
    """
    log = evidence.log
    if evidence.sealed and evidence.plan is not None:
        return Policy.SEALED
    if len(log.set_rounds) and int(log.set_rounds[-1]) in evidence.plain:
        return Policy.PLAIN
    present, missing = attendance(evidence)
    if present:
        return Policy.LOSSES if missing else Policy.PLAN
    return Policy.BATCHES if _came_together(log) else Policy.RANDOM


def _came_together(log: ParticipationLog) -> bool:
    """Say whether the second half of the sets splits no class of the first half's, and meets some again."""
    strong = StrongLevel(log.users)
    cut, again = [], []
    for _, members in log.sets():
        again.append(bool((strong.class_of[members] >= 0).any()))
        cut.append(bool((strong.add(members) >= 0).any()))
    later = slice(len(cut) // 2, None)
    return not any(cut[later]) and any(again[later]) and strong.level > 1 and strong.classes > 1


def attendance(evidence: Evidence) -> tuple[int, int]:
    """Return how often a user of a batch of the plan was in a sum, and how often one was missing from its batch's.

    Both are 0 where there is no plan, or where most of a batch was missing as often as not: then the plan is not
    what the rounds followed.
    """
    plan, batch_of = evidence.plan, evidence.batch_of
    if plan is None or batch_of is None:
        return 0, 0
    sizes = np.bincount(batch_of[batch_of >= 0], minlength=len(plan))
    present, asked = 0, 0
    for _, members in cohorts(evidence):
        batches, counts = np.unique(batch_of[members], return_counts=True)
        if batches[0] < 0:
            return 0, 0
        present += int(counts.sum())
        asked += int(sizes[batches].sum())
    return (present, asked - present) if 2 * present > asked else (0, 0)


def lasting_level(evidence: Evidence, policy: Policy) -> int:
    """Return the strong level that stays however many further rounds of whole batches follow.

    Further sums tell apart no more than batches: the classes can fall to the parts that the present classes
    and the batches cut each other into, and to no smaller ones. Users who never took part hide in their batch.
    """
    worst = evidence.worst_case
    strong = StrongLevel(worst.users)
    for _, members in worst.sets():
        strong.add(members)
    if policy is Policy.BATCHES:
        return strong.level
    batch_of = evidence.batch_of
    cells = np.stack((strong.class_of, np.zeros_like(strong.class_of) if batch_of is None else batch_of))
    cells = cells[:, (cells >= 0).any(axis=0)]  # a user in no class and no batch is in no sum, now or later
    sizes = np.unique(cells, axis=1, return_counts=True)[1]
    return int(sizes.min(initial=strong.level))


def _draw_users(log: ParticipationLog) -> Draw:
    """Return rounds with as many users in their sets as a past round had, drawn from all."""
    rounds, starts = np.unique(log.set_rounds, return_index=True)
    # Of very many rounds without a result, no more are kept than would change a draw.
    empty = min(log.rounds - len(rounds), 100 * len(rounds))
    sizes = [*np.split(np.diff(log.starts), starts[1:]), *([np.zeros(0, dtype=np.int64)] * empty)]

    def draw(rng: np.random.Generator) -> list[IntArray]:
        return [rng.choice(log.users, size=size, replace=False) for size in sizes[int(rng.integers(len(sizes)))]]

    return draw


def _draw_batches(evidence: Evidence) -> Draw:
    """Return rounds of whole batches, as many as a past round had, that lose users as often as they did."""
    log, batch_of = evidence.log, evidence.batch_of
    if batch_of is None:
        return _draw_users(log)
    present, missing = attendance(evidence)
    batches = [np.flatnonzero(batch_of == batch) for batch in np.unique(batch_of[batch_of >= 0])]
    counts = [len(np.unique(batch_of[members])) for _, members in cohorts(evidence)]

    def draw(rng: np.random.Generator) -> list[IntArray]:
        asked = rng.choice(len(batches), size=counts[int(rng.integers(len(counts)))], replace=False)
        users = np.concatenate([batches[batch] for batch in asked])
        left = users[rng.random(len(users)) * (present + missing) < present]
        return [left] if len(left) else []

    return draw


def _trial(
    state: IsolatedUsers, level: int, draw: Draw, rng: np.random.Generator, should_stop: Callable[[], bool]
) -> TrialResult | None:
    """Continue a log at random until everyone is isolated; None if there was no time to find out."""
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
        if should_stop():
            return None
        for members in draw(rng):
            state.add(members)
    return falls, first, None


def _span(counts: tuple[int | None, ...]) -> Span:
    in_order = sorted(counts, key=lambda count: (count is None, count))
    low, median, high = (in_order[round(share * (len(in_order) - 1))] for share in (0.05, 0.5, 0.95))
    return Span(low, median, high)
