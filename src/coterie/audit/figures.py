"""The key numbers of a verdict; a bound is never shown as a number that is proven."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.values import IntArray
from coterie.values.words import Tone, counted, number

if TYPE_CHECKING:
    from coterie.audit.verdict import Verdict


@dataclass(frozen=True)
class Figure:
    """A key number: what it is called, its value, and one line that says what it means."""

    label: str
    value: str
    meaning: str
    tone: Tone = "plain"


def lead_figures(verdict: "Verdict") -> tuple[Figure, ...]:
    """Return the three numbers that lead: both levels, and who is isolated."""
    return _strong(verdict), _weak(verdict), _isolated(verdict)


def _strong(verdict: "Verdict") -> Figure:
    label = "Strong privacy level T"
    if not verdict.learned:
        return Figure(label, "–", "no sum is on record")
    if not verdict.certain:
        return Figure(label, "1", "counts as 1: some rounds are on no record", "warning")
    if verdict.strong == 1:
        return Figure(label, "1", "some user is told apart from all others", "warning")
    meaning = "users in the smallest group that cannot be told apart"
    return Figure(label, number(verdict.strong), meaning, "good" if verdict.met else "plain")


def _weak(verdict: "Verdict") -> Figure:
    label, weak = "Weak privacy level", verdict.weak
    if not verdict.learned:
        return Figure(label, "–", "no sum is on record")
    tone: Tone = "warning" if weak.low == 1 else "plain"
    if weak.exact:
        return Figure(label, number(weak.high), "fewest users in any combination of sums, exactly", tone)
    value = f"{number(weak.low)}..{number(weak.high)}"
    if not verdict.certain:
        return Figure(label, value, "counts as the lower one: some rounds are on no record", tone)
    return Figure(label, value, "proven bounds on the fewest users in any combination", tone)


def _isolated(verdict: "Verdict") -> Figure:
    label, count = "Isolated users", len(verdict.isolated)
    meaning = "their updates alone can be computed" if count else "nobody's update alone can be computed"
    if verdict.isolation_known:
        return Figure(
            label, f"{number(count)} of {number(verdict.users)}", meaning, "warning" if count else "plain"
        )
    maybe = len(verdict.maybe_isolated)
    if maybe:
        return Figure(
            label, f"{number(count)} to {number(count + maybe)}", "not known: rounds are on no record", "warning"
        )
    if count:
        return Figure(label, f"at least {number(count)}", meaning, "warning")
    return Figure(label, "unknown", "not decided", "warning")


def further_figures(verdict: "Verdict") -> Iterator[Figure]:
    """Yield what was asked for beside the levels, and the size and measures of the log."""
    measures, question, sizes = verdict.measures, verdict.question, np.diff(verdict.log.starts)
    if question.required is not None:
        tone: Tone = "good" if verdict.met and verdict.learned else "plain" if verdict.met else "warning"
        yield Figure("Required level", number(question.required), "met" if verdict.met else "not met", tone)
    if question.colluders and verdict.learned:
        label = f"Strong with {counted(question.colluders, 'colluder')}"
        low, high = verdict.weak_left
        weak = number(low) if low == high else f"{number(low)}..{number(high)}"
        yield Figure(label, number(verdict.strong_left), f"wherever they stand; weak {weak}")
    if verdict.window is not None:
        level = ("" if verdict.window.complete else "≤") + number(verdict.window.level)
        meaning = f"strong, at worst: from round {verdict.window.first} on"
        yield Figure(f"Within {counted(verdict.window.width, 'round')}", level, meaning)
    participants = len(verdict.classes.participants)
    took = "all took part" if participants == verdict.users else f"{number(participants)} took part"
    without = f"{number(measures.skipped)} without a result" if measures.skipped else "each with a result"
    yield Figure("Users", number(verdict.users), took)
    yield Figure("Rounds", number(verdict.log.rounds), without if verdict.log.rounds else "none on record")
    yield Figure("Sums learned", number(len(sizes)), _sizes(sizes))
    yield Figure(
        "Fairness gap F", f"{measures.fairness_gap:.3f}", "between the users' shares of rounds; 0 is fair"
    )
    yield Figure("Cardinality C", f"{measures.cardinality:.2f}", "users in a round's sums, on average")


def _sizes(sizes: IntArray) -> str:
    """Say of how many users the sums are."""
    if len(sizes) == 0:
        return "none on record"
    low, high = int(sizes.min()), int(sizes.max())
    return f"of {counted(low, 'user')} each" if low == high else f"of {number(low)} to {number(high)} users"
