"""The plots of an audit: the levels over the rounds, isolation, and the sizes of groups."""

from collections.abc import Sequence

import numpy as np

from coterie.audit.verdict import Verdict
from coterie.report.page.blocks import Plot, Plots
from coterie.report.page.plots import Curve, Curves, StackedBars
from coterie.report.page.words import counted, evenly, number
from coterie.values import IntArray, ParticipationLog

MOST_POINTS = 1000
MOST_BARS = 16


def level_plots(verdict: Verdict) -> Plots:
    """Return the levels over the rounds, how many users were isolated, and the sizes of the groups."""
    plots = [_levels(verdict)]
    if verdict.isolated:
        plots.append(_isolation(verdict))
    if len(np.unique(verdict.classes.sizes)) > 1:
        plots.append(_groups(verdict))
    return Plots(tuple(plots))


def _levels(verdict: Verdict) -> Plot:
    strong, weak = strong_steps(verdict), weak_steps(verdict)
    lines = [_steps("strong" if verdict.certain else "strong, at most", strong)]
    if weak != strong:
        lines.append(_steps("weak, at most", weak))
    low = verdict.weak.low
    if verdict.certain and low > verdict.strong:
        # A level never rises with a round, so what is proven of the last round holds before it.
        lines.append(_steps("weak, at least", [(round_, max(level, low)) for round_, level in strong]))
    says = "Levels can only fall. "
    if verdict.classes.falls:
        round_, level = verdict.classes.falls[-1]
        says += f"The strong one is {number(level)} since round {round_}. "
    else:
        says += f"The strong one is {number(verdict.strong)}. "
    if weak != strong:
        bound = number(weak[-1][1])
        between = f"from {number(low)} to {bound}" if verdict.certain else f"at most {bound}"
        says += f"The weak one is {bound if verdict.certain and verdict.weak.exact else between} in the end."
    return Plot("Privacy levels", Curves(tuple(lines), across="round"), says.strip())


def strong_steps(verdict: Verdict) -> list[tuple[int, int]]:
    """Return the strong level from the first learned sum on: (round, level) wherever it fell, and at the end."""
    first, last = int(verdict.log.set_rounds[0]), _last(verdict.log)
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
    return sorted({**steps, _last(log): bound}.items())


def _last(log: ParticipationLog) -> int:
    return log.first + log.rounds - 1


def _steps(name: str, steps: Sequence[tuple[int, int]]) -> Curve:
    kept = [steps[place] for place in evenly(len(steps), MOST_POINTS).tolist()]
    return Curve(name, [round_ for round_, _ in kept], [level for _, level in kept], step=True)


def _isolation(verdict: Verdict) -> Plot:
    rounds, counts = np.unique([found.round for found in verdict.isolated], return_counts=True)
    known = np.cumsum(counts).tolist()
    start = int(verdict.log.set_rounds[0])
    steps = sorted(
        {start: 0, **dict(zip(rounds.tolist(), known, strict=True)), _last(verdict.log): known[-1]}.items()
    )
    says = f"The first was isolated by round {int(rounds[0])}; {counted(known[-1], 'user')} of "
    says += f"{number(verdict.users)} by round {int(rounds[-1])}. Nobody ever ceases to be."
    return Plot("Isolated users", Curves((_steps("isolated", steps),), across="round"), says)


def _groups(verdict: Verdict) -> Plot:
    """Return how many users are in groups of each size, isolated users apart."""
    sizes, seen = verdict.classes.sizes, verdict.classes.seen
    alone = np.isin(seen, [found.user for found in verdict.isolated])
    hidden = "not isolated" if verdict.isolation_known and verdict.certain else "not known to be isolated"
    lows, names = _bins(sizes)
    place = np.searchsorted(lows, sizes, side="right") - 1
    parts = [
        (name, np.bincount(place[mask], minlength=len(lows)).tolist())
        for name, mask in ((hidden, ~alone), ("isolated", alone))
        if mask.any()
    ]
    low, high = int(sizes.min()), int(sizes.max())
    says = "Users who took part in exactly the same rounds form a group, and hide in it. "
    says += f"Groups have {number(low)} to {counted(high, 'user')}."
    if low == 1:
        says += f" {counted(int(np.sum(sizes == 1)), 'user is', 'users are')} in no group with others."
    return Plot(
        "Users in groups of each size", StackedBars(tuple(names), tuple(parts), across="users in the group"), says
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
