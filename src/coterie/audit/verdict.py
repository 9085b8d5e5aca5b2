"""`examine`: everything an audit says about a log, as one value from which reports are drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from coterie.audit.engine import MOST_CLASSES, Audit, Bracket, IsolatedUser
from coterie.audit.forecast import Forecast, forecast
from coterie.audit.measures import RoundMeasures
from coterie.audit.planned import Breach, breaches
from coterie.audit.strong import StrongLevel, seen_only, strong_level
from coterie.audit.weak.proofs import Combination
from coterie.audit.weak.search import TimeLeft
from coterie.audit.windows import WindowLevel, window_level
from coterie.errors import UsageError
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.checks import check_count

LISTED = 20
"""So many smallest classes, and users with their combination in full, are listed unless more are asked for."""
_TRIALS = 20  # of the forecast
_FORECAST, _LONGEST_FORECAST = 0.2, 5.0  # the share of the time that is kept for it, and the most seconds


@dataclass(frozen=True)
class Question:
    """What to look at beside the levels themselves."""

    users: int | None = None
    """N, if more users than the log shows."""
    window: int | None = None
    colluders: int = 0
    """How many users, whoever they are, may tell the server what they know."""
    required: int | None = None
    plan: BatchPlan | None = None
    planned: IntArray | None = None
    """Each user's number in the plan, -1 for none; the same numbers unless given."""
    unknown: tuple[int, ...] = ()
    """Rounds of which it is not known what the server learned."""
    assumed: tuple[int, ...] = ()
    """Sealed rounds that were cut off; the log counts them as the worst that they can have been."""
    shown: int = 0
    """Rounds in which the server saw every update by itself, before there was any sum."""
    combinations: int | None = LISTED
    """For how many isolated users to compute the combination; None for all."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of users with equal columns, which decide the strong level.

    User `seen[k]` is in a class of `sizes[k]` users; `smallest` lists the first of the `count` classes of the
    least size. `falls` are the rounds at which the level fell, and to what.
    """

    level: int
    seen: IntArray
    sizes: IntArray
    smallest: tuple[tuple[int, ...], ...]
    count: int
    falls: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a log has given away.

    Levels count users. With colluders, `strong_left` and `weak_left` are what is left of the levels for the
    worst placement of so many: a group of T users of whom c tell hides T - c, and at least the one it exposes.
    """

    log: ParticipationLog
    users: int
    question: Question
    measures: RoundMeasures
    classes: Classes
    weak: Bracket
    witness: dict[int, Fraction]
    """The users in the lightest combination found, with their coefficients."""
    isolated: tuple[IsolatedUser, ...]
    isolation_known: bool
    """Whether everyone isolated is listed; False if it was stopped, or the log is too large to eliminate."""
    eliminated: bool
    """Whether the search for the weak level could begin; if not, it is bounded by what the strong level says."""
    window: WindowLevel | None
    breaches: tuple[Breach, ...] | None
    before_unknown: int | None
    """The strong level before the first round of which it is not known what was learned."""
    forecast: Forecast | None
    assumptions: tuple[str, ...]

    @property
    def strong(self) -> int:
        """The strong privacy level."""
        return self.classes.level

    @property
    def strong_left(self) -> int:
        """The strong level with the colluders of the question."""
        return self._left(self.strong)

    @property
    def weak_left(self) -> tuple[int, int]:
        """The bracket of the weak level with the colluders of the question."""
        return self._left(self.weak.low), self._left(self.weak.high)

    def _left(self, level: int) -> int:
        return max(level - self.question.colluders, min(level, 1))

    @property
    def certain(self) -> bool:
        """Whether it is known what the server learned in every round; if not, levels are only upper bounds."""
        return not self.question.unknown

    @property
    def met(self) -> bool | None:
        """Whether the strong level, with the colluders, is proven to be as high as required; None if not asked."""
        required = self.question.required
        if required is None:
            return None
        return self.certain and not self.question.shown and self.strong_left >= required


def examine(
    log: ParticipationLog,
    question: Question | None = None,
    *,
    rng: np.random.Generator,
    left: TimeLeft,
    stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Audit a log.

    Isolation and proofs run to their end unless `stopped` says so; the weak level and the forecast take the
    time that is `left`. `tell` is told what is being done. The verdict is right whenever it was stopped: it
    then proves less.

    >>> log = ParticipationLog.from_dense([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    >>> verdict = examine(log, rng=np.random.default_rng(0), left=lambda: 1.0)
    >>> verdict.strong, verdict.weak.exact, verdict.weak.high, [found.user for found in verdict.isolated]
    (1, True, 1, [0, 1, 2])
    >>> verdict.isolated[0].proof
    Combination(sets=(0, 1, 2), numerators=(1, -1, 1), denominator=2)
    """
    question = Question() if question is None else question
    users = _checked(log, question)
    shown, seen = seen_only(log)
    tell("the strong level")
    classes = _classes(shown, seen, users)
    tell("who is isolated")
    audit = Audit.of(shown, rng, stopped)
    settled = audit.settle(stopped)
    tell("the combinations that isolate")
    isolated = _with_combinations(audit, question.combinations, stopped)
    tell("the weak level")
    kept = min(_FORECAST * left(), _LONGEST_FORECAST)
    for bracket in audit.refine(lambda: -1.0 if stopped() else left() - kept):
        tell(f"the weak level: {bracket.low} to {bracket.high}")
    weak = audit.weak if len(seen) else Bracket(users, users, None)
    window = None
    if question.window is not None:
        tell("the windows")
        window = window_level(shown if len(seen) else log, question.window, stopped)
    tell("the forecast")
    level = 2 if question.required is None else question.required
    coming = forecast(shown, level, _TRIALS, rng, lambda: stopped() or left() <= 0)
    return Verdict(
        log=log,
        users=users,
        question=question,
        measures=_measures(shown, users, classes.level),
        classes=classes,
        weak=weak,
        witness={} if weak.witness is None else weak.witness.result(log),
        isolated=tuple(IsolatedUser(int(seen[found.user]), found.round, found.proof) for found in isolated),
        isolation_known=settled or classes.level > 1,
        eliminated=audit.complete,
        window=window,
        breaches=None if question.plan is None else tuple(breaches(log, question.plan, question.planned)),
        before_unknown=_before(log, users, question.unknown),
        forecast=coming,
        assumptions=_assumptions(log, users, users - len(seen), question, audit),
    )


def _checked(log: ParticipationLog, question: Question) -> int:
    """Return N; refuse a question that cannot be."""
    if question.users is not None and question.users < log.users:
        raise UsageError(
            f"the log has {log.users} users, more than the {question.users} given; give the number of all users"
        )
    users = log.users if question.users is None else question.users
    check_count(question.colluders, "the number of colluders", least=0)
    if question.colluders >= max(users, 1):
        raise UsageError(
            f"{question.colluders} of {users} users cannot collude; at least one must be left to expose"
        )
    if question.required is not None:
        check_count(question.required, "the required level")
    return users


def _classes(shown: ParticipationLog, seen: IntArray, users: int) -> Classes:
    strong = StrongLevel(shown.users)
    level, falls = users, []
    for round_, (start, stop) in zip(shown.set_rounds.tolist(), pairwise(shown.starts.tolist()), strict=True):
        strong.add(shown.members[start:stop])
        if strong.level < level:
            level = strong.level
            falls.append((round_, level))
    smallest = np.flatnonzero(strong.sizes == level)
    chosen = np.flatnonzero(np.isin(strong.class_of, smallest[:LISTED]))
    groups: dict[int, list[int]] = {}
    for user in chosen.tolist():
        groups.setdefault(int(strong.class_of[user]), []).append(int(seen[user]))
    listed = tuple(sorted(tuple(group) for group in groups.values()))
    by_round = dict(falls)  # the last fall within a round
    return Classes(level, seen, strong.class_sizes(), listed, len(smallest), tuple(by_round.items()))


def _with_combinations(audit: Audit, wanted: int | None, stopped: Callable[[], bool]) -> list[IsolatedUser]:
    """Return the isolated users; the first ones with a combination as their proof."""
    isolated = audit.isolated
    first = isolated if wanted is None else isolated[:wanted]
    missing = [found.user for found in first if not isinstance(found.proof, Combination)]
    proofs: dict[int, Combination] = {}
    for start in range(0, len(missing), LISTED):
        if stopped():
            break
        proofs |= audit.combinations(missing[start : start + LISTED])
    return [IsolatedUser(found.user, found.round, proofs.get(found.user, found.proof)) for found in isolated]


def _measures(shown: ParticipationLog, users: int, strong: int) -> RoundMeasures:
    """Return the paper's measures after the last round."""
    sizes = np.diff(shown.starts)
    pairs = np.unique(np.repeat(shown.set_rounds, sizes) * max(shown.users, 1) + shown.members)
    counts = np.bincount(pairs % max(shown.users, 1), minlength=shown.users)
    least = int(counts.min(initial=len(pairs))) if users == shown.users else 0
    gap = int(counts.max(initial=0)) - min(least, int(counts.max(initial=0)))
    return RoundMeasures(
        strong=strong,
        fairness_gap=gap / max(shown.rounds, 1),
        fairness_gap_completed=gap / max(shown.completed, 1),
        cardinality=len(pairs) / max(shown.rounds, 1),
        skipped=shown.rounds - shown.completed,
    )


def _before(log: ParticipationLog, users: int, unknown: tuple[int, ...]) -> int | None:
    """Return the strong level before the first unknown round."""
    if not unknown:
        return None
    known = log.window(log.first, min(unknown))
    return strong_level(known) if len(known.set_rounds) else users


def _assumptions(
    log: ParticipationLog, users: int, never: int, question: Question, audit: Audit
) -> tuple[str, ...]:
    """Say what the verdict rests on, and what it does not say."""
    known = "and no other" if not question.unknown else "where that is known"
    said = [
        f"The log names every set of users whose sum the server learned, {known}.",
        "Updates are taken to be the same in every round, the worst case; where they change, rounds tell less.",
        "The levels count users in a sum; they do not limit what a sum itself tells about its users.",
    ]
    said.append(
        f"F counts {users} users, {never} of whom never took part; others, of whom the log says nothing, not."
    )
    said.append(f"F and C count the {log.rounds} rounds from round {log.first} on.")
    if question.colluders:
        said.append(
            f"The {question.colluders} colluders stand where they help the server most, and tell it their updates."
        )
    if question.shown:
        said.append(
            f"In {question.shown} rounds aggregation was plain: the server saw every update by itself. The levels "
            "speak of the sums alone, and no required level is met."
        )
    if question.assumed:
        said.append(
            f"{len(question.assumed)} sealed rounds were cut off; every batch asked in them counts as learned by "
            "itself, the worst that can have been."
        )
    if question.unknown:
        said.append(
            f"What the server learned in {len(question.unknown)} rounds is not known: the levels are upper bounds."
        )
    if not audit.complete and audit.strong.level == 1:
        said.append(
            f"Who is isolated was not decided: the elimination was stopped, or there are more than {MOST_CLASSES} "
            f"different columns."
        )
    return tuple(said)
