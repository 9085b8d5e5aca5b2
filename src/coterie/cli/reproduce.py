"""`coterie reproduce`: the paper's tables and figures, made again and set beside the paper's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Json, check_torch
from coterie.errors import UsageError

DEVICES = ("auto", "cpu", "cuda")
NOTHING_DONE = 1


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME…|all", help="Experiments that --list names, or TOML files of your own."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Few seeds, rounds and trials, in the folder quick: minutes, to see it work."
        ),
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder of records, which are not made again, and figures (reproduction/).",
            show_default=False,
        ),
    ] = Path("reproduction"),
    data: Annotated[
        Path,
        typer.Option(
            help="The folder with the data sets, or where they are fetched to (data/).", show_default=False
        ),
    ] = Path("data"),
    device: Annotated[
        str, typer.Option(help="auto (a GPU; full size needs one), cpu or cuda.", show_default=False)
    ] = "auto",
    processes: Annotated[
        int | None, typer.Option(help="Runs or trials side by side; what suits the machine unless given.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the experiments and end.")] = False,
    json_: Json = False,
) -> None:
    """Set the paper's tables and figures beside our own.

    For each experiment: our number with its spread, the paper's and the difference, each claim of the paper with
    whether it held, and the figure as PNG and SVG. What is in the folder is not run again: Ctrl-C or a crash lose
    nothing, and the same command goes on. An experiment that cannot be run here, for want of a GPU or of data,
    says what is missing, and the others go on.

    Exit code 1: nothing could be done.

    Examples:

      coterie reproduce --list

      coterie reproduce metrics family

      coterie reproduce all --quick

      coterie reproduce all --out experiments/results

      coterie reproduce mine.toml --device cpu
    """
    check_torch("reproduce")
    from coterie.cli.reproduction_view import ReproductionProgress, print_list, print_outcome
    from coterie.lab.paper.definition import experiments_named, known_experiments
    from coterie.lab.paper.outcome import outcome_so_far
    from coterie.lab.paper.runs import Machine, complete
    from coterie.pages.reproduction import draw
    from coterie.values.checks import check_count

    if list_:
        print_list(known_experiments())
        return
    experiments = experiments_named(names or [])
    if device not in DEVICES:
        raise UsageError(f"--device is {device!r}: choose auto, cpu or cuda")
    if processes is not None:
        check_count(processes, "--processes")
    machine, folder = Machine(str(data), device, processes), out / "quick" if quick else out
    results = []
    for experiment in experiments:
        wanted = experiment.quick_version() if quick else experiment
        progress = ReproductionProgress(experiment.name)
        progress.begin(outcome_so_far(wanted, folder))
        try:
            outcome = complete(wanted, folder, machine, progress, quick=quick)
        except KeyboardInterrupt:
            typer.echo(f"coterie: what is done is kept in {folder}; the same command goes on", err=True)
            raise
        files = draw(wanted, folder) if outcome.rows else []
        results.append((outcome, files))
        if not json_:
            print_outcome(outcome, files, quick=quick)
    if json_:
        tables = [outcome.to_json() | {"files": [*map(str, files)]} for outcome, files in results]
        typer.echo(json.dumps({"quick": quick, "experiments": tables}))
    if not any(outcome.rows for outcome, _ in results):
        raise typer.Exit(NOTHING_DONE)
