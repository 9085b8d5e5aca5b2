"""The picture of who took part in the rounds of an audited log: users that belong together stand together."""

import numpy as np

from coterie.audit import StrongLevel
from coterie.audit.verdict import Verdict
from coterie.report.audit.names import brief, user_name
from coterie.report.page.blocks import Block, Plot, Plots, Text
from coterie.report.page.participation import Participation, participation
from coterie.report.page.plots import HeatMap
from coterie.report.page.words import counted, evenly, number, percent
from coterie.values import BatchPlan, IntArray, ParticipationLog

MOST_TICKS = 12
MOST_ROUNDS = 10_000_000
"""Of more rounds no picture is drawn: it takes memory for each of them."""
_LONGEST_TICK = 14


def picture_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return who took part when: users of one batch stand together, without a plan users of one group."""
    if len(verdict.log.set_rounds) == 0:
        return (Text(("Nobody, as far as the log tells.",)),)
    if verdict.log.rounds > MOST_ROUNDS:
        many = f"The log spans {counted(verdict.log.rounds, 'round')}, too many for a picture."
        return (Text((many,)),)
    log, batches = _only_seen(verdict), _batches(verdict)
    together = "batch" if batches is not None else "group"
    words = (
        f"Rows are users, columns are rounds. Users of one {together} stand together.{_missing(verdict, batches)}"
    )
    return (Text((words,)), Plots((_picture(log, verdict.classes.seen, batches),)))


def _only_seen(verdict: Verdict) -> ParticipationLog:
    """Return the log without users who never took part: it may claim any number of them."""
    log, seen = verdict.log, verdict.classes.seen
    return ParticipationLog(
        users=len(seen),
        rounds=log.rounds,
        set_rounds=log.set_rounds,
        starts=log.starts,
        members=np.searchsorted(seen, log.members),
        first=log.first,
        names=None if log.names is None else tuple(log.names[user] for user in seen.tolist()),
    )


def _batches(verdict: Verdict) -> IntArray | None:
    """Return the batch of each user who took part, -1 for none; None without a plan."""
    plan, planned = verdict.question.plan, verdict.question.planned
    if plan is None:
        return None
    seen = verdict.classes.seen
    return np.append(plan.batch_of, -1)[seen if planned is None else planned[seen]]


def _missing(verdict: Verdict, batches: IntArray | None) -> str:
    absent = verdict.users - len(verdict.classes.seen)
    said = f" {counted(absent, 'user has', 'users have')} never taken part and no row." if absent else ""
    return said + (" Users of no batch come last." if batches is not None and (batches < 0).any() else "")


def _picture(log: ParticipationLog, seen: IntArray, batches: IntArray | None) -> Plot:
    drawn = participation(log, _order(_groups(log) if batches is None else batches))
    numbers = [f"user {user}" for user in seen.tolist()]
    names = numbers if log.names is None else [user_name(log, place) for place in range(log.users)]
    # Long names are cut, so the number keeps rows apart.
    places = (
        numbers if log.names is None else [f"{name} ({user})" for name, user in zip(names, numbers, strict=True)]
    )
    chart = HeatMap(
        drawn.share,
        columns=(log.first + drawn.column_starts[:-1]).tolist(),
        rows=[_row_name(drawn.users(row).tolist(), places, batches) for row in range(len(drawn.share))],
        ticks=_ticks(drawn, names, batches),
        across="round",
    )
    height = int(np.clip(80 + 4 * len(drawn.share), 160, 560))
    return Plot("Users and rounds", chart, _says(log, drawn), height=height, wide=True)


def _groups(log: ParticipationLog) -> IntArray:
    """Return for each user the first user with the same column."""
    strong = StrongLevel(log.users)
    for _, members in log.sets():
        strong.add(members)
    _, firsts, group = np.unique(strong.class_of, return_index=True, return_inverse=True)
    return firsts[group]


def _order(groups: IntArray) -> BatchPlan:
    """Return groups of users as a plan, which the picture is sorted by; -1 is no group."""
    order = np.argsort(groups, kind="stable")[np.sum(groups < 0) :]
    sizes = np.unique(groups[order], return_counts=True)[1]
    return BatchPlan(len(groups), 1, order, np.concatenate(([0], np.cumsum(sizes))))


def _row_name(users: list[int], places: list[str], batches: IntArray | None) -> str:
    """Return a name of its own for a row: its user, or the users that it holds."""
    first = places[users[0]]
    where = "" if batches is None or batches[users[0]] < 0 else f", batch {batches[users[0]]}"
    return f"{first}{where}" if len(users) == 1 else f"{number(len(users))} users from {first}{where} on"


def _ticks(drawn: Participation, names: list[str], batches: IntArray | None) -> list[tuple[int, str]]:
    """Return names for some rows: batches at their first row, or users."""
    firsts = [int(drawn.users(row)[0]) for row in range(len(drawn.share))]
    if batches is None:
        rows = evenly(len(firsts), MOST_TICKS).tolist()
        return [(row, brief(names[firsts[row]], _LONGEST_TICK)) for row in rows]
    of_row = batches[firsts]
    begins = np.flatnonzero((np.diff(of_row, prepend=-2) != 0) & (of_row >= 0))
    return [(int(begins[place]), f"batch {of_row[begins[place]]}") for place in evenly(len(begins), MOST_TICKS)]


def _says(log: ParticipationLog, drawn: Participation) -> str:
    says = "Coloured: took part. "
    if drawn.binned:
        users, rounds = (int(np.diff(starts).max()) for starts in (drawn.row_starts, drawn.column_starts))
        says = f"A cell stands for up to {counted(users, 'user')} and {counted(rounds, 'round')}. "
        says += f"The stronger its colour, the more took part: at most {percent(drawn.share.max())} of a cell. "
    low, middle, high = int(drawn.times.min()), int(np.median(drawn.times)), int(drawn.times.max())
    return f"{says}A user took part in {low} to {high} of {counted(log.rounds, 'round')} (median {middle})."
