"""The page of one run: how it learned, what it measured, who took part, and what it guarantees.

The verdict itself, its level and its words, is the audit's (`RunResult.verdict`). What is said here beside it are
the facts of docs/guarantee.md and docs/threat-model.md that hold for the run's aggregation. `run`, which trains a
model from Python as `coterie run` does, stands here because it ends with this page.
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.files import write_file
from coterie.lab.experiments.folder import RoundRow, RunFolder
from coterie.lab.experiments.result import BatchHealth, RunResult, read_run
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import AggregationSettings, Spec, toml_value, with_options
from coterie.leakage import Verdict
from coterie.pages.blocks import (
    Block,
    Commands,
    Curve,
    Curves,
    Details,
    Footer,
    Listing,
    Page,
    Plot,
    Plots,
    Points,
    Section,
    StackedBars,
    Table,
    Text,
    evenly,
    participation_plot,
)
from coterie.pages.figures import can_draw, run_measures, training_curve
from coterie.pages.render import can_render, render, write_page
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.text import KeyNumber, counted, listing, number, percent, shortened

MOST_POINTS = 1000
MOST_BARS = 60
MOST_WORST = 10
MOST_BATCHES = 2000
MOST_NAMES = 3


RoundColumns: TypeAlias = Mapping[str, NDArray[np.generic]]
"""Rounds as arrays of equal length, one for each number of a round and of the measures after it."""


def learning_blocks(rounds: RoundColumns) -> tuple[Block, ...]:
    """Return accuracy and loss over the rounds."""
    accuracy = _curve("accuracy", rounds, "accuracy")
    loss = _curve("test set", rounds, "loss")
    training = _curve("users' own data", rounds, "training_loss")
    plots = []
    if accuracy.x:
        best = int(np.argmax(accuracy.y))
        caption = _from_to("Accuracy on the test set", accuracy, percent)
        caption += f" The best was {percent(accuracy.y[best])}, after round {accuracy.x[best]}."
        plots.append(Plot("Accuracy", Curves((accuracy,), across="round", percent=True), caption))
    losses = [line for line in (loss, training) if line.x]
    if losses:
        caption = " ".join(_from_to(f"Loss on the {line.name}", line, "{:.3f}".format) for line in losses)
        plots.append(Plot("Loss", Curves(tuple(losses), across="round"), caption.replace("the users'", "users'")))
    if not plots:
        return (Text(("Neither accuracy nor loss was measured in this run.",)),)
    return (Plots(tuple(plots)),)


def measures_plots(rounds: RoundColumns, *, known: bool) -> Plots:
    """Return T, F and C over the rounds, T from the first sum on; `known` says whether all sums are on record."""
    first = int(np.argmax(rounds["included"] != 0)) if rounds["included"].any() else len(rounds["included"])
    level = _curve("T", {name: column[first:] for name, column in rounds.items()}, "strong", step=True)
    gap = _curve("F", rounds, "fairness_gap")
    cardinality = _curve("C", rounds, "cardinality")
    t_says = "The smallest group of users that no combination of the sums so far can tell apart. It can only fall."
    t_says += f" It is {int(level.y[-1])} after round {level.x[-1]}." if level.x else " No sum was learned."
    if not known:
        t_says += " Rounds that were cut off are not in it, so the true level may be lower."
    f_says = "The largest difference between two users' shares of the rounds; 0 is fair. "
    f_says += f"It is {gap.y[-1]:.3f} after round {gap.x[-1]}."
    c_says = "Users in the model per round on average, rounds without a result counted as 0. "
    c_says += f"It is {cardinality.y[-1]:.2f} after round {cardinality.x[-1]}. Half of it means twice the rounds."
    return Plots(
        (
            Plot("Privacy level T", Curves((level,), across="round"), t_says, height=160),
            Plot("Fairness gap F", Curves((gap,), across="round"), f_says, height=160),
            Plot("Cardinality C", Curves((cardinality,), across="round"), c_says, height=160),
        )
    )


def users_plot(log: ParticipationLog, plan: BatchPlan | None) -> Plot:
    """Return the picture of who took part when, users sorted by batch."""
    if plan is None:
        return participation_plot(log, None)
    return participation_plot(log, np.pad(plan.batch_of, (0, log.users - plan.users), constant_values=-1))


def batch_blocks(health: BatchHealth) -> tuple[Block, ...]:
    """Return how the batches fared: in words, as bars, and as a table of the worst."""
    plan = health.plan
    if len(plan) == 0:
        return (Text(("No batch is left: every one has lost a member for good.",)),)
    order = health.worst_first()
    table = _batch_table("The batches that were lost most often, worst first.", order[:MOST_WORST], health)
    blocks: list[Block] = [Text((_batch_words(health),)), Plots((_bars(health, order),)), table]
    if len(plan) > MOST_WORST:
        batches, caption = np.sort(order[:MOST_BATCHES]), "Every batch."
        if len(plan) > MOST_BATCHES:
            caption = f"The {number(MOST_BATCHES)} worst of {number(len(plan))} batches."
        blocks.append(Details("All batches", (_batch_table(caption, batches, health),)))
    return tuple(blocks)


def _curve(name: str, rounds: RoundColumns, column: str, *, step: bool = False) -> Curve:
    values = rounds[column].astype(np.float64)
    measured = np.flatnonzero(np.isfinite(values))
    places = measured[evenly(len(measured), MOST_POINTS)]
    return Curve(name, rounds["round"][places].tolist(), values[places].tolist(), step)


def _from_to(what: str, line: Curve, text: Callable[[float], str]) -> str:
    """Return where a curve began and ended, in words."""
    if len(line.x) == 1:
        return f"{what}: {text(line.y[0])} after round {line.x[0]}."
    return f"{what}: {text(line.y[0])} after round {line.x[0]}, {text(line.y[-1])} after round {line.x[-1]}."


def _batch_words(health: BatchHealth) -> str:
    plan = health.plan
    asked, completed, lost = (int(values.sum()) for values in (health.asked, health.completed, health.lost))
    low, high = int(plan.sizes.min()), int(plan.sizes.max())
    sizes = f"{low} users" if low == high else f"{low} to {high} users"
    never = int(np.sum(health.asked == 0))
    text = f"{counted(len(plan), 'batch', 'batches')} of {sizes}, asked {counted(asked, 'time')} in all: "
    text += f"{number(completed)} times a batch completed, {number(lost)} times it lost a member on the way."
    if never:
        text += f" {counted(never, 'batch was', 'batches were')} never asked."
    if len(plan.retired):
        text += f" {counted(len(plan.retired), 'user belongs', 'users belong')} to no batch any more."
    return text


def _bars(health: BatchHealth, order: IntArray) -> Plot:
    few = len(order) <= MOST_BARS
    batches = np.arange(len(order)) if few else order[:MOST_BARS]
    rest = health.asked - health.completed - health.lost
    parts = [("completed", health.completed[batches].tolist()), ("lost on the way", health.lost[batches].tolist())]
    if rest[batches].any():
        parts.append(("round given up", rest[batches].tolist()))
    worst = int(order[0])
    caption = (
        "Rounds in which each batch was asked." if few else f"The {MOST_BARS} batches that were lost most often."
    )
    if health.lost[worst]:
        caption += f" Batch {worst} fared worst: {health.lost[worst]} of {health.asked[worst]} rounds lost."
    else:
        caption += " No batch was lost on the way."
    chart = StackedBars(tuple(str(batch) for batch in batches), tuple(parts), across="batch")
    return Plot("Rounds of each batch", chart, caption, wide=True)


def _batch_table(caption: str, batches: IntArray, health: BatchHealth) -> Table:
    columns = ("batch", "asked", "completed", "lost on the way", "share lost", "users")
    rows = tuple(
        (
            str(batch),
            int(health.asked[batch]),
            int(health.completed[batch]),
            int(health.lost[batch]),
            percent(float(health.lost_share[batch])) if health.asked[batch] else "–",
            _members(health.plan, batch),
        )
        for batch in batches.tolist()
    )
    return Table(caption, columns, rows, words=("users",))


def _members(plan: BatchPlan, batch: int) -> str:
    """Return who is in a batch: some by name, the rest as a number."""
    users = plan.batch(batch).tolist()
    return listing((shortened(plan.names[user]) if plan.names else str(user) for user in users), MOST_NAMES)


# --- what a run guarantees, who enforces it, and what nobody should read into it


def guaranteed(verdict: Verdict, aggregation: AggregationSettings) -> Points:
    """Return what holds, thanks to whom, and what the server saw."""
    level = dict(verdict.words.explanations).get(
        "Strong level", "There is no sum, so there is nothing to hide in."
    )
    stays = " ".join(verdict.words.forecast) or "The level can only fall. It never rises again."
    return Points(
        (
            ("The level", level),
            ("Who enforces it", _enforcement(verdict)),
            ("What the server saw in a round", _server_view(aggregation)),
            ("When rounds are added", stays),
        )
    )


def not_guaranteed(verdict: Verdict) -> Points:
    """Return what nobody should read into the level."""
    batch = "Who is in which batch, who" if verdict.evidence.plan is not None else "Who"
    return Points(
        (
            ("What a sum reveals", _A_SUM),
            ("Users who work with the server", _collusion(verdict)),
            ("Who took part", f"{batch} was available, who answered and when: the server sees that."),
            ("The model", _THE_MODEL),
            ("Honest updates", _POISONING) if verdict.sealed else ("A server that deviates", _HONEST_SERVER),
        )
    )


def assumptions(verdict: Verdict) -> tuple[str, ...]:
    """Return what a run's verdict rests on: what every audit does, one machine, and with a seal the devices."""
    return (_ONE_MACHINE, *verdict.words.assumptions, *((_REAL_MEMBERS, _DEVICES) if verdict.sealed else ()))


def _enforcement(verdict: Verdict) -> str:
    if verdict.sealed:
        return _KEYS
    if verdict.evidence.plan is None:
        return _ONE_BY_ONE
    split = len({breach.batch for breach in verdict.breaches or ()})
    if not split:
        return _HONESTY
    return f"{_HONESTY} That happened: {counted(split, 'batch was', 'batches were')} split. The level counts it."


def _server_view(aggregation: AggregationSettings) -> str:
    if aggregation.plain:
        view = "Every single update: they were added without any cryptography."
    else:
        from coterie.secagg import PROTOCOLS

        view = PROTOCOLS[aggregation.protocol].server_sees
        view += "" if aggregation.sealed else " Without a seal that is a sum over those who stayed to the end."
    return f"{view} Also who was asked, who answered, when, and who was lost."


def _collusion(verdict: Verdict) -> str:
    text = "If c users of a group tell the server their updates, the other T − c hide among each other."
    if not verdict.has_sums or verdict.strong == 1:
        return text
    left = verdict.strong - 1
    return f"{text} Here one such user leaves {counted(left, 'user')}, and {left} of them leave one user alone."


_KEYS = (
    "The users' own keys. Each member of a batch adds masks that cancel only in the sum over the whole batch. A "
    "server that asks for a part of a batch, shows its members different models, or loses a member on the way "
    "gets noise."
)
_HONESTY = (
    "The server's honesty. It chose whole batches, but without the seal nothing would have stopped it from "
    "asking for a part of one, and a user lost after being chosen leaves a sum of the others."
)
_ONE_BY_ONE = (
    "Nobody. Users were chosen one by one, so the sums of different rounds overlap, and their differences "
    "single users out. With random selection every update is exposed after about as many rounds as there are "
    "users."
)
_A_SUM = (
    "T bounds which sums exist, not what a sum tells. If all users of a group have the same update, their mean "
    "is everyone's; if one update is extreme, it shows. This is not differential privacy, which is "
    "complementary."
)
_THE_MODEL = (
    "The trained model may itself tell something about the data that it was trained on. And a server can "
    "publish a model that is not the result."
)
_POISONING = "A user can send any vector, and nobody can look inside. A user can also make its own batch fail."
_HONEST_SERVER = (
    "All of this rests on a server that follows the rules. One that does not can learn more, unnoticed."
)
_ONE_MACHINE = (
    "All users lived on one machine in this run. It shows what the server of a real federation would have "
    "learned; it protects nobody from the owner of this machine."
)
_REAL_MEMBERS = (
    "A batch of T users is T different parties. In a deployment its check of identities must see to that."
)
_DEVICES = (
    "A device seals a round once, and its record is neither copied nor put back. X25519, Ed25519, AES-256 and "
    "SHA-256 are taken to be secure."
)


# --- the page

MOST_ROUNDS = 500
"""Rows of the table of rounds."""
MOST_NOTES = 6
"""Notes that are not folded away."""


def write_run_report(result: RunResult, date: str) -> list[Path]:
    """Write the page of a run, its curves as pictures and its summary; return the files that were written.

    `date` says when the page was made. Without the packages of coterie[report] there is nothing to draw with, and
    only the summary is written.
    """
    folder, rows, paths = RunFolder(result.path), result.record.rows, []
    if can_draw() and rows:
        folder.figures.mkdir(exist_ok=True)
        for name, draw in (("training", training_curve), ("measures", run_measures)):
            draw(rows, folder.figures / f"{name}.png")
            paths.append(folder.figures / f"{name}.png")
    if can_render():
        write_page(run_page(result, date), folder.report)
        paths.append(folder.report)
    write_file(folder.summary, f"{json.dumps(result.summary(), indent=2)}\n".encode())
    return [*paths, folder.summary]


def run_page(result: RunResult, date: str) -> str:
    """Return the report of a run as one HTML file; `date` says when it was made."""
    verdict, rows, tested = result.verdict, result.record.rows, result.tested
    accuracy = [f"The model reached {percent(tested.accuracy or 0.0)} accuracy."] if tested else []
    measures = measures_plots(result.columns, known=verdict.certain) if rows else Text(("No round has ended.",))
    sections = [
        Section("How it learned", learning_blocks(result.columns)),
        Section("Privacy, fairness and use", (measures,)),
        Section("Who took part", _who(result)),
    ]
    if result.health is not None:
        sections.append(Section("How the batches fared", batch_blocks(result.health), printed=False))
    sections += [
        Section("What is guaranteed", (guaranteed(verdict, result.aggregation),)),
        Section("What is not guaranteed", (not_guaranteed(verdict),)),
        Section("The rounds", _rounds(result), printed=False),
        Section("The settings", _settings(result), printed=False),
        Section("What to do next", (_next(result.path),), printed=False),
    ]
    page = Page(
        kind="Run report",
        subject=f"{counted(result.log.users, 'user')}, {counted(result.log.rounds, 'round')}",
        date=date,
        title=verdict.words.headline,
        answer=" ".join((*result.account, *accuracy)),
        tiles=_tiles(result),
        sections=tuple(sections),
        footer=_footer(result),
        tone=verdict.words.tone,
    )
    return render(page)


def _tiles(result: RunResult) -> tuple[KeyNumber, ...]:
    rows, lost = result.record.rows, result.lost_batches
    strong, weak, _ = result.verdict.words.figures
    tiles = [strong]
    if result.tested is not None:
        accuracy = percent(result.tested.accuracy or 0.0)
        tiles.append(KeyNumber("Accuracy", accuracy, f"on the test set, after round {result.tested.round}"))
    results = sum(row.outcome == "committed" for row in rows)
    without = result.log.rounds - results
    meaning = f"of {number(result.log.rounds)}; {number(without)} gave none" if without else "all rounds gave one"
    tiles += [KeyNumber("Rounds with a result", number(results), meaning), weak]
    if rows:
        last, fair = rows[-1], "between the users' shares of rounds; 0 is fair"
        tiles += [
            KeyNumber("Cardinality C", f"{last.cardinality:.2f}", "users in the model per round, on average"),
            KeyNumber("Fairness gap F", f"{last.fairness_gap:.3f}", fair),
        ]
    if result.plan is not None:
        split = "without a seal, a sum of the others remains"
        meaning = "left out whole: the seal held" if result.verdict.sealed else split
        meaning = meaning if lost else "in all rounds"
        tiles.append(KeyNumber("Batches lost on the way", number(lost), meaning))
    return tuple(tiles)


def _who(result: RunResult) -> tuple[Block, ...]:
    log, plan, breaches = result.log, result.plan, result.verdict.breaches
    if not log.users or not log.rounds:
        return (Text(("Nobody yet.",)),)
    if plan is None:
        words = "Users were chosen one by one. Rows are users, columns are rounds."
    elif breaches:
        split = counted(len({breach.batch for breach in breaches}), "batch", "batches")
        words = f"Users of one batch stand together. {split} did not always take part whole."
    else:
        words = "Users of one batch stand together. In every round each batch took part whole or not at all."
    return (Text((words,)), Plots((users_plot(log, plan),)))


def _rounds(result: RunResult) -> tuple[Block, ...]:
    rows, notes = result.record.rows, result.notes
    outcomes = Counter(row.outcome for row in rows)
    text = f"{counted(result.log.rounds, 'round')}: {number(outcomes['committed'])} gave a result"
    if outcomes["skipped"]:
        skipped = number(outcomes["skipped"])
        text += f", {skipped} skipped, because no cohort could be formed from who was available"
    if outcomes["abandoned"]:
        text += f", {number(outcomes['abandoned'])} abandoned on the way"
    if result.unfinished:
        text += f", {number(result.unfinished)} cut off by a crash and tried again under a new number"
    blocks: list[Block] = [Text((text + ".", *notes[:MOST_NOTES]))]
    if len(notes) > MOST_NOTES:
        blocks.append(Details(counted(len(notes) - MOST_NOTES, "more note"), (Text(tuple(notes[MOST_NOTES:])),)))
    if not rows:
        return tuple(blocks)
    places = evenly(len(rows), MOST_ROUNDS).tolist()
    every = len(places) == len(rows)
    caption = "Every round." if every else f"{len(places)} of {number(len(rows))} rounds, evenly spaced."
    columns = ("round", "outcome", "available", "asked", "in the model", "batches lost", "accuracy", "loss", "T",
               "F", "C", "seconds")  # fmt: skip
    table = Table(caption, columns, tuple(_line(rows[place]) for place in places), words=("outcome",))
    return (*blocks, Details("The rounds in numbers", (table,)))


def _line(row: RoundRow) -> tuple[str | int | float, ...]:
    accuracy = "–" if row.accuracy is None else percent(row.accuracy)
    loss = "–" if row.loss is None else f"{row.loss:.4f}"
    return (str(row.round), row.outcome, row.available, row.asked, row.included, row.lost_batches, accuracy, loss,
            row.strong, row.fairness_gap, f"{row.cardinality:.2f}", f"{row.seconds:.2f}")  # fmt: skip


def _settings(result: RunResult) -> tuple[Block, ...]:
    """Return the spec as a file that makes the run again."""
    how = "Everything that decided this run. Saved as `spec.toml`, `coterie run spec.toml` makes it again."
    return Text((how,)), Listing("The spec of this run, as TOML", spec_toml(result.record.head["spec"]))


def spec_toml(tables: Mapping[str, Any]) -> str:
    """Return a spec's nested tables as TOML, without comments.

    >>> print(spec_toml({"seed": 3, "data": {"source": "mnist", "shared": [1, 2]}}), end="")
    seed = 3
    <BLANKLINE>
    [data]
    source = "mnist"
    shared = [1, 2]
    """
    plain = {name: value for name, value in tables.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {toml_value(value)}\n" for name, value in plain.items()]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines.append(f"\n[{name}]\n" + spec_toml(table))
    return "".join(lines)


def _next(path: Path) -> Commands:
    folder = shlex.quote(str(path))
    gives_away = "What its log gives away: both privacy levels, and any isolated user with a proof."
    return Commands(
        (
            (f"coterie audit {folder}", gives_away),
            (f"coterie ledger verify {folder}", "Whether the run's ledger is whole and unchanged."),
            (f"coterie report {folder} OTHER", "This run and others on one page; OTHER is another run's folder."),
        )
    )


def _footer(result: RunResult) -> Footer:
    head = result.record.head
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    return Footer(
        facts=(
            ("Folder", str(result.path)),
            ("Run started", str(head["started"])),
            ("Aggregation", f"{head['aggregation']}, {'sealed' if result.verdict.sealed else 'not sealed'}"),
            ("Model parameters", number(head["parameters"])),
            ("Seed", str(head["seed"])),
            ("Versions", versions),
            ("SHA-256 of the record", result.digest),
        ),
        assumptions=assumptions(result.verdict),
    )


# --- `coterie.run`


def unnamed_folder() -> Path:
    """Return where a run goes that was given no folder: below `runs`, named after the time."""
    return Path("runs") / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")


def run(
    spec: Spec | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    progress: Callable[[RoundRow], None] = lambda _row: None,
    **options: Any,  # noqa: ANN401 - a spec checks the kinds
) -> RunResult:
    """Train a model over users who never show their updates, and return what came out.

    `spec` is a spec, its tables, its file, or the default one; `out` a new folder (unless given, below `runs`,
    named after the time). `resume` takes up the run in a folder instead. `rounds` is the number of rounds in all,
    in place of the spec's; it also extends a run that is resumed. `workers` are the clients trained side by
    side, as many as there are cores unless given. `progress` is given every round's row. Other keywords
    change the spec as the options of the command do: `coterie.run(model="mlp", data="hospitals")`. The folder then
    holds the record, checkpoints, ledger, report.html and summary.json.
    """
    if resume is not None:
        if spec is not None or out is not None or options:
            what = "give resume, and at most rounds, workers and progress"
            raise UsageError(f"a run is resumed as it was begun; {what}")
        job = Run.resume(Path(resume), workers=workers, rounds=rounds)
    else:
        if spec is None or isinstance(spec, Mapping):
            spec = Spec.from_tables(spec or {})
        elif not isinstance(spec, Spec):
            spec = Spec.read(Path(spec))
        settings = with_options(spec, options if rounds is None else {**options, "rounds": rounds})
        job = Run.start(settings, unnamed_folder() if out is None else Path(out), workers=workers)
    with job:
        for row in job.steps():
            progress(row)
    result = read_run(job.folder.path)
    write_run_report(result, datetime.now(UTC).date().isoformat())
    return result
