"""Who took part when, as a picture of bounded size: users × rounds, both binned when there are many."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.report.page.blocks import HeatMap, Plot
from coterie.values import BatchPlan, FloatArray, IntArray, ParticipationLog
from coterie.values.words import counted, percent


@dataclass(frozen=True, eq=False)
class Participation:
    """`share[r, c]` is the share of (user, round) pairs in row r and column c in which the user took part.

    Row r holds the users `order[row_starts[r]:row_starts[r + 1]]`; column c holds the rounds from
    `column_starts[c]` up to `column_starts[c + 1]`, counted from the log's first.
    """

    share: FloatArray
    order: IntArray
    row_starts: IntArray
    column_starts: IntArray
    times: IntArray
    """In how many rounds each user took part."""

    def users(self, row: int) -> IntArray:
        """Return the users of a row."""
        return self.order[self.row_starts[row] : self.row_starts[row + 1]]

    @property
    def binned(self) -> bool:
        """Whether a cell stands for more than one user or round."""
        return self.share.size < len(self.order) * int(self.column_starts[-1])


def participation(
    log: ParticipationLog, plan: BatchPlan | None, most_rows: int = 240, most_columns: int = 300
) -> Participation:
    """Return the picture of a log, users in the order of their batches, retired ones last.

    With more users than rows, a row holds one or more whole batches, never a part of one; with more rounds than
    columns, a column holds several.

    >>> log = ParticipationLog.from_dense([[1, 0, 1, 0], [0, 1, 0, 1]])
    >>> picture = participation(log, BatchPlan.from_batches(4, 2, [[0, 2], [1, 3]]))
    >>> picture.order.tolist(), picture.share.tolist()
    ([0, 2, 1, 3], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    """
    order, edges = _sorted_users(log.users, plan)
    if log.users <= most_rows:
        edges = np.arange(log.users + 1)
    row_starts = edges[_cuts(len(edges) - 1, most_rows)]
    column_starts = _cuts(log.rounds, most_columns)
    row_of = np.empty(log.users, dtype=np.int64)
    row_of[order] = np.repeat(np.arange(len(row_starts) - 1), np.diff(row_starts))

    # A user counts once for a round, however many learned sets of the round it is in.
    rounds = np.repeat(log.set_rounds - log.first, np.diff(log.starts))
    seen = np.unique(rounds * log.users + log.members)
    rounds, users = np.divmod(seen, max(log.users, 1))
    sizes = np.outer(np.diff(row_starts), np.diff(column_starts))
    columns = np.searchsorted(column_starts, rounds, side="right") - 1
    cells = row_of[users] * sizes.shape[1] + columns
    counts = np.bincount(cells, minlength=sizes.size).reshape(sizes.shape)
    times = np.bincount(users, minlength=log.users)
    return Participation(counts / sizes, order, row_starts, column_starts, times)


def participation_plot(
    log: ParticipationLog, picture: Participation, rows: Sequence[str], ticks: Sequence[tuple[int, str]]
) -> Plot:
    """Return the plot of a picture, with a name for every row and names of some rows at the side."""
    chart = HeatMap(
        picture.share,
        columns=(log.first + picture.column_starts[:-1]).tolist(),
        rows=rows,
        ticks=ticks,
        across="round",
    )
    height = int(np.clip(80 + 4 * len(picture.share), 160, 560))
    return Plot("Users and rounds", chart, _caption(log, picture), height=height, wide=True)


def _caption(log: ParticipationLog, picture: Participation) -> str:
    caption = "Coloured: took part. "
    if picture.binned:
        users, rounds = (int(np.diff(starts).max()) for starts in (picture.row_starts, picture.column_starts))
        caption = f"A cell stands for up to {counted(users, 'user')} and {counted(rounds, 'round')}. "
        caption += (
            f"The stronger its colour, the more took part: at most {percent(picture.share.max())} of a cell. "
        )
    times = picture.times
    low, middle, high = int(times.min()), int(np.median(times)), int(times.max())
    caption += f"A user took part in {low} to {high} of {counted(log.rounds, 'round')} (median {middle})."
    never = int(np.sum(times == 0))
    return f"{caption} {counted(never, 'user')} never took part." if never else caption


def _sorted_users(users: int, plan: BatchPlan | None) -> tuple[IntArray, IntArray]:
    """Return the users batch after batch, and where batches begin in that order (and where the last ends)."""
    if plan is None:
        return np.arange(users), np.arange(users + 1)
    outside = np.setdiff1d(np.arange(users), plan.members)
    tail = plan.starts[-1] + np.arange(1, len(outside) + 1)
    return np.concatenate((plan.members, outside)), np.concatenate((plan.starts, tail))


def _cuts(count: int, most: int) -> IntArray:
    """Return where to cut `count` things into at most `most` runs of nearly equal length."""
    parts = min(count, most)
    return np.arange(parts + 1) * count // max(parts, 1)
