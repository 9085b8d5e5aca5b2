"""The key numbers of an audit; a bound is never shown as a number that is proven."""

import numpy as np

from coterie.audit.verdict import Verdict
from coterie.audit.windows import WindowLevel
from coterie.report.page.blocks import Tile, Tiles, Tone
from coterie.report.page.words import counted, number
from coterie.values import IntArray


def tiles(verdict: Verdict) -> Tiles:
    """Return the levels, who is isolated, what was asked for, and the size and measures of the log."""
    measures, question, sizes = verdict.measures, verdict.question, np.diff(verdict.log.starts)
    found = [_strong(verdict), _weak(verdict), _isolated(verdict)]
    if question.required is not None:
        found.append(_required(verdict, question.required))
    if question.colluders and len(sizes):
        label = f"Strong with {counted(question.colluders, 'colluder')}"
        found.append(Tile(label, _bounded(verdict, verdict.strong_left), "wherever they stand"))
    if verdict.window is not None:
        found.append(_window(verdict, verdict.window))
    seen = len(verdict.classes.seen)
    took = "all took part" if seen == verdict.users else f"{number(seen)} took part"
    without = f"{number(measures.skipped)} without a result" if measures.skipped else "each with a result"
    found += [
        Tile("Users", number(verdict.users), took),
        Tile("Rounds", number(verdict.log.rounds), without if verdict.log.rounds else "none on record"),
        Tile("Sums learned", number(len(sizes)), _sizes(sizes)),
        Tile("Fairness gap F", f"{measures.fairness_gap:.3f}", "between the users' shares of rounds; 0 is fair"),
        Tile("Cardinality C", f"{measures.cardinality:.2f}", "users in a round's sums, on average"),
    ]
    return Tiles(tuple(found))


def _bounded(verdict: Verdict, level: int) -> str:
    return number(level) if verdict.certain else f"≤{number(level)}"


def _nothing(verdict: Verdict, label: str) -> Tile:
    if verdict.certain:
        return Tile(label, "–", "no sum is on record")
    return Tile(label, "unknown", "no sum is on record", "warning")


def _strong(verdict: Verdict) -> Tile:
    label = "Strong privacy level T"
    if len(verdict.log.set_rounds) == 0:
        return _nothing(verdict, label)
    tone: Tone = "warning" if verdict.strong == 1 or not verdict.certain else "plain"
    meaning = "users in the smallest group that cannot be told apart"
    return Tile(label, _bounded(verdict, verdict.strong), meaning, "good" if verdict.met else tone)


def _weak(verdict: Verdict) -> Tile:
    label, weak = "Weak privacy level", verdict.weak
    if len(verdict.log.set_rounds) == 0:
        return _nothing(verdict, label)
    tone: Tone = "warning" if weak.high == 1 else "plain"
    if not verdict.certain:  # the lower bound does not hold then
        return Tile(label, f"≤{number(weak.high)}", "only an upper bound: some rounds are not known", tone)
    if weak.exact:
        return Tile(label, number(weak.high), "fewest users in any combination of sums, exactly", tone)
    meaning = "proven bounds on the fewest users in any combination"
    return Tile(label, f"{number(weak.low)}..{number(weak.high)}", meaning, tone)


def _isolated(verdict: Verdict) -> Tile:
    label, count = "Isolated users", len(verdict.isolated)
    meaning = "their updates alone can be computed" if count else "nobody's update alone can be computed"
    if verdict.isolation_known and (verdict.certain or count == verdict.users):
        return Tile(label, number(count), meaning, "warning" if count else "plain")
    if count:
        return Tile(label, f"≥{number(count)}", meaning, "warning")
    return Tile(label, "unknown", "not decided" if verdict.certain else "none by the sums on record", "warning")


def _required(verdict: Verdict, required: int) -> Tile:
    colluding = ", colluders counted in" if verdict.question.colluders else ""
    if verdict.met:
        return Tile("Required level", number(required), f"met{colluding}", "good")
    missed = "not met" if verdict.strong_left < required else "cannot be shown to be met"
    return Tile("Required level", number(required), f"{missed}{colluding}", "warning")


def _window(verdict: Verdict, window: WindowLevel) -> Tile:
    level = ("" if verdict.certain and window.complete else "≤") + number(window.level)
    return Tile(
        f"Within {counted(window.width, 'round')}", level, f"strong, at worst: from round {window.first} on"
    )


def _sizes(sizes: IntArray) -> str:
    """Say of how many users the sums are."""
    if len(sizes) == 0:
        return "none on record"
    low, high = int(sizes.min()), int(sizes.max())
    return f"of {counted(low, 'user')} each" if low == high else f"of {number(low)} to {number(high)} users"
