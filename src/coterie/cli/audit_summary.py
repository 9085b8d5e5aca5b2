"""What `coterie audit` prints: the verdict first, then three numbers, then the detail."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from coterie.audit.record import fraction_text
from coterie.audit.weak.proofs import Combination
from coterie.audit.wording import plan_user_name, user_name
from coterie.values.words import counted, listing, number, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from coterie.audit import Figure, Verdict

MOST_SHOWN = 5
"""So many isolated users, classes and breaches are printed; the JSON record holds more."""
SHORT = 8
"""Combinations of up to so many sums are written out."""
_STYLES = {"warning": "red", "good": "green", "plain": "default"}


def print_verdict(verdict: Verdict) -> None:
    """Print the summary."""
    from rich.console import Console

    console, words = Console(highlight=False, markup=False), verdict.words
    console.print(words.headline, style=f"bold {_STYLES[words.tone]}")
    console.print()
    console.print(_table(words.figures))
    console.print()
    console.print(" ".join(words.sentences))
    if verdict.source is not None and verdict.source.notes:
        console.print(f"\nThe log was read as {printable(' '.join(verdict.source.notes))}", style="dim")
    for title, lines in (
        ("Isolated users", _isolation(verdict)),
        ("Smallest groups", _smallest(verdict)),
        ("Against the plan", _breaches(verdict)),
        ("If it goes on like this", iter([" ".join(words.forecast)] if words.forecast else [])),
    ):
        written = list(lines)
        if written:
            console.print(f"\n{title}", style="bold")
            for line in written:
                console.print(line)
    console.print("\nMore numbers", style="bold")
    console.print(_table(words.further_figures))
    console.print("\nWhat this rests on", style="bold")
    console.print(_bullets(words.assumptions))
    if verdict.source is not None:
        source = verdict.source
        console.print("\nThe log", style="bold")
        console.print(printable(source.place), soft_wrap=True)
        console.print(f"{source.digest_of} {source.digest}", soft_wrap=True)


def _table(figures: Iterable[Figure]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for figure in figures:
        value = Text(figure.value, style=f"bold {_STYLES[figure.tone]}")
        table.add_row(Text(figure.label), value, Text(figure.meaning))
    return table


def _bullets(sentences: Iterable[str]) -> Table:
    """Return sentences whose further lines stand under their first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for sentence in sentences:
        table.add_row("·", Text(sentence))
    return table


def _isolation(verdict: Verdict) -> Iterator[str]:
    for each in verdict.isolated[:MOST_SHOWN]:
        if isinstance(each.proof, Combination):
            proof = _sums(each.proof, verdict)
        else:
            proof = f"the first {number(each.proof.sets)} sums determine every update"
        yield f"{user_name(verdict.log, each.user)}: since round {each.round}; {proof}"
    if len(verdict.isolated) > MOST_SHOWN:
        last, more = verdict.isolated[-1], len(verdict.isolated) - MOST_SHOWN
        yield f"and {number(more)} more, the last one since round {last.round} (--json lists all)"


def _sums(combination: Combination, verdict: Verdict) -> str:
    """Write a short combination out, and describe a long one."""
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
    if not verdict.learned or (verdict.strong == 1 and verdict.isolated):
        return
    for users in classes.smallest[:MOST_SHOWN]:
        yield listing(user_name(verdict.log, user) for user in users)
    if classes.count > MOST_SHOWN:
        yield f"and {number(classes.count - MOST_SHOWN)} more of {counted(classes.level, 'user')}"


def _breaches(verdict: Verdict) -> Iterator[str]:
    breaches = verdict.breaches or ()
    for breach in breaches[:MOST_SHOWN]:
        present = listing(user_name(verdict.evidence.log, user) for user in breach.present)
        if breach.batch is None:
            strangers = (
                "took part and is in no batch" if len(breach.present) == 1 else "took part and are in no batch"
            )
            yield f"Round {breach.round}: {present} {strangers}"
        else:
            missing = listing(plan_user_name(verdict, user) for user in breach.missing)
            yield f"Round {breach.round} split batch {breach.batch}: {present} without {missing}"
    if len(breaches) > MOST_SHOWN:
        yield f"and {number(len(breaches) - MOST_SHOWN)} more"
