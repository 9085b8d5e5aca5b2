"""`coterie report`: make the page of a run again, or compare several runs or seeds on one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import Json, check_torch, waiting
from coterie.errors import UsageError

if TYPE_CHECKING:
    from coterie.lab.experiments.result import RunResult

PAGE = "comparison.html"


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN…", help="Folders of runs; a folder that holds runs stands for all of them."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page that compares several runs (comparison.html, beside them if they share a folder)."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Make a run's page again, or compare several runs on one.

    One run: report.html and the figures are made again in its folder. Several: one page with their curves, a table
    of final accuracy, and the measures. Runs that differ only in their seed are a group with a mean and a spread.

    Examples:

      coterie report first

      coterie report runs/sealed runs/plain --out sealed-or-plain.html

      coterie report runs/five-seeds
    """
    check_torch("report")
    if not runs:
        raise UsageError("no run is named; give a run's folder, or several: coterie report RUN…")
    from coterie.pages.comparison import read_runs
    from coterie.pages.render import check_page_path

    with waiting("Reading the runs"):
        results = read_runs(runs)
    if len(results) == 1:
        if out is not None:
            raise UsageError(f"--out {out} is for a page that compares runs; the page of one run is in its folder")
        _report_one(results[0], json_=json_)
        return
    together = runs[0] / PAGE if len(runs) == 1 else Path(PAGE)  # in the folder that stands for all, or here
    page = out or together
    check_page_path(page)
    report_comparison(results, page, json_=json_)


def _report_one(run: RunResult, *, json_: bool) -> None:
    from coterie.cli.run_view import print_result
    from coterie.cli.terminal import today
    from coterie.pages.render import check_page_path
    from coterie.pages.run import write_run_report

    check_page_path(run.path / "report.html")
    files = write_run_report(run, today())
    if json_:
        typer.echo(json.dumps(run.summary() | {"files": [str(file) for file in files]}))
    else:
        print_result(run, files)


def report_comparison(runs: tuple[RunResult, ...], page: Path, *, json_: bool) -> None:
    """Write the page that compares runs, and print what it says."""
    from coterie.cli.run_view import print_comparison
    from coterie.cli.terminal import today
    from coterie.pages.comparison import compare, comparison_page
    from coterie.pages.render import write_page

    comparison = compare(runs)
    write_page(comparison_page(comparison, today()), page)
    if json_:
        typer.echo(json.dumps(comparison.tables() | {"files": [str(page)]}))
    else:
        print_comparison(comparison, [page])
