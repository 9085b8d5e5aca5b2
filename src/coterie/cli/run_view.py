"""What a person sees of runs: the latest measures while they go on, then the verdict, the numbers, the files."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from coterie.cli.terminal import STYLES, grid_of, plain_console, print_files, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.lab.experiments.folder import RoundRow
    from coterie.lab.experiments.result import RunResult
    from coterie.lab.experiments.run import Run
    from coterie.pages.comparison import Comparison

LINES = 10
"""Where nobody watches a terminal, about so many lines are printed over a run."""


class LiveView:
    """A live table in a terminal, a few lines in a file."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("rounds"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("time"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None)
        self._live: Live | None = None
        self._every = 1
        self._lost = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def waiting(self, what: str) -> AbstractContextManager[object]:
        """Show that something takes its time."""
        quiet = self._live is not None or not self._console.is_terminal
        return nullcontext() if quiet else self._console.status(Text(f"{what} …"))

    def fetching(self, name: str, done: int, total: int | None) -> None:
        """Show how far a download is."""
        if self._console.is_terminal:
            share = f" of {total / 1e6:.0f}" if total else ""
            self._console.print(Text(f"Fetching {name}: {done / 1e6:.0f}{share} MB"), end="\r")

    def begin(self, job: Run) -> None:
        """Begin to show rounds."""
        total = job.spec.training.rounds
        self._every = max(1, total // LINES)
        self._lost = sum(row.lost_batches for row in job.rows)
        self._bar.update(self._task, total=total, completed=len(job.rows))
        users, size = job.setup.user_data.users, len(job.parameters)
        self.say(f"{users} users, a model of {size} parameters; results go to {job.folder.path}")
        if self._console.is_terminal:
            self._live = Live(self._bar, console=self._console, refresh_per_second=8)
            self._live.start()

    def show(self, row: RoundRow) -> None:
        """Show a round that has ended."""
        self._lost += row.lost_batches
        self._bar.update(self._task, completed=row.step)
        if self._live is not None:
            self._live.update(Group(self._bar, self._table(row)))
        elif row.step % self._every == 0:
            self.say(f"round {row.round}: {', '.join(f'{name} {value}' for name, value in self._values(row))}")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(text), soft_wrap=True)

    def _table(self, row: RoundRow) -> Table:
        names, values = zip(*self._values(row), strict=True)
        return table_of(names, [values])

    def _values(self, row: RoundRow) -> list[tuple[str, str]]:
        return [
            ("accuracy", "–" if row.accuracy is None else f"{row.accuracy:.2%}"),
            ("loss", "–" if row.loss is None else f"{row.loss:.4f}"),
            ("T", str(row.strong)),
            ("F", f"{row.fairness_gap:.3f}"),
            ("C", f"{row.cardinality:.2f}"),
            ("without result", str(row.skipped)),
            ("batches lost", str(self._lost)),
        ]


def print_result(run: RunResult, files: Sequence[Path]) -> None:
    """Print what came out of a run, and name the files that were written."""
    console, words, summary = plain_console(), run.verdict.words, run.summary()
    console.print(words.headline, style=STYLES[words.tone])
    console.print(" ".join(run.account))
    console.print()
    accuracy = summary["accuracy"]
    rows = (
        ("Test accuracy", "not measured" if accuracy is None else f"{accuracy:.2%}"),
        *((figure.label, f"{figure.value} ({figure.meaning})") for figure in words.figures[:2]),
        ("Users per round C", f"{summary['cardinality']:.2f}"),
        ("Fairness gap F", f"{summary['fairness_gap']:.3f}"),
        ("Rounds", f"{summary['rounds']}, of which {summary['skipped']} without a result"),
        ("Batches lost mid-round", str(summary["lost_batches"])),
        ("Time", f"{summary['seconds']:.0f} s"),
    )
    console.print(grid_of(rows))
    print_files(files)


def print_comparison(comparison: Comparison, files: Sequence[Path]) -> None:
    """Print what several runs gave, a row for each group of one setting, and name the files."""
    console, results = plain_console(), comparison.results()
    console.print(comparison.headline, style="bold")
    console.print(comparison.answer)
    console.print()
    places = [place for place, name in enumerate(results.columns) if name != "loss"]  # the page has room for it
    first = results.columns[:1]
    rows = [[row[place] for place in places] for row in results.rows]
    console.print(table_of([results.columns[place] for place in places], rows, left=first, wrapped=first))
    print_files(files)
