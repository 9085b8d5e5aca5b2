"""The page of several runs: their curves with the spread over seeds, what came out, what differs, every run."""

from collections.abc import Sequence

from coterie import __version__
from coterie.report.page.blocks import Block, Curves, Foot, Page, Plot, Plots, Section, Table, Text, Tile, Tiles
from coterie.report.page.html import render
from coterie.report.run.comparison import (
    MEASURES,
    Comparison,
    RunGroup,
    accuracy_text,
    overall_tone,
    setting_text,
)
from coterie.report.run.result import RunResult
from coterie.values.words import counted, number, percent


def comparison_page(comparison: Comparison, date: str) -> str:
    """Return several runs as one HTML file; `date` says when it was made."""
    groups, runs = comparison.groups, comparison.runs
    sections = [
        Section("How they learned", _learning(groups)),
        Section("What came out", (comparison.results(),)),
        Section("Privacy, fairness and use", (_measure_plots(groups),)),
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
        foot=Foot(
            facts=(
                ("Made by", f"Coterie {__version__}"),
                *((str(run.path), f"SHA-256 of the record {run.digest}") for run in runs),
            ),
            assumptions=(
                "Runs that differ only in their seed are one group.",
                "The spread is the sample standard deviation over the runs of a group.",
                "A curve is drawn as far as all runs of its group have been measured.",
                *dict.fromkeys(text for run in runs for text in run.guarantee.assumptions),
            ),
        ),
        tone=overall_tone(runs),
    )
    return render(page)


def _tiles(comparison: Comparison) -> Tiles:
    runs, groups = comparison.runs, comparison.groups
    levels = [group.level for group in groups]
    certain = [level for level in levels if level is not None]
    level = number(min(certain)) if len(certain) == len(levels) else "unknown"
    tiles = [Tile("Lowest privacy level T", level, "over all runs, as their logs tell", overall_tone(runs))]
    reached = [spread for group in groups if (spread := group.spread(MEASURES["accuracy"])) is not None]
    if reached:
        best = max(reached, key=lambda spread: spread.mean)
        tiles.append(Tile("Best accuracy", accuracy_text(best), "mean over a group's runs, on the test set"))
    tiles.append(Tile("Runs", number(len(runs)), f"in {counted(len(groups), 'group')} of one setting each"))
    return Tiles(tuple(tiles))


def _learning(groups: Sequence[RunGroup]) -> tuple[Block, ...]:
    plots = []
    for title, name, shares in (("Accuracy", "accuracy", True), ("Loss", "loss", False)):
        lines = tuple(line for group in groups if (line := group.curve(MEASURES[name])).x)
        if lines:
            text = percent if shares else "{:.3f}".format
            caption = " ".join(f"{line.name}: {text(line.y[-1])} after round {line.x[-1]}." for line in lines)
            plots.append(Plot(title, Curves(lines, across="round", percent=shares), f"{caption} {_BAND}"))
    return (Plots(tuple(plots)),) if plots else (Text(("Neither accuracy nor loss was measured in these runs.",)),)


def _measure_plots(groups: Sequence[RunGroup]) -> Plots:
    plots = []
    for title, name, unit in (
        ("Fairness gap F", "fairness_gap", "{:.3f}"),
        ("Cardinality C", "cardinality", "{:.2f}"),
    ):
        lines = tuple(group.curve(MEASURES[name]) for group in groups)
        caption = " ".join(f"{line.name}: {unit.format(line.y[-1])} in the end." for line in lines if line.y)
        plots.append(Plot(title, Curves(lines, across="round"), caption or "No round has ended.", height=160))
    return Plots(tuple(plots))


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
            run.guarantee.strong.value,
            run.guarantee.weak.value,
            len(run.record.rows),
            run.facts.lost,
            run.guarantee.headline,
        )
        for run in runs
    )
    columns = ("folder", "seed", "accuracy", "T", "weak", "rounds", "batches lost", "verdict")
    return Table("Each run by itself.", columns, rows, words=("verdict",))


_BAND = "The band is one standard deviation to each side, over the runs of a group."
