"""What plots are made of: frozen values with the numbers to draw, and nothing about how they look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coterie.values import FloatArray


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
