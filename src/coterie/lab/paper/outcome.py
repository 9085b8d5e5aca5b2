"""What an experiment gave, beside the paper: rows of a table, claims judged with their evidence, records on disk.

A training experiment has a line of JSON for each run, a simulated one a single file.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from math import hypot
from pathlib import Path
from statistics import fmean, quantiles, stdev
from typing import Any

from coterie.errors import UsageError
from coterie.files import read_file, write_file
from coterie.lab.experiments.folder import LineFile
from coterie.lab.paper.definition import Claim, Experiment

ExperimentRecord = dict[str, Any]
ACCURACY = "test accuracy, %"
ROUNDING = 1e-9
"""Two closed forms that differ by less are one number."""
_MEASURES = {
    "training": ACCURACY,
    "tradeoff": "cardinality",
    "threshold": "probability that everyone is exposed",
}
"""What is measured where the settings do not name it."""


@dataclass(frozen=True)
class Row:
    """One number of ours, and the paper's."""

    label: str
    measure: str
    ours: float
    spread: float
    """The standard deviation over the runs, 0 for a single one; where nothing is trained, half of the 95 %
    interval of the mean over the trials."""
    runs: int
    paper: float | None
    difference: float | None


@dataclass(frozen=True)
class Cell:
    """A mean and its spread, of so many runs or trials.

    >>> str(Cell(63.982, 1.05)), str(Cell(0.01375, 0.0))
    ('63.98 ± 1.05', '0.0138')
    """

    value: float
    spread: float
    runs: int = 1

    def __str__(self) -> str:
        digits = 2 if abs(self.value) >= 1 else 4
        spread = f" ± {self.spread:.{digits}f}" if self.spread else ""
        return f"{self.value:.{digits}f}{spread}"

    def is_near(self, other: "Cell") -> bool:
        """Return whether the difference is not larger than its spread."""
        return abs(self.value - other.value) <= hypot(self.spread, other.spread)


@dataclass(frozen=True)
class Judgement:
    """A claim, whether it held in our numbers, and these numbers."""

    claim: str
    held: bool | None
    """None where runs are still missing."""
    evidence: str


@dataclass(frozen=True)
class Outcome:
    """All that an experiment says so far."""

    experiment: Experiment
    rows: tuple[Row, ...]
    claims: tuple[Judgement, ...]
    missing: int = 0
    """Runs that have no record yet."""
    obstacle: str = ""
    """What keeps the missing runs from being run here, and what to do; empty if nothing does."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "source": self.experiment.source,
            "rows": [asdict(row) for row in self.rows],
            "claims": [asdict(claim) for claim in self.claims],
            "missing": self.missing,
            "obstacle": self.obstacle,
        }


Place = tuple[str, str]
"""A setting and a scheme."""


def training_outcome(experiment: Experiment, records: Mapping[str, ExperimentRecord]) -> Outcome:
    """Return the outcome of a training experiment from its records, those that are there."""
    values: dict[Place, list[float]] = {}
    lacking: list[Place] = []
    paths = {setting.name: setting.value for setting in experiment.settings}
    for run in experiment.runs():
        place = (run.setting, run.scheme)
        if run.digest in records:
            record, path = records[run.digest], paths[run.setting]
            own = window_values(record, path) if path else [final_accuracy(record, experiment.last)]
            values.setdefault(place, []).extend(own)
        else:
            lacking.append(place)
    summary = _mean if experiment.kind == "training" else _median
    cells = {place: summary(runs) for place, runs in values.items()}
    whole = {place: cell for place, cell in cells.items() if place not in lacking}
    return Outcome(experiment, _rows(experiment, cells), _judgements(experiment, whole), len(lacking))


def simulated_outcome(experiment: Experiment, record: ExperimentRecord | None) -> Outcome:
    """Return the outcome of an experiment that trains nothing, from its record if there is one.

    The spread is half of the 95 % interval of the mean over the trials.
    """
    if record is None:
        return Outcome(experiment, (), _judgements(experiment, {}), missing=1)
    cells = {
        (setting.name, scheme): Cell(float(cell["value"]), float(cell["spread"]), int(cell.get("trials", 1)))
        for setting in experiment.settings
        for scheme in experiment.schemes
        for cell in (record["values"][setting.name][scheme],)
    }
    return Outcome(experiment, _rows(experiment, cells), _judgements(experiment, cells))


def _rows(experiment: Experiment, cells: Mapping[Place, Cell]) -> tuple[Row, ...]:
    """Return our numbers beside the paper's, setting by setting; where these name no measure, the kind does."""
    rows, measure = [], _MEASURES.get(experiment.kind)
    for setting, scheme in product(experiment.settings, experiment.schemes):
        if (setting.name, scheme) in cells:
            cell, paper = cells[setting.name, scheme], setting.paper.get(scheme)
            label = f"{setting.name}, {scheme}" if measure else scheme
            difference = None if paper is None else cell.value - paper
            ours = (cell.value, cell.spread, cell.runs)
            rows.append(Row(label, measure or setting.name, *ours, paper, difference))
    return tuple(rows)


def _mean(values: list[float]) -> Cell:
    return Cell(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def _median(values: list[float]) -> Cell:
    """Return the median, with half of the range in which the middle half of the values lie as its spread."""
    quarters = quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Cell(quarters[1], (quarters[2] - quarters[0]) / 2, len(values))


def window_values(record: ExperimentRecord, path: str) -> list[float]:
    """Return a number for each window of a reconstruction: rate, method, rounds and measure, with slashes.

    >>> record = {"rates": {"1e-05": {"methods": {"kriging": {"60": {"mean": [0.1, 0.2]}}}}}}
    >>> window_values(record, "1e-05/kriging/60/mean")
    [0.1, 0.2]
    """
    rate, method, rounds, measure = path.split("/")
    return [float(value) for value in record["rates"][rate]["methods"][method][rounds][measure]]


def final_accuracy(record: ExperimentRecord, last: int) -> float:
    """Return the mean of the last evaluations of a run.

    >>> final_accuracy({"curve": {"1": 10.0, "2": 20.0, "3": 40.0}}, last=2)
    30.0
    """
    ordered = [value for _, value in sorted((int(step), value) for step, value in record["curve"].items())]
    return fmean(ordered[-last:])


def _judgements(experiment: Experiment, numbers: Mapping[Place, Cell]) -> tuple[Judgement, ...]:
    return tuple(_judge(claim, experiment, numbers) for claim in experiment.claims)


def _judge(claim: Claim, experiment: Experiment, numbers: Mapping[Place, Cell]) -> Judgement:
    """Judge a claim in each setting that it speaks of; it holds if it holds in all of them.

    An experiment may have fewer schemes than a claim speaks of, as a quick one has: it is judged by those.
    """
    settings = claim.settings or tuple(setting.name for setting in experiment.settings)
    verdicts, evidence = [], []
    for setting in settings:
        known = [scheme for scheme in experiment.schemes if (setting, scheme) in numbers]
        chosen = {scheme: numbers[setting, scheme] for scheme in known}
        lacking = [scheme for scheme in _schemes(claim, experiment) if scheme not in chosen]
        if lacking:
            return Judgement(claim.claim, None, f"runs of {setting} are missing: {', '.join(lacking)}")
        comparisons = [*_comparisons(claim, chosen)]
        if not comparisons:
            return Judgement(claim.claim, None, f"there are no runs of {setting} to judge it by")
        verdicts += [held for held, _ in comparisons]
        evidence.append(f"{setting}: {', '.join(text if held else f'{text} (no)' for held, text in comparisons)}")
    limit = [f"level: at most {claim.within:g} below"] if claim.level else []
    return Judgement(claim.claim, all(verdicts), "; ".join([*evidence, *limit]))


def _schemes(claim: Claim, experiment: Experiment) -> list[str]:
    """Return the schemes of an experiment that a claim is about."""
    about = experiment.schemes if claim.lowest else (*claim.schemes, claim.above, claim.level)
    return [scheme for scheme in experiment.schemes if scheme in about]


def _comparisons(claim: Claim, numbers: Mapping[str, Cell]) -> Iterator[tuple[bool, str]]:
    """Yield what must hold of the numbers, and these numbers."""
    if claim.lowest and claim.lowest in numbers and len(numbers) > 1:
        lowest = numbers[claim.lowest]
        others = {scheme: number for scheme, number in numbers.items() if scheme != claim.lowest}
        scheme = min(others, key=lambda name: others[name].value)
        yield lowest.value < others[scheme].value, f"{claim.lowest} {lowest}, next {scheme} {others[scheme]}"
    schemes = [scheme for scheme in claim.schemes if scheme in numbers]
    if claim.falling and len(schemes) > 1:
        values = [numbers[scheme].value for scheme in schemes]
        held = all(later <= earlier + ROUNDING for earlier, later in pairwise(values))
        yield held, ", ".join(f"{scheme} {numbers[scheme]}" for scheme in schemes)
        return
    other = claim.above or claim.level
    for scheme in schemes:
        number = numbers[scheme]
        if claim.least:
            yield number.value >= claim.least, f"{scheme} {number}, at least {claim.least:g}"
        elif claim.below:
            yield number.value < claim.below, f"{scheme} {number}, below {claim.below:g}"
        elif other in numbers:
            yield _compare(claim, scheme, number, numbers[other])


def _compare(claim: Claim, scheme: str, number: Cell, other: Cell) -> tuple[bool, str]:
    """Return whether a scheme is above another one or level with it, and the numbers."""
    text = f"{scheme} {number} against {claim.above or claim.level} {other}"
    if claim.level:
        return number.value >= other.value - claim.within, text
    return number.value > other.value, f"{text}, within the spread" if number.is_near(other) else text


class ResultFile(LineFile):
    """The results of one experiment: a JSON line for each run, named by what decided it."""

    def records(self) -> dict[str, ExperimentRecord]:
        """Return the records by the digest of their run; a last line that was cut off is left out."""
        records: dict[str, ExperimentRecord] = {}
        for number, line in enumerate(self.lines() if self.path.exists() else (), start=1):
            try:
                record = json.loads(line)
                records[record["run"]] = record
            except (ValueError, KeyError, TypeError):
                raise UsageError(f"{self.path}, line {number}: not the record of a run; remove the line") from None
        return records

    def add(self, record: ExperimentRecord) -> None:
        """Append a record, in a folder that is there."""
        if self.path.exists():
            self.repair()
        self.append(json.dumps(record, separators=(",", ":")))


def read_simulated(path: Path, digest: str) -> ExperimentRecord | None:
    """Return the record of an experiment that trains nothing, None if there is none of what has this digest."""
    if not path.exists():
        return None
    text = read_file(path)
    try:
        record: ExperimentRecord = json.loads(text)
        return record if record["experiment"] == digest else None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not the record of an experiment; remove the file") from None


def write_simulated(path: Path, record: ExperimentRecord, digest: str) -> None:
    """Write the record, whole or not at all, into a folder that is there."""
    text = json.dumps({"experiment": digest, **record}, separators=(",", ":"))
    write_file(path, f"{text}\n".encode())


def record_path(experiment: Experiment, folder: Path) -> Path:
    """Return where an experiment's record lies in a folder of results."""
    return folder / f"{experiment.name}.{'jsonl' if experiment.trains else 'json'}"


def outcome_so_far(experiment: Experiment, folder: Path) -> Outcome:
    """Return what the records in a folder say of an experiment."""
    path = record_path(experiment, folder)
    if experiment.trains:
        return training_outcome(experiment, ResultFile(path).records())
    return simulated_outcome(experiment, read_simulated(path, experiment.digest))
