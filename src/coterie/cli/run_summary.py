"""What came out of runs, for a person at a terminal: the verdict first, then the numbers, then the files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.report.page.blocks import Tile
    from coterie.report.run.comparison import Comparison
    from coterie.report.run.result import RunResult
    from coterie.values.words import Tone

COLOURS: dict[Tone, str] = {"plain": "bold", "good": "bold green", "warning": "bold yellow"}


def today() -> str:
    """Return the day, for a page to carry."""
    return datetime.now(UTC).date().isoformat()


def print_result(run: RunResult, files: Sequence[Path]) -> None:
    """Print what came out of a run, and name the files that were written."""
    console, guarantee, summary = Console(), run.guarantee, run.summary()
    console.print(Text(guarantee.headline, style=COLOURS[guarantee.tone]))
    console.print(Text(" ".join(guarantee.sentences)))
    console.print()
    accuracy = summary["accuracy"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in (
        ("test accuracy", "not measured" if accuracy is None else f"{accuracy:.2%}"),
        ("privacy level T", _with_meaning(guarantee.strong)),
        ("weak level", _with_meaning(guarantee.weak)),
        ("users per round C", f"{summary['cardinality']:.2f}"),
        ("fairness gap F", f"{summary['fairness_gap']:.3f}"),
        ("rounds", f"{summary['rounds']}, of which {summary['skipped']} without a result"),
        ("batches lost mid-round", str(summary["lost_batches"])),
        ("time", f"{summary['seconds']:.0f} s"),
    ):
        table.add_row(name, Text(value))
    console.print(table)
    print_files(files)


def print_comparison(comparison: Comparison, files: Sequence[Path]) -> None:
    """Print what several runs gave, a row for each group of one setting, and name the files."""
    console, results = Console(), comparison.results()
    console.print(Text(comparison.headline, style="bold"))
    console.print(Text(comparison.answer))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0))
    places = [place for place, name in enumerate(results.columns) if name != "loss"]  # the page has room for it
    for place in places:
        table.add_column(results.columns[place], justify="right" if place else "left", no_wrap=place > 0)
    for row in results.rows:
        table.add_row(*(Text(str(row[place])) for place in places))
    console.print(table)
    print_files(files)


def print_files(files: Sequence[Path]) -> None:
    """Name the files that were written, pages first."""
    console = Console()
    console.print()
    for file in sorted(files, key=lambda path: path.suffix != ".html"):
        console.print(Text(f"{'Report' if file.suffix == '.html' else 'Wrote'}: {file}"), soft_wrap=True)


def _with_meaning(tile: Tile) -> str:
    return f"{tile.value} ({tile.meaning})"
