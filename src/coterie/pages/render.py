"""Turn blocks into a single HTML file that needs nothing beside itself: the one style of all pages.

A page holds its style, its drawings and a small script, so it opens offline, asks no server for anything, and can
be mailed. Its Content-Security-Policy admits the script by its SHA-256 and refuses every request, so not even a
hostile user name can run or fetch anything. Without the script only the numbers under the pointer are missing.

Charts are drawn here too: axes, paths and marks, as the page's template places them.
"""

import io
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie import __version__
from coterie.errors import UsageError
from coterie.files import check_writable, write_file
from coterie.pages import blocks
from coterie.pages.blocks import Chart, Curve, Curves, HeatMap, Page, StackedBars
from coterie.values.text import SPACE, number

COLOURS = ("var(--blue)", "var(--vermillion)", "var(--green)", "var(--purple)", "var(--orange)")
SIDE = 1000
"""Units of a drawing's side."""
FEW_POINTS = 40
"""Up to this many points of a curve are marked."""
MOST_MARKS = 10
"""Marks on the axis of bars and heat maps."""
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Mark:
    """A text at a place of an axis, in percent from the left or from the top."""

    at: float
    text: str


@dataclass(frozen=True)
class Shape:
    """A path: a line, dots of one size at the places where it begins, a band around a line, or bars."""

    kind: Literal["line", "dots", "band", "bars"]
    path: str
    colour: str


@dataclass(frozen=True)
class Drawing:
    """Everything that a page needs to show a chart."""

    x: tuple[Mark, ...]
    y: tuple[Mark, ...]
    hover: dict[str, Any]
    """What the page's script shows to who points at a place."""
    shapes: tuple[Shape, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    """Names and their colours, where there are several."""
    grid: bool = True
    image: str = ""
    """A PNG as a data: address, whose opacity is the strength of the colour."""


def drawing(chart: Chart) -> Drawing:
    """Return how a chart is drawn."""
    if isinstance(chart, Curves):
        return _curves(chart)
    return _bars(chart) if isinstance(chart, StackedBars) else _heat_map(chart)


@dataclass(frozen=True)
class _Axis:
    """A span of numbers, and where marks are put on it."""

    low: float
    high: float
    places: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def _curves(chart: Curves) -> Drawing:
    values = [value for line in chart.lines for side in (line.y, *(line.band or ())) for value in side]
    whole = all(float(value).is_integer() for value in values) and not chart.percent
    rounds = [x for line in chart.lines for x in line.x]
    across = _across(min(rounds, default=0), max(rounds, default=0))
    up = _upward(
        min(values, default=0), max(values, default=0), whole=whole, steps=any(line.step for line in chart.lines),
        top=1 if chart.percent and max(values, default=0) <= 1 else None,
    )  # fmt: skip
    shapes: list[Shape] = []
    for line, colour in zip(chart.lines, cycle(COLOURS), strict=False):
        shapes += _line(line, colour, across, up)
    return Drawing(
        x=tuple(Mark(_percent(across.share(place)), _tick(place)) for place in across.places),
        y=tuple(Mark(_percent(1 - up.share(place)), _tick(place, percent=chart.percent)) for place in up.places),
        shapes=tuple(shapes),
        legend=_legend([line.name for line in chart.lines]),
        hover={
            "kind": "curves",
            "percent": chart.percent,
            "from": across.low,
            "to": across.high,
            "lines": [
                {"name": line.name, "x": list(line.x), "y": [_short(value) for value in line.y], "step": line.step}
                for line in chart.lines
            ],
        },
    )


def _line(line: Curve, colour: str, across: _Axis, up: _Axis) -> list[Shape]:
    xs = [_place(across.share(x)) for x in line.x]
    ys = [_place(1 - up.share(y)) for y in line.y]
    shapes = []
    if line.band is not None and xs:
        low, high = ([_place(1 - up.share(value)) for value in side] for side in line.band)
        edge = [*zip(xs, high, strict=True), *reversed(list(zip(xs, low, strict=True)))]
        shapes.append(Shape("band", "M" + "L".join(f"{x} {y}" for x, y in edge) + "Z", colour))
    if xs:
        steps = "".join(f"H{x}V{y}" for x, y in zip(xs[1:], ys[1:], strict=True))
        straight = "".join(f"L{x} {y}" for x, y in zip(xs[1:], ys[1:], strict=True))
        shapes.append(Shape("line", f"M{xs[0]} {ys[0]}" + (steps if line.step else straight), colour))
    if len(xs) == 1 or (0 < len(xs) <= FEW_POINTS and not line.step):
        shapes.append(Shape("dots", "".join(f"M{x} {y}h0" for x, y in zip(xs, ys, strict=True)), colour))
    return shapes


def _bars(chart: StackedBars) -> Drawing:
    totals = [sum(values) for values in zip(*(values for _, values in chart.parts), strict=True)]
    up = _upward(0, max(totals, default=0), whole=True, steps=False)
    slot = SIDE / max(len(chart.names), 1)
    below = [0] * len(chart.names)
    shapes = []
    for (_, values), colour in zip(chart.parts, cycle(COLOURS), strict=False):
        path = ""
        for place, value in enumerate(values):
            if value:
                low, high = (_place(1 - up.share(edge)) for edge in (below[place], below[place] + value))
                path += f"M{slot * (place + 0.12):.4g} {low}h{slot * 0.76:.4g}V{high}h{-slot * 0.76:.4g}Z"
                below[place] += value
        shapes.append(Shape("bars", path, colour))
    return Drawing(
        x=_slots(chart.names),
        y=tuple(Mark(_percent(1 - up.share(place)), _tick(place)) for place in up.places),
        shapes=tuple(shapes),
        legend=_legend([name for name, _ in chart.parts]),
        hover={
            "kind": "bars",
            "names": list(chart.names),
            "lines": [{"name": name, "y": list(values)} for name, values in chart.parts],
        },
    )


def _heat_map(chart: HeatMap) -> Drawing:
    rows = max(len(chart.rows), 1)
    top = float(chart.share.max(initial=0)) or 1.0
    grey = np.zeros((*chart.share.shape, 2), dtype=np.uint8)
    grey[..., 1] = np.round(255 * chart.share / top)  # pixels are as opaque as they are strong
    return Drawing(
        x=_slots([_tick(column) for column in chart.columns]),
        y=tuple(Mark(_percent((row + 0.5) / rows), text) for row, text in chart.ticks),
        grid=False,
        image=png_address(grey),
        hover={
            "kind": "heat",
            "rows": list(chart.rows),
            "columns": list(chart.columns),
            "top": _short(top),
        },
    )


def png_address(pixels: NDArray[np.uint8]) -> str:
    """Return an image of height × width × channels, grey or coloured, opaque or not, as a data: address."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(pixels.squeeze(axis=2) if pixels.shape[2] == 1 else pixels)
    image.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


def _across(low: int, high: int) -> _Axis:
    """Return the axis of the rounds, from the first to the last."""
    if low == high:
        return _Axis(low - 0.5, high + 0.5, (float(low),))
    step = int(_step((high - low) / 5, whole=True))
    return _Axis(low, high, tuple(range(math.ceil(low / step) * step, high + 1, step)))


def _upward(low: float, high: float, *, whole: bool, steps: bool, top: float | None = None) -> _Axis:
    """Return an axis on which the values fill the height.

    It begins at zero for steps, for values of one size, and where that costs less than a quarter of the height.
    """
    if steps or low == high or low <= high / 4:
        low = min(low, 0)
    if steps or low == high:
        high += (high - low) * 0.05 or 1
    step = _step((high - low) / 5, whole=whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    places = tuple(float(f"{place * step:.10g}") for place in range(first, last + 1))
    end = places[-1] if top is None else min(places[-1], top)
    return _Axis(places[0], end, tuple(place for place in places if place <= end))


def _step(least: float, *, whole: bool) -> float:
    """Return the smallest of … 0.1, 0.2, 0.5, 1, 2, 5, 10 … that is not below `least`.

    >>> _step(0.3, whole=False), _step(0.3, whole=True), _step(12.4, whole=False)
    (0.5, 1.0, 20.0)
    """
    power = math.floor(math.log10(least))
    sizes = (*(each * 10.0**power for each in _STEPS), 10.0 ** (power + 1))
    step = next(size for size in sizes if size >= least * 0.999)
    return max(step, 1.0) if whole else step


def _slots(names: Sequence[str]) -> tuple[Mark, ...]:
    """Return marks under the middle of some columns, evenly spaced."""
    count = len(names)
    every = math.ceil(count / MOST_MARKS) or 1
    return tuple(Mark(_percent((place + 0.5) / count), names[place]) for place in range(0, count, every))


def _legend(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, cycle(COLOURS), strict=False)) if len(names) > 1 else ()


def _tick(value: float, *, percent: bool = False) -> str:
    r"""Return a number at an axis.

    >>> _tick(0.25), _tick(12.0), _tick(0.5, percent=True)
    ('0.25', '12', '50\u202f%')
    """
    if percent:
        return f"{100 * value:.6g}{SPACE}%"
    return number(int(value)) if float(value).is_integer() else f"{value:.6g}"


def _place(share: float) -> str:
    return f"{SIDE * share:.5g}"


def _percent(share: float) -> float:
    return round(100 * share, 3)


def _short(value: float) -> float:
    """Six digits are more than a plot can show, and keep the page small."""
    return float(f"{value:.6g}")


# --- pages

SUFFIXES = (".html", ".htm")


def check_page_path(path: Path) -> None:
    """Refuse a page that could not be written, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a .html file; name the page so that it ends in .html")
    _check_packages()
    check_writable(path)


def can_render() -> bool:
    """Return whether jinja2 and pillow, which pages are made with, are installed."""
    return find_spec("jinja2") is not None and find_spec("PIL") is not None


def _check_packages() -> None:
    if not can_render():
        raise UsageError("pages need jinja2 and pillow: pip install 'coterie[report]'")


def write_page(html: str, path: Path) -> None:
    """Write a page whole or not at all."""
    write_file(path, html.encode())


def render(page: Page, live: str = "") -> str:
    """Return a page as one self-contained HTML file.

    `live` is a script that keeps a served page up to date: it may ask the server that the page came from.
    """
    _check_packages()
    scripts = [_template("page.js"), *([live] if live else [])]
    values = {
        "version": __version__, "style": _template("page.css"), "scripts": scripts, "live": bool(live),
        "policy": _policy(scripts) + ("; connect-src 'self'" if live else ""),
    }  # fmt: skip
    html: str = _environment().get_template("page.html").render(page=page, **values)
    return html


def _policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy: these scripts, inline styles, images made here, and nothing else.

    Places in a drawing are style attributes, so styles cannot be admitted by hash; without any way to load
    something, a style gives nothing away.
    """
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    admitted = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {admitted}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _template(name: str) -> str:
    return files("coterie.pages").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:  # noqa: ANN401 - jinja2 is imported only where a page is made
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("coterie.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    filters = {"drawing": drawing, "prose": _prose, "anchor": _anchor, "cell": _cell, "png": png_address}
    environment.filters |= filters
    environment.tests["kind"] = lambda block, name: isinstance(block, getattr(blocks, name))
    return environment


def _prose(text: str) -> str:
    """Escape a text, then set what stands between backticks as code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a lone backtick is a backtick
        return escape(text)
    marked = (f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(parts))
    return Markup("").join(Markup(part) for part in marked)  # noqa: S704 - every part is escaped


def _anchor(heading: str) -> str:
    """Return a heading as the name of a place in the page.

    >>> _anchor("What this run guarantees")
    'what-this-run-guarantees'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in heading.lower()).split())


def _cell(value: str | float) -> str:
    """Return a table's value as text.

    >>> _cell(1234), _cell(0.25), _cell("ana")
    ('1234', '0.250', 'ana')
    """
    if isinstance(value, int):
        return number(value)
    return f"{value:.3f}" if isinstance(value, float) else value
