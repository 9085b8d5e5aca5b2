"""What commands show a person in one way: the colour of a tone, tables without lines, the files written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from coterie.values.text import Tone

STYLES: dict[Tone, str] = {"plain": "bold", "good": "bold green", "warning": "bold red"}
"""How words of each tone look."""


def table_of(
    columns: Sequence[str], *, left: Collection[str] = (), wrapped: Collection[str] = (), title: str | None = None
) -> Table:
    """Return a table without rows yet: columns to the right but for those in `left`, none broken but `wrapped`."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        table.add_column(name, no_wrap=name not in wrapped)
        table.columns[-1].vertical = "bottom" if any("\n" in each for each in columns) else "top"
        table.columns[-1].justify = "left" if name in left else "right"
    return table


def today() -> str:
    """Return the day, for a page to carry."""
    return datetime.now(UTC).date().isoformat()


def print_files(files: Sequence[Path]) -> None:
    """Name the files that were written, pages first."""
    console = Console()
    console.print()
    for file in sorted(files, key=lambda path: path.suffix != ".html"):
        console.print(Text(f"{'Report' if file.suffix == '.html' else 'Wrote'}: {file}"), soft_wrap=True)
