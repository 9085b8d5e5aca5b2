"""Several runs side by side: those that differ only in their seed are one group, with a mean and a spread."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from coterie.errors import UsageError
from coterie.experiment.record import RoundRow
from coterie.report.page.blocks import Curve, Table, evenly
from coterie.report.run.result import RunResult, read_run
from coterie.values.words import SPACE, Tone, counted

MOST_POINTS = 500
_PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
MOST_SETTINGS = 3
"""Settings that a group is named by; the table of settings has all of them."""


@dataclass(frozen=True)
class Spread:
    """The mean of a value over runs, and the sample standard deviation where there are several."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Return mean and spread of some values, None of none.

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, deviation=1.0)
        """
        if not values:
            return None
        return cls(fmean(values), stdev(values) if len(values) > 1 else None)

    def tables(self) -> dict[str, float | None]:
        """Return it for programs."""
        return {"mean": self.mean, "spread": self.deviation}


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs of one spec with different seeds."""

    label: str
    settings: Mapping[str, Any]
    """Those that are not the same in all groups, by dotted name."""
    runs: tuple[RunResult, ...]

    def spread(self, value: Callable[[RoundRow], float | None]) -> Spread | None:
        """Return mean and spread of a value of the last row that has one."""
        measured = ([number for row in run.record.rows if (number := value(row)) is not None] for run in self.runs)
        return Spread.of([numbers[-1] for numbers in measured if numbers])

    def curve(self, value: Callable[[RoundRow], float | None]) -> Curve:
        """Return the mean at every round that all runs have measured, with the spread as a band."""
        rounds = [
            {row.round: number for row in run.record.rows if (number := value(row)) is not None}
            for run in self.runs
        ]
        common = sorted(set.intersection(*map(set, rounds)))
        places = [common[place] for place in evenly(len(common), MOST_POINTS).tolist()]
        spreads = [_of([of_run[round_] for of_run in rounds]) for round_ in places]
        means = [spread.mean for spread in spreads]
        if len(self.runs) == 1:
            return Curve(self.label, places, means)
        low = [spread.mean - (spread.deviation or 0.0) for spread in spreads]
        high = [spread.mean + (spread.deviation or 0.0) for spread in spreads]
        return Curve(self.label, places, means, band=(low, high))

    @property
    def level(self) -> int | None:
        """The lowest strong level of the runs, None where one is unknown."""
        levels = [run.facts.level for run in self.runs]
        certain = [level for level in levels if level is not None]
        return min(certain) if len(certain) == len(levels) else None

    def tables(self) -> dict[str, Any]:
        """Return the group for programs."""
        measures = {name: self.spread(value) for name, value in MEASURES.items()}
        return {
            "label": self.label,
            "settings": dict(self.settings),
            "seeds": [run.record.head["seed"] for run in self.runs],
            "strong": self.level,
            **{name: spread and spread.tables() for name, spread in measures.items()},
        }


MEASURES: dict[str, Callable[[RoundRow], float | None]] = {
    "accuracy": lambda row: row.accuracy,
    "loss": lambda row: row.loss,
    "cardinality": lambda row: row.cardinality,
    "fairness_gap": lambda row: row.fairness_gap,
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs in groups of one spec each."""

    runs: tuple[RunResult, ...]
    groups: tuple[RunGroup, ...]

    @property
    def headline(self) -> str:
        """What was reached, and by which group."""
        return _verdict(self)[0]

    @property
    def answer(self) -> str:
        """By how much a group is ahead, and how private the runs were."""
        return _verdict(self)[1]

    def results(self) -> Table:
        """Return what came out, a row for each group."""
        return _results(self.groups)

    def tables(self) -> dict[str, Any]:
        """Return the comparison for programs, as `coterie report --json` prints it."""
        runs = [{"seed": run.record.head["seed"], **run.summary()} for run in self.runs]
        verdict = {"headline": self.headline, "tone": overall_tone(self.runs), "sentences": [self.answer]}
        return {"verdict": verdict, "groups": [group.tables() for group in self.groups], "runs": runs}


def read_runs(paths: Sequence[Path]) -> tuple[RunResult, ...]:
    """Read runs by their folders; a folder that holds runs stands for all of them."""
    folders: list[Path] = []
    for path in paths:
        inside = [] if (path / "record.jsonl").is_file() else sorted(path.glob("*/record.jsonl"))
        folders += [record.parent for record in inside] or [path]
    resolved = [folder.resolve() for folder in folders]
    for place, folder in enumerate(folders):
        if resolved[place] in resolved[:place]:
            raise UsageError(f"{folder} is given twice; name every run once")
    return tuple(read_run(folder) for folder in folders)


def compare(runs: Sequence[RunResult]) -> Comparison:
    """Put runs that differ only in their seed into groups, in the order in which they come."""
    specs = [{name: value for name, value in _flat(run.record.head["spec"]) if name != "seed"} for run in runs]
    names = list(dict.fromkeys(name for spec in specs for name in spec))
    differing = [name for name in names if len({json.dumps(spec.get(name)) for spec in specs}) > 1]
    members: dict[str, list[RunResult]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run, spec in zip(runs, specs, strict=True):
        chosen = {name: spec.get(name) for name in differing}
        members.setdefault(json.dumps(chosen), []).append(run)
        settings[json.dumps(chosen)] = chosen
    groups = (RunGroup(_label(settings[key]), settings[key], tuple(members[key])) for key in members)
    return Comparison(tuple(runs), tuple(groups))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings with dotted names."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _label(settings: Mapping[str, Any]) -> str:
    """Return a group's name: its settings that others do not have."""
    if not settings:
        return "all runs"
    named = [f"{name.rpartition('.')[2]} {setting_text(value)}" for name, value in settings.items()]
    return ", ".join(named[:MOST_SETTINGS]) + (" …" if len(named) > MOST_SETTINGS else "")


def setting_text(value: object) -> str:
    """Return a setting's value for a person to read."""
    return value if isinstance(value, str) and value else json.dumps(value)


def _of(values: Sequence[float]) -> Spread:
    spread = Spread.of(values)
    assert spread is not None  # noqa: S101 - a group has at least one run
    return spread


def overall_tone(runs: Sequence[RunResult]) -> Tone:
    """Return the most worrying tone of the runs' verdicts."""
    tones = {run.guarantee.tone for run in runs}
    return "warning" if "warning" in tones else "plain" if "plain" in tones else "good"


def _verdict(comparison: Comparison) -> tuple[str, str]:
    """Return the headline and the answer: what was reached, by which group, and how private it was."""
    ranked = sorted(
        (
            (spread, group)
            for group in comparison.groups
            if (spread := group.spread(MEASURES["accuracy"])) is not None
        ),
        key=lambda pair: -pair[0].mean,
    )
    sentences = [_privacy(comparison.runs)]
    if not ranked:
        return "No accuracy was measured in these runs", sentences[0]
    best, group = ranked[0]
    seeds = f"over {counted(len(group.runs), 'seed')}"
    if len(comparison.groups) == 1:
        return f"{accuracy_text(best)} accuracy {seeds}", sentences[0]
    if len(ranked) > 1:
        second, other = ranked[1]
        gap, noise = best.mean - second.mean, max(best.deviation or 0.0, second.deviation or 0.0)
        verdict = "more than the spread over seeds" if gap > noise > 0 else "within the spread over seeds"
        if noise == 0:
            verdict = "one run each, so nobody knows the spread over seeds"
        sentences.insert(0, f"That is {100 * gap:.1f} points above {other.label}: {verdict}.")
    return f"{accuracy_text(best)} accuracy with {group.label}, {seeds}", " ".join(sentences)


def _privacy(runs: Sequence[RunResult]) -> str:
    """Say how private the runs were: each one's own headline, with how many share it."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.guarantee.headline] = counts.get(run.guarantee.headline, 0) + 1
    if len(counts) == 1:
        return f"On privacy every run says: “{next(iter(counts))}”."
    verdicts = (f"{counted(count, 'run says', 'runs say')}: “{headline}”" for headline, count in counts.items())
    return f"On privacy {'; '.join(verdicts)}."


def _results(groups: Sequence[RunGroup]) -> Table:
    rows = tuple(
        (
            group.label,
            len(group.runs),
            accuracy_text(group.spread(MEASURES["accuracy"])),
            _plus_minus(group.spread(MEASURES["loss"]), 4),
            "unknown" if group.level is None else group.level,
            _plus_minus(group.spread(MEASURES["cardinality"]), 2),
            _plus_minus(group.spread(MEASURES["fairness_gap"]), 3),
        )
        for group in groups
    )
    columns = ("setting", "runs", "accuracy", "loss", "lowest T", "C", "F")
    return Table("After the last round: mean ± spread over the runs of a group.", columns, rows)


def accuracy_text(spread: Spread | None) -> str:
    """Return an accuracy with its spread, in percent."""
    if spread is None:
        return "–"
    around = "" if spread.deviation is None else f"{_PLUS_MINUS}{100 * spread.deviation:.1f}"
    return f"{100 * spread.mean:.1f}{around}{SPACE}%"


def _plus_minus(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return "–"
    around = "" if spread.deviation is None else f"{_PLUS_MINUS}{spread.deviation:.{digits}f}"
    return f"{spread.mean:.{digits}f}{around}"
