"""Several runs side by side: those that differ only in their seed are one group, with a mean and a spread."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from coterie.errors import UsageError
from coterie.lab.experiments.folder import RECORD
from coterie.lab.experiments.result import RunResult, read_run
from coterie.pages.blocks import Block, Curve, Curves, Footer, Page, Plot, Plots, Section, Table, Text, evenly
from coterie.pages.render import render
from coterie.pages.run import assumptions
from coterie.values.text import SPACE, KeyNumber, Tone, counted, number, percent

MOST_POINTS = 500
_PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
_PERCENT = f"{SPACE}%"
_Measure: TypeAlias = tuple[str, str, Callable[[float], str], int]
"""A title, the field of rows, how its values are written, and the height of its plot."""
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

    def text(self, digits: int, unit: str = "") -> str:
        r"""Return it for people; with a unit, in percent.

        >>> Spread(0.5, None).text(2), Spread(0.5, 0.25).text(1, " %")
        ('0.50', '50.0\xa0±\xa025.0 %')
        """
        scale = 100 if unit else 1
        around = "" if self.deviation is None else f"{_PLUS_MINUS}{scale * self.deviation:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{around}{unit}"


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs of one spec with different seeds."""

    label: str
    settings: Mapping[str, Any]
    """Those that are not the same in all groups, by dotted name."""
    runs: tuple[RunResult, ...]

    def spread(self, measure: str) -> Spread | None:
        """Return mean and spread of a measure, a field of rows, in the last row that has a value."""
        curves = (_values_by_round(run, measure) for run in self.runs)
        return Spread.of([list(curve.values())[-1] for curve in curves if curve])

    def curve(self, measure: str) -> Curve:
        """Return the mean at every round that all runs have measured, with the spread as a band."""
        return mean_curve(self.label, [_values_by_round(run, measure) for run in self.runs], MOST_POINTS)

    def tables(self) -> dict[str, Any]:
        """Return the group for programs."""
        spreads = {name: self.spread(name) for name in ("accuracy", "loss", "cardinality", "fairness_gap")}
        return {
            "label": self.label,
            "settings": dict(self.settings),
            "seeds": [run.record.head["seed"] for run in self.runs],
            "strong": _lowest_level(self.runs),
            **{name: each and {"mean": each.mean, "spread": each.deviation} for name, each in spreads.items()},
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs in groups of one spec each."""

    runs: tuple[RunResult, ...]
    groups: tuple[RunGroup, ...]
    headline: str
    """What was reached, and by which group."""
    answer: str
    """By how much a group is ahead, and how private the runs were."""

    def results(self) -> Table:
        """Return what came out, a row for each group."""
        rows = tuple(
            (
                group.label,
                len(group.runs),
                _spread_text(group, "accuracy", 1, _PERCENT),
                _spread_text(group, "loss", 4),
                _level_text(group.runs),
                _spread_text(group, "cardinality", 2),
                _spread_text(group, "fairness_gap", 3),
            )
            for group in self.groups
        )
        columns = ("setting", "runs", "accuracy", "loss", "lowest T", "C", "F")
        return Table("After the last round: mean ± spread over the runs of a group.", columns, rows)

    def tables(self) -> dict[str, Any]:
        """Return the comparison for programs, as `coterie report --json` prints it."""
        runs = [{"seed": run.record.head["seed"], **run.summary()} for run in self.runs]
        verdict = {"headline": self.headline, "tone": overall_tone(self.runs), "sentences": [self.answer]}
        return {"verdict": verdict, "groups": [group.tables() for group in self.groups], "runs": runs}


def read_runs(paths: Sequence[Path]) -> tuple[RunResult, ...]:
    """Read runs by their folders; a folder that holds runs stands for all of them."""
    folders: list[Path] = []
    for path in paths:
        inside = [] if (path / RECORD).is_file() else sorted(path.glob(f"*/{RECORD}"))
        folders += [record.parent for record in inside] or [path]
    absolute = [folder.resolve() for folder in folders]
    for place, folder in enumerate(folders):
        if absolute[place] in absolute[:place]:
            raise UsageError(f"{folder} is given twice; name every run once")
    return tuple(read_run(folder) for folder in folders)


def compare(runs: Sequence[RunResult]) -> Comparison:
    """Put runs that differ only in their seed into groups, in the order in which they come."""
    specs = [{name: value for name, value in _flat(run.record.head["spec"]) if name != "seed"} for run in runs]
    names = list(dict.fromkeys(name for spec in specs for name in spec))
    differing = [name for name in names if len({json.dumps(spec.get(name)) for spec in specs}) > 1]
    by_settings: dict[str, tuple[dict[str, Any], list[RunResult]]] = {}
    for run, spec in zip(runs, specs, strict=True):
        chosen = {name: spec.get(name) for name in differing}
        by_settings.setdefault(json.dumps(chosen), (chosen, []))[1].append(run)
    groups = tuple(
        RunGroup(_label(settings), settings, tuple(members)) for settings, members in by_settings.values()
    )
    return Comparison(tuple(runs), groups, *_verdict(runs, groups))


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


def _values_by_round(run: RunResult, measure: str) -> dict[int, float]:
    """Return a measure of a run by round, where it has a value."""
    return {row.round: value for row in run.record.rows if (value := getattr(row, measure)) is not None}


def mean_curve(name: str, runs: Sequence[Mapping[int, float]], most: int) -> Curve:
    """Return the mean over runs at the rounds that all have measured, with the sample deviation as a band.

    >>> mean_curve("seeds", [{1: 0.0, 2: 1.0}, {2: 3.0}], most=10)
    Curve(name='seeds', x=[2], y=[2.0], step=False, band=([0.5857864376269049], [3.414213562373095]))
    """
    common = sorted(set.intersection(*map(set, runs)))
    rounds = [common[place] for place in evenly(len(common), most).tolist()]
    columns = [[of_run[round_] for of_run in runs] for round_ in rounds]
    means = [fmean(values) for values in columns]
    if len(runs) == 1:
        return Curve(name, rounds, means)
    low, high = (
        [mean + side * stdev(values) for mean, values in zip(means, columns, strict=True)] for side in (-1, 1)
    )
    return Curve(name, rounds, means, band=(low, high))


def _lowest_level(runs: Sequence[RunResult]) -> int | None:
    """Return the lowest strong level of runs, None where one is unknown."""
    levels = [run.verdict.strong for run in runs if run.verdict.certain]
    return min(levels) if len(levels) == len(runs) else None


def _level_text(runs: Sequence[RunResult]) -> str:
    level = _lowest_level(runs)
    return "unknown" if level is None else number(level)


def overall_tone(runs: Sequence[RunResult]) -> Tone:
    """Return the most worrying tone of the runs' verdicts."""
    tones = {run.verdict.words.tone for run in runs}
    return "warning" if "warning" in tones else "plain" if "plain" in tones else "good"


def _verdict(runs: Sequence[RunResult], groups: Sequence[RunGroup]) -> tuple[str, str]:
    """Return the headline and the answer: what was reached, by which group, and how private it was."""
    tested = [(spread, group) for group in groups if (spread := group.spread("accuracy")) is not None]
    ranked, privacy = sorted(tested, key=lambda pair: -pair[0].mean), _privacy(runs)
    if not ranked:
        return "No accuracy was measured in these runs", privacy
    best, group = ranked[0]
    reached, seeds = f"{best.text(1, _PERCENT)} accuracy", f"over {counted(len(group.runs), 'seed')}"
    if len(groups) == 1:
        return f"{reached} {seeds}", privacy
    headline = f"{reached} with {group.label}, {seeds}"
    if len(ranked) == 1:
        return headline, privacy
    second, other = ranked[1]
    gap, noise = best.mean - second.mean, max(best.deviation or 0.0, second.deviation or 0.0)
    verdict = "more than the spread over seeds" if gap > noise else "within the spread over seeds"
    if noise == 0:
        verdict = "one run each, so nobody knows the spread over seeds"
    return headline, f"That is {100 * gap:.1f} points above {other.label}: {verdict}. {privacy}"


def _privacy(runs: Sequence[RunResult]) -> str:
    """Say how private the runs were: each one's own headline, with how many share it."""
    counts = Counter(run.verdict.words.headline for run in runs)
    if len(counts) == 1:
        return f"On privacy every run says: “{next(iter(counts))}”."
    verdicts = (f"{counted(count, 'run says', 'runs say')}: “{headline}”" for headline, count in counts.items())
    return f"On privacy {'; '.join(verdicts)}."


def _spread_text(group: RunGroup, measure: str, digits: int, unit: str = "") -> str:
    spread = group.spread(measure)
    return "–" if spread is None else spread.text(digits, unit)


def comparison_page(comparison: Comparison, date: str) -> str:
    """Return several runs as one HTML file; `date` says when it was made."""
    groups, runs = comparison.groups, comparison.runs
    sections = [
        Section("How they learned", (_curves(groups, _LEARNING, _UNTESTED),)),
        Section("What came out", (comparison.results(),)),
        Section("Privacy, fairness and use", (_curves(groups, _MEASURES, "No round has ended."),)),
        Section("Every run", (_every_run(runs),)),
    ]
    if len(groups) > 1:
        sections.insert(3, Section("What differs", (_settings(groups),)))
    page = Page(
        kind="Comparison of runs",
        subject=f"{counted(len(runs), 'run')}, {counted(len(groups), 'setting')}",
        date=date,
        title=comparison.headline,
        answer=comparison.answer,
        tiles=_tiles(comparison),
        sections=tuple(sections),
        footer=Footer(
            facts=tuple((str(run.path), f"SHA-256 of the record {run.digest}") for run in runs),
            assumptions=(
                "Runs that differ only in their seed are one group.",
                "The spread is the sample standard deviation over the runs of a group.",
                "A curve is drawn as far as all runs of its group have been measured.",
                *dict.fromkeys(text for run in runs for text in assumptions(run.verdict)),
            ),
        ),
        tone=overall_tone(runs),
    )
    return render(page)


def _tiles(comparison: Comparison) -> tuple[KeyNumber, ...]:
    runs, groups = comparison.runs, comparison.groups
    meaning = "over all runs, as their logs tell"
    tiles = [KeyNumber("Lowest privacy level T", _level_text(runs), meaning, overall_tone(runs))]
    accuracies = [spread for group in groups if (spread := group.spread("accuracy")) is not None]
    if accuracies:
        best = max(accuracies, key=lambda spread: spread.mean).text(1, _PERCENT)
        tiles.append(KeyNumber("Best accuracy", best, "mean over a group's runs, on the test set"))
    tiles.append(KeyNumber("Runs", number(len(runs)), f"in {counted(len(groups), 'group')} of one setting each"))
    return tuple(tiles)


_LEARNING: tuple[_Measure, ...] = (("Accuracy", "accuracy", percent, 220), ("Loss", "loss", "{:.3f}".format, 220))
_MEASURES: tuple[_Measure, ...] = (
    ("Fairness gap F", "fairness_gap", "{:.3f}".format, 160),
    ("Cardinality C", "cardinality", "{:.2f}".format, 160),
)


def _curves(groups: Sequence[RunGroup], measures: Sequence[_Measure], without: str) -> Block:
    """Return a plot for each measure that any group has, with a curve for each group; else say what is missing."""
    plots = []
    for title, name, text, height in measures:
        lines = tuple(line for group in groups if (line := group.curve(name)).x)
        if lines:
            caption = " ".join(f"{line.name}: {text(line.y[-1])} after round {line.x[-1]}." for line in lines)
            curves = Curves(lines, across="round", percent=text is percent)
            plots.append(Plot(title, curves, f"{caption} {_BAND}", height=height))
    return Plots(tuple(plots)) if plots else Text((without,))


def _settings(groups: Sequence[RunGroup]) -> Table:
    names = list(groups[0].settings)
    rows = tuple((name, *(setting_text(group.settings[name]) for group in groups)) for name in names)
    columns = ("name", *(f"group {place}" for place in range(1, len(groups) + 1)))
    return Table("Settings that are not the same in all runs, group by group.", columns, rows, words=columns[1:])


def _every_run(runs: Sequence[RunResult]) -> Table:
    rows = tuple(
        (
            str(run.path),
            run.record.head["seed"],
            "–" if run.tested is None else percent(run.tested.accuracy or 0.0),
            *(figure.value for figure in run.verdict.words.figures[:2]),
            len(run.record.rows),
            run.lost_batches,
            run.verdict.words.headline,
        )
        for run in runs
    )
    columns = ("folder", "seed", "accuracy", "T", "weak", "rounds", "batches lost", "verdict")
    return Table("Each run by itself.", columns, rows, words=("verdict",))


_UNTESTED = "Neither accuracy nor loss was measured in these runs."
_BAND = "The band is one standard deviation to each side, over the runs of a group."
