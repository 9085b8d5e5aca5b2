"""A verdict as plain data, for JSON."""

from fractions import Fraction
from typing import Any

import numpy as np

from coterie.audit.engine import IsolatedUser
from coterie.audit.forecast import Forecast, Span
from coterie.audit.verdict import Verdict
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.values import ParticipationLog


def record(verdict: Verdict) -> dict[str, Any]:
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
        "isolated": [_isolated(each, log) for each in verdict.isolated],
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
            "weak": dict(zip(("low", "high"), verdict.weak_left, strict=True)),
        },
        "breaches": None
        if verdict.breaches is None
        else [
            {
                "round": breach.round,
                "batch": breach.batch,
                "present": [name(verdict.evidence.log, user) for user in breach.present],
                "missing": [_plan_name(verdict, user) for user in breach.missing],
            }
            for breach in verdict.breaches
        ],
        "plain_rounds": list(verdict.judged.plain),
        "assumed_rounds": list(verdict.judged.assumed),
        "unknown_rounds": list(verdict.judged.unknown),
        "overrides": [name(log, user) for user in verdict.judged.overrides],
        "strong_before_unknown": verdict.before_unknown,
        "forecast": None if verdict.forecast is None else _forecast(verdict.forecast),
        "omissions": [{"part": each.part, "reason": each.reason} for each in verdict.omissions],
        "required": question.required,
        "met": verdict.met,
        "log_sha256": None if verdict.source is None else verdict.source.digest,
        "assumptions": list(words.assumptions),
    }


def name(log: ParticipationLog, user: int) -> str:
    """Return a user's name, its number if it has none."""
    return str(user) if log.names is None else log.names[user]


def _plan_name(verdict: Verdict, user: int) -> str:
    plan = verdict.evidence.plan
    return str(user) if plan is None or plan.names is None else plan.names[user]


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


def _isolated(each: IsolatedUser, log: ParticipationLog) -> dict[str, Any]:
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


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "policy": forecast.policy.value,
        "floor": forecast.floor,
        "trials": forecast.trials,
        "level": forecast.level,
        "falls_below_level": _span(forecast.falls),
        "first_isolated": _span(forecast.first_isolated),
        "all_isolated": _span(forecast.all_isolated),
    }


def _span(span: Span) -> dict[str, int | None]:
    return {"low": span.low, "median": span.median, "high": span.high}
