"""The data in an experiment's figure, from its records: panels with lines, in the paper's layout.

A figure is `{"title", "panels": [{"title", "across", "up", "lines": [{"name", "x", "y"}]}]}`, plain data that JSON
holds. A line has `low` and `high` where there is a band around it, a panel `top` where its scale ends early.
"""

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from coterie.reproduction.definition import Experiment, Setting

Record = Mapping[str, Any]
FigureData = dict[str, Any]

KEY_METRICS = {
    "strong": "strong privacy level T",
    "fairness_gap": "fairness gap F",
    "cardinality": "users aggregated per round, C",
}
"""The measures of fig:key_metrics, and what stands above each panel."""


def accuracy_curves(experiment: Experiment, records: Mapping[str, Record]) -> FigureData:
    """Return a panel for each setting: the mean accuracy over seeds, and a band of one standard deviation."""
    curves: dict[tuple[str, str], list[dict[int, float]]] = {}
    for run in experiment.runs():
        if run.digest in records:
            curve = {int(step): float(value) for step, value in records[run.digest]["curve"].items()}
            curves.setdefault((run.setting, run.scheme), []).append(curve)
    panels = [
        _panel(
            setting.name,
            "round",
            "test accuracy, %",
            [
                {"name": scheme, **_mean_and_band(curves[setting.name, scheme])}
                for scheme in experiment.schemes
                if (setting.name, scheme) in curves
            ],
        )
        for setting in experiment.settings
    ]
    return {"title": experiment.title, "panels": [panel for panel in panels if panel["lines"]]}


def simulated_figure(experiment: Experiment, record: Record) -> FigureData | None:
    """Return the data of the figure of an experiment that trains nothing; None if it has no figure."""
    match experiment.kind:
        case "measures":
            panels = _measures(experiment, record)
        case "tradeoff":
            panels = [_tradeoff(experiment, record)]
        case "threshold":
            panels = [_threshold(experiment, record)]
        case _:
            return None
    return {"title": experiment.title, "panels": panels}


def _mean_and_band(curves: list[dict[int, float]]) -> dict[str, list[float]]:
    """Return the mean of several runs where all were measured, and one standard deviation on both sides."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = [[curve[step] for curve in curves] for step in steps]
    means = [fmean(column) for column in values]
    line = {"x": [*map(float, steps)], "y": _rounded(means)}
    if len(curves) > 1:
        spreads = [stdev(column) for column in values]
        line["low"] = _rounded([mean - spread for mean, spread in zip(means, spreads, strict=True)])
        line["high"] = _rounded([mean + spread for mean, spread in zip(means, spreads, strict=True)])
    return line


def _measures(experiment: Experiment, record: Record) -> list[dict[str, Any]]:
    named = {setting.name for setting in experiment.settings}
    panels = []
    for measure, title in KEY_METRICS.items():
        if measure in named:
            lines = [
                {"name": scheme, "x": [*range(1, len(curve) + 1)], "y": curve}
                for scheme, curve in record["curves"][measure].items()
            ]
            panels.append(_panel(title, "round", "", lines))
            if measure == "strong":  # before the first sum everyone is in one class, off the scale
                panels[-1]["top"] = 1.05 * experiment.spec["selection"]["per_round"]
    return panels


def _tradeoff(experiment: Experiment, record: Record) -> dict[str, Any]:
    """C over T: a line for each dropout that all users share, and one for dropouts that are drawn."""
    levels = [int(scheme.removeprefix("T")) for scheme in experiment.schemes]
    lines = [_line(experiment.schemes, levels, setting, record) for setting in experiment.settings]
    return _panel("trade-off", "privacy level T", "users aggregated per round, C", lines)


def _line(schemes: tuple[str, ...], levels: list[int], setting: Setting, record: Record) -> dict[str, Any]:
    values = record["values"][setting.name]
    return {"name": setting.name, "x": levels, "y": _rounded([values[scheme]["value"] for scheme in schemes])}


def _threshold(experiment: Experiment, record: Record) -> dict[str, Any]:
    """The probability that everyone is exposed, over the number of rounds."""
    counts = {int(name.split()[0]): values for name, values in record["values"].items()}
    lines = [
        {
            "name": scheme,
            "x": sorted(counts),
            "y": [counts[count][scheme]["value"] for count in sorted(counts)],
        }
        for scheme in experiment.schemes
    ]
    return _panel("everyone exposed", "round", "probability", lines)


def _panel(title: str, across: str, up: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "across": across, "up": up, "lines": lines}


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 5) for value in values]
