"""What `coterie audit` prints: a verdict in words for the person who answers for privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.audit.record import fraction_text, name, planned_name
from coterie.audit.weak.proofs import Combination

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from coterie.audit import Verdict
    from coterie.audit.forecast import Span

SHOWN = 5
"""So many isolated users, classes and breaches are printed; the JSON record holds more."""
SHORT = 8
"""Combinations of up to so many sums are written out."""


def print_verdict(verdict: Verdict, place: str, digest: str) -> None:
    """Print the summary."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    log = verdict.log
    console.print(
        f"{shown(place)}: {_many(verdict.users, 'user')}, {_many(log.rounds, 'round')} "
        f"({verdict.measures.skipped} without a result), {_many(len(log.set_rounds), 'sum')} learned."
    )
    console.print(digest, soft_wrap=True)
    console.print(f"\n{_headline(verdict)}\n", style="bold")
    console.print(_levels(verdict))
    for title, lines in (
        ("Isolated users", _isolation(verdict)),
        ("Smallest classes", _smallest(verdict)),
        ("Against the plan", _breaches(verdict)),
        ("If it goes on like this", _forecast(verdict)),
        ("What this rests on", (f"· {line}" for line in verdict.assumptions)),
    ):
        written = list(lines)
        if written:
            console.print(f"\n{title}", style="bold")
            for line in written:
                console.print(line, soft_wrap=len(line) > 2 * console.width)
    if verdict.met is not None:
        kept = "is met" if verdict.met else "is NOT met"
        console.print(f"\nRequired: a strong level of {verdict.question.required}. It {kept}.", style="bold")


def shown(text: str) -> str:
    r"""Return text as it can stand in a terminal: what does not print (an escape, a line end) is written out.

    >>> print(shown("ann\x1b[31m\n"))
    ann\x1b[31m\n
    """
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _headline(verdict: Verdict) -> str:
    """Say in one sentence what matters most."""
    if verdict.question.shown:
        rounds = _many(verdict.question.shown, "round")
        return f"In {rounds} nothing was hidden: the server saw every update by itself."
    isolated, since = len(verdict.isolated), max((found.round for found in verdict.isolated), default=0)
    if isolated and isolated == len(verdict.classes.seen):
        return f"Since round {since} the update of every user alone can be computed from the sums."
    if isolated:
        return f"The updates of {_many(isolated, 'user')} alone can be computed from the sums."
    if not verdict.isolation_known or not verdict.certain:
        return "It is not known whether a user's update alone can be computed from the sums."
    if verdict.strong > 1:
        return f"Whatever is computed from the sums, at least {verdict.strong} users stay alike in it."
    return "Nobody's update alone can be computed from the sums."


def _levels(verdict: Verdict) -> Table:
    from rich.table import Table
    from rich.text import Text

    low, high = verdict.weak.low, verdict.weak.high
    weak = f"{low}" if verdict.weak.exact else f"{low} … {high}"
    most = "" if verdict.certain else "at most "
    rows = [
        ("Strong privacy level T", most + str(verdict.strong), _strong_meaning(verdict)),
        ("Weak privacy level", most + weak, _weak_meaning(verdict)),
        ("Isolated users", _isolated_count(verdict), "their updates alone can be computed from the sums"),
    ]
    if verdict.before_unknown is not None:
        first = min(verdict.question.unknown)
        rows.append((f"Strong, before round {first}", str(verdict.before_unknown), "after it, not known"))
    if verdict.question.colluders:
        least, most_left = verdict.weak_left
        rows.append(
            (
                f"With {verdict.question.colluders} colluders",
                str(verdict.strong_left),
                f"strong, wherever they stand; weak {least}" + (f" … {most_left}" if least != most_left else ""),
            )
        )
    if verdict.window is not None:
        rounds = f"rounds {verdict.window.first} … {verdict.window.first + verdict.window.width - 1}"
        unfinished = "" if verdict.window.complete else "; not all windows were looked at"
        rows.append((f"Within {verdict.window.width} rounds", str(verdict.window.level), f"{rounds}{unfinished}"))
    rows += [
        ("Fairness gap F", f"{verdict.measures.fairness_gap:.3f}", "between the most and the least served user"),
        ("Cardinality C", f"{verdict.measures.cardinality:.2f}", "users in a round's sums on average"),
    ]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _strong_meaning(verdict: Verdict) -> str:
    if len(verdict.log.set_rounds) == 0:
        return "nothing was learned"
    if not verdict.certain:
        return "of the sums that are known; what others gave away is not"
    if verdict.strong == 1:
        return "some user can get a weight of its own in a combination of sums"
    return f"no computation on the sums tells fewer than {verdict.strong} users apart"


def _weak_meaning(verdict: Verdict) -> str:
    if not verdict.certain:
        return "the same"
    if verdict.weak.exact:
        return f"proven: the fewest users in any combination of sums is {verdict.weak.high}"
    more = "more --budget may narrow them" if verdict.eliminated else "the log is too large for closer ones"
    return f"proven bounds on the fewest users in any combination of sums; {more}"


def _isolated_count(verdict: Verdict) -> str:
    if verdict.isolation_known and verdict.certain:
        return f"{len(verdict.isolated)} of {verdict.users}"
    return f"at least {len(verdict.isolated)}" if verdict.isolated else "not decided"


def _isolation(verdict: Verdict) -> Iterator[str]:
    log = verdict.log
    for found in verdict.isolated[:SHOWN]:
        if isinstance(found.proof, Combination):
            proof = _sums(found.proof, verdict)
        else:
            proof = f"the first {found.proof.sets} sums determine every update"
        yield f"{shown(name(log, found.user))}: since round {found.round}; {proof}"
    if len(verdict.isolated) > SHOWN:
        last = verdict.isolated[-1]
        more = len(verdict.isolated) - SHOWN
        yield f"and {more} more, the last one since round {last.round} (--json lists all)"


def _sums(combination: Combination, verdict: Verdict) -> str:
    """Write a short combination out, and describe a long one."""
    from fractions import Fraction

    if len(combination.sets) > SHORT:
        return f"a combination of {len(combination.sets)} sums"
    log = verdict.log
    terms = []
    for index, numerator in zip(combination.sets, combination.numerators, strict=True):
        weight = Fraction(numerator, combination.denominator)
        factor = "" if abs(weight) == 1 else f"{fraction_text(abs(weight))} × "
        terms.append(f"{'-' if weight < 0 else '+'} {factor}round {log.set_rounds[index]}")
    return " ".join(terms).removeprefix("+ ")


def _smallest(verdict: Verdict) -> Iterator[str]:
    classes = verdict.classes
    if verdict.strong == 1 and verdict.isolated:
        return
    for users in classes.smallest[:SHOWN]:
        yield _names(name(verdict.log, user) for user in users)
    if classes.count > SHOWN:
        yield f"and {classes.count - SHOWN} more of {_many(classes.level, 'user')}"


def _breaches(verdict: Verdict) -> Iterator[str]:
    if verdict.breaches is None:
        return
    if not verdict.breaches:
        yield "Every sum was of whole batches."
    for breach in verdict.breaches[:SHOWN]:
        present = _names(name(verdict.log, user) for user in breach.present)
        if breach.batch is None:
            yield f"Round {breach.round}: {present} took part and are in no batch"
        else:
            missing = _names(planned_name(verdict, user) for user in breach.missing)
            yield f"Round {breach.round} split batch {breach.batch}: {present} without {missing}"
    if len(verdict.breaches) > SHOWN:
        yield f"and {len(verdict.breaches) - SHOWN} more"


def _forecast(verdict: Verdict) -> Iterator[str]:
    coming = verdict.forecast
    if coming is None:
        return
    if coming.policy == "batches":
        yield "The same users always came together. As long as they do, the strong level stays as it is."
        return
    if len(verdict.isolated) == len(verdict.classes.seen):
        return
    yield (
        f"Random selection, as the log looks, simulated {coming.trials} times: the strong level is below "
        f"{coming.level} {_after(coming.falls)}, the first user is isolated {_after(coming.first_isolated)}, "
        f"everyone {_after(coming.all_isolated)}."
    )


def _after(span: Span) -> str:
    if span.median is None:
        return "not within the rounds simulated"
    if span.median == 0:
        return "already"
    high = "…" if span.high is None else span.high
    return f"after {span.median} further rounds (nine times in ten {span.low} to {high})"


def _names(names: Iterable[str]) -> str:
    listed = [shown(one) for one in names]
    return ", ".join(listed[:12]) + (f" and {len(listed) - 12} more" if len(listed) > 12 else "")  # noqa: PLR2004


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
