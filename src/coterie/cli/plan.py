"""`coterie plan`: which privacy level can we afford with our users' availability?"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import Delimiter, Dropout, Json, PerRound, RoundColumn, SeedOption, UserColumn, Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from coterie.selection.trade_off import Option, TradeOff

MARK = "→"
"""Stands before the recommended row."""


def plan(
    per_round: PerRound = None,
    users: Users = None,
    privacy: Annotated[int | None, typer.Option(help="Look at this T only and plan for it.")] = None,
    dropout: Dropout = None,
    availability: Annotated[
        Path | None,
        typer.Option(
            help="In place of --users and --dropout, a log of who was online when: a row per round and user."
        ),
    ] = None,
    round_column: RoundColumn = None,
    user_column: UserColumn = None,
    delimiter: Delimiter = None,
    seed: SeedOption = 0,
    churn: Annotated[
        float | None, typer.Option(help="Share of users who leave for good within a year; shows its cost.")
    ] = None,
    mixing: Annotated[
        float,
        typer.Option(
            help="Adds availability-aware plans with this share of users placed at random.", show_default=False
        ),
    ] = 0.0,
    deal: Annotated[
        bool,
        typer.Option(
            "--deal",
            help="Deal users out to batches like cards, in place of consecutive ones, and recommend no other "
            "plan: for users who are numbered in the order of their data (labels, sites).",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the recommended plan to this JSON file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the trade-off to this PNG or SVG file.")] = None,
    json_: Json = False,
) -> None:
    """Show what each privacy level costs, and recommend one.

    A batch takes part only when all its users are there, so a higher T means more rounds skipped, or fewer
    users in them. The table shows for every feasible T: the batches, the users aggregated per round (C), the
    share of skipped rounds, the fairness gap between the most and the least served user (F), and how many
    rounds are needed to reach what random selection reaches in one. Plans that put users of like availability
    into one batch stand beside the plain ones: the same privacy, and usually far fewer rounds skipped.

    Examples:

      coterie plan --users 120 --per-round 12 --dropout 0.1,0.2,0.3,0.4,0.5

      coterie plan --per-round 50 --availability online.csv --out plan.json --plot trade-off.svg

      coterie plan --users 120 --per-round 12 --dropout 0.3 --deal --out plan.json

      coterie plan --users 10000 --per-round 200 --privacy 8 --dropout 0.2 --churn 0.1 --json
    """
    from coterie.cli.options import check_distinct, check_one_source, dropout_choices, read_online
    from coterie.errors import UsageError
    from coterie.files import check_writable
    from coterie.selection.plan_file import write_plan
    from coterie.selection.trade_off import plan as find_trade_off

    if per_round is None:
        raise UsageError("say how many users take part in a round: --per-round 12")
    check_distinct(("--availability", availability), ("--out", out), ("--plot", plot))
    if out is not None:
        check_writable(out)
    if plot is not None:
        from coterie.pages.figures import check_figure_path

        check_figure_path(plot)
    check_one_source(users, dropout, availability)
    online = read_online(availability, users, round_column, user_column, delimiter)
    with _progress() as progress:
        trade_off = find_trade_off(
            per_round=per_round,
            users=users if online is None else None,
            dropout=None if dropout is None else dropout_choices(dropout),
            availability=online,
            privacy=privacy,
            churn=churn,
            mixing=mixing,
            deal=deal,
            seed=seed,
            progress=progress,
        )
    if availability is not None:
        trade_off = replace(trade_off, availability=f"availability as in {availability}")
    files = []
    if out is not None and trade_off.recommended is not None:
        write_plan(trade_off.plan, out)
        files.append(("plan", out))
    if plot is not None:
        from coterie.pages.figures import trade_off as draw

        draw(trade_off.record(), plot)
        files.append(("picture", plot))
    if json_:
        typer.echo(json.dumps({**trade_off.record(), "files": [str(path) for _, path in files]}))
        return
    _print_report(trade_off)
    for what, path in files:
        typer.echo(f"The {what} is in {path}.")
    if out is not None and trade_off.recommended is None:
        typer.echo(f"No plan was written to {out}.")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, where a person watches, until all options are there."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Trying plans", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_report(trade_off: TradeOff) -> None:
    from rich.measure import Measurement

    from coterie.cli.terminal import plain_console
    from coterie.selection.trade_off import RULE
    from coterie.values.text import counted

    console = plain_console()
    console.print(
        f"{counted(trade_off.users, 'user')}, at most {trade_off.per_round} per round, {trade_off.availability}; "
        f"random selection aggregates {trade_off.random_cardinality:.2f} users a round."
    )
    kinds = _different_kinds(trade_off)
    options = [option for option in trade_off.options if option.kind in kinds]
    running, skipping = _worth_showing(options)
    options = [option for option in options if option.privacy in running]
    levels = [list(level) for _, level in groupby(options, key=lambda option: option.privacy)]
    table = _wide_table(levels, kinds, trade_off.recommended)
    if options and Measurement.get(console, console.options.update(width=1000), table).maximum <= console.width:
        console.print(table)
    elif options:
        for kind in kinds:
            console.print(_narrow_table([o for o in options if o.kind == kind], kind, trade_off.recommended))
    if skipping:
        console.print(f"T = {_levels(skipping)}: (nearly) every round is skipped.")
    if len(kinds) < len(trade_off.kinds):
        console.print("Plans by availability give the same: all users are away equally often.")
    console.print(
        "C users aggregated per round · skip share of rounds skipped · F fairness gap · × rounds needed where "
        "random selection needs one" + (" · ~ simulated" if not all(o.trade.exact for o in options) else "")
    )
    if options and options[0].churn is not None:
        console.print(_churn_table(levels, kinds))
    console.print(f"\n{trade_off.verdict}", style="bold")
    console.print(f"Rule: {RULE}.")
    best = trade_off.recommended
    if best is not None and best.kind == "consecutive" and best.privacy > 1 and best.batches > 1:
        console.print(
            "Its batches are of users with consecutive numbers. If users are numbered in the order of their data "
            "(labels, sites), --deal keeps batches mixed."
        )
    for warning in trade_off.warnings:
        console.print(f"Warning: {warning}", style="yellow")


def _different_kinds(trade_off: TradeOff) -> list[str]:
    """Return the kinds of plan to show: one, where all of them give the same."""
    columns = trade_off.columns
    count = len(trade_off.kinds)
    values = [columns[name].reshape(-1, count) for name in ("cardinality", "skipped", "fairness_gap")]
    same = all((value == value[:, :1]).all() for value in values)
    return list(trade_off.kinds[:1] if same else trade_off.kinds)


def _worth_showing(options: list[Option]) -> tuple[set[int], list[int]]:
    """Return the levels that say something, and those at which no plan completes a round."""
    from coterie.selection.trade_off import MOST_SKIPPED

    levels = {option.privacy for option in options}
    running = {option.privacy for option in options if option.trade.skipped < MOST_SKIPPED}
    # One row is no more to read than a sentence about it.
    return (running, sorted(levels - running)) if len(levels - running) > 1 else (levels, [])


def _levels(levels: list[int]) -> str:
    return f"{levels[0]} to {levels[-1]}" if len(levels) > 3 else ", ".join(map(str, levels))  # noqa: PLR2004


def _wide_table(levels: list[list[Option]], kinds: list[str], choice: Option | None) -> Table:
    """One row per T, the kinds of plan side by side."""
    from coterie.cli.terminal import table_of

    columns = ["", "T", "batches", "cohort", "family"]
    for kind in kinds:
        title = kind.replace("-availability", "\navailability")
        columns += [f"{title}\nC", "\nskip", "\nF", "\n×"]
    table = table_of(columns)
    for row in levels:
        marked = choice is not None and choice.privacy == row[0].privacy
        table.add_row(
            MARK if marked else "",
            *_plan_cells(row[0]),
            _count(row[0].family_size),
            *(cell for option in row for cell in _trade_cells(option)),
            style="bold" if marked else None,
        )
    return table


def _narrow_table(options: list[Option], kind: str, choice: Option | None) -> Table:
    """One row per T, for one kind of plan, within 60 columns."""
    from coterie.cli.terminal import table_of

    table = table_of(("", "T", "batches", "cohort", "C", "skip", "F", "×"), title=f"Plan {kind}")
    for option in options:
        marked = option is choice
        table.add_row(
            MARK if marked else "", *_plan_cells(option), *_trade_cells(option), style="bold" if marked else None
        )
    return table


def _plan_cells(option: Option) -> tuple[str, str, str]:
    return str(option.privacy), f"{option.batches} of {_span(option.batch_sizes)}", _span(option.cohort_sizes)


def _trade_cells(option: Option) -> tuple[str, str, str, str]:
    trade = option.trade
    mark = "" if trade.exact else "~"
    return (
        f"{mark}{trade.cardinality:.2f}",
        f"{trade.skipped:.0%}",
        f"{trade.fairness_gap:.3f}",
        _factor(option.rounds_factor),
    )


def _churn_table(levels: list[list[Option]], kinds: list[str]) -> Table:
    from coterie.cli.terminal import table_of

    columns = ("T", "batches retired", "users stranded", *(f"C {kind}" for kind in kinds))
    rows = []
    for level in levels:
        left = [option.churn for option in level if option.churn is not None]
        retired, stranded = f"{left[0].retired_batches:.0%}", f"{left[0].stranded_users:.0f}"
        rows.append((level[0].privacy, retired, stranded, *(f"{churn.cardinality:.2f}" for churn in left)))
    return table_of(columns, rows, wrapped=columns, title="After a year of leavers, nobody joining")


def _span(bounds: tuple[int, int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]}–{bounds[1]}"


def _count(number: int) -> str:
    return str(number) if number < 10**6 else f"10^{math.log10(number):.0f}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 100 else "≥100"  # noqa: PLR2004 - beyond that nobody would run it
