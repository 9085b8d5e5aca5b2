"""An experiment's figure as files beside its record: the data, a PNG and an SVG."""

import json
from pathlib import Path
from typing import Any

from coterie.report.figures import can_draw, panels
from coterie.report.reproduction.series import accuracy_curves, simulated_figure
from coterie.reproduction.completion import record_path
from coterie.reproduction.definition import Experiment
from coterie.reproduction.records import ResultFile, SimulatedFile
from coterie.storage.files import atomic_write


def figure_data(experiment: Experiment, folder: Path) -> dict[str, Any] | None:
    """Return the data of an experiment's figure from the records in a folder; None if there is nothing to draw."""
    path = record_path(experiment, folder)
    if experiment.kind == "training":
        data: dict[str, Any] | None = accuracy_curves(experiment, ResultFile(path).records())
    else:
        record = SimulatedFile(path).record(experiment.digest)
        data = None if record is None else simulated_figure(experiment, record)
    return data if data is not None and data["panels"] else None


def draw(experiment: Experiment, folder: Path) -> list[Path]:
    """Draw an experiment's figure from the records in a folder; return the files.

    The data in the figure are NAME.figure.json; where matplotlib is installed, NAME.png and NAME.svg show them.
    """
    data = figure_data(experiment, folder)
    if data is None:
        return []
    files = [folder / f"{experiment.name}.figure.json"]
    with atomic_write(files[0]) as file:
        file.write((json.dumps(data, separators=(",", ":")) + "\n").encode())
    if can_draw():
        files += [folder / f"{experiment.name}{suffix}" for suffix in (".png", ".svg")]
        for file_ in files[1:]:
            panels(data, file_)
    return files
