"""The paper's tables and figures, made from the records of experiments alone.

A figure is `{"title", "panels": [{"title", "across", "up", "lines": [{"name", "x", "y"}]}]}`, plain data that JSON
holds. A line has `low` and `high` where there is a band around it, a panel `top` where its scale ends early. The
data lie beside an experiment's record, with a PNG and an SVG of them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from coterie.files import write_file
from coterie.lab.paper.definition import Experiment
from coterie.lab.paper.outcome import ACCURACY, ExperimentRecord, ResultFile, Row, read_simulated, record_path
from coterie.pages.comparison import mean_curve
from coterie.pages.figures import KEY_METRICS, can_draw, draw_panels
from coterie.selection import privacy_of

FigureData = dict[str, Any]


def accuracy_curves(experiment: Experiment, records: Mapping[str, ExperimentRecord]) -> FigureData:
    """Return a panel for each setting: the mean accuracy over seeds, and a band of one standard deviation."""
    curves: dict[tuple[str, str], list[dict[int, float]]] = {}
    for run in experiment.runs():
        if run.digest in records:
            curve = {int(step): float(value) for step, value in records[run.digest]["curve"].items()}
            curves.setdefault((run.setting, run.scheme), []).append(curve)
    panels = []
    for setting in (each.name for each in experiment.settings):
        ran = [scheme for scheme in experiment.schemes if (setting, scheme) in curves]
        lines = [{"name": scheme, **_mean_and_band(curves[setting, scheme])} for scheme in ran]
        if lines:
            panels.append(_panel(setting, "round", "test accuracy, %", lines))
    return {"title": experiment.title, "panels": panels}


RECONSTRUCTIONS = (
    ("random", "least squares"),
    ("random", "diagonal drift"),
    ("random", "kriging"),
    ("T2", "kriging"),
    ("T4", "kriging"),
)
"""The lines of the figure on reconstruction: schemes and methods."""


def reconstruction_grid(experiment: Experiment, records: Mapping[str, ExperimentRecord]) -> FigureData:
    """Return a column for each final rate; rows are errors and users found by partition, then histograms.

    Lines are medians over windows, with a band in which the middle half of the windows lies.
    """
    partitions = {"iid": "IID"}
    runs = {(partitions.get(run.spec.data.partition, "non-IID"), run.scheme): run for run in experiment.runs()}
    rates_of = {place: records[run.digest]["rates"] for place, run in runs.items() if run.digest in records}
    rates = [f"{rate:g}" for rate in experiment.windows.rates]
    kinds = list(dict.fromkeys(kind for kind, _ in rates_of))
    if len(rates_of) < len(runs):
        return {"title": experiment.title, "panels": []}
    panels = []
    for kind in kinds:
        for measure, up in (("mean", "squared relative error"), ("found", "users found")):
            for rate in rates:
                lines = []
                for scheme, method in RECONSTRUCTIONS:
                    windows = rates_of[kind, scheme][rate]["methods"][method]
                    lines.append({"name": f"{scheme}, {method}", **_windows(windows, measure)})
                panel = _panel(f"{kind}, rate {rate}", "rounds in the window", up, lines)
                panels.append(panel | ({"logarithmic": True} if measure == "mean" else {}))
    panels += [_histograms(rates_of, kinds[0], rate) for rate in rates]
    return {"title": experiment.title, "columns": len(rates), "panels": panels}


def _windows(by_length: ExperimentRecord, measure: str) -> dict[str, list[float]]:
    """Return the median over windows of each length, and the quartiles."""
    quarters = [quantiles(each[measure], method="inclusive") for each in by_length.values()]
    low, middle, high = (_round_all(values) for values in zip(*quarters, strict=True))
    return {"x": [float(length) for length in by_length], "y": middle, "low": low, "high": high}


def _histograms(records: Mapping[tuple[str, str], ExperimentRecord], kind: str, rate: str) -> dict[str, Any]:
    """Return how the errors of all users in all windows of 60 rounds are spread (fig:histo_error)."""
    places = [(exponent + 0.5) / 4 for exponent in range(-16, 16)]
    lines = []
    for scheme, method in RECONSTRUCTIONS:
        counts = records[kind, scheme][rate]["methods"][method]["60"]["histogram"]
        shares = _round_all([count / sum(counts) for count in counts])
        lines.append({"name": f"{scheme}, {method}", "x": places, "y": shares})
    return _panel(f"{kind}, rate {rate}, 60 rounds", "log10 of the error", "share of users", lines)


def _mean_and_band(curves: list[dict[int, float]]) -> dict[str, list[float]]:
    """Return the mean of several runs where all were measured, and one standard deviation on both sides."""
    curve = mean_curve("", curves, most=max(map(len, curves)))
    low_and_high = zip(("low", "high"), curve.band or (), strict=False)
    bands = {side: _round_all(values) for side, values in low_and_high}
    return {"x": [*map(float, curve.x)], "y": _round_all(curve.y), **bands}


def _measures(experiment: Experiment, record: ExperimentRecord) -> list[dict[str, Any]]:
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


def _tradeoff(experiment: Experiment, record: ExperimentRecord) -> list[dict[str, Any]]:
    """C over T: a line for each dropout that all users share, and one for dropouts that are drawn."""
    per_round = experiment.spec["selection"]["per_round"]
    levels = [privacy_of(scheme, per_round) for scheme in experiment.schemes]
    lines = []
    for setting in (each.name for each in experiment.settings):
        values = [record["values"][setting][scheme]["value"] for scheme in experiment.schemes]
        lines.append({"name": setting, "x": levels, "y": _round_all(values)})
    return [_panel("trade-off", "privacy level T", "users aggregated per round, C", lines)]


def _threshold(experiment: Experiment, record: ExperimentRecord) -> list[dict[str, Any]]:
    """The probability that everyone is exposed, over the number of rounds."""
    counts = {int(name.split()[0]): values for name, values in record["values"].items()}
    rounds = sorted(counts)
    lines = [
        {"name": scheme, "x": rounds, "y": [counts[count][scheme]["value"] for count in rounds]}
        for scheme in experiment.schemes
    ]
    return [_panel("everyone exposed", "round", "probability", lines)]


_SIMULATED = {"measures": _measures, "tradeoff": _tradeoff, "threshold": _threshold}
"""The panels of an experiment that trains nothing, by its kind; other kinds have no figure."""


def _panel(title: str, across: str, up: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "across": across, "up": up, "lines": lines}


def _round_all(values: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in values]


def figure_data(experiment: Experiment, folder: Path) -> FigureData | None:
    """Return the data of an experiment's figure from the records in a folder; None if there is nothing to draw."""
    path = record_path(experiment, folder)
    if experiment.trains:
        curves = accuracy_curves if experiment.kind == "training" else reconstruction_grid
        data = curves(experiment, ResultFile(path).records())
        return data if data["panels"] else None
    record, panels = read_simulated(path, experiment.digest), _SIMULATED.get(experiment.kind)
    if record is None or panels is None:
        return None
    return {"title": experiment.title, "panels": panels(experiment, record)}


def draw(experiment: Experiment, folder: Path) -> list[Path]:
    """Draw an experiment's figure from the records in a folder; return the files.

    The data in the figure are NAME.figure.json; where matplotlib is installed, NAME.png and NAME.svg show them.
    """
    data = figure_data(experiment, folder)
    if data is None:
        return []
    files = [folder / f"{experiment.name}.figure.json"]
    write_file(files[0], (json.dumps(data, separators=(",", ":")) + "\n").encode())
    if can_draw():
        files += [folder / f"{experiment.name}{suffix}" for suffix in (".png", ".svg")]
        for file_ in files[1:]:
            draw_panels(data, file_)
    return files


COLUMNS = ("", "measure", "ours", "runs", "paper", "difference")
_DIGITS = {ACCURACY: 2, "strong": 1, "cardinality": 2, "family size": 0}
"""Digits behind the point; three for every other measure."""
_LARGEST_WRITTEN_OUT = 1e9


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's cells, in the order of `COLUMNS`."""
    return (
        row.label,
        row.measure,
        ours(row),
        str(row.runs),
        "–" if row.paper is None else value_text(row.paper, row.measure),
        "–" if row.difference is None else value_text(row.difference, row.measure, signed=True),
    )


def ours(row: Row) -> str:
    """Return our number, with its spread where there is one."""
    value = value_text(row.ours, row.measure)
    return f"{value} ± {value_text(row.spread, row.measure)}" if row.spread else value


def value_text(value: float, measure: str, *, signed: bool = False) -> str:
    """Return a value with the digits that suit what it measures.

    >>> value_text(63.984, "test accuracy, %"), value_text(0.4, "cardinality", signed=True)
    ('63.98', '+0.40')
    """
    sign = "+" if signed else ""
    if abs(value) > _LARGEST_WRITTEN_OUT:
        return f"{value:{sign}.3g}"
    if measure.startswith("error"):
        return f"{value:{sign}.2g}"
    digits = _DIGITS.get(measure, 3)
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # the sum turns -0.0 into 0.0


def held_text(held: bool | None) -> str:  # noqa: FBT001 - whether it held is what the function is about
    """Return whether a claim held, in words."""
    return {True: "held", False: "not held", None: "not judged"}[held]
