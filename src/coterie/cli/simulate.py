"""`coterie simulate`: the three measures over rounds, for any availability."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import (
    Dropout,
    Json,
    PerRound,
    Seed,
    Users,
    check_one_source,
    check_seed,
    dropout_choices,
    waiting,
)
from coterie.cli.schemes import parse_schemes
from coterie.cli.weak import bracket, proven_weak_level
from coterie.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from rich.table import Table

    from coterie.selection import AvailabilityModel
    from coterie.simulation import Simulation, Summary, Trial
    from coterie.values import FloatArray

NARROWEST = 90
"""Columns that the table needs; a narrower terminal breaks the lines itself."""
SAVE_EVERY = 10.0
"""Seconds between savings of the trials finished so far."""


def simulate(
    per_round: PerRound = None,
    users: Users = None,
    schemes: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, from the schemes named above. Unless given: random, weighted, partition and "
            "the largest three T that divide N and K."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Adds the scheme `plan`: the batches of this file, as `coterie plan` wrote it."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="J, rounds in each trial (200 unless given).", show_default=False)
    ] = 200,
    trials: Annotated[
        int, typer.Option(help="Independent repetitions (100 unless given).", show_default=False)
    ] = 100,
    dropout: Dropout = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw the users' probabilities anew in every trial.")
    ] = False,
    availability: Annotated[
        Path | None,
        typer.Option(help="Instead: replay a log of who was online when, CSV or Parquet with columns round,user."),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            help="When absences fall: independent (unless given), daily (time zones), markov (long absences), "
            "groups (sites fall out together). Each user's share of absence stays the same.",
            show_default=False,
        ),
    ] = "independent",
    rounds_per_day: Annotated[
        int, typer.Option(help="daily: rounds in a day (24 unless given).", show_default=False)
    ] = 24,
    zones: Annotated[
        int, typer.Option(help="daily: number of time zones (8 unless given).", show_default=False)
    ] = 8,
    swing: Annotated[
        float, typer.Option(help="daily: strength of the cycle, 0 to 1 (0.8 unless given).", show_default=False)
    ] = 0.8,
    absence: Annotated[
        float, typer.Option(help="markov: mean rounds of an absence (10 unless given).", show_default=False)
    ] = 10.0,
    groups: Annotated[
        int, typer.Option(help="groups: number of groups (10 unless given).", show_default=False)
    ] = 10,
    outage: Annotated[
        float, typer.Option(help="groups: share of rounds a group is out (0.05 unless given).", show_default=False)
    ] = 0.05,
    lost: Annotated[
        float,
        typer.Option(
            help="Probability that a chosen user is lost before the round ends; batches are then shown sealed (an "
            "incomplete batch is left out) and unsealed (it is split).",
            show_default=False,
        ),
    ] = 0.0,
    leaving: Annotated[
        float, typer.Option(help="Probability per round that a user leaves for good.", show_default=False)
    ] = 0.0,
    joining: Annotated[
        float, typer.Option(help="Newcomers per round on average (0.1: one in ten rounds).", show_default=False)
    ] = 0.0,
    seed: Seed = 0,
    processes: Annotated[
        int | None, typer.Option(help="Processes to use; all cores unless given. The result is the same.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for record.json, rows.csv (and .parquet), measures.png and measures.svg."),
    ] = None,
    json_: Json = False,
) -> None:
    """Simulate selection schemes and show what they give away and what they cost.

    For every scheme: the strong privacy level T (the worst trial and the mean), the share of users that the
    server has isolated, the fairness gap F (over all rounds, and over completed rounds), the users aggregated
    per round C with its 95 % interval, and the share of skipped rounds; all after the last round. The folder
    --out keeps every round.

    Schemes: random (K uniformly), weighted (the K least served), partition (fixed groups of K), bernoulli
    (everyone by a coin), T6 (batches of 6, the least-served ones first), T6-text (one least-served batch, the
    others at random), T6-uniform (batches at random), T6-sorted (batches of users of like dropout).

    Ctrl-C keeps the finished trials.

    Examples:

      coterie simulate --users 120 --per-round 12 --dropout 0.1,0.2,0.3,0.4,0.5 --out measures

      coterie simulate --users 120 --per-round 12 --dropout 0.2 --schemes T4 --lost 0.02

      coterie simulate --users 600 --per-round 60 --dropout 0.3 --pattern daily --schemes random,T6,T6-sorted
    """
    import numpy as np

    from coterie.logs import read_availability
    from coterie.selection import RedrawnDropout, Replay, draw_dropout
    from coterie.simulation import Simulation, Summary, room_for_newcomers, run_trials

    if per_round is None:
        raise UsageError("say how many users take part in a round: --per-round 12")
    check_seed(seed)
    rng = np.random.default_rng(seed)
    check_one_source(users, dropout, availability)
    if availability is not None:
        if pattern != "independent" or redraw or joining:
            raise UsageError("a log is replayed as it is: leave out --pattern, --redraw and --joining")
        with waiting(f"Reading {availability}"):
            recorded = read_availability(availability, users)
        model: AvailabilityModel = Replay(recorded)
        present, shares = recorded.users, recorded.dropout
    else:
        choices, present = dropout_choices(str(dropout)), int(users or 0)
        everyone = present + room_for_newcomers(joining, rounds)
        drawn = draw_dropout(choices, everyone, rng)
        model = _model(pattern, drawn, rng, rounds_per_day=rounds_per_day, zones=zones, swing=swing,
                       absence=absence, groups=groups, outage=outage)  # fmt: skip
        shares = drawn[:present]
        if redraw:
            if pattern != "independent":
                raise UsageError(f"--redraw draws independent dropout; leave out --pattern {pattern}")
            model, shares = RedrawnDropout(tuple(choices), everyone), None
    compared = parse_schemes(schemes, plan, present, per_round, shares, lost)
    simulation = Simulation(present, per_round, rounds, compared, model, seed, lost, leaving, joining)
    if out is not None:
        _new_folder(out)
    workers = processes if processes is not None else os.cpu_count() or 1
    summaries = [Summary(rounds) for _ in simulation.schemes]
    about = {"availability": availability.name if availability else f"dropout {dropout}, {pattern}"}
    results = run_trials(simulation, trials, workers)
    interrupted = _collect(results, trials, simulation, summaries, out, about, quiet=json_)
    if summaries[0].trials == 0:
        raise typer.Exit(130)
    record = _record(simulation, summaries, about, trials)
    if not interrupted:
        with waiting("Looking at the weak level of the first trial"):
            _add_weak_levels(record, simulation)
    _deliver(record, out, as_json=json_)
    if interrupted:
        raise typer.Exit(130)


def _model(
    pattern: str,
    dropout: FloatArray,
    rng: np.random.Generator,
    *,
    rounds_per_day: int,
    zones: int,
    swing: float,
    absence: float,
    groups: int,
    outage: float,
) -> AvailabilityModel:
    """Return when the users' absences fall."""
    from coterie import selection

    users = len(dropout)
    for value, option in ((zones, "--zones"), (groups, "--groups")):
        if value < 1:
            raise UsageError(f"{option} is {value}: give at least 1")
    match pattern:
        case "independent":
            return selection.IndependentDropout(dropout)
        case "daily":
            return selection.DailyCycle(dropout, rng.integers(zones, size=users) / zones, rounds_per_day, swing)
        case "markov":
            return selection.MarkovOnOff(dropout, absence)
        case "groups":
            return selection.CorrelatedGroups(dropout, rng.integers(groups, size=users), outage)
    raise UsageError(f"--pattern is {pattern!r}: choose independent, daily, markov or groups")


def _new_folder(out: Path) -> None:
    """Make the folder for the results; refuse one that holds earlier ones."""
    from coterie.storage.files import check_writable, writing

    record = out / "record.json"
    with writing(out):
        out.mkdir(exist_ok=True)
        if record.exists():
            raise UsageError(f"{out} holds an earlier simulation; choose another folder, or remove that one first")
    check_writable(record)


def _collect(
    results: Iterator[list[Trial]],
    trials: int,
    simulation: Simulation,
    summaries: list[Summary],
    out: Path | None,
    about: dict[str, Any],
    *,
    quiet: bool,
) -> bool:
    """Gather the trials as they finish, with a live view; return whether Ctrl-C ended it early."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console)
    task = bar.add_task("trials", total=trials)
    saved = time.monotonic()
    shown = Live(bar, console=console, transient=True, refresh_per_second=4, auto_refresh=console.is_terminal)
    try:
        with shown:
            for finished in results:
                for summary, trial in zip(summaries, finished, strict=True):
                    summary.add(trial)
                bar.advance(task)
                if console.is_terminal and not quiet:
                    shown.update(Group(_table(_record(simulation, summaries, about, trials)), bar))
                if out is not None and time.monotonic() - saved > SAVE_EVERY:
                    _save_record(_record(simulation, summaries, about, trials), out)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        done = summaries[0].trials
        typer.echo(f"coterie: interrupted after {done} of {trials} trials, which are kept", err=True)
        return True
    return False


def _record(
    simulation: Simulation, summaries: list[Summary], about: dict[str, Any], wanted: int
) -> dict[str, Any]:
    import numpy as np

    from coterie import __version__
    from coterie.simulation import record

    versions = {"coterie": __version__, "numpy": np.__version__}
    return {**record(simulation, summaries), **about, "trials_wanted": wanted, "versions": versions}


def _add_weak_levels(record: dict[str, Any], simulation: Simulation) -> None:
    """Add what can be proven of each scheme's weak level after the last round of the first trial."""
    from coterie.simulation import MOST_USERS_FOR_ISOLATION, trial_log

    if simulation.availability.users <= MOST_USERS_FOR_ISOLATION:
        for index, scheme in enumerate(record["schemes"]):
            scheme["weak"] = proven_weak_level(trial_log(simulation, index))


def _save_record(record: dict[str, Any], out: Path) -> None:
    from coterie.storage.files import atomic_write

    with atomic_write(out / "record.json") as file:
        file.write(json.dumps(record).encode() + b"\n")


def _save(record: dict[str, Any], out: Path) -> None:
    """Write the record, the rows, and the pictures where they can be drawn."""
    from coterie.report.figures import can_draw, key_metrics
    from coterie.report.tables import write_curves

    _save_record(record, out)
    write_curves(record, out)
    if can_draw():
        for suffix in (".png", ".svg"):
            key_metrics(record, out / f"measures{suffix}")


def _deliver(record: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Save the result where asked, and print it."""
    if out is not None:
        _save(record, out)
    if as_json:
        ends = [{key: value for key, value in s.items() if key != "curves"} for s in record["schemes"]]
        typer.echo(json.dumps({**record, "schemes": ends}))
    else:
        _print_report(record, out)


def _print_report(record: dict[str, Any], out: Path | None) -> None:
    from rich.console import Console

    from coterie.report.figures import can_draw

    console = Console(highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    console.print(
        f"{record['users']} users, at most {record['per_round']} per round, {record['availability']}; "
        f"{record['rounds']} rounds, {record['trials']} trials, seed {record['seed']}"
    )
    console.print(_table(record))
    console.print(
        "T strong privacy level, worst trial and mean · weak level proven for the first trial · isolated share of "
        "users the server has alone · F fairness gap over all and over completed rounds · C users aggregated per "
        "round · skip share of rounds skipped · ± half of the 95 % interval"
    )
    if out is not None:
        missing = "" if can_draw() else " (no pictures: pip install 'coterie[report]')"
        console.print(f"Every round is in {out}{missing}.", soft_wrap=True)


def _with_interval(mean: float, interval: list[float], places: int) -> str:
    return f"{mean:.{places}f} ±{(interval[1] - interval[0]) / 2:.{places}f}"


def _table(record: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("scheme", no_wrap=True)
    for heading in ("T", "mean", "weak", "isolated", "F", "F compl.", "C", "skip"):
        table.add_column(heading, justify="right", no_wrap=True)
    for scheme in record["schemes"]:
        isolated = scheme["isolated_share"]
        table.add_row(
            scheme["scheme"],
            str(scheme["strong"]["low"]),
            _with_interval(scheme["strong"]["mean"], scheme["strong"]["interval"], 2),
            bracket(scheme.get("weak")),
            "–" if isolated is None else f"{isolated:.0%}",
            _with_interval(scheme["fairness_gap"], scheme["fairness_gap_interval"], 3),
            f"{scheme['fairness_gap_completed']:.3f}",
            _with_interval(scheme["cardinality"], scheme["cardinality_interval"], 2),
            f"{scheme['skipped']:.0%}",
        )
    return table
