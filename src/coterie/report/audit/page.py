"""The page of an audit: what a federation has given away, to whom, and what to do about it."""

from collections.abc import Iterator, Sequence

import numpy as np

from coterie.leakage import StrongLevel
from coterie.leakage.verdict import Verdict
from coterie.leakage.wording import user_name
from coterie.report.audit.proofs import advice_blocks, exposed_blocks, group_blocks, lightest_blocks
from coterie.report.page.blocks import (
    Block,
    Curve,
    Curves,
    Footer,
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
from coterie.report.page.html import render
from coterie.values import IntArray, ParticipationLog
from coterie.values.text import counted, display_name, listing, number, printable, spans

MOST_BREACHES = 300
MOST_SOURCE = 200


def audit_page(verdict: Verdict, *, date: str) -> str:
    """Return what an audit says as one HTML file; `date` is when it was made."""
    words = verdict.words
    sections = [Section("What has been given away", (Points(words.explanations),))]
    if len(verdict.log.set_rounds):
        sections.append(Section("How the levels fell", (level_plots(verdict),)))
    sections.append(Section("Who took part", (*picture_blocks(verdict), _fairness_and_cardinality(verdict))))
    sections.append(Section("Exposed users", exposed_blocks(verdict)))
    sections.append(Section("The smallest groups", (*group_blocks(verdict), *lightest_blocks(verdict))))
    sections += _optional_sections(verdict)
    sections.append(Section("What to do next", advice_blocks(verdict)))
    page = Page(
        kind="Privacy audit",
        title=words.headline,
        subject=f"{counted(verdict.users, 'user')}, {counted(verdict.log.rounds, 'round')}",
        answer=" ".join(words.sentences),
        tiles=(*words.figures, *words.further_numbers),
        sections=tuple(sections),
        footer=_footer(verdict),
        tone=words.tone,
        date=date,
    )
    return render(page)


def _fairness_and_cardinality(verdict: Verdict) -> Points:
    """Return fairness and cardinality in words."""
    measures = verdict.measures
    gap = f"F = {measures.fairness_gap:.3f}: the largest difference between two users' shares of rounds; "
    gap += "0 is fair."
    cardinality = f"C = {measures.cardinality:.2f} users in a round's sums on average."
    if measures.skipped:
        gap += f" Over the rounds with a result alone it is {measures.fairness_gap_completed:.3f}."
        cardinality += f" {counted(measures.skipped, 'round')} without a result count as 0."
    return Points((("Fairness gap", gap), ("Cardinality", cardinality)))


def _optional_sections(verdict: Verdict) -> Iterator[Section]:
    """Yield the sections that not every audit has."""
    if verdict.breaches is not None:
        yield Section("Against the plan", tuple(_plan_blocks(verdict)))
    if not verdict.certain:
        yield Section("Rounds whose sums are not recorded", (_unknown(verdict),))
    if verdict.words.forecast:
        yield Section("If it goes on like this", (Text(verdict.words.forecast),))
    if verdict.omissions:
        left = tuple((each.part[0].upper() + each.part[1:], f"{each.reason}.") for each in verdict.omissions)
        yield Section("What was left out", (Points(left),))


def _plan_blocks(verdict: Verdict) -> Iterator[Block]:
    breaches = verdict.breaches or ()
    if not breaches:
        yield Text(("Every batch took part whole or not at all, as the plan says.",))
        return
    rounds = len({breach.round for breach in breaches})
    split = len({breach.batch for breach in breaches if breach.batch is not None})
    strangers = {user for breach in breaches if breach.batch is None for user in breach.present}
    text = f"{counted(rounds, 'round')} left the plan."
    if split:
        text += f" {counted(split, 'batch was', 'batches were')} split: a sum held a part, which can be told"
        text += " apart from the rest since."
    if strangers:
        text += f" {counted(len(strangers), 'user of no batch', 'users of no batch')} took part."
    yield Text((text,))
    rows = tuple(
        (
            str(breach.round),
            "none" if breach.batch is None else str(breach.batch),
            listing(user_name(verdict.evidence.plan, user) for user in breach.missing) or "–",
            listing(user_name(verdict.evidence.log, user) for user in breach.present),
        )
        for breach in breaches[:MOST_BREACHES]
    )
    caption = "Every sum that held part of a batch."
    if len(rows) < len(breaches):
        caption = f"The first {len(rows)} of {number(len(breaches))} breaches."
    yield Table(caption, ("round", "batch", "missing", "took part"), rows, words=("missing", "took part"))


def _unknown(verdict: Verdict) -> Points:
    unknown = verdict.subject.unknown
    which, level = f"{counted(len(unknown), 'round')}: {spans(unknown)}.", number(verdict.before_unknown or 0)
    who = listing(user_name(verdict.log, user) for user in verdict.subject.unknown_users.tolist())
    return Points(
        (
            ("Which", f"{which} What the server learned in them is not recorded."),
            ("Who sent something there", f"{who}. Each of them counts as seen alone."),
            ("Before them", f"The strong level was {level} before round {min(unknown)}, for certain."),
        )
    )


def _footer(verdict: Verdict) -> Footer:
    log, question, evidence = verdict.log, verdict.question, verdict.evidence
    facts = []
    if verdict.source is not None:
        source = verdict.source
        digest = "SHA-256 of the log" if source.digest_of == "sha256" else "Hash of the ledger's last record"
        facts += [("Log", printable(source.place)[:MOST_SOURCE]), (digest, source.digest)]
        if source.notes or source.warnings:
            facts.append(("How it was read", printable(" ".join((*source.notes, *source.warnings)))))
    if log.rounds:
        facts.append(("Rounds", f"{log.first} to {log.first + log.rounds - 1}"))
    if evidence.plan is not None:
        batches = counted(len(evidence.plan), "batch", "batches")
        facts.append(("Plan", f"{batches} of at least {counted(evidence.plan.privacy, 'user')}"))
    if question.required is not None:
        facts.append(("Required level", number(question.required)))
    if question.named_colluders:
        names = [user_name(evidence.log, user) for user in question.named_colluders]
        facts.append(("Named colluders", listing(map(display_name, names))))
    if question.colluders:
        facts.append(("Colluders", number(question.colluders)))
    return Footer(tuple(facts), (*verdict.words.assumptions, _NOT_DP))


_NOT_DP = (
    "This is not differential privacy: if all users of a group have the same update, their mean is everyone's. "
    "And the trained model may tell something about its data."
)


MOST_POINTS = 1000
MOST_BARS = 16
MOST_ROUNDS = 10_000_000
"""Of more rounds no picture is drawn: it takes memory for each of them."""


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
        bracket = bound if verdict.weak.exact else f"from {number(low)} to {bound}"
        caption += f"The weak one is {bracket} in the end."
    return Plot("Privacy levels", Curves(tuple(lines), across="round"), caption.strip())


def strong_steps(verdict: Verdict) -> list[tuple[int, int]]:
    """Return the strong level from the first learned sum on: (round, level) wherever it fell, and at the end."""
    first = int(verdict.subject.worst_case.set_rounds[0])
    return sorted({first: verdict.users, **dict(verdict.classes.falls), _last(verdict): verdict.strong}.items())


def weak_steps(verdict: Verdict) -> list[tuple[int, int]]:
    """Return a proven upper bound of the weak level: (round, bound) wherever it falls, and at the end.

    A sum is a combination, so the smallest one so far bounds the level; an isolated user bounds it by 1, and the
    lightest combination found by its weight, each from the round on in which it could be computed.
    """
    log = verdict.log
    least = np.minimum.accumulate(np.diff(log.starts))
    falls = np.flatnonzero(np.diff(least, prepend=least[0] + 1))
    bounds = [(int(log.set_rounds[place]), int(least[place])) for place in falls]
    if verdict.isolated:
        bounds.append((verdict.isolated[0].round, 1))
    if verdict.weak.witness is not None:
        bounds.append((verdict.weak.witness.last_round(log), verdict.weak.high))
    steps: dict[int, int] = {}
    bound = verdict.users
    for round_, level in sorted(bounds):
        if level < bound or not steps:
            bound = min(bound, level)
            steps[round_] = bound
    return sorted({**steps, _last(verdict): bound}.items())


def _last(verdict: Verdict) -> int:
    log = verdict.subject.worst_case
    return log.first + log.rounds - 1


def _steps(name: str, steps: Sequence[tuple[int, int]]) -> Curve:
    points = [steps[place] for place in evenly(len(steps), MOST_POINTS).tolist()]
    return Curve(name, [round_ for round_, _ in points], [level for _, level in points], step=True)


def _isolation(verdict: Verdict) -> Plot:
    rounds, counts = np.unique([each.round for each in verdict.isolated], return_counts=True)
    totals = np.cumsum(counts).tolist()
    grown = dict(zip(rounds.tolist(), totals, strict=True))
    steps = sorted({int(verdict.log.set_rounds[0]): 0, **grown, _last(verdict): totals[-1]}.items())
    caption = f"The first was isolated by round {int(rounds[0])}; {counted(totals[-1], 'user')} of "
    caption += f"{number(verdict.users)} by round {int(rounds[-1])}. Whoever is isolated stays so."
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
    chart = StackedBars(tuple(names), tuple(parts), across="users in the group")
    return Plot("Users in groups of each size", chart, caption)


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


def picture_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return who took part when: users of one batch stand together, without a plan users of one group."""
    if len(verdict.log.set_rounds) == 0:
        return (Text(("Nobody, as far as the log tells.",)),)
    if verdict.log.rounds > MOST_ROUNDS:
        return (Text((f"The log spans {counted(verdict.log.rounds, 'round')}, too many for a picture.",)),)
    participants = np.unique(verdict.log.members).astype(np.int64)
    evidence = verdict.subject.only(participants)  # a log may claim any number of users who never took part
    log, batches = evidence.log, evidence.batch_of
    together, groups = ("group", _groups(log)) if batches is None else ("batch", None)
    words = f"Rows are users, columns are rounds. Users of one {together} stand together."
    if absent := verdict.users - len(participants):
        words += f" {counted(absent, 'user has', 'users have')} never taken part and no row."
    if batches is not None and (batches < 0).any():
        words += " Users of no batch come last."
    return (Text((words,)), Plots((participation_plot(log, batches, groups=groups, numbers=participants),)))


def _groups(log: ParticipationLog) -> IntArray:
    """Return for each user the first user with the same column."""
    strong = StrongLevel(log.users)
    for _, members in log.sets():
        strong.add(members)
    _, firsts, group = np.unique(strong.class_of, return_index=True, return_inverse=True)
    return firsts[group]
