"""`coterie simulate`: the three measures over rounds, for any availability."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import (
    EXIT_INTERRUPTED,
    Delimiter,
    Dropout,
    Json,
    PerRound,
    RoundColumn,
    SeedOption,
    UserColumn,
    Users,
    check_one_source,
    dropout_choices,
    read_online,
)
from coterie.errors import UsageError

if TYPE_CHECKING:
    from coterie.selection import AvailabilityModel
    from coterie.values import AvailabilityLog


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
        typer.Option(
            help="Adds the scheme `plan`: the batches of this file, as `coterie plan` wrote it. It also says N."
        ),
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
        typer.Option(help="In place of --dropout, replay a log of who was online when: a row per round and user."),
    ] = None,
    round_column: RoundColumn = None,
    user_column: UserColumn = None,
    delimiter: Delimiter = None,
    pattern: Annotated[
        str,
        typer.Option(
            help="When absences fall: independent (unless given), daily (time zones), markov (long absences), "
            "groups (sites fall out together). Each user's share of absence stays the same.",
            show_default=False,
        ),
    ] = "independent",
    rounds_per_day: Annotated[int | None, typer.Option(help="daily: rounds in a day (24 unless given).")] = None,
    zones: Annotated[int | None, typer.Option(help="daily: number of time zones (8 unless given).")] = None,
    swing: Annotated[
        float | None, typer.Option(help="daily: strength of the cycle, 0 to 1 (0.8 unless given).")
    ] = None,
    absence: Annotated[
        float | None, typer.Option(help="markov: mean rounds of an absence (10 unless given).")
    ] = None,
    groups: Annotated[int | None, typer.Option(help="groups: number of groups (10 unless given).")] = None,
    outage: Annotated[
        float | None, typer.Option(help="groups: share of rounds a group is out (0.05 unless given).")
    ] = None,
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
    seed: SeedOption = 0,
    processes: Annotated[
        int | None, typer.Option(help="Processes to use; all cores unless given. The result is the same.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for record.json, rows.csv (and .parquet), measures.png and measures.svg."),
    ] = None,
    json_: Json = False,
) -> None:
    """Simulate what selection schemes give away and what they cost.

    For every scheme: the strong privacy level T (the worst trial and the mean), the share of users that the
    server has isolated, the fairness gap F (over all rounds, and over completed rounds), the users aggregated
    per round C with its 95 % interval, and the share of skipped rounds; all after the last round. The folder
    --out keeps every round.

    Schemes: random (K uniformly), weighted (the K least served), partition (fixed groups of K), bernoulli
    (everyone by a coin), T6 (batches of 6, the least-served ones first), T6-text (one least-served batch, the
    others at random), T6-uniform (batches at random). Batches of consecutive users; in T6-sorted
    of users of like dropout, in T6-mixed30 the same with 30 % of the users placed at random, in T6-together (with
    --availability) of users who were online together, in T6-shuffled drawn at random, in T6-dealt dealt out like
    cards.

    Ctrl-C keeps the finished trials.

    Examples:

      coterie simulate --users 120 --per-round 12 --dropout 0.1,0.2,0.3,0.4,0.5 --out measures

      coterie simulate --users 120 --per-round 12 --dropout 0.2 --schemes T4 --lost 0.02

      coterie simulate --users 600 --per-round 60 --dropout 0.3 --pattern daily --schemes random,T6,T6-sorted
    """
    import coterie.selection.simulation
    from coterie.cli.simulation_view import SimulationView, deliver, full_record
    from coterie.selection.plan_file import read_plan

    if per_round is None:
        raise UsageError("say how many users take part in a round: --per-round 12")
    batches = None if plan is None else read_plan(plan)
    if users is None and batches is not None and availability is None:
        users = batches.users
    check_one_source(users, dropout, availability)
    details = (("rounds_per_day", rounds_per_day), ("zones", zones), ("swing", swing), ("absence", absence),
               ("groups", groups), ("outage", outage))  # fmt: skip
    pattern_options = {name: value for name, value in details if value is not None}
    _check_effect(pattern, pattern_options, dropout, availability, redraw=redraw, joining=joining)
    coterie.selection.simulation.check_size(users)
    online = read_online(availability, users, round_column, user_column, delimiter)
    model: AvailabilityLog | AvailabilityModel | None = online
    choices = None if dropout is None else dropout_choices(dropout)
    if choices is not None and (redraw or pattern != "independent"):
        everyone = int(users or 0) + coterie.selection.simulation.room_for_newcomers(joining, rounds)
        model = _model(pattern, choices, everyone, seed, pattern_options, redraw=redraw)
        choices = None
    created = out is not None and _new_folder(out)
    drawn = f"dropout {dropout}, {'drawn anew' if redraw else pattern}"
    about = drawn if availability is None else f"availability as in {availability}"
    view = SimulationView(trials, out, about, quiet=json_)
    try:
        with view.live():
            result = coterie.selection.simulation.simulate(
                per_round=per_round,
                users=users if online is None else None,
                schemes=None if schemes is None else [name.strip() for name in schemes.split(",")],
                plan=batches,
                rounds=rounds,
                trials=trials,
                dropout=choices,
                availability=model,
                lost=lost,
                leaving=leaving,
                joining=joining,
                seed=seed,
                processes=processes if processes is not None else os.cpu_count() or 1,
                progress=view.show,
            )
    except UsageError:
        if created and out is not None:
            out.rmdir()
        raise
    except KeyboardInterrupt:
        done = view.result.trials if view.result is not None else 0
        typer.echo(f"coterie: interrupted after {done} of {trials} trials, which are kept", err=True)
        if view.result is not None:
            deliver(full_record(view.result, about), out, as_json=json_)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    deliver(full_record(result, about), out, as_json=json_)


PATTERNS: dict[str, dict[str, Any]] = {
    "independent": {},
    "daily": {"rounds_per_day": 24, "zones": 8, "swing": 0.8},
    "markov": {"absence": 10.0},
    "groups": {"groups": 10, "outage": 0.05},
}
"""When absences fall, and the options that say more of it with their values unless given."""


def _check_effect(
    pattern: str,
    pattern_options: dict[str, float],
    dropout: str | None,
    availability: Path | None,
    *,
    redraw: bool,
    joining: float,
) -> None:
    """Refuse options that would change nothing."""
    if pattern not in PATTERNS:
        raise UsageError(f"--pattern is {pattern!r}: choose independent, daily, markov or groups")
    if availability is not None and (pattern != "independent" or redraw or joining):
        raise UsageError("a log is replayed as it is: leave out --pattern, --redraw and --joining")
    for name, value in pattern_options.items():
        option = "--" + name.replace("_", "-")
        if name not in PATTERNS[pattern]:
            owner = next(owner for owner, names in PATTERNS.items() if name in names)
            raise UsageError(
                f"{option} has no effect with --pattern {pattern}; leave it out, or use --pattern {owner}"
            )
        if name in {"zones", "groups"} and value < 1:
            raise UsageError(f"{option} is {value}: give at least 1")
    if redraw and pattern != "independent":
        raise UsageError(f"--redraw draws independent dropout; leave out --pattern {pattern}")
    if redraw and dropout is not None and "," not in dropout:
        raise UsageError(f"--redraw has no effect with one probability, --dropout {dropout}; leave it out")


def _model(
    pattern: str, choices: list[float], users: int, seed: int, pattern_options: dict[str, Any], *, redraw: bool
) -> AvailabilityModel:
    """Return when the users' absences fall."""
    import numpy as np

    from coterie import selection

    rng = np.random.default_rng(seed)
    if redraw:
        return selection.RedrawnDropout(tuple(choices), users)
    dropout, details = selection.draw_dropout(choices, users, rng), PATTERNS[pattern] | pattern_options
    match pattern:
        case "daily":
            places = rng.integers(details["zones"], size=users) / details["zones"]
            return selection.DailyCycle(dropout, places, details["rounds_per_day"], details["swing"])
        case "markov":
            return selection.MarkovOnOff(dropout, details["absence"])
    members = rng.integers(details["groups"], size=users)
    return selection.CorrelatedGroups(dropout, members, details["outage"])


def _new_folder(out: Path) -> bool:
    """Make the folder for the results, and say whether it is new; refuse one that holds earlier ones."""
    from coterie.files import check_writable, writing

    record = out / "record.json"
    new = not out.exists()
    with writing(out):
        out.mkdir(exist_ok=True)
        if record.exists():
            raise UsageError(f"{out} holds an earlier simulation; choose another folder, or remove that one first")
    check_writable(record)
    return new
