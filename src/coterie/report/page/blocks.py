"""What pages are made of: frozen values that say what to show, and nothing about how it looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coterie.values import FloatArray, IntArray
from coterie.values.words import Tone


@dataclass(frozen=True)
class Tile:
    """A key number: what it is called, its value, and one line that says what it means."""

    label: str
    value: str
    meaning: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Tiles:
    """The key numbers of a page, side by side."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Text:
    """Paragraphs in plain words. Text between `backticks` is set as code; nothing else is markup."""

    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Points:
    """Statements, each under a few words that name it: (name, statement)."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Curve:
    """Points of one curve, from left to right.

    `step` holds a value until the next one. `band` is a lower and an upper value for each point, drawn as an area.
    """

    name: str
    x: Sequence[int]
    y: Sequence[float]
    step: bool = False
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Curves:
    """Curves over the rounds, or whatever `across` names. With `percent`, a value of 1 is 100 %."""

    lines: tuple[Curve, ...]
    across: str
    percent: bool = False


@dataclass(frozen=True)
class StackedBars:
    """A bar for each name, made of parts that add up: (name of the part, its value in each bar)."""

    names: tuple[str, ...]
    parts: tuple[tuple[str, Sequence[int]], ...]
    across: str


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Shares from 0 up to the largest, which has the strongest colour.

    `columns` numbers every column by its first round. `rows` names every row, each by a name of its own, for who
    points at it; `ticks` names some rows at the side: (row, name).
    """

    share: FloatArray
    columns: Sequence[int]
    rows: Sequence[str]
    ticks: Sequence[tuple[int, str]]
    across: str


Chart: TypeAlias = Curves | StackedBars | HeatMap


@dataclass(frozen=True)
class Plot:
    """A chart, its title, and a caption with its numbers in words, for those who cannot see it.

    `height` is that of the drawing itself in pixels, without axes. `wide` gives the plot the whole width; others
    stand side by side.
    """

    title: str
    chart: Chart
    caption: str
    height: int = 220
    wide: bool = False


@dataclass(frozen=True)
class Plots:
    """Plots that belong together, side by side where there is room."""

    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row. Many rows scroll in a box, under a header that stays.

    Captions are distinct on a page. Columns hold numbers, set to the right, except those named in `words`.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    words: tuple[str, ...] = ()

    LONG = 16
    """Rows from which on the box scrolls."""


@dataclass(frozen=True)
class Code:
    """A text to copy as it stands, such as settings; `name` says what it is."""

    name: str
    text: str


@dataclass(frozen=True)
class Commands:
    """What to type next: (command, what it tells)."""

    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away behind one line: a proof, a long table, settings."""

    summary: str
    blocks: "tuple[Block, ...]"


Block: TypeAlias = Tiles | Text | Points | Plots | Table | Code | Commands | Details


@dataclass(frozen=True)
class Section:
    """A headed part of a page; on paper only what is `printed` and not folded away."""

    heading: str
    blocks: tuple[Block, ...]
    printed: bool = True


@dataclass(frozen=True)
class Foot:
    """What stands under a page: facts that say where it came from, and what its statements rest on."""

    facts: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page: the verdict as its title, the answer in a sentence or two, key numbers, sections and the foot.

    `kind` says what sort of page it is and `subject` what it is about, in a few words; `date` is when it was made.
    The first three key numbers lead, the others stand small below them.
    """

    kind: str
    title: str
    answer: str
    tiles: Tiles
    sections: tuple[Section, ...]
    foot: Foot
    tone: Tone = "plain"
    subject: str = ""
    date: str = ""

    LEADING = 3
    """Key numbers that lead."""


def evenly(count: int, most: int) -> IntArray:
    """Return at most `most` of `count` places, evenly spaced, the first and the last among them: a curve cut down.

    >>> evenly(5, 10).tolist(), evenly(101, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
