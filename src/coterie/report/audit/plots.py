"""The plots of an audit: the levels over the rounds, isolation, the sizes of groups, and who took part when."""

from collections.abc import Sequence

import numpy as np

from coterie.audit import StrongLevel
from coterie.audit.verdict import Verdict
from coterie.audit.wording import user_name
from coterie.report.page.blocks import Block, Curve, Curves, Plot, Plots, StackedBars, Text, evenly
from coterie.report.page.participation import Participation, participation, participation_plot
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.words import counted, number, shortened

MOST_POINTS = 1000
MOST_BARS = 16
MOST_TICKS = 12
MOST_ROUNDS = 10_000_000
"""Of more rounds no picture is drawn: it takes memory for each of them."""
_LONGEST_TICK = 14


def level_plots(verdict: Verdict) -> Plots:
    """Return the levels over the rounds, how many users were isolated, and the sizes of the groups."""
    plots = [_levels(verdict)]
    if verdict.isolated:
        plots.append(_isolation(verdict))
    if len(np.unique(verdict.classes.sizes)) > 1:
        plots.append(_group_sizes(verdict))
    return Plots(tuple(plots))


def _levels(verdict: Verdict) -> Plot:
    strong, weak = strong_steps(verdict), weak_steps(verdict)
    lines = [_steps("strong", strong)]
    if weak != strong:
        lines.append(_steps("weak, at most", weak))
    low = verdict.weak.low
    if low > verdict.strong:
        # A level never rises with a round, so what is proven of the last round holds before it.
        lines.append(_steps("weak, at least", [(round_, max(level, low)) for round_, level in strong]))
    caption = "Levels can only fall. "
    if verdict.classes.falls:
        round_, level = verdict.classes.falls[-1]
        caption += f"The strong one is {number(level)} since round {round_}. "
    else:
        caption += f"The strong one is {number(verdict.strong)}. "
    if weak != strong:
        bound = number(weak[-1][1])
        caption += (
            f"The weak one is {bound if verdict.weak.exact else f'from {number(low)} to {bound}'} in the end."
        )
    return Plot("Privacy levels", Curves(tuple(lines), across="round"), caption.strip())


def strong_steps(verdict: Verdict) -> list[tuple[int, int]]:
    """Return the strong level from the first learned sum on: (round, level) wherever it fell, and at the end."""
    first, last = int(verdict.judged.worst_case.set_rounds[0]), _last(verdict)
    steps = dict(verdict.classes.falls)
    return sorted({first: verdict.users, **steps, last: verdict.strong}.items())


def weak_steps(verdict: Verdict) -> list[tuple[int, int]]:
    """Return a proven upper bound of the weak level: (round, bound) wherever it falls, and at the end.

    A sum is a combination, so the smallest one so far bounds the level; an isolated user bounds it by 1, and the
    lightest combination found by its weight, each from the round on in which it could be computed.
    """
    log = verdict.log
    least = np.minimum.accumulate(np.diff(log.starts))
    falls = np.flatnonzero(np.diff(least, prepend=least[0] + 1))
    known = [(int(log.set_rounds[place]), int(least[place])) for place in falls]
    if verdict.isolated:
        known.append((verdict.isolated[0].round, 1))
    if verdict.weak.witness is not None:
        known.append((verdict.weak.witness.last_round(log), verdict.weak.high))
    steps: dict[int, int] = {}
    bound = verdict.users
    for round_, level in sorted(known):
        if level < bound or not steps:
            bound = min(bound, level)
            steps[round_] = bound
    return sorted({**steps, _last(verdict): bound}.items())


def _last(verdict: Verdict) -> int:
    log = verdict.judged.worst_case
    return log.first + log.rounds - 1


def _steps(name: str, steps: Sequence[tuple[int, int]]) -> Curve:
    points = [steps[place] for place in evenly(len(steps), MOST_POINTS).tolist()]
    return Curve(name, [round_ for round_, _ in points], [level for _, level in points], step=True)


def _isolation(verdict: Verdict) -> Plot:
    rounds, counts = np.unique([each.round for each in verdict.isolated], return_counts=True)
    known = np.cumsum(counts).tolist()
    start = int(verdict.log.set_rounds[0])
    steps = sorted({start: 0, **dict(zip(rounds.tolist(), known, strict=True)), _last(verdict): known[-1]}.items())
    caption = f"The first was isolated by round {int(rounds[0])}; {counted(known[-1], 'user')} of "
    caption += f"{number(verdict.users)} by round {int(rounds[-1])}. Nobody ever ceases to be."
    return Plot("Isolated users", Curves((_steps("isolated", steps),), across="round"), caption)


def _group_sizes(verdict: Verdict) -> Plot:
    """Return how many users are in groups of each size, isolated users apart."""
    sizes, participants = verdict.classes.sizes, verdict.classes.participants
    alone = np.isin(participants, [each.user for each in verdict.isolated])
    hidden = "not isolated" if verdict.isolation_known else "not known to be isolated"
    lows, names = _bins(sizes)
    place = np.searchsorted(lows, sizes, side="right") - 1
    parts = [
        (name, np.bincount(place[mask], minlength=len(lows)).tolist())
        for name, mask in ((hidden, ~alone), ("isolated", alone))
        if mask.any()
    ]
    low, high = int(sizes.min()), int(sizes.max())
    caption = "Users who took part in exactly the same rounds form a group, and hide in it. "
    caption += f"Groups have {number(low)} to {counted(high, 'user')}."
    if low == 1:
        caption += f" {counted(int(np.sum(sizes == 1)), 'user is', 'users are')} in no group with others."
    return Plot(
        "Users in groups of each size",
        StackedBars(tuple(names), tuple(parts), across="users in the group"),
        caption,
    )


def _bins(sizes: IntArray) -> tuple[list[int], list[str]]:
    """Return where bars begin, and their names: every size there is, or powers of two if there are many.

    >>> _bins(np.array([1, 6, 6, 3]))
    ([1, 3, 6], ['1', '3', '6'])
    >>> _bins(np.arange(1, 18))
    ([1, 2, 4, 8, 16], ['1', '2 to 3', '4 to 7', '8 to 15', '16 to 31'])
    """
    different = np.unique(sizes).tolist()
    if len(different) <= MOST_BARS:
        return different, [number(size) for size in different]
    lows = [2**power for power in range(different[-1].bit_length())]
    return lows, ["1", *(f"{number(low)} to {number(2 * low - 1)}" for low in lows[1:])]


# --- who took part ------------------------------------------------------------------------------------------


def picture_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return who took part when: users of one batch stand together, without a plan users of one group."""
    if len(verdict.log.set_rounds) == 0:
        return (Text(("Nobody, as far as the log tells.",)),)
    if verdict.log.rounds > MOST_ROUNDS:
        many = f"The log spans {counted(verdict.log.rounds, 'round')}, too many for a picture."
        return (Text((many,)),)
    participants = np.unique(verdict.log.members).astype(np.int64)
    evidence = verdict.judged.only(participants)  # a log may claim any number of users who never took part
    log, batches = evidence.log, evidence.batch_of
    together = "batch" if batches is not None else "group"
    words = (
        f"Rows are users, columns are rounds. Users of one {together} stand together.{_missing(verdict, batches)}"
    )
    return (Text((words,)), Plots((_picture(log, participants, batches),)))


def _missing(verdict: Verdict, batches: IntArray | None) -> str:
    absent = verdict.users - len(np.unique(verdict.log.members))
    text = f" {counted(absent, 'user has', 'users have')} never taken part and no row." if absent else ""
    return text + (" Users of no batch come last." if batches is not None and (batches < 0).any() else "")


def _picture(log: ParticipationLog, participants: IntArray, batches: IntArray | None) -> Plot:
    picture = participation(log, _order(_groups(log) if batches is None else batches))
    numbers = [f"user {user}" for user in participants.tolist()]
    names = numbers if log.names is None else [user_name(log, place) for place in range(log.users)]
    # Long names are cut, so the number keeps rows apart.
    places = (
        numbers if log.names is None else [f"{name} ({user})" for name, user in zip(names, numbers, strict=True)]
    )
    rows = [_row_name(picture.users(row).tolist(), places, batches) for row in range(len(picture.share))]
    return participation_plot(log, picture, rows, _ticks(picture, names, batches))


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


def _ticks(picture: Participation, names: list[str], batches: IntArray | None) -> list[tuple[int, str]]:
    """Return names for some rows: batches at their first row, or users."""
    firsts = [int(picture.users(row)[0]) for row in range(len(picture.share))]
    if batches is None:
        rows = evenly(len(firsts), MOST_TICKS).tolist()
        return [(row, shortened(names[firsts[row]], _LONGEST_TICK)) for row in rows]
    of_row = batches[firsts]
    begins = np.flatnonzero((np.diff(of_row, prepend=-2) != 0) & (of_row >= 0))
    return [(int(begins[place]), f"batch {of_row[begins[place]]}") for place in evenly(len(begins), MOST_TICKS)]
