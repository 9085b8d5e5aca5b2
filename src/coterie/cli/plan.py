"""`coterie plan`: which privacy level can we afford with our users' availability?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Dropout, Json, PerRound, Seed, Users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from coterie.planning import Option, Population

NARROWEST = 80
"""Columns that the table needs; a narrower terminal breaks the lines itself."""
LARGEST_JSON_INTEGER = 2**1024
"""Larger family sizes have hundreds of digits; the record then gives only their logarithm."""


def plan(
    per_round: PerRound = None,
    users: Users = None,
    privacy: Annotated[int | None, typer.Option(help="Look at this T only and plan for it.")] = None,
    dropout: Dropout = None,
    availability: Annotated[
        Path | None,
        typer.Option(help="Instead: a log of who was online when, CSV or Parquet with columns round,user."),
    ] = None,
    seed: Seed = 0,
    churn: Annotated[
        float | None, typer.Option(help="Share of users who leave for good within a year; shows its cost.")
    ] = None,
    mixing: Annotated[
        float,
        typer.Option(
            help="Adds availability-aware plans with this share of users placed at random.", show_default=False
        ),
    ] = 0.0,
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

      coterie plan --users 10000 --per-round 200 --privacy 8 --dropout 0.2 --churn 0.1 --json
    """
    from coterie import planning
    from coterie.cli.options import check_distinct, check_seed
    from coterie.errors import UsageError
    from coterie.storage.files import check_writable
    from coterie.storage.plans import write_plan

    if per_round is None:
        raise UsageError("say how many users take part in a round: --per-round 12")
    check_distinct(("--availability", availability), ("--out", out), ("--plot", plot))
    if out is not None:
        check_writable(out)
    if plot is not None:
        from coterie.report.figures import check_figure_path

        check_figure_path(plot)
    check_seed(seed)
    population = _population(users, dropout, availability, seed)
    made_from, judged_on = planning.halves(population)
    levels = planning.feasible_levels(population.users, per_round, privacy)
    kinds = planning.plan_makers(population, mixing, seed)
    found = list(
        _progress(
            planning.options(levels, per_round, made_from, judged_on, mixing=mixing, churn=churn, seed=seed),
            total=len(levels) * len(kinds),
        )
    )
    choice, met = planning.recommend(found, population.users, per_round)
    warning = planning.homogeneity_warning(choice, mixing)
    record = {
        "users": population.users,
        "availability": str(availability) if availability is not None else f"dropout {dropout}, seed {seed}",
        "per_round": per_round,
        "random_cardinality": judged_on.random_cardinality(per_round),
        "options": [_option_record(option) for option in found],
        "recommended": _option_record(choice),
        "rule": planning.RULE,
        "rule_met": met,
        "warnings": [] if warning is None else [warning],
        "seed": seed,
    }
    if out is not None:
        write_plan(kinds[choice.kind](choice.privacy), out)
    if plot is not None:
        from coterie.report.figures import trade_off

        trade_off(record, plot)
    if json_:
        typer.echo(json.dumps(record))
        return
    _print_report(record, found, choice, list(kinds))
    for path, what in ((out, "plan"), (plot, "picture")):
        if path is not None:
            typer.echo(f"The {what} is in {path}.")


def _population(users: int | None, dropout: str | None, availability: Path | None, seed: int) -> Population:
    """Turn the options that describe the users into a population."""
    import numpy as np

    from coterie.cli.options import check_one_source, dropout_choices, waiting
    from coterie.logs import read_availability
    from coterie.planning import KnownDropout, RecordedAvailability
    from coterie.selection import draw_dropout

    check_one_source(users, dropout, availability)
    if availability is not None:
        with waiting(f"Reading {availability}"):
            return RecordedAvailability(read_availability(availability, users), seed)
    choices = dropout_choices(str(dropout))
    return KnownDropout(draw_dropout(choices, int(users or 0), np.random.default_rng(seed)), seed)


def _progress(found: Iterator[Option], total: int) -> Iterable[Option]:
    """Show a bar on standard error, where a person watches, until all options are there."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(
        found, "Trying plans", total=total, console=console, transient=True, disable=not console.is_terminal
    )


def _option_record(option: Option) -> dict[str, Any]:
    """Return an option as it stands in the JSON record."""
    trade = option.trade
    record: dict[str, Any] = {
        "privacy": option.privacy,
        "plan": option.kind,
        "batches": option.batches,
        "batch_sizes": option.batch_sizes,
        "cohort_sizes": option.cohort_sizes,
        "family_size": option.family_size if option.family_size < LARGEST_JSON_INTEGER else None,
        "family_size_log10": math.log10(option.family_size),
        "cardinality": trade.cardinality,
        "skipped": trade.skipped,
        "fairness_gap": trade.fairness_gap,
        "rounds_factor": option.rounds_factor if math.isfinite(option.rounds_factor) else None,
        "exact": trade.exact,
    }
    if option.churn is not None:
        record["churn"] = {
            "retired_batches": option.churn.retired_batches,
            "stranded_users": option.churn.stranded_users,
            "cardinality": option.churn.cardinality,
        }
    return record


def _print_report(record: dict[str, Any], found: list[Option], choice: Option, kinds: list[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(
        f"{record['users']} users, at most {record['per_round']} per round, {record['availability']}; "
        f"random selection aggregates {record['random_cardinality']:.2f} users a round."
    )
    wide = console.width >= 42 + 28 * len(kinds)  # what the columns side by side take
    console.width = max(console.width, NARROWEST)
    console.print(_wide_table(found, kinds) if wide else _tall_table(found))
    console.print(
        "C users aggregated per round · skip share of rounds skipped · F fairness gap · × rounds needed where "
        "random selection needs one" + (" · ~ simulated" if not all(o.trade.exact for o in found) else "")
    )
    if choice.churn is not None:
        console.print(_churn_table(found, kinds))
    verdict = "Recommended" if record["rule_met"] else "No T meets the rule; nearest"
    console.print(f"\n{verdict}: T = {choice.privacy}, plan {choice.kind}.", style="bold")
    console.print(f"Rule: {record['rule']}.")
    for warning in record["warnings"]:
        console.print(f"Warning: {warning}", style="yellow")


def _wide_table(found: list[Option], kinds: list[str]) -> Table:
    """One row per T, the kinds of plan side by side."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("T", "batches", "cohort", "family"):
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    for kind in kinds:
        for heading in ("C", "skip", "F", "×"):
            title = kind if heading == "C" else ""
            table.add_column(f"{title}\n{heading}", justify="right", no_wrap=True)
    for start in range(0, len(found), len(kinds)):
        row = found[start : start + len(kinds)]
        table.add_row(*_plan_cells(row[0]), *(cell for option in row for cell in _trade_cells(option)))
    return table


def _tall_table(found: list[Option]) -> Table:
    """One row per T and kind of plan, for narrow terminals."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("T", "batches", "cohort", "family", "plan", "C", "skip", "F", "×"):
        table.add_column(heading, justify="left" if heading == "plan" else "right", no_wrap=True)
    seen = None
    for option in found:
        cells = ("", "", "", "") if option.privacy == seen else _plan_cells(option)
        table.add_row(*cells, option.kind, *_trade_cells(option))
        seen = option.privacy
    return table


def _plan_cells(option: Option) -> tuple[str, str, str, str]:
    batches = f"{option.batches} of {_span(option.batch_sizes)}"
    return str(option.privacy), batches, _span(option.cohort_sizes), _count(option.family_size)


def _trade_cells(option: Option) -> tuple[str, str, str, str]:
    trade = option.trade
    mark = "" if trade.exact else "~"
    return (
        f"{mark}{trade.cardinality:.2f}",
        f"{trade.skipped:.0%}",
        f"{trade.fairness_gap:.3f}",
        _factor(option.rounds_factor),
    )


def _churn_table(found: list[Option], kinds: list[str]) -> Table:
    from rich.table import Table

    table = Table(title="After a year of leavers, nobody joining", title_justify="left", box=None, pad_edge=False)
    for heading in ("T", "batches retired", "users stranded", *(f"C {kind}" for kind in kinds)):
        table.add_column(heading, justify="right")
    for start in range(0, len(found), len(kinds)):
        left = [option.churn for option in found[start : start + len(kinds)] if option.churn is not None]
        table.add_row(
            str(found[start].privacy),
            f"{left[0].retired_batches:.0%}",
            f"{left[0].stranded_users:.0f}",
            *(f"{churn.cardinality:.2f}" for churn in left),
        )
    return table


def _span(bounds: tuple[int, int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]}–{bounds[1]}"


def _count(number: int) -> str:
    return str(number) if number < 10**6 else f"10^{math.log10(number):.0f}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 100 else "≥100"  # noqa: PLR2004 - beyond that nobody would run it
