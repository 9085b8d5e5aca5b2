"""The numbers of a verdict: the key ones, what they mean, and all of it as data. No bound is shown as a number."""

from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.audit.engine import IsolatedUser
from coterie.audit.forecast import Forecast
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.text import KeyNumber, Tone, counted, number

if TYPE_CHECKING:
    from coterie.audit.verdict import Verdict


def lead_numbers(verdict: "Verdict") -> tuple[tuple[KeyNumber, str], ...]:
    """Return the three numbers that lead, both levels and who is isolated, each with what it says in full."""
    return _strong(verdict), _weak(verdict), (_isolated(verdict), _explain_isolated(verdict))


def _strong(verdict: "Verdict") -> tuple[KeyNumber, str]:
    label, level = "Strong privacy level T", number(verdict.strong)
    if not verdict.has_sums:
        return KeyNumber(label, "–", "no sum is on record"), ""
    if not verdict.certain:
        return KeyNumber(label, "1", "counts as 1: some sums are not recorded", "warning"), (
            "T counts as 1. In rounds whose sums are not recorded the server may have seen anybody alone who sent "
            "something there. A level is claimed only where it is proven."
        )
    if verdict.strong == 1:
        return KeyNumber(label, "1", "some user is told apart from all others", "warning"), (
            "T = 1. Some combination of the sums gives at least one user a weight that no other user has. That "
            "alone does not lay an update open; isolation does."
        )
    meaning = "users in the smallest group that cannot be told apart"
    if verdict.promised is not None:
        meaning = f"users in the smallest group; the plan promised {number(verdict.promised)}"
    tone: Tone = "warning" if verdict.below_plan else "good" if verdict.met or verdict.sealed else "plain"
    return KeyNumber(label, level, meaning, tone), (
        f"T = {level}. In every combination of the sums, users come in groups of at least {level} that carry one "
        "and the same weight. No arithmetic on the sums tells the users of such a group apart."
    )


def _weak(verdict: "Verdict") -> tuple[KeyNumber, str]:
    label, weak = "Weak privacy level", verdict.weak
    if not verdict.has_sums:
        return KeyNumber(label, "–", "no sum is on record"), ""
    low, high, proof = number(weak.low), number(weak.high), ""
    if weak.witness is not None:
        proof = f" A combination that covers {counted(weak.high, 'user')} was found, and is shown below."
    if weak.low > 1 and (weak.exact or verdict.certain):
        proof += f" That none covers fewer than {low} is proven."
    if weak.exact:
        meaning, text = "fewest users in any combination of sums, exactly", f"{high}, exactly.{proof}"
    elif verdict.certain:
        meaning = "proven bounds on the fewest users in any combination"
        text = f"Between {low} and {high}.{proof} Which it is was not decided in the time given."
    else:
        meaning = "counts as the lower one: some sums are not recorded"
        text = f"Between {low} and {high}.{proof} What it is below that, nobody can say while rounds are unknown."
    return KeyNumber(label, str(weak), meaning, "warning" if weak.low == 1 else "plain"), text


def _isolated(verdict: "Verdict") -> KeyNumber:
    label, count, maybe = "Isolated users", len(verdict.isolated), len(verdict.maybe_isolated)
    meaning = "their updates alone can be computed" if count else "nobody's update alone can be computed"
    if verdict.isolation_known:
        value = f"{number(count)} of {number(verdict.users)}"
        return KeyNumber(label, value, meaning, "warning" if count else "plain")
    if maybe:
        value = f"{number(count)} to {number(count + maybe)}"
        return KeyNumber(label, value, "not known: some sums are not recorded", "warning")
    if count:
        return KeyNumber(label, f"at least {number(count)}", meaning, "warning")
    return KeyNumber(label, "unknown", "not decided", "warning")


def _explain_isolated(verdict: "Verdict") -> str:
    maybe = len(verdict.maybe_isolated)
    more = f" For {counted(maybe, 'more user', 'more users')} nobody can say." if maybe else ""
    if verdict.isolated:
        first, last = verdict.isolated[0].round, verdict.isolated[-1].round
        when = f"since round {first}" if first == last else f"the first since round {first}, the last since {last}"
        least = "" if verdict.isolation_known or maybe else "At least "
        return f"{least}{counted(len(verdict.isolated), 'user')}, {when}. Proofs are below.{more}"
    if maybe:
        return f"Nobody by the sums on record.{more}"
    if not verdict.isolation_known:
        return "Not decided. The log has too many different users for it, or the work was stopped."
    if verdict.strong > 1:
        return f"Nobody: groups of at least {number(verdict.strong)} stay together in every combination."
    return "Nobody. That is proven with exact arithmetic, for every user."


def further_numbers(verdict: "Verdict") -> Iterator[KeyNumber]:
    """Yield what was asked for beside the levels, and the size and measures of the log."""
    measures, question, sizes = verdict.measures, verdict.question, np.diff(verdict.log.starts)
    if question.required is not None:
        tone: Tone = "good" if verdict.met and verdict.has_sums else "plain" if verdict.met else "warning"
        yield KeyNumber("Required level", number(question.required), "met" if verdict.met else "not met", tone)
    if question.colluders and verdict.has_sums:
        label = f"Strong with {counted(question.colluders, 'colluder')}"
        yield KeyNumber(label, number(verdict.strong_left), f"wherever they stand; weak {verdict.weak_left}")
    if verdict.window is not None:
        level = ("" if verdict.window.complete else "≤") + number(verdict.window.level)
        meaning = f"strong, at worst: from round {verdict.window.first} on"
        yield KeyNumber(f"Within {counted(verdict.window.width, 'round')}", level, meaning)
    participants = len(verdict.classes.participants)
    took = "all took part" if participants == verdict.users else f"{number(participants)} took part"
    without = f"{number(measures.skipped)} without a result" if measures.skipped else "each with a result"
    yield KeyNumber("Users", number(verdict.users), took)
    yield KeyNumber("Rounds", number(verdict.log.rounds), without if verdict.log.rounds else "none on record")
    yield KeyNumber("Sums learned", number(len(sizes)), _sizes(sizes))
    yield KeyNumber(
        "Fairness gap F", f"{measures.fairness_gap:.3f}", "between the users' shares of rounds; 0 is fair"
    )
    yield KeyNumber("Cardinality C", f"{measures.cardinality:.2f}", "users in a round's sums, on average")


def _sizes(sizes: IntArray) -> str:
    """Say of how many users the sums are."""
    if len(sizes) == 0:
        return "none on record"
    low, high = int(sizes.min()), int(sizes.max())
    return f"of {counted(low, 'user')} each" if low == high else f"of {number(low)} to {number(high)} users"


def explanations(verdict: "Verdict") -> Iterator[tuple[str, str]]:
    """Yield statements, each with a few words that name it."""
    if verdict.subject.plain:
        yield "Plain aggregation", _PLAIN
    yield "Who can do this", _WHO
    yield "The worst case", _WORST
    if not verdict.has_sums:
        return
    titles = ("Strong level", "Weak level", "Isolated users")
    yield from zip(titles, (text for _, text in lead_numbers(verdict)), strict=True)
    count = verdict.question.colluders
    if count:
        text = f"Whoever they are: all in one group of T, they leave T − {number(count)} others to hide in it"
        levels = f"Strong: {number(verdict.strong_left)}. Weak: {verdict.weak_left}."
        yield f"With {counted(count, 'colluder')}", f"{text}, and at least the one whom they expose. {levels}"
    if verdict.question.named_colluders:
        telling = counted(len(verdict.question.named_colluders), "user tells", "users tell")
        text = f"{telling} the server what they sent. It subtracts that from every sum"
        yield "Named colluders", f"{text}: all numbers here are about the others."


_PLAIN = (
    "Updates reached the server as they were, and it added them up itself. In such a round every update is a sum "
    "of its own, and whoever reads the server's memory or traffic has it: no combination is needed."
)
_WHO = (
    "The server, and whoever else gets hold of the rounds' sums and of the list of who took part. It takes linear "
    "algebra and no more: sums of different rounds overlap, and what they share cancels out."
)
_WORST = (
    "A user's update is taken to be the same in every round. Near the end of training that is almost so. Where "
    "updates change, a combination of rounds tells less than is said here."
)


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
        "forecast": None if verdict.forecast is None else _forecast(verdict.forecast),
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


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "policy": forecast.policy.value,
        "floor": forecast.floor,
        "trials": forecast.trials,
        "level": forecast.level,
        "falls_below_level": asdict(forecast.falls),
        "first_isolated": asdict(forecast.first_isolated),
        "all_isolated": asdict(forecast.all_isolated),
    }
