"""The plots of a run: learning curves, the three measures, who took part when, and how the batches fared."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.lab.experiments.result import BatchHealth
from coterie.report.page.blocks import (
    Block,
    Curve,
    Curves,
    Details,
    Plot,
    Plots,
    StackedBars,
    Table,
    Text,
    evenly,
    participation_plot,
)
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.text import counted, listing, number, percent, shortened

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
