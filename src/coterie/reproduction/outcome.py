"""What an experiment gave, beside the paper: rows of a table, and each claim judged with its evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from coterie.reproduction.definition import Claim, Experiment

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One number of ours, and the paper's."""

    label: str
    measure: str
    ours: float
    spread: float
    """The standard deviation over the runs; 0 for a single one."""
    runs: int
    paper: float | None
    difference: float | None


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

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "rows": [asdict(row) for row in self.rows],
            "claims": [asdict(claim) for claim in self.claims],
            "missing": self.missing,
        }


def training_outcome(experiment: Experiment, records: Mapping[str, Record]) -> Outcome:
    """Return the outcome of a training experiment from its records."""
    chosen: dict[tuple[str, str], list[float]] = {}
    missing = 0
    for run in experiment.runs():
        record = records.get(run.digest)
        if record is None:
            missing += 1
        else:
            chosen.setdefault((run.setting, run.scheme), []).append(final_accuracy(record, experiment.last))
    rows = tuple(
        make_row(f"{setting.name}, {scheme}", "test accuracy, %", chosen[setting.name, scheme],
                 setting.paper.get(scheme))
        for setting in experiment.settings
        for scheme in experiment.schemes
        if (setting.name, scheme) in chosen
    )  # fmt: skip
    claims = tuple(_judged(claim, experiment, chosen) for claim in experiment.claims)
    return Outcome(experiment, rows, claims, missing)


def simulated_outcome(experiment: Experiment, record: Record) -> Outcome:
    """Return the outcome of an experiment that trains nothing, from its record."""
    values = record["values"]
    rows = tuple(
        Row(
            f"{setting.name}, {scheme}",
            setting.name,
            float(values[setting.name][scheme]["value"]),
            float(values[setting.name][scheme]["spread"]),
            int(record.get("trials", 1)),
            setting.paper.get(scheme),
            _difference(values[setting.name][scheme]["value"], setting.paper.get(scheme)),
        )
        for setting in experiment.settings
        for scheme in experiment.schemes
    )
    means = {(name, scheme): [cell["value"]] for name, row in values.items() for scheme, cell in row.items()}
    return Outcome(experiment, rows, tuple(_judged(claim, experiment, means) for claim in experiment.claims))


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
    spread = stdev(values) if len(values) > 1 else 0.0
    return Row(label, measure, mean, spread, len(values), paper, _difference(mean, paper))


def _judged(claim: Claim, experiment: Experiment, values: Mapping[tuple[str, str], list[float]]) -> Judgement:
    """Judge a claim in each setting that it speaks of; it holds if it holds in all of them."""
    settings = claim.settings or tuple(setting.name for setting in experiment.settings)
    verdicts, evidence = [], []
    for setting in settings:
        means = {
            scheme: fmean(values[setting, scheme]) for scheme in experiment.schemes if (setting, scheme) in values
        }
        judged = [*_comparisons(claim, means)]
        if not judged:
            return Judgement(claim.claim, None, f"runs of {setting} are missing")
        verdicts += [held for held, _ in judged]
        evidence.append(f"{setting}: {', '.join(text for _, text in judged)}")
    return Judgement(claim.claim, all(verdicts), "; ".join(evidence))


def _comparisons(claim: Claim, means: Mapping[str, float]) -> Iterator[tuple[bool, str]]:
    """Yield what must hold of the means, and the numbers that it is about."""
    if claim.lowest and claim.lowest in means and len(means) > 1:
        lowest = means[claim.lowest]
        others = {scheme: mean for scheme, mean in means.items() if scheme != claim.lowest}
        scheme = min(others, key=others.__getitem__)
        yield lowest < others[scheme], f"{claim.lowest} {lowest:.2f}, next {scheme} {others[scheme]:.2f}"
    other = claim.above or claim.level
    for scheme in claim.schemes:
        if scheme not in means:
            continue
        if claim.least:
            yield means[scheme] >= claim.least, f"{scheme} {means[scheme]:.4g}, at least {claim.least:g}"
        elif claim.below:
            yield means[scheme] < claim.below, f"{scheme} {means[scheme]:.2f}, below {claim.below:g}"
        elif other in means:
            least = means[other] - (claim.within if claim.level else 0.0)
            held = means[scheme] >= least if claim.level else means[scheme] > least
            yield held, f"{scheme} {means[scheme]:.2f} against {other} {means[other]:.2f}"
