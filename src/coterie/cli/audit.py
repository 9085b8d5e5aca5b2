"""`coterie audit`: what has a federation given away, from the log of any platform?"""

from __future__ import annotations

import json
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import EXIT_INTERRUPTED, Delimiter, Json, RoundColumn, UserColumn, check_seed
from coterie.errors import UsageError
from coterie.leakage.proofs import Combination
from coterie.leakage.verdict import fraction_text
from coterie.leakage.wording import user_name
from coterie.values.text import counted, listing, number, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from coterie.leakage import Verdict

EXIT_NOT_MET = 1


def audit(
    log: Annotated[
        str,
        typer.Argument(
            help="A log of any platform (CSV, JSON, Parquet, also .gz; - for standard input); or a ledger: a "
            "file, a run's folder or a PostgreSQL URL.",
            metavar="LOG",
            show_default=False,
        ),
    ] = "",
    users: Annotated[
        int | None, typer.Option(help="N, the number of all users, also those who never took part.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="J, the number of all rounds from the log's first one on, with a result or not."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Hold the log against this plan: which rounds split a batch. A ledger brings its own."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Also report the lowest level within any so many consecutive rounds.")
    ] = None,
    colluders: Annotated[
        str | None,
        typer.Option(
            help="Users who tell the server their updates: how many (3), or who (ann,bob; one user: ann,)."
        ),
    ] = None,
    require: Annotated[
        int | None, typer.Option(help="Exit with 1 unless the strong level is at least this.")
    ] = None,
    budget: Annotated[
        float,
        typer.Option(help="Seconds for the forecast and the weak level (10 unless given).", show_default=False),
    ] = 10.0,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed for what is drawn; it decides no proof (0 unless given).",
            callback=check_seed,
            show_default=False,
        ),
    ] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write the verdict as a page for a browser.")] = None,
    all_combinations: Annotated[
        bool,
        typer.Option("--all-combinations", help="Combinations for all isolated users, not the first 20 only."),
    ] = False,
    round_column: RoundColumn = None,
    user_column: UserColumn = None,
    delimiter: Delimiter = None,
    json_: Json = False,
) -> None:
    """Say what a participation log has given away, with proofs.

    The strong privacy level: whatever the server computes from all rounds' sums, users come in groups of at
    least so many that it cannot tell apart. The weak level: no combination of sums covers fewer users; it is a
    bracket where one number cannot be proven in time. Isolated users: those whose update alone is a
    combination of sums, with the round since which it is, and the combination.

    The log names who was in each round's sum: a row for each user and round, a column for each user, or lists of
    users. Columns are guessed, and what was understood is printed. Ctrl-C ends with what is proven so far.

    Exit code: 0, or 1 if the level is below --require, or 2 for bad input.

    Examples:

      coterie audit participation.csv

      coterie audit participation.csv --users 500 --require 8 --html report.html

      coterie audit runs/1 --require 4 --json

      coterie audit log.parquet --plan plan.json --colluders 3 --window 100

      coterie audit export.tsv.gz --round-column server_round --user-column cid
    """
    import math

    from coterie import __version__
    from coterie.federation.audit import audit as ask

    if not log:
        raise UsageError("say which log: a file, - for standard input, a run's folder, or a ledger")
    _check_page(html)
    if not 0 <= budget < math.inf:
        raise UsageError(f"--budget is {budget}: give seconds, 0 or more")
    for option, value in (("--users", users), ("--rounds", rounds), ("--window", window), ("--require", require)):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}: give at least 1")
    with _progress() as (stopped, show):
        verdict = ask(
            log,
            users=users,
            rounds=rounds,
            plan=plan,
            window=window,
            colluders=_colluders(colluders),
            require=require,
            budget=budget,
            seed=seed,
            all_combinations=all_combinations,
            round_column=round_column,
            user_column=user_column,
            delimiter=delimiter,
            should_stop=stopped.is_set,
            progress=show,
        )
    for warning in () if verdict.source is None else verdict.source.warnings:
        typer.echo(f"coterie: warning: {warning}", err=True)
    if json_:
        typer.echo(json.dumps({**verdict.record(), "version": __version__}))
    else:
        print_verdict(verdict)
    if html is not None:
        _write_page(verdict, html)
        typer.echo(f"Wrote {html}", err=json_)
    if stopped.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)
    if verdict.met is False:
        raise typer.Exit(EXIT_NOT_MET)


def _check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, before any work is done for it."""
    if path is not None:
        from coterie.pages.render import check_page_path

        check_page_path(path)


def _write_page(verdict: Verdict, path: Path) -> None:
    from datetime import UTC, datetime

    from coterie.pages.audit import audit_page
    from coterie.pages.render import write_page

    write_page(audit_page(verdict, date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")), path)


def _colluders(text: str | None) -> int | list[str]:
    """Return how many colluders there are wherever they stand, or the names of those who are."""
    if text is None:
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def _progress() -> Iterator[tuple[Event, Callable[[str], None]]]:
    """Show on standard error what is being done; the first Ctrl-C sets the event, a second ends the command."""
    import signal

    from rich.console import Console
    from rich.text import Text

    stopped = Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with Console(stderr=True).status("Reading the log …") as status:
        before = signal.signal(signal.SIGINT, stop)
        try:
            yield stopped, lambda what: status.update(Text(f"Looking at {what} … (Ctrl-C: enough)"))
        finally:
            signal.signal(signal.SIGINT, before)


MOST_SHOWN = 5
"""So many isolated users, classes and breaches are printed; the JSON record holds more."""
SHORT = 8
"""Combinations of up to so many sums are written out."""


def print_verdict(verdict: Verdict) -> None:
    """Print the summary."""
    from coterie.cli.terminal import STYLES, grid_of, key_numbers, plain_console

    console, words = plain_console(), verdict.words
    console.print(words.headline, style=STYLES[words.tone])
    console.print()
    console.print(key_numbers(words.figures))
    console.print()
    console.print(" ".join(words.sentences))
    if verdict.source is not None and verdict.source.notes:
        console.print(f"\nThe log was read as {printable(' '.join(verdict.source.notes))}", style="dim")
    for title, lines in (
        ("Isolated users", _isolation(verdict)),
        ("Smallest groups", _smallest(verdict)),
        ("Against the plan", _breaches(verdict)),
        ("If it goes on like this", [" ".join(words.forecast)] if words.forecast else []),
    ):
        written = list(lines)
        if written:
            console.print(f"\n{title}", style="bold")
            console.print(*written, sep="\n")
    console.print("\nMore numbers", style="bold")
    console.print(key_numbers(words.further_numbers))
    console.print("\nWhat this rests on", style="bold")
    console.print(grid_of([("·", sentence) for sentence in words.assumptions], gap=1))
    if verdict.source is not None:
        source = verdict.source
        console.print("\nThe log", style="bold")
        console.print(printable(source.place), soft_wrap=True)
        console.print(f"{source.digest_of} {source.digest}", soft_wrap=True)


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
    terms = []
    for index, numerator in zip(combination.sets, combination.numerators, strict=True):
        weight = Fraction(numerator, combination.denominator)
        factor = "" if abs(weight) == 1 else f"{fraction_text(abs(weight))} × "
        terms.append(f"{'-' if weight < 0 else '+'} {factor}round {verdict.log.set_rounds[index]}")
    return " ".join(terms).removeprefix("+ ")


def _smallest(verdict: Verdict) -> Iterator[str]:
    classes = verdict.classes
    if not verdict.has_sums or (verdict.strong == 1 and verdict.isolated):
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
            are = "is" if len(breach.present) == 1 else "are"
            yield f"Round {breach.round}: {present} took part and {are} in no batch"
        else:
            missing = listing(user_name(verdict.evidence.plan, user) for user in breach.missing)
            yield f"Round {breach.round} split batch {breach.batch}: {present} without {missing}"
    if len(breaches) > MOST_SHOWN:
        yield f"and {number(len(breaches) - MOST_SHOWN)} more"
