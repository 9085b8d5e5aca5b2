"""`examine`: everything an audit says about a log, as one value from which console, page and JSON are made."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.leakage.evidence import Breach, Evidence, Provenance, breaches
from coterie.leakage.forecast import Forecast, Omission, forecast
from coterie.leakage.isolation import MOST_CLASSES, Audit, Bracket, IsolatedUser
from coterie.leakage.measures import (
    RoundMeasures,
    StrongLevel,
    WindowLevel,
    final_measures,
    participation_counts,
    strong_level,
    window_level,
)
from coterie.leakage.proofs import Combination, FullRank
from coterie.leakage.weak_level import TimeLeft
from coterie.leakage.wording import Wording, words_of
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.checks import check_count

MOST_LISTED = 20
"""So many smallest classes, and users with their combination in full, are listed unless more are asked for."""
_TRIALS = 20  # of the forecast
_FORECAST_SHARE = 0.3  # of the time; the weak level has the rest


@dataclass(frozen=True)
class Question:
    """What to look at beside the levels themselves."""

    users: int | None = None
    """N, if more users than the log shows."""
    window: int | None = None
    colluders: int = 0
    """How many users, whoever they are, may tell the server what they know."""
    named_colluders: tuple[int, ...] = ()
    """Users of the log who tell the server what they know; all that is said is then about the others."""
    required: int | None = None
    combinations: int | None = MOST_LISTED
    """For how many isolated users to compute the combination; None for all."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of users with equal columns, which decide the strong level.

    User `participants[k]` is in a class of `sizes[k]` users; `smallest` lists the first of the `count` classes
    of the least size. `falls` are the rounds at which the level fell, and to what.
    """

    level: int
    participants: IntArray
    sizes: IntArray
    smallest: tuple[tuple[int, ...], ...]
    count: int
    falls: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """What a log has given away.

    Levels count users, and are those of the worst case: a user of whom it is not known what the server learned
    counts as alone. With colluders, `strong_left` and `weak_left` are what is left of the levels for the worst
    placement of so many: a group of T users of whom c tell hides T - c, and at least the one it exposes.

    `evidence` is all that was given, `subject` what it says of users other than the named colluders. All users
    here are numbers in `log`, the log of the subject, except those of `breaches`: in `evidence.log`.
    """

    evidence: Evidence
    subject: Evidence
    users: int
    question: Question
    measures: RoundMeasures
    classes: Classes
    weak: Bracket
    witness: dict[int, Fraction]
    """The users in the lightest combination found, with their coefficients."""
    isolated: tuple[IsolatedUser, ...]
    isolation_known: bool
    """Whether everyone isolated is listed: not if it was stopped, the log is too large, or rounds are unknown."""
    window: WindowLevel | None
    breaches: tuple[Breach, ...] | None
    before_unknown: int | None
    """The strong level before the first round of which it is not known what was learned."""
    forecast: Forecast | None
    omissions: tuple[Omission, ...]
    """What was left out, and why."""

    @property
    def log(self) -> ParticipationLog:
        """The sums that the server learned, for certain."""
        return self.subject.log

    @property
    def source(self) -> Provenance | None:
        """Where the log was read, if it was."""
        return self.evidence.source

    @property
    def certain(self) -> bool:
        """Whether it is known what the server learned in every round; if not, users count as alone."""
        return self.subject.certain

    @property
    def has_sums(self) -> bool:
        """Whether any sum is on record, or may have been learned."""
        return len(self.subject.worst_case.set_rounds) > 0

    @property
    def strong(self) -> int:
        """The strong privacy level."""
        return self.classes.level

    @property
    def strong_left(self) -> int:
        """The strong level with the colluders of the question."""
        return self._after_collusion(self.strong)

    @property
    def weak_left(self) -> Bracket:
        """The bracket of the weak level with the colluders of the question."""
        return Bracket(self._after_collusion(self.weak.low), self._after_collusion(self.weak.high))

    def _after_collusion(self, level: int) -> int:
        return max(level - self.question.colluders, min(level, 1))

    @cached_property
    def maybe_isolated(self) -> IntArray:
        """The users not proven isolated of whom it is not known what the server learned."""
        return np.setdiff1d(self.subject.unknown_users, [each.user for each in self.isolated])

    @property
    def sealed(self) -> bool:
        """Whether the users' own keys hold further rounds to the plan."""
        return self.evidence.sealed and self.evidence.plan is not None

    @property
    def promised(self) -> int | None:
        """The level T of the plan that the log is held against, if all its users are judged."""
        plan = self.evidence.plan
        return None if plan is None or self.question.named_colluders else plan.privacy

    @property
    def below_plan(self) -> bool:
        """Whether the strong level is below what the plan promised."""
        return self.has_sums and self.promised is not None and self.strong < self.promised

    @property
    def met(self) -> bool | None:
        """Whether the strong level, with the colluders, is proven to be as high as required; None if not asked."""
        required = self.question.required
        return None if required is None else self.strong_left >= required

    @cached_property
    def words(self) -> Wording:
        """The verdict in words: headline, tone, sentences. Console, page and JSON show these and no others."""
        return words_of(self)

    def record(self) -> dict[str, Any]:
        """Return everything that the verdict says as plain data, for JSON."""
        return verdict_record(self)

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Every user who took part as columns of equal length, for a data frame.

        `user` is the name (or number), `rounds` in how many rounds the user took part, `group` how many users
        (this one among them) nobody can tell apart, `isolated_since` the round since which the user is isolated,
        -1 if that is not proven, and `unknown` whether it is not known what the server learned of the user.
        """
        participants, log = self.classes.participants, self.log
        since = np.full(len(participants), -1, dtype=np.int64)
        for each in self.isolated:
            since[np.searchsorted(participants, each.user)] = each.round
        return {
            "user": participants
            if log.names is None
            else np.array([log.names[user] for user in participants.tolist()]),
            "rounds": participation_counts(self.subject.only(participants).log),
            "group": self.classes.sizes,
            "isolated_since": since,
            "unknown": np.isin(participants, self.subject.unknown_users),
        }

    def __repr__(self) -> str:
        return (
            f"Verdict({self.words.headline!r}, strong={self.strong}, weak={self.weak}, "
            f"isolated={len(self.isolated)}, met={self.met})"
        )

    def _repr_html_(self) -> str:
        """Return the headline, the key numbers and the sentences, for a notebook."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(figure.label)}</th><td><b>{escape(figure.value)}</b></td>"
            f"<td style='text-align:left'>{escape(figure.meaning)}</td></tr>"
            for figure in self.words.figures
        )
        account = " ".join(self.words.sentences)
        return f"<p><b>{escape(self.words.headline)}</b></p><table>{rows}</table><p>{escape(account)}</p>"


def examine(
    log: ParticipationLog | Evidence,
    question: Question | None = None,
    *,
    rng: np.random.Generator,
    time_left: TimeLeft | None,
    should_stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Audit a log.

    Isolation and proofs run to their end unless `should_stop` says so. The forecast has a share of the time
    left, the weak level the rest. `tell` is told what is being done. The verdict is right whenever it was
    stopped: it then proves less, and `omissions` say what is missing. Without a clock (`time_left` is None) only
    what is cheap is done, and it is the same on every machine: no continuation of the log is simulated.

    >>> log = ParticipationLog.from_dense([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    >>> verdict = examine(log, rng=np.random.default_rng(0), time_left=lambda: 1.0)
    >>> verdict.strong, verdict.weak.exact, verdict.weak.high, [each.user for each in verdict.isolated]
    (1, True, 1, [0, 1, 2])
    >>> verdict.isolated[0].proof
    Combination(sets=(0, 1, 2), numerators=(1, -1, 1), denominator=2)
    >>> verdict.words.headline
    'The server can compute the update of every user who took part.'
    """
    question = Question() if question is None else question
    evidence = log if isinstance(log, Evidence) else Evidence(log)
    users = _check(evidence, question)
    subject = evidence.without(np.array(question.named_colluders)) if question.named_colluders else evidence
    worst = subject.worst_case
    participants = worst.participants.astype(np.int64)
    compact = subject.only(participants)
    tell("the strong level")
    classes = _classes(compact.worst_case, participants, users)
    tell("who is isolated")
    audit = Audit.of(compact.log, rng, should_stop)
    settled = audit.settle(should_stop)
    tell("the combinations that isolate")
    isolated = _with_combinations(audit, question.combinations, should_stop)
    known = (settled and subject.certain) or classes.level > 1 or len(isolated) == len(participants)
    tell("the forecast")
    level = 2 if question.required is None else question.required
    outlook = forecast(
        _with_batches(subject, participants), level, _TRIALS, rng, _out_of_time(time_left, should_stop)
    )
    window = None
    if question.window is not None:
        tell("the windows")
        window = window_level(compact.worst_case if len(participants) else worst, question.window, should_stop)
    tell("the weak level")
    for bracket in audit.refine(None if time_left is None else lambda: -1.0 if should_stop() else time_left()):
        tell(f"the weak level: {bracket.low} to {bracket.high}")
    weak = audit.weak if len(compact.log.set_rounds) else Bracket(users, users)
    plan_breaches = breaches(evidence)
    return Verdict(
        evidence=evidence,
        subject=subject,
        users=users,
        question=question,
        measures=final_measures(compact.log, users, classes.level),
        classes=classes,
        weak=Bracket(min(weak.low, classes.level) if not subject.certain else weak.low, weak.high, weak.witness),
        witness={} if weak.witness is None else weak.witness.result(subject.log),
        isolated=tuple(IsolatedUser(int(participants[each.user]), each.round, each.proof) for each in isolated),
        isolation_known=known,
        window=window,
        breaches=None if plan_breaches is None else tuple(plan_breaches),
        before_unknown=_before_unknown(subject, users),
        forecast=outlook if isinstance(outlook, Forecast) else None,
        omissions=tuple(
            _omissions(audit, weak, window, None if time_left is None else outlook, settled=settled or known)
        ),
    )


def _out_of_time(time_left: TimeLeft | None, should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """Say when the forecast's share of the time is over: without a clock, before anything is simulated."""
    if time_left is None:
        return lambda: True
    end = (1 - _FORECAST_SHARE) * time_left()
    return lambda: should_stop() or time_left() <= end


def _check(evidence: Evidence, question: Question) -> int:
    """Return N without the named colluders; refuse a question that cannot be."""
    log, named = evidence.log, len(set(question.named_colluders))
    if question.users is not None and question.users < log.users:
        raise UsageError(
            f"the log has {log.users} users, more than the {question.users} given; give the number of all users"
        )
    users = (log.users if question.users is None else question.users) - named
    check_count(question.colluders, "the number of colluders", least=0)
    if named and named >= log.users:
        raise UsageError("the colluders are everyone in the log; at least one must be left to expose")
    if question.colluders >= max(users, 1):
        raise UsageError(
            f"{question.colluders} of {users} users cannot collude; at least one must be left to expose"
        )
    if question.required is not None:
        check_count(question.required, "the required level")
    return users


def _with_batches(subject: Evidence, participants: IntArray) -> Evidence:
    """Return the evidence about the users who took part, or may yet in a batch of the plan."""
    return subject.only(
        participants
        if subject.batch_of is None
        else np.union1d(participants, np.flatnonzero(subject.batch_of >= 0))
    )


def _classes(log: ParticipationLog, participants: IntArray, users: int) -> Classes:
    strong = StrongLevel(log.users)
    level, falls, single = users, [], set()
    for round_, members in log.sets():
        if len(members) == 1:
            if (user := int(members[0])) in single:
                continue  # a set that is known splits nothing
            single.add(user)
        strong.add(members)
        if strong.level < level:
            level = strong.level
            falls.append((round_, level))
    smallest = np.flatnonzero(strong.sizes == level)
    groups = [tuple(participants[strong.class_of == each].tolist()) for each in smallest[:MOST_LISTED]]
    by_round = dict(falls)  # the last fall within a round
    return Classes(
        level, participants, strong.class_sizes(), tuple(sorted(groups)), len(smallest), tuple(by_round.items())
    )


def _with_combinations(audit: Audit, most: int | None, should_stop: Callable[[], bool]) -> list[IsolatedUser]:
    """Return the isolated users; the first ones with a combination as their proof."""
    isolated = audit.isolated
    first = isolated if most is None else isolated[:most]
    missing = [each.user for each in first if not isinstance(each.proof, Combination)]
    proofs: dict[int, Combination] = {}
    for start in range(0, len(missing), MOST_LISTED):
        if should_stop():
            break
        proofs |= audit.combinations(missing[start : start + MOST_LISTED])
    return [IsolatedUser(each.user, each.round, proofs.get(each.user, each.proof)) for each in isolated]


def _before_unknown(subject: Evidence, users: int) -> int | None:
    """Return the strong level before the first round of which it is not known what was learned."""
    rounds: Sequence[int] = [round_ for round_, senders in subject.unknown.items() if len(senders)]
    if not rounds:
        return None
    known = subject.log.window(subject.log.first, min(rounds))
    return strong_level(known) if len(known.set_rounds) else users


def _omissions(
    audit: Audit, weak: Bracket, window: WindowLevel | None, outlook: Forecast | Omission | None, *, settled: bool
) -> list[Omission]:
    """Say what was left out, and why; `outlook` is None where there was no clock to simulate by."""
    omissions = []
    if not settled:
        many = audit.strong.classes > MOST_CLASSES
        reason = (
            f"the log has more than {MOST_CLASSES} different columns"
            if many
            else "the work was stopped before its end"
        )
        omissions.append(Omission("who is isolated", reason))
    if not weak.exact:
        gap = "the time given was too short to close the gap" if outlook else "only what is cheap was tried"
        reason = gap if audit.complete else "nothing was eliminated"
        omissions.append(Omission("the weak level as one number", reason))
    if window is not None and not window.complete:
        omissions.append(Omission("some windows", "the work was stopped before its end"))
    if isinstance(outlook, Omission):
        omissions.append(outlook)
    return omissions


# --- the verdict as data


def verdict_record(verdict: "Verdict") -> dict[str, Any]:
    """Return everything a verdict says; users by name, integers that may be long as text."""
    log, question, classes, words = verdict.log, verdict.question, verdict.classes, verdict.words
    sizes, counts = np.unique(classes.sizes, return_counts=True)
    window, measures = verdict.window, verdict.measures
    return {
        "headline": words.headline,
        "tone": words.tone,
        "sentences": list(words.sentences),
        "users": verdict.users,
        "rounds": log.rounds,
        "first_round": log.first,
        "learned_sets": len(log.set_rounds),
        "strong": {
            "level": verdict.strong,
            "classes": [[name(log, user) for user in users] for users in classes.smallest],
            "classes_of_this_size": classes.count,
            "users_in_classes_of": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
            "falls": [{"round": round_, "level": level} for round_, level in classes.falls],
        },
        "weak": {
            "low": verdict.weak.low,
            "high": verdict.weak.high,
            "exact": verdict.weak.exact,
            "witness": None
            if verdict.weak.witness is None
            else {
                "users": [
                    {"user": name(log, user), "coefficient": fraction_text(coefficient)}
                    for user, coefficient in verdict.witness.items()
                ],
                "combination": _combination(verdict.weak.witness, log),
            },
        },
        "isolated": [_isolated_user(each, log) for each in verdict.isolated],
        "maybe_isolated": [name(log, user) for user in verdict.maybe_isolated.tolist()],
        "isolation_known": verdict.isolation_known,
        "fairness_gap": measures.fairness_gap,
        "fairness_gap_completed": measures.fairness_gap_completed,
        "cardinality": measures.cardinality,
        "skipped": measures.skipped,
        "window": None
        if window is None
        else {
            "width": window.width,
            "level": window.level,
            "first_round": window.first,
            "complete": window.complete,
        },
        "colluders": None
        if not question.colluders
        else {
            "count": question.colluders,
            "strong": verdict.strong_left,
            "weak": {"low": verdict.weak_left.low, "high": verdict.weak_left.high},
        },
        "breaches": None
        if verdict.breaches is None
        else [
            {
                "round": breach.round,
                "batch": breach.batch,
                "present": [name(verdict.evidence.log, user) for user in breach.present],
                "missing": [name(verdict.evidence.plan, user) for user in breach.missing],
            }
            for breach in verdict.breaches
        ],
        "plain_rounds": list(verdict.subject.plain),
        "assumed_rounds": list(verdict.subject.assumed),
        "unknown_rounds": list(verdict.subject.unknown),
        "overrides": [name(log, user) for user in verdict.subject.overrides],
        "strong_before_unknown": verdict.before_unknown,
        "forecast": None if verdict.forecast is None else _forecast_record(verdict.forecast),
        "omissions": [asdict(each) for each in verdict.omissions],
        "required": question.required,
        "met": verdict.met,
        "log_sha256": None if verdict.source is None else verdict.source.digest,
        "assumptions": list(words.assumptions),
    }


def name(of: ParticipationLog | BatchPlan | None, user: int) -> str:
    """Return the name of a user of a log or a plan, its number if it has none."""
    return str(user) if of is None or of.names is None else of.names[user]


def integer_text(number: int) -> str:
    """Return an integer of any length in decimal; str() refuses those of more than 4300 digits.

    >>> len(integer_text(7**6000))
    5071
    """
    from flint import fmpz

    return str(fmpz(number))


def fraction_text(value: Fraction) -> str:
    """Return a fraction as text.

    >>> fraction_text(Fraction(-3, 2)), fraction_text(Fraction(4))
    ('-3/2', '4')
    """
    whole = integer_text(value.numerator)
    return whole if value.denominator == 1 else f"{whole}/{integer_text(value.denominator)}"


def _isolated_user(each: IsolatedUser, log: ParticipationLog) -> dict[str, Any]:
    record = {"user": name(log, each.user), "round": each.round, "combination": None}
    if isinstance(each.proof, FullRank):
        return record | {"full_rank": {"sets": each.proof.sets, "prime": each.proof.prime}}
    return record | {"combination": _combination(each.proof, log)}


def _combination(combination: Combination, log: ParticipationLog) -> dict[str, Any]:
    """Return the weights of sums: `set` counts the learned sets of a round from 0."""
    firsts = np.searchsorted(log.set_rounds, log.set_rounds[list(combination.sets)])
    return {
        "denominator": integer_text(combination.denominator),
        "terms": [
            {"round": int(log.set_rounds[index]), "set": index - int(first), "numerator": integer_text(weight)}
            for index, first, weight in zip(combination.sets, firsts, combination.numerators, strict=True)
        ],
    }


def _forecast_record(forecast: Forecast) -> dict[str, Any]:
    return {
        "policy": forecast.policy.value,
        "floor": forecast.floor,
        "trials": forecast.trials,
        "level": forecast.level,
        "falls_below_level": asdict(forecast.falls),
        "first_isolated": asdict(forecast.first_isolated),
        "all_isolated": asdict(forecast.all_isolated),
    }
