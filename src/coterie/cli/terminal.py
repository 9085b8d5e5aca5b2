"""What commands show a person in one way: the colour of a tone, tables without lines, the files written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from coterie.values.text import KeyNumber, Tone

STYLES: dict[Tone, str] = {"plain": "bold", "good": "bold green", "warning": "bold red"}
"""How words of each tone look."""
NARROWEST = 90
"""Columns that the widest tables need; a narrower terminal breaks the lines itself."""


def plain_console(narrowest: int = 0) -> Console:
    """Return a console that shows text as it is: names and paths may hold what rich takes for markup or emoji."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, narrowest)
    return console


def table_of(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]] = (),
    *,
    left: Collection[str] = (),
    wrapped: Collection[str] = (),
    title: str | None = None,
) -> Table:
    """Return a table: columns to the right but for those in `left`, none broken but `wrapped`."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        table.add_column(name, no_wrap=name not in wrapped)
        table.columns[-1].vertical = "bottom" if any("\n" in each for each in columns) else "top"
        table.columns[-1].justify = "left" if name in left else "right"
    for row in rows:
        table.add_row(*map(str, row))
    return table


def grid_of(rows: Iterable[Sequence[str | Text]], gap: int = 2) -> Table:
    """Return rows without a header; only the last column breaks its lines."""
    table = Table.grid(padding=(0, gap, 0, 0))
    for row in rows:
        table.add_row(*row)
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


def key_numbers(figures: Iterable[KeyNumber]) -> Table:
    """Return key numbers, each with what it means."""
    return grid_of((each.label, Text(each.value, style=STYLES[each.tone]), each.meaning) for each in figures)


def today() -> str:
    """Return the day, for a page to carry."""
    return datetime.now(UTC).date().isoformat()


def print_files(files: Sequence[Path]) -> None:
    """Name the files that were written, pages first."""
    console = plain_console()
    console.print()
    for file in sorted(files, key=lambda path: path.suffix != ".html"):
        console.print(f"{'Report' if file.suffix == '.html' else 'Wrote'}: {file}", soft_wrap=True)
