"""The page of an audit: what a federation has given away, to whom, and what to do about it."""

from collections.abc import Iterator, Sequence

from coterie import __version__
from coterie.audit.forecast import Span
from coterie.audit.verdict import Verdict
from coterie.report.audit.names import listed, planned_user_name, printable, spans, user_name
from coterie.report.audit.next_steps import next_blocks
from coterie.report.audit.picture import picture_blocks
from coterie.report.audit.plots import level_plots
from coterie.report.audit.proofs import exposed_blocks, group_blocks, lightest_blocks
from coterie.report.audit.tiles import tiles
from coterie.report.audit.words import answer, findings, learned
from coterie.report.page.blocks import Block, Foot, Page, Points, Section, Table, Text
from coterie.report.page.html import render
from coterie.report.page.words import counted, number

MOST_BREACHES = 300
MOST_SOURCE = 200


def audit_page(verdict: Verdict, *, source: str, digest: str, told: Sequence[str] = ()) -> str:
    """Return what an audit found as one HTML file.

    `source` says where the log was read, and stands in the page as it is: it must hold no password. `digest` is
    the SHA-256 of what was read. `told` are the colluders given by name, whom the verdict's log no longer has.
    """
    said, tone = answer(verdict, len(told))
    sections = [Section("What has been given away", (findings(verdict, len(told)),))]
    if learned(verdict):
        sections.append(Section("How the levels fell", (level_plots(verdict),)))
    sections.append(Section("Who took part", (*picture_blocks(verdict), _use(verdict))))
    sections.append(Section("Exposed users", exposed_blocks(verdict, len(told))))
    sections.append(Section("The smallest groups", (*group_blocks(verdict), *lightest_blocks(verdict))))
    sections += _asked(verdict)
    sections.append(Section("What to do next", next_blocks(verdict)))
    page = Page(
        kind="Privacy audit",
        title=f"{counted(verdict.users, 'user')}, {counted(verdict.log.rounds, 'round')}",
        answer=said,
        tiles=tiles(verdict),
        sections=tuple(sections),
        foot=_foot(verdict, source, digest, told),
        tone=tone,
    )
    return render(page)


def _use(verdict: Verdict) -> Points:
    """Return fairness and cardinality in words."""
    measures = verdict.measures
    gap = (
        f"F = {measures.fairness_gap:.3f}: the largest difference between two users' shares of rounds; 0 is fair."
    )
    cardinality = f"C = {measures.cardinality:.2f} users in a round's sums on average."
    if measures.skipped:
        gap += f" Over the rounds with a result alone it is {measures.fairness_gap_completed:.3f}."
        cardinality += f" {counted(measures.skipped, 'round')} without a result count as 0."
    return Points((("Fairness gap", gap), ("Cardinality", cardinality)))


def _asked(verdict: Verdict) -> Iterator[Section]:
    """Yield the sections that not every audit has."""
    if verdict.breaches is not None:
        yield Section("Against the plan", tuple(_plan_blocks(verdict)))
    if not verdict.certain:
        yield Section("Rounds on no record", (_unknown(verdict),))
    if verdict.forecast is not None:
        yield Section("If it goes on like this", (_forecast(verdict),))


def _plan_blocks(verdict: Verdict) -> Iterator[Block]:
    found = verdict.breaches or ()
    if not found:
        yield Text(("Every sum was of whole batches, as the plan says.",))
        return
    rounds = len({breach.round for breach in found})
    split = len({breach.batch for breach in found if breach.batch is not None})
    strangers = {user for breach in found if breach.batch is None for user in breach.present}
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
            listed(planned_user_name(verdict, user) for user in breach.missing) or "–",
            listed(user_name(verdict.log, user) for user in breach.present),
        )
        for breach in found[:MOST_BREACHES]
    )
    caption = (
        "Every sum that held part of a batch."
        if len(rows) == len(found)
        else f"The first {len(rows)} of {number(len(found))} breaches."
    )
    yield Table(caption, ("round", "batch", "missing", "took part"), rows, words=("missing", "took part"))


def _unknown(verdict: Verdict) -> Points:
    unknown = verdict.question.unknown
    which = f"{counted(len(unknown), 'round')}: {spans(unknown)}."
    before = (
        f"The strong level was {number(verdict.before_unknown or 0)} before round {min(unknown)}, for certain."
    )
    return Points(
        (
            ("Which", f"{which} What the server learned in them is on no record."),
            ("Before them", before),
            ("After them", "Every level is an upper bound: a sum that nobody wrote down may have lowered it."),
        )
    )


def _forecast(verdict: Verdict) -> Points | Text:
    coming = verdict.forecast
    if coming is None or coming.policy == "batches":
        return Text((_TOGETHER,))
    seen = len(verdict.classes.seen)
    if len(verdict.isolated) == seen:
        return Text(("Everyone who took part is isolated already. Further rounds change nothing about that.",))
    trials = counted(coming.trials, "continuation was", "continuations were")
    how = f"{trials} drawn, with as many users in a round as in the log, but chosen at random."
    return Points(
        (
            ("What was simulated", f"{how} This is an estimate for that policy, not a proof."),
            ("The first isolated user", _when(coming.first_isolated)),
            (f"All {number(seen)} who took part", _when(coming.all_isolated)),
        )
    )


def _when(span: Span) -> str:
    if span.median is None:
        return "Not within the rounds that were simulated."
    if span.median == 0:
        return "Isolated already."
    after = f"After {counted(span.median, 'further round')}"
    if span.low == span.high:
        return f"{after}, in nearly every continuation."
    high = "more than were simulated" if span.high is None else number(span.high)
    return f"{after}; nine times in ten {number(span.low or 0)} to {high}."


def _foot(verdict: Verdict, source: str, digest: str, told: Sequence[str]) -> Foot:
    log, question = verdict.log, verdict.question
    facts = [
        ("Made by", f"Coterie {__version__}"),
        ("Log", source[:MOST_SOURCE]),
        ("SHA-256 of the log", digest),
    ]
    if log.rounds:
        facts.append(("Rounds", f"{log.first} to {log.first + log.rounds - 1}"))
    if question.plan is not None:
        batches = counted(len(question.plan), "batch", "batches")
        facts.append(("Plan", f"{batches} of at least {counted(question.plan.privacy, 'user')}"))
    if question.required is not None:
        facts.append(("Required level", number(question.required)))
    if told:
        facts.append(("Named colluders", listed(map(printable, told))))
    elif question.colluders:
        facts.append(("Colluders", number(question.colluders)))
    return Foot(tuple(facts), (*verdict.assumptions, _NOT_DP))


_TOGETHER = (
    "The same users always came together. As long as they do, no number of further rounds lowers the strong "
    "level. One round that splits a group does."
)
_NOT_DP = (
    "This is not differential privacy: if all users of a group have the same update, their mean is everyone's. "
    "And the trained model may tell something about its data."
)
