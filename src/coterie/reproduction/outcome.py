"""What an experiment gave, beside the paper: rows of a table, and each claim judged with its evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import hypot
from statistics import fmean, stdev
from typing import Any

from coterie.reproduction.definition import Claim, Experiment, Setting

Record = Mapping[str, Any]
ACCURACY = "test accuracy, %"
ROUNDING = 1e-9
"""Two closed forms that differ by less are one number."""
_MEASURES = {"tradeoff": "cardinality", "threshold": "probability that everyone is exposed"}
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
class Number:
    """A mean and its spread.

    >>> str(Number(63.982, 1.05)), str(Number(0.01375, 0.0))
    ('63.98 ± 1.05', '0.0138')
    """

    value: float
    spread: float

    def __str__(self) -> str:
        digits = 2 if abs(self.value) >= 1 else 4
        spread = f" ± {self.spread:.{digits}f}" if self.spread else ""
        return f"{self.value:.{digits}f}{spread}"

    def is_near(self, other: "Number") -> bool:
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


def training_outcome(experiment: Experiment, records: Mapping[str, Record]) -> Outcome:
    """Return the outcome of a training experiment from its records, those that are there."""
    values: dict[tuple[str, str], list[float]] = {}
    incomplete: set[tuple[str, str]] = set()
    missing = 0
    for run in experiment.runs():
        record = records.get(run.digest)
        if record is None:
            missing += 1
            incomplete.add((run.setting, run.scheme))
        else:
            values.setdefault((run.setting, run.scheme), []).append(final_accuracy(record, experiment.last))
    rows = tuple(
        make_row(f"{setting.name}, {scheme}", ACCURACY, values[setting.name, scheme], setting.paper.get(scheme))
        for setting in experiment.settings
        for scheme in experiment.schemes
        if (setting.name, scheme) in values
    )
    numbers = {
        place: Number(fmean(found), _spread(found)) for place, found in values.items() if place not in incomplete
    }
    return Outcome(experiment, rows, _judgements(experiment, numbers), missing)


def simulated_outcome(experiment: Experiment, record: Record) -> Outcome:
    """Return the outcome of an experiment that trains nothing, from its record.

    The spread is half of the 95 % interval of the mean over the trials.
    """
    rows, numbers = [], {}
    for setting in experiment.settings:
        for scheme in experiment.schemes:
            cell = record["values"][setting.name][scheme]
            number = numbers[setting.name, scheme] = Number(float(cell["value"]), float(cell["spread"]))
            paper = setting.paper.get(scheme)
            rows.append(
                Row(
                    label=_label(experiment, setting, scheme),
                    measure=_MEASURES.get(experiment.kind, setting.name),
                    ours=number.value,
                    spread=number.spread,
                    runs=int(cell.get("trials", 1)),
                    paper=paper,
                    difference=_difference(number.value, paper),
                )
            )
    return Outcome(experiment, tuple(rows), _judgements(experiment, numbers))


def unknown_outcome(experiment: Experiment, obstacle: str = "") -> Outcome:
    """Return the outcome of an experiment of which nothing has been run."""
    runs = len(list(experiment.runs())) if experiment.kind == "training" else 1
    return Outcome(experiment, (), _judgements(experiment, {}), runs, obstacle)


def _label(experiment: Experiment, setting: Setting, scheme: str) -> str:
    """Return what a row is about: the scheme, and the setting where that is not the measure."""
    return f"{setting.name}, {scheme}" if experiment.kind in {"tradeoff", "threshold"} else scheme


def _difference(ours: float, paper: float | None) -> float | None:
    return None if paper is None else ours - paper


def final_accuracy(record: Record, last: int) -> float:
    """Return the mean of the last evaluations of a run.

    >>> final_accuracy({"curve": {"1": 10.0, "2": 20.0, "3": 40.0}}, last=2)
    30.0
    """
    ordered = [value for _, value in sorted((int(step), value) for step, value in record["curve"].items())]
    return fmean(ordered[-last:])


def make_row(label: str, measure: str, values: list[float], paper: float | None) -> Row:
    """Return a row for the values of several runs."""
    mean = fmean(values)
    return Row(label, measure, mean, _spread(values), len(values), paper, _difference(mean, paper))


def _spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _judgements(experiment: Experiment, numbers: Mapping[tuple[str, str], Number]) -> tuple[Judgement, ...]:
    return tuple(_judged(claim, experiment, numbers) for claim in experiment.claims)


def _judged(claim: Claim, experiment: Experiment, numbers: Mapping[tuple[str, str], Number]) -> Judgement:
    """Judge a claim in each setting that it speaks of; it holds if it holds in all of them.

    An experiment may have fewer schemes than a claim speaks of, as a quick one has: it is judged by those.
    """
    settings = claim.settings or tuple(setting.name for setting in experiment.settings)
    verdicts, evidence = [], []
    for setting in settings:
        chosen = {
            scheme: numbers[setting, scheme] for scheme in experiment.schemes if (setting, scheme) in numbers
        }
        lacking = [scheme for scheme in _schemes(claim, experiment) if scheme not in chosen]
        if lacking:
            return Judgement(claim.claim, None, f"runs of {setting} are missing: {', '.join(lacking)}")
        comparisons = [*_comparisons(claim, chosen)]
        if not comparisons:
            return Judgement(claim.claim, None, f"there are no runs of {setting} to judge it by")
        verdicts += [held for held, _ in comparisons]
        evidence.append(f"{setting}: {', '.join(text if held else f'{text} (no)' for held, text in comparisons)}")
    return Judgement(claim.claim, all(verdicts), "; ".join(evidence))


def _schemes(claim: Claim, experiment: Experiment) -> list[str]:
    """Return the schemes of an experiment that a claim is about."""
    about = experiment.schemes if claim.lowest else (*claim.schemes, claim.above, claim.level)
    return [scheme for scheme in experiment.schemes if scheme in about]


def _comparisons(claim: Claim, numbers: Mapping[str, Number]) -> Iterator[tuple[bool, str]]:
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
            yield _compared(claim, scheme, number, numbers[other])


def _compared(claim: Claim, scheme: str, number: Number, other: Number) -> tuple[bool, str]:
    """Return whether a scheme is above another one or level with it, and the numbers."""
    text = f"{scheme} {number} against {claim.above or claim.level} {other}"
    if claim.level:
        return number.value >= other.value - claim.within, text
    return number.value > other.value, f"{text}, within the spread" if number.is_near(other) else text
