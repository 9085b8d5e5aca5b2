"""What a person sees of experiments: how far they are, then for each a table with the paper's numbers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from coterie.cli.terminal import grid_of, plain_console, table_of
from coterie.pages.reproduction import COLUMNS, cells, held_text

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.lab.paper.definition import Experiment
    from coterie.lab.paper.outcome import Outcome

QUICK = "Quick: few seeds, rounds and trials. These numbers are not comparable with the paper's."
SPREADS = {
    "training": "± is the standard deviation over seeds.",
    "reconstruction": "± is half of the range of the middle half of the windows; the value is their median.",
}
SIMULATED_SPREAD = "± is half of the 95 % interval of the mean over trials."
LINES = 20
"""Where nobody watches a terminal, at most about so many lines are printed for an experiment."""
MINUTE, HOUR = 60, 3600


class ReproductionProgress:
    """How far an experiment is, and the time left, on standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(stderr=True)
        self._start = time.monotonic()
        self._before: int | None = None

    def begin(self, outcome: Outcome) -> None:
        """Say what is still to be done, if anything is."""
        if outcome.missing:
            training = outcome.experiment.trains
            text = f"{self._name}: {outcome.missing} runs to do" if training else f"{self._name}: simulating"
            self._console.print(Text(text))

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that something has ended."""
        if self._before is None:
            self._before = done - 1
        left = (time.monotonic() - self._start) / (done - self._before) * (total - done)
        text = f"{self._name}: {what}, {done} of {total}" + (f", {duration(left)} left" if done < total else "")
        if self._console.is_terminal:
            self._console.print(Text(text.ljust(self._console.width - 1)), end="\n" if done == total else "\r")
        elif done == total or done % max(1, total // LINES) == 0:
            self._console.print(Text(text), soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(42.4), duration(150), duration(7320)
    ('42 s', '2 min 30 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"


def print_list(experiments: dict[str, Experiment]) -> None:
    """Print the experiments that there are."""
    rows = []
    for name, experiment in experiments.items():
        runs = f"{len({run.digest for run in experiment.runs()})} runs" if experiment.trains else "no training"
        rows.append((name, runs, experiment.title))
    plain_console().print(grid_of(rows))


def print_outcome(outcome: Outcome, files: list[Path], *, quick: bool) -> None:
    """Print an experiment's table, its claims, and the files that were written."""
    console, experiment = plain_console(), outcome.experiment
    source = f" ({experiment.source})" if experiment.source else ""
    console.print(f"{experiment.name}: {experiment.title}{source}", style="bold")
    if quick:
        console.print(QUICK, style="yellow")
    if outcome.rows:
        _print_rows(console, outcome)
    if outcome.obstacle:
        console.print(outcome.obstacle, style="yellow", soft_wrap=True)
    for claim in outcome.claims if outcome.rows else ():
        console.print(f"{held_text(claim.held)}: {claim.claim}", style="" if claim.held else "yellow")
        console.print(f"    {claim.evidence}", soft_wrap=True)
    for file in files:
        console.print(f"Wrote: {file}", soft_wrap=True)
    console.print()


def _print_rows(console: Console, outcome: Outcome) -> None:
    console.print(table_of(COLUMNS, map(cells, outcome.rows), left=COLUMNS[:2], wrapped=COLUMNS[1:2]))
    if any(row.spread for row in outcome.rows):
        console.print(SPREADS.get(outcome.experiment.kind, SIMULATED_SPREAD))
