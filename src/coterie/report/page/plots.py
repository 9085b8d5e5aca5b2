"""Plots of pages, as plotly figures in plain data: the same style everywhere, colours by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from coterie.values import FloatArray

LINES = ("var(--blue)", "var(--vermillion)", "var(--green)", "var(--purple)", "var(--orange)")
FEW_POINTS = 40
"""Up to this many points of a curve are marked."""


@dataclass(frozen=True)
class Curve:
    """Points of one curve; `step` holds a value until the next one."""

    name: str
    x: Sequence[int]
    y: Sequence[float]
    step: bool = False


def _inert(text: str) -> str:
    """Return a text as plotly shows it letter by letter: plotly reads some markup in labels.

    >>> _inert("<b>ana</b>")
    '&lt;b&gt;ana&lt;/b&gt;'
    """
    return escape(text, quote=False)


def curves(
    lines: Sequence[Curve], *, across: str, percent: bool = False, top: float | None = None
) -> dict[str, Any]:
    """Return curves over the rounds (or whatever `across` names), the axis from zero up."""
    data = [
        {
            "type": "scatter",
            "name": line.name,
            "x": list(line.x),
            "y": [_short(value) for value in line.y],
            "mode": "lines+markers" if len(line.x) <= FEW_POINTS and not line.step else "lines",
            "line": {"color": colour, "width": 2, "shape": "hv" if line.step else "linear"},
            "marker": {"size": 4},
            "hovertemplate": "%{y:.1%}" if percent else "%{y:.4~g}",
        }
        for line, colour in zip(lines, LINES, strict=False)
    ]
    upper = {"range": [0, top]} if top is not None else {"rangemode": "tozero"}
    layout = _layout(across, legend=len(lines) > 1)
    layout["yaxis"] |= upper | ({"tickformat": ".0%"} if percent else {})
    layout["hovermode"] = "x unified"
    return {"data": data, "layout": layout}


def stacked_bars(
    names: Sequence[str], parts: Sequence[tuple[str, Sequence[int]]], *, across: str
) -> dict[str, Any]:
    """Return a bar for each name, made of parts that add up."""
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [_inert(text) for text in names],
            "y": list(values),
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "%{y}",
        }
        for (name, values), colour in zip(parts, LINES, strict=False)
    ]
    layout = _layout(across, legend=True)
    layout["xaxis"] |= {"type": "category", "nticks": 12}
    layout |= {"barmode": "stack", "bargap": 0.25, "hovermode": "x unified"}
    return {"data": data, "layout": layout}


def heat_map(
    share: FloatArray,
    *,
    columns: Sequence[int],
    rows: Sequence[str],
    ticks: Sequence[tuple[int, str]],
    across: str,
) -> dict[str, Any]:
    """Return a picture of shares from 0 up to the largest, which has the strongest colour.

    `rows` names every row, each by a name of its own, for who points at it; `ticks` names some at the side.
    """
    scale = [[0, "var(--faint)"], [1, "var(--blue)"]]
    trace = {
        "type": "heatmap",
        "z": [[_short(value) for value in line] for line in share.tolist()],
        "x": list(columns),
        "y": [_inert(row) for row in rows],
        "colorscale": scale,
        "zmin": 0,
        "zmax": _short(share.max(initial=0)) or 1,
        "showscale": False,
        "hovertemplate": f"{across} %{{x}} · %{{y}}<br>took part: %{{z:.0%}}<extra></extra>",
    }
    layout = _layout(across, legend=False)
    places, texts = [place for place, _ in ticks], [_inert(text) for _, text in ticks]
    layout["yaxis"] |= {
        "type": "category",
        "autorange": "reversed",
        "showgrid": False,
        "tickvals": places,
        "ticktext": texts,
    }
    layout["xaxis"] |= {"showgrid": False}
    return {"data": [trace], "layout": layout}


def _layout(across: str, *, legend: bool) -> dict[str, Any]:
    axis = {
        "color": "var(--quiet)",
        "gridcolor": "var(--line)",
        "linecolor": "var(--line)",
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
        "title": {"standoff": 8},
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 28 if legend else 8, "b": 8},
        "font": {"color": "var(--quiet)", "size": 12},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "bgcolor": "rgba(0,0,0,0)",
        },
        "hoverlabel": {
            "bgcolor": "var(--surface)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
        "xaxis": axis | {"showgrid": False, "title": {"text": across, "standoff": 8}},
        "yaxis": dict(axis),
    }


def _short(value: float) -> float:
    """Six digits are more than a plot can show, and keep the page small."""
    return float(f"{value:.6g}")
