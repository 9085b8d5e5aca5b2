"""Write docs/reproduction.md from the committed records: the paper's tables beside ours, and how claims fared.

The words are in reproduction.md.jinja, and in short, for the README, in readme_reproduction.md.jinja; every number
of ours in them comes from here.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import jinja2

from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.definition import Experiment, known_experiments
from coterie.lab.paper.outcome import (
    ExperimentRecord,
    Outcome,
    ResultFile,
    Row,
    final_accuracy,
    outcome_so_far,
    record_path,
    window_values,
)
from coterie.pages.figures import reconstruction_grid
from coterie.pages.reproduction import held_text, ours, value_text

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RESULTS = ROOT / "experiments" / "results"
PAGE, README = DOCS / "reproduction.md", ROOT / "README.md"
README_PART = re.compile(r"(<!-- reproduction -->\n).*?(<!-- end of reproduction -->)", flags=re.DOTALL)
DROPPING = ("partition", "T6", "T4")
"""The schemes that often find too few whole batches."""


@dataclass(frozen=True)
class Numbers:
    """What the page's words ask of the records."""

    experiments: dict[str, Experiment]

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """What every experiment gave."""
        return {name: outcome_so_far(each, RESULTS) for name, each in self.experiments.items()}

    @cached_property
    def records(self) -> dict[tuple[str, str, str], list[ExperimentRecord]]:
        """The records of all training runs, by experiment, setting and scheme."""
        chosen: dict[tuple[str, str, str], list[ExperimentRecord]] = {}
        for name, experiment in self.experiments.items():
            if experiment.kind == "training":
                records = ResultFile(record_path(experiment, RESULTS)).records()
                for run in experiment.runs():
                    if run.digest in records:
                        chosen.setdefault((name, run.setting, run.scheme), []).append(records[run.digest])
        return chosen

    def recorded(self, name: str) -> int:
        """Return how many runs of an experiment are recorded."""
        return sum(len(records) for (own, *_), records in self.records.items() if own == name)

    def planned(self, name: str) -> int:
        """Return how many runs an experiment has."""
        return len(list(self.experiments[name].runs()))

    def final(self, *place: str) -> list[float]:
        """Return the final accuracy of each run."""
        return [final_accuracy(record, self.experiments[place[0]].last) for record in self.records[place]]

    def accuracy(self, *place: str) -> str:
        """Return the mean final accuracy."""
        return f"{fmean(self.final(*place)):.2f}"

    def lowest(self, *place: str) -> str:
        """Return the worst run's accuracy."""
        return f"{min(self.final(*place)):.1f}"

    def highest(self, *place: str) -> str:
        """Return the best run's accuracy."""
        return f"{max(self.final(*place)):.1f}"

    def behind(self, name: str, setting: str, scheme: str, other: str) -> str:
        """Return by how many points one scheme is below another."""
        return f"{fmean(self.final(name, setting, other)) - fmean(self.final(name, setting, scheme)):.2f}"

    def change(self, name: str, setting: str, other: str, scheme: str) -> str:
        """Return by how many points a scheme is better in one setting than in another."""
        return f"{fmean(self.final(name, setting, scheme)) - fmean(self.final(name, other, scheme)):+.2f}"

    def below_paper(self, name: str, setting: str, scheme: str) -> str:
        """Return by how many points a scheme is below the paper's."""
        (paper,) = (each.paper[scheme] for each in self.experiments[name].settings if each.name == setting)
        return f"{paper - fmean(self.final(name, setting, scheme)):.1f}"

    def cardinality(self, *place: str) -> str:
        """Return C of the runs."""
        return f"{fmean(record['cardinality'] for record in self.records[place]):.2f}"

    def rounds(self, *place: str) -> str:
        """Return how many rounds had a result, on average over runs."""
        return f"{fmean(record['rounds'] - record['skipped'] for record in self.records[place]):.0f}"

    def reaching(self, name: str, setting: str, accuracy: float) -> int:
        """Return the first evaluated round at which random selection's mean accuracy passes a value."""
        curve = self.random_curve(name, setting)
        return next(step for step in sorted(curve) if curve[step] >= accuracy)

    def random_curve(self, name: str, setting: str) -> dict[int, float]:
        """Return the mean accuracy of random selection, by round."""
        records = self.records[name, setting, "random"]
        return {int(step): fmean(record["curve"][step] for record in records) for step in records[0]["curve"]}

    def smaller(self, key: str, name: str, setting: str, scheme: str, other: str) -> str:
        """Return by how many percent a measure of the runs of one scheme is smaller than another's."""
        places = [(name, setting, each) for each in (scheme, other)]
        own, others = (fmean(record[key] for record in self.records[place]) for place in places)
        return f"{100 * (1 - own / others):.0f} %"

    def completed_table(self, name: str) -> str:
        """Return, for schemes that skip rounds, where random selection is after as many rounds with a result."""
        lines = [
            "| | C | rounds with a result | accuracy at the end | random selection after as many rounds |",
            "| --- | --- | --- | --- | --- |",
        ]
        for setting in self.experiments[name].settings:
            curve = self.random_curve(name, setting.name)
            for scheme in DROPPING:
                place = (name, setting.name, scheme)
                rounds = int(self.rounds(*place))
                step = min(curve, key=lambda step, rounds=rounds: abs(step - rounds))  # type: ignore[misc]
                total = self.records[place][0]["rounds"]
                known = f"{curve[step]:.2f} (round {step})" if rounds >= min(curve) else "–"
                cells = (self.cardinality(*place), f"{rounds} of {total}", self.accuracy(*place), known)
                lines.append(f"| {setting.name}, {scheme} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def measured_table(self, name: str) -> str:
        """Return a training experiment's accuracy beside the measures of its rounds."""
        lines = [
            "| | accuracy | C | rounds with a result | F | T at the end |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        experiment = self.experiments[name]
        for setting in experiment.settings:
            for scheme in experiment.schemes:
                place = (name, setting.name, scheme)
                records = self.records[place]
                gap = fmean(record["fairness_gap"] for record in records)
                level = min(record["strong"] for record in records)
                label = scheme if len(experiment.settings) == 1 else f"{setting.name}, {scheme}"
                rounds = f"{self.rounds(*place)} of {records[0]['rounds']}"
                cells = (self.accuracy(*place), self.cardinality(*place), rounds, f"{gap:.3f}", str(level))
                lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def simulated(self, name: str, measure: str, scheme: str) -> str:
        """Return a simulated measure of a scheme."""
        (row,) = (row for row in self.outcomes[name].rows if (row.measure, row.label) == (measure, scheme))
        return value_text(row.ours, row.measure)

    def percent(self, name: str, measure: str, scheme: str) -> str:
        """Return a simulated share in percent."""
        return f"{100 * float(self.simulated(name, measure, scheme)):.0f} %"

    def inversion(self, measure: str, scheme: str) -> str:
        """Return the mean of a measure of the images that the server made."""
        return f"{fmean(self._pictures['schemes'][scheme][measure]):.3g}"

    def better(self, scheme: str) -> str:
        """Return for how many users random selection gives the better image than a scheme."""
        random, other = (self._pictures["schemes"][each]["psnr"] for each in ("random", scheme))
        return f"{sum(a > b for a, b in zip(random, other, strict=True))} of {len(random)}"

    @cached_property
    def _pictures(self) -> dict[str, Any]:
        pictures: dict[str, Any] = json.loads((RESULTS / "inversion.json").read_text())
        return pictures

    def windows(
        self,
        scheme: str,
        path: str,
        setting: str = "error, 1e-5, 60 rounds",
        *,
        over: Callable[[list[float]], float] = median,
    ) -> str:
        """Return the median over windows of a number of the reconstruction, by rate/method/rounds/measure."""
        experiment = self.experiments["reconstruction"]
        records = ResultFile(record_path(experiment, RESULTS)).records()
        (run,) = (run for run in experiment.runs() if (run.setting, run.scheme) == (setting, scheme))
        return f"{float(f'{over(window_values(records[run.digest], path)):.2g}'):g}"

    @cached_property
    def float32(self) -> dict[str, Any]:
        """The run of random selection on CIFAR-100 once more in float32, beside the one in bfloat16."""
        (record,) = ResultFile(RESULTS / "cifar100-float32.jsonl").records().values()
        (twin,) = (each for each in self.records["cifar100-rates", "rate 0.1", "random"])
        if (record["beside"], record["rounds"]) != (twin["run"], twin["rounds"]):
            raise ValueError("cifar100-float32.jsonl is not the whole run beside its twin; train it anew")
        gaps = {int(step): record["curve"][step] - twin["curve"][step] for step in record["curve"]}
        last = list(gaps)[-5:]
        ends = [fmean(each["curve"][str(step)] for step in last) for each in (record, twin)]
        hundreds = [[step for step in gaps if first < step <= first + 100] for first in range(0, max(gaps), 100)]
        return {
            "rounds": record["rounds"],
            "tests": len(gaps),
            "largest": f"{max(map(abs, gaps.values())):.2f}",
            "mean": f"{fmean(gaps.values()):+.2f}",
            "ends": [f"{end:.2f}" for end in ends],
            "versions": [
                ", ".join(f"{name} {each['made_with'][name]}" for name in ("python", "numpy", "torch"))
                for each in (record, twin)
            ],
            "hours": f"{record['seconds'] / 3600:.1f}",
            "table": "\n".join(
                [
                    "| rounds | float32, a processor | bfloat16, a GPU | difference | largest |",
                    "| --- | --- | --- | --- | --- |",
                    *(
                        f"| {steps[0]} to {steps[-1]} | {fmean(record['curve'][str(step)] for step in steps):.2f} "
                        f"| {fmean(twin['curve'][str(step)] for step in steps):.2f} "
                        f"| {fmean(gaps[step] for step in steps):+.2f} "
                        f"| {max((gaps[step] for step in steps), key=abs):+.2f} |"
                        for steps in hundreds
                    ),
                ]
            ),
        }

    def section(self, name: str) -> str:
        """Return an experiment's heading, figure, table, claims and notes."""
        outcome, experiment = self.outcomes[name], self.experiments[name]
        source = f" ({experiment.source})" if experiment.source else ""
        parts = [f"## {experiment.title}", f"`coterie reproduce {name}`{source}"]
        if (RESULTS / f"{name}.svg").exists():
            parts.append(f"![{experiment.title}](../experiments/results/{name}.svg)")
        parts += [table(outcome), claims_table(outcome), " ".join(experiment.notes.split())]
        return "\n\n".join(part for part in parts if part)


def table(outcome: Outcome) -> str:
    """Return a row for each scheme, and for each setting our number, the paper's and the difference."""
    experiment = outcome.experiment
    # Where the settings are what is measured, they name a row's measure, and else its label.
    rows = {(row.measure, row.label): row for row in outcome.rows} | {row.label: row for row in outcome.rows}
    columns: list[tuple[str, list[str]]] = []
    for setting in experiment.settings:
        chosen = [
            rows.get((setting.name, scheme)) or rows.get(f"{setting.name}, {scheme}")
            for scheme in experiment.schemes
        ]
        columns.append((setting.name, ["–" if row is None else ours(row) for row in chosen]))
        if setting.paper:
            columns.append(("paper", [_or_dash(row, row and row.paper) for row in chosen]))
            columns.append(("difference", [_or_dash(row, row and row.difference, signed=True) for row in chosen]))
    lines = [f"| | {' | '.join(name for name, _ in columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for place, scheme in enumerate(experiment.schemes):
        lines.append(f"| {scheme} | {' | '.join(cells[place] for _, cells in columns)} |")
    return "\n".join(lines)


def _or_dash(row: Row | None, value: float | None, *, signed: bool = False) -> str:
    return "–" if row is None or value is None else value_text(value, row.measure, signed=signed)


def claims_table(outcome: Outcome) -> str:
    """Return the claims of an experiment, each with its verdict and our numbers."""
    if not outcome.claims:
        return ""
    rows = [f"| {claim.claim} | **{held_text(claim.held)}** | {claim.evidence} |" for claim in outcome.claims]
    return "\n".join(["| claim | | evidence |", "| --- | --- | --- |", *rows])


def default_run() -> str:
    """Return what the default run gave with each protocol."""
    lines = ["| | accuracy | T | C | batches lost |", "| --- | --- | --- | --- | --- |"]
    for protocol, record in ResultFile(RESULTS / "default-run.jsonl").records().items():
        cells = (
            f"{record['accuracy']:.2%}",
            record["strong"],
            f"{record['cardinality']:.2f}",
            record["lost_batches"],
        )
        lines.append(f"| {protocol} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def one_after_another(numbers: Numbers, measured: dict[str, Any]) -> tuple[float, float]:
    """Return how many local trainings of timed models there were, and the seconds that they would take in turn."""
    trainings, seconds = 0.0, 0.0
    counted: set[str] = set()
    for name, experiment in numbers.experiments.items():
        for run in experiment.runs() if experiment.kind == "training" else ():
            # A run may serve several experiments, and benchmarks/train.py has not timed every model.
            if run.digest in counted or run.spec.training.model not in measured:
                continue
            counted.add(run.digest)
            record = next(r for r in numbers.records[name, run.setting, run.scheme] if r["run"] == run.digest)
            clients = record["cardinality"] * record["rounds"]
            trainings += clients
            seconds += clients * steps(run.spec) * step_seconds(measured[run.spec.training.model])
    return trainings, seconds


def steps(spec: Spec) -> int:
    """Return the steps of SGD of a client in a round."""
    examples = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}[spec.data.source]
    shared = 10 * spec.data.shared if spec.data.partition == "shards-shared" else 0
    own = (examples - shared) / spec.data.users + shared
    return math.ceil(own / spec.training.minibatch) * spec.training.epochs


def step_seconds(measured: dict[str, Any]) -> float:
    """Return the time of one step of one client, where clients are trained one after another."""
    count = measured["clients"] * math.ceil(measured["examples"] / measured["minibatch"])
    return float(measured["one_by_one"]["median_s"] / count)


def page() -> str:
    """Return the whole page."""
    return rendered("reproduction.md.jinja")


def readme(text: str) -> str:
    """Return the README with what of the paper held, in short."""
    content = rendered("readme_reproduction.md.jinja")
    return README_PART.sub(lambda found: found[1] + content + found[2], text)


def rendered(template: str) -> str:
    """Return a template with the records' numbers in it."""
    numbers = Numbers(known_experiments(ROOT / "experiments"))
    cost = json.loads((RESULTS / "cost.json").read_text())
    measured = json.loads((ROOT / "benchmarks" / "results" / "train.json").read_text())
    trainings, seconds = one_after_another(numbers, measured)
    judged = [
        (outcome, claim, judgement)
        for outcome in numbers.outcomes.values()
        for claim, judgement in zip(outcome.experiment.claims, outcome.claims, strict=True)
    ]
    # What is not in the paper has no source.
    beyond = [judgement for outcome, _, judgement in judged if not outcome.experiment.source]
    inside = [each for each in judged if each[0].experiment.source]
    claims = [(outcome.experiment.name, judgement) for outcome, claim, judgement in inside if not claim.own]
    own = [judgement for _, claim, judgement in inside if claim.own]
    settled = ResultFile(record_path(numbers.experiments["reconstruction"], RESULTS)).records()
    text = (DOCS / template).read_text(encoding="utf-8")
    environment = jinja2.Environment(  # noqa: S701 - Markdown, not HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    known = {name: getattr(numbers, name) for name in dir(numbers) if not name.startswith("_")}
    return environment.from_string(text).render(
        known
        | {
            "runs": len({record["run"] for records in numbers.records.values() for record in records}),
            "claims": len(claims),
            "held": sum(claim.held is True for _, claim in claims),
            "own": len(own),
            "own_held": sum(claim.held is True for claim in own),
            "beyond": len(beyond),
            "beyond_held": sum(claim.held is True for claim in beyond),
            "settled": len(settled),
            "failed": [(name, claim.claim) for name, claim in claims if not claim.held],
            "min": min,
            "max": max,
            "default_run": default_run(),
            "cost": cost,
            "trainings": f"{trainings / 1e6:.2f}",
            "hours": f"{seconds / 3600:.0f}",
            "times": f"{seconds / cost['held_seconds']:.0f}",
            "train": measured,
            "factors": [f"{measured[name]['stacked']['times_faster']:.0f}" for name in ("lenet", "mnist-cnn")],
        }
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    pictures = json.loads((RESULTS / "inversion.json").read_text())
    reconstruction_grid({"pictures": pictures}, RESULTS / "inversion.png")
    print(f"wrote {PAGE}")
