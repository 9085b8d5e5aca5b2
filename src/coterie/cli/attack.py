"""`coterie attack`: what a server can make of a run's sums, as far as the attacks here go."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Json, check_torch
from coterie.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    Progress = Callable[[str, int, int], None]

DEMO = Path("attack-demo")


def attack(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="The folder of a run that was begun with --keep-aggregates."),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="Train and attack random selection, T=2 and T=4 on the shipped data: minutes."
        ),
    ] = False,
    window: Annotated[
        int | None,
        typer.Option(help="Rounds that are taken apart, the last ones; unless given, as many as promise most."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the page, the figures and the record (RUN/attack; with --demo attack-demo)."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Take a run's sums apart into users' updates, as a server could.

    The attack reads what every server has: who took part in which round, the mean updates, and the global models.
    Then the real updates are computed again from the data, to judge how near it came. A user is found if the
    squared relative error of its update is below 0.1; how many a guess would find by chance is said beside it.

    The run must have kept its mean updates: begin it with --keep-aggregates. With cryptography updates are rounded
    before they are summed; where they are small, that alone can hide them.

    Examples:

      coterie attack --demo

      coterie run --scheme random --users 20 --per-round 8 --rounds 24 --model logistic --partition shards
    --minibatch 600 --learning-rate 0.001 --aggregation plain --keep-aggregates --out mine

      coterie attack mine

      coterie attack mine --window 20 --json
    """
    check_torch("attack")
    if demo == (run is not None):
        raise UsageError("give the folder of a run that kept its aggregates, or --demo; see coterie attack --help")
    if demo and window is not None:
        raise UsageError("--window has no effect on the demonstration; leave it out")
    from coterie.cli.terminal import today
    from coterie.pages.attack import write_attack_report

    folder = out or (DEMO if run is None else run / "attack")
    with _progress() as progress:
        record = _demonstrate(folder, progress) if run is None else _attack_run(run, window, folder, progress)
        files = write_attack_report(record, folder, today())
    if json_:
        schemes = [
            {name: value for name, value in scheme.items() if name != "errors"} for scheme in record["schemes"]
        ]
        answer = {"schemes": schemes, "out": record["out"], "files": [*map(str, files)]}
        if "deviation" in record:
            answer["deviation"] = [
                {name: value for name, value in attempt.items() if name != "image"}
                for attempt in record["deviation"]["attempts"]
            ]
        typer.echo(json.dumps(answer))
    else:
        _print(record, files)


def _attack_run(run: Path, window: int | None, folder: Path, progress: Progress) -> dict[str, Any]:
    from coterie.files import make_folder_of
    from coterie.lab.attacks.attack import attack_run, read_attacked_run
    from coterie.pages.attack import RECORD

    progress("reading the run", 0, 2)
    attacked = read_attacked_run(run)
    make_folder_of(folder / RECORD)
    progress("taking sums apart", 1, 2)
    verdict = attack_run(attacked, window)
    progress("taking sums apart", 2, 2)
    return {"schemes": [verdict.record()], "out": str(folder)}


def _demonstrate(folder: Path, progress: Progress) -> dict[str, Any]:
    from coterie.files import make_folder_of
    from coterie.lab.attacks.demonstration import Demonstration
    from coterie.pages.attack import RECORD

    make_folder_of(folder / RECORD)
    try:
        return Demonstration().run(folder, progress)
    except KeyboardInterrupt:
        typer.echo(f"coterie: what is trained is kept in {folder}; the same command goes on", err=True)
        raise


def _print(record: dict[str, Any], files: list[Path]) -> None:
    from coterie.cli.terminal import STYLES, plain_console, print_files, table_of
    from coterie.pages.attack import attack_caveats, attack_verdict, scheme_words

    console = plain_console()
    headline, tone = attack_verdict(record)
    console.print(f"{headline}.", style=STYLES[tone], soft_wrap=True)
    for caveat in attack_caveats(record):
        console.print(caveat, soft_wrap=True)
    console.print()
    columns = ("", "users found", "by chance", "median error", "method", "image")
    rows = [
        (
            scheme_words(each["scheme"], each["privacy"]),
            f"{each['users_found']} of {each['users']}",
            each["found_by_chance"],
            f"{each['error']['median']:.2g}",
            each["method"],
            "–" if each["psnr"] is None else f"{each['psnr']:.1f} dB",
        )
        for each in record["schemes"]
    ]
    console.print(table_of(columns, rows, left=("", "method")))
    if "deviation" in record:
        _print_deviation(record["deviation"], console)
    print_files(files)


def _print_deviation(record: dict[str, Any], console: Console) -> None:
    """Print what a server that cheats got: a row for each of its ways."""
    from coterie.cli.terminal import table_of
    from coterie.pages.deviation import DeviationTable, deviation_verdict

    outcomes = DeviationTable(record)
    console.print()
    console.print(f"A server that cheats. {deviation_verdict(record)}", soft_wrap=True)
    console.print()
    columns = [name.replace(", ", "\n") for name in ("a server that", *outcomes.columns)]
    rows = [
        (attack, *(attempt["outcome"] for attempt in outcomes.attempts(attack))) for attack in outcomes.attacks
    ]
    console.print(table_of(columns, rows, left=columns, wrapped=columns))


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show what is being done and how far it is, on standard error: a bar for a person, else a line a stage."""
    from rich import progress
    from rich.console import Console

    console, stage = Console(stderr=True), ""
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            nonlocal stage
            bar.update(task, description=what, completed=done, total=total)
            if what != stage and not console.is_terminal:
                console.print(what)
            stage = what

        yield show
