"""What a person sees of a simulation: a live table while it goes on, the report at its end, and its files."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from coterie import __version__
from coterie.cli.terminal import NARROWEST, plain_console, table_of
from coterie.files import write_file
from coterie.pages.figures import can_draw, key_metrics, write_curves
from coterie.selection.simulation import SimulationResult
from coterie.values.text import counted

SAVE_EVERY = 10.0
"""Seconds between savings of the trials finished so far."""


class SimulationView:
    """A live table and a bar on standard error, and the result so far, saved from time to time."""

    def __init__(self, trials: int, out: Path | None, about: str, *, quiet: bool) -> None:
        self.result: SimulationResult | None = None
        self._console = Console(stderr=True)
        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console)
        self._task = self._bar.add_task("trials", total=trials)
        self._out, self._about, self._quiet = out, about, quiet
        self._saved = time.monotonic()
        self._live: Live | None = None

    def live(self) -> Live:
        """Return what shows the view as long as it is entered."""
        terminal = self._console.is_terminal
        self._live = Live(
            self._bar, console=self._console, transient=True, refresh_per_second=4, auto_refresh=terminal
        )
        return self._live

    def show(self, result: SimulationResult) -> None:
        """Show the result so far, and save it if the last time was a while ago."""
        self.result = result
        self._bar.advance(self._task)
        if self._live is not None and self._console.is_terminal and not self._quiet:
            self._live.update(Group(_table(full_record(result, self._about)), self._bar))
        if self._out is not None and time.monotonic() - self._saved > SAVE_EVERY:
            _save_record(full_record(result, self._about), self._out)
            self._saved = time.monotonic()


def full_record(result: SimulationResult, about: str) -> dict[str, Any]:
    """Return the record of a result, with the versions that made it; `about` describes who was away when."""
    versions = {"coterie": __version__, "numpy": np.__version__}
    return {**result.record(), "availability": about, "versions": versions}


def _save_record(record: dict[str, Any], out: Path) -> None:
    write_file(out / "record.json", json.dumps(record).encode() + b"\n")


def _save(record: dict[str, Any], out: Path) -> list[Path]:
    """Write the record, the rows, and the pictures where they can be drawn; return the files."""
    _save_record(record, out)
    files = [out / "record.json", *write_curves(record, out)]
    if can_draw():
        for suffix in (".png", ".svg"):
            files.append(out / f"measures{suffix}")
            key_metrics(record, files[-1])
    return files


def deliver(record: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Save the result where asked, and print it."""
    files = [] if out is None else _save(record, out)
    if as_json:
        ends = [{key: value for key, value in s.items() if key != "curves"} for s in record["schemes"]]
        typer.echo(json.dumps({**record, "schemes": ends, "files": [str(path) for path in files]}))
    else:
        _print_report(record, files)


def _print_report(record: dict[str, Any], files: list[Path]) -> None:
    console = plain_console(NARROWEST)
    console.print(
        f"{counted(record['users'], 'user')}, at most {record['per_round']} per round, {record['availability']}; "
        f"{counted(record['rounds'], 'round')}, {counted(record['trials'], 'trial')}, seed {record['seed']}"
    )
    console.print(_table(record))
    console.print(
        "T strong privacy level, worst trial and mean · weak level proven for the first trial · isolated share of "
        "users the server has alone · F fairness gap over all and over completed rounds · C users aggregated per "
        "round · skip share of rounds skipped · ± half of the 95 % interval"
    )
    if files:
        missing = "" if can_draw() else " (no pictures: pip install 'coterie[report]')"
        names = ", ".join(path.name for path in files)
        console.print(f"Every round is in {files[0].parent}: {names}{missing}.", soft_wrap=True)


def _bracket(weak: dict[str, Any] | None) -> str:
    """Return what is proven of a weak level, for a person to read."""
    if weak is None:
        return "–"
    return str(weak["low"]) if weak["exact"] else f"{weak['low']}..{weak['high']}"


def _with_interval(mean: float, interval: list[float], places: int) -> str:
    return f"{mean:.{places}f} ±{(interval[1] - interval[0]) / 2:.{places}f}"


def _table(record: dict[str, Any]) -> Table:
    columns = ("scheme", "T", "mean", "weak", "isolated", "F", "F compl.", "C", "skip")
    rows = [
        (
            scheme["scheme"],
            scheme["strong"]["low"],
            _with_interval(scheme["strong"]["mean"], scheme["strong"]["interval"], 2),
            _bracket(scheme.get("weak")),
            "–" if (isolated := scheme["isolated_share"]) is None else f"{isolated:.0%}",
            _with_interval(scheme["fairness_gap"], scheme["fairness_gap_interval"], 3),
            f"{scheme['fairness_gap_completed']:.3f}",
            _with_interval(scheme["cardinality"], scheme["cardinality_interval"], 2),
            f"{scheme['skipped']:.0%}",
        )
        for scheme in record["schemes"]
    ]
    return table_of(columns, rows, left=("scheme",))
