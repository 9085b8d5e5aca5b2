"""The plots of a run: learning curves, the three measures, and who took part when."""

from collections.abc import Callable, Sequence
from itertools import dropwhile

import numpy as np

from coterie.experiment.record import RoundRow
from coterie.report.page.blocks import Block, Plot, Plots, Text
from coterie.report.page.participation import Participation, participation
from coterie.report.page.plots import Curve, Curves, HeatMap
from coterie.report.page.words import counted, evenly, percent, shortened
from coterie.values import BatchPlan, ParticipationLog

MOST_POINTS = 1000
MOST_TICKS = 12


def learning_blocks(rows: Sequence[RoundRow]) -> tuple[Block, ...]:
    """Return accuracy and loss over the rounds."""
    accuracy = _curve("accuracy", rows, lambda row: row.accuracy)
    loss = _curve("test set", rows, lambda row: row.loss)
    training = _curve("users' own data", rows, lambda row: row.training_loss)
    plots = []
    if accuracy.x:
        best = int(np.argmax(accuracy.y))
        says = (
            f"{_from_to('Accuracy on the test set', accuracy, percent)} The best was {percent(accuracy.y[best])}, "
        )
        says += f"after round {accuracy.x[best]}."
        plots.append(Plot("Accuracy", Curves((accuracy,), across="round", percent=True), says))
    losses = [line for line in (loss, training) if line.x]
    if losses:
        says = " ".join(_from_to(f"Loss on the {line.name}", line, "{:.3f}".format) for line in losses)
        plots.append(Plot("Loss", Curves(tuple(losses), across="round"), says.replace("the users'", "users'")))
    if not plots:
        return (Text(("Neither accuracy nor loss was measured in this run.",)),)
    return (Plots(tuple(plots)),)


def measures_plots(rows: Sequence[RoundRow], *, known: bool) -> Plots:
    """Return T, F and C over the rounds, T from the first sum on; `known` says whether all sums are on record."""
    learned = list(dropwhile(lambda row: not row.included, rows))
    level = _curve("T", learned, lambda row: row.strong, step=True)
    gap = _curve("F", rows, lambda row: row.fairness_gap)
    cardinality = _curve("C", rows, lambda row: row.cardinality)
    t_says = (
        "The smallest group of users that no combination of the sums so far can tell apart. It can only fall. "
    )
    t_says += f"It is {int(level.y[-1])} after round {level.x[-1]}." if level.x else "No sum was learned."
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


def participation_plot(log: ParticipationLog, plan: BatchPlan | None) -> Plot:
    """Return the picture of who took part when, users sorted by batch."""
    picture = participation(log, plan)
    names = log.names or tuple(f"user {user}" for user in range(log.users))
    rows = [_row_name(picture, row, plan, names) for row in range(len(picture.share))]
    chart = HeatMap(
        picture.share,
        columns=(log.first + picture.column_starts[:-1]).tolist(),
        rows=rows,
        ticks=_ticks(picture, plan),
        across="round",
    )
    times = picture.times
    says = "Coloured: took part. "
    if picture.binned:
        users, rounds = (int(np.diff(starts).max()) for starts in (picture.row_starts, picture.column_starts))
        says = f"A cell stands for up to {counted(users, 'user')} and {counted(rounds, 'round')}. "
        says += f"The stronger its colour, the more took part: at most {percent(picture.share.max())} of a cell. "
    low, middle, high = int(times.min()), int(np.median(times)), int(times.max())
    says += f"A user took part in {low} to {high} of {counted(log.rounds, 'round')} (median {middle})."
    never = int(np.sum(times == 0))
    if never:
        says += f" {counted(never, 'user')} never took part."
    height = int(np.clip(80 + 4 * len(picture.share), 160, 560))
    return Plot("Users and rounds", chart, says, height=height, wide=True)


def _curve(
    name: str, rows: Sequence[RoundRow], value: Callable[[RoundRow], float | None], *, step: bool = False
) -> Curve:
    points = [(row.round, measured) for row in rows if (measured := value(row)) is not None]
    kept = [points[place] for place in evenly(len(points), MOST_POINTS).tolist()]
    return Curve(name, [round_ for round_, _ in kept], [measured for _, measured in kept], step)


def _from_to(what: str, line: Curve, shown: Callable[[float], str]) -> str:
    """Return where a curve began and ended, in words."""
    if len(line.x) == 1:
        return f"{what}: {shown(line.y[0])} after round {line.x[0]}."
    return f"{what}: {shown(line.y[0])} after round {line.x[0]}, {shown(line.y[-1])} after round {line.x[-1]}."


def _row_name(picture: Participation, row: int, plan: BatchPlan | None, names: Sequence[str]) -> str:
    """Return a name of its own for a row: its user, or the batches or users that it holds."""
    users = picture.users(row)
    if len(users) == 1:
        user = int(users[0])
        batch = _batch(plan, user)
        place = f"user {user}" if batch is None else f"user {user}, batch {batch}"
        return place if names[user] == f"user {user}" else f"{shortened(names[user])} ({place})"
    first, last = _batch(plan, int(users[0])), _batch(plan, int(users[-1]))
    if first is None:
        return f"{len(users)} users, from user {users[0]} on"
    if first == last:
        return f"batch {first}"
    return f"batches {first} to {last}" if last is not None else f"from batch {first} on"


def _batch(plan: BatchPlan | None, user: int) -> int | None:
    """Return a user's batch, None for a user in no batch."""
    if plan is None or user >= plan.users or plan.batch_of[user] < 0:
        return None
    return int(plan.batch_of[user])


def _ticks(picture: Participation, plan: BatchPlan | None) -> list[tuple[int, str]]:
    """Return names for some rows: batches where there are any, at their first row."""
    rows = range(len(picture.share))
    firsts = [int(picture.users(row)[0]) for row in rows]
    if plan is None or len(plan) == 0:
        places = evenly(len(picture.share), MOST_TICKS).tolist()
        return [(place, f"user {firsts[place]}") for place in places]
    batches = [_batch(plan, user) for user in firsts]
    begins = [row for row in rows if batches[row] is not None and (row == 0 or batches[row] != batches[row - 1])]
    return [
        (begins[place], f"batch {batches[begins[place]]}") for place in evenly(len(begins), MOST_TICKS).tolist()
    ]
