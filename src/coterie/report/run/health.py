"""How the batches of a run fared: asked, completed, lost on the way."""

from dataclasses import dataclass

import numpy as np

from coterie.errors import UsageError
from coterie.report.page.blocks import Block, Details, Plot, Plots, Table, Text
from coterie.report.page.plots import StackedBars
from coterie.report.page.words import counted, number, percent, shortened
from coterie.values import BatchPlan, FloatArray, IntArray

MOST_BARS = 60
MOST_WORST = 10
MOST_ROWS = 2000
MOST_NAMES = 3


@dataclass(frozen=True, eq=False)
class BatchHealth:
    """For each batch of a plan: the rounds it was asked in, completed, and lost members in.

    A round that was given up as a whole counts as asked only.
    """

    asked: IntArray
    completed: IntArray
    lost: IntArray

    def __post_init__(self) -> None:
        if not len(self.asked) == len(self.completed) == len(self.lost):
            raise UsageError(
                f"batch health is given for {len(self.asked)}, {len(self.completed)} and {len(self.lost)} batches"
            )
        over = np.flatnonzero(self.completed + self.lost > self.asked)
        if len(over):
            raise UsageError(f"batch {over[0]} completed and lost more rounds than it was asked in")

    @property
    def lost_share(self) -> FloatArray:
        """The share of a batch's rounds in which it was lost, 0 for one that was never asked."""
        return self.lost / np.maximum(self.asked, 1)

    def worst_first(self) -> IntArray:
        """Return the batches, those with the largest share of lost rounds first, then those asked least.

        >>> BatchHealth(np.array([4, 0, 4]), np.array([4, 0, 3]), np.array([0, 0, 1])).worst_first().tolist()
        [2, 1, 0]
        """
        return np.lexsort((np.arange(len(self.asked)), self.asked, -self.lost_share))


def health_blocks(health: BatchHealth, plan: BatchPlan) -> tuple[Block, ...]:
    """Return how the batches fared: in words, as bars, and as a table of the worst."""
    if len(health.asked) != len(plan):
        raise UsageError(f"batch health is given for {len(health.asked)} batches; the plan has {len(plan)}")
    if len(plan) == 0:
        return (Text(("No batch is left: every one has lost a member for good.",)),)
    order = health.worst_first()
    table = _table("The batches that were lost most often, worst first.", order[:MOST_WORST], health, plan)
    blocks: list[Block] = [Text((_words(health, plan),)), Plots((_bars(health, order),)), table]
    if len(plan) > MOST_WORST:
        shown = np.sort(order[:MOST_ROWS])
        caption = (
            "Every batch."
            if len(plan) <= MOST_ROWS
            else f"The {number(MOST_ROWS)} worst of {number(len(plan))} batches."
        )
        blocks.append(Details("All batches", (_table(caption, shown, health, plan),)))
    return tuple(blocks)


def _words(health: BatchHealth, plan: BatchPlan) -> str:
    asked, completed, lost = (int(np.sum(values)) for values in (health.asked, health.completed, health.lost))
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
    shown = np.arange(len(order)) if few else order[:MOST_BARS]
    rest = health.asked - health.completed - health.lost
    parts = [("completed", health.completed[shown].tolist()), ("lost on the way", health.lost[shown].tolist())]
    if rest[shown].any():
        parts.append(("round given up", rest[shown].tolist()))
    worst = int(order[0])
    says = (
        "Rounds in which each batch was asked. " if few else f"The {MOST_BARS} batches that were lost most often. "
    )
    if health.lost[worst]:
        says += f"Batch {worst} fared worst: {health.lost[worst]} of {health.asked[worst]} rounds lost."
    else:
        says += "No batch was lost on the way."
    chart = StackedBars(tuple(str(batch) for batch in shown), tuple(parts), across="batch")
    return Plot("Rounds of each batch", chart, says, wide=True)


def _table(caption: str, batches: IntArray, health: BatchHealth, plan: BatchPlan) -> Table:
    columns = ("batch", "asked", "completed", "lost on the way", "share lost", "users")
    rows = tuple(
        (
            str(batch),
            int(health.asked[batch]),
            int(health.completed[batch]),
            int(health.lost[batch]),
            percent(float(health.lost_share[batch])) if health.asked[batch] else "–",
            _members(plan, batch),
        )
        for batch in batches.tolist()
    )
    return Table(caption, columns, rows, words=("users",))


def _members(plan: BatchPlan, batch: int) -> str:
    """Return who is in a batch: some by name, the rest as a number."""
    users = plan.batch(batch)
    names = [plan.names[user] if plan.names else str(user) for user in users[:MOST_NAMES].tolist()]
    more = f" and {len(users) - MOST_NAMES} more" if len(users) > MOST_NAMES else ""
    return ", ".join(map(shortened, names)) + more
