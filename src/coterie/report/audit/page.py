"""The page of an audit: what a federation has given away, to whom, and what to do about it."""

from collections.abc import Iterator

from coterie import __version__
from coterie.audit.verdict import Verdict
from coterie.audit.wording import plan_user_name, user_name
from coterie.report.audit.advice import advice_blocks
from coterie.report.audit.plots import level_plots, picture_blocks
from coterie.report.audit.proofs import exposed_blocks, group_blocks, lightest_blocks
from coterie.report.page.blocks import Block, Foot, Page, Points, Section, Table, Text, Tile, Tiles
from coterie.report.page.html import render
from coterie.values.words import counted, display_name, listing, number, printable, spans

MOST_BREACHES = 300
MOST_SOURCE = 200


def audit_page(verdict: Verdict, *, date: str) -> str:
    """Return what an audit says as one HTML file; `date` is when it was made."""
    words = verdict.words
    sections = [Section("What has been given away", (Points(words.explanations),))]
    if len(verdict.log.set_rounds):
        sections.append(Section("How the levels fell", (level_plots(verdict),)))
    sections.append(Section("Who took part", (*picture_blocks(verdict), _use(verdict))))
    sections.append(Section("Exposed users", exposed_blocks(verdict)))
    sections.append(Section("The smallest groups", (*group_blocks(verdict), *lightest_blocks(verdict))))
    sections += _asked(verdict)
    sections.append(Section("What to do next", advice_blocks(verdict)))
    page = Page(
        kind="Privacy audit",
        title=words.headline,
        subject=f"{counted(verdict.users, 'user')}, {counted(verdict.log.rounds, 'round')}",
        answer=" ".join(words.sentences),
        tiles=Tiles(
            tuple(
                Tile(figure.label, figure.value, figure.meaning, figure.tone)
                for figure in (*words.figures, *words.further_figures)
            )
        ),
        sections=tuple(sections),
        foot=_foot(verdict),
        tone=words.tone,
        date=date,
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
            listing(plan_user_name(verdict, user) for user in breach.missing) or "–",
            listing(user_name(verdict.evidence.log, user) for user in breach.present),
        )
        for breach in breaches[:MOST_BREACHES]
    )
    caption = (
        "Every sum that held part of a batch."
        if len(rows) == len(breaches)
        else f"The first {len(rows)} of {number(len(breaches))} breaches."
    )
    yield Table(caption, ("round", "batch", "missing", "took part"), rows, words=("missing", "took part"))


def _unknown(verdict: Verdict) -> Points:
    unknown = verdict.judged.unknown
    which = f"{counted(len(unknown), 'round')}: {spans(unknown)}."
    before = (
        f"The strong level was {number(verdict.before_unknown or 0)} before round {min(unknown)}, for certain."
    )
    who = listing(user_name(verdict.log, user) for user in verdict.judged.unknown_users.tolist())
    return Points(
        (
            ("Which", f"{which} What the server learned in them is on no record."),
            ("Who sent something there", f"{who}. Each of them counts as seen alone."),
            ("Before them", before),
        )
    )


def _foot(verdict: Verdict) -> Foot:
    log, question, evidence = verdict.log, verdict.question, verdict.evidence
    facts = [("Made by", f"Coterie {__version__}")]
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
    return Foot(tuple(facts), (*verdict.words.assumptions, _NOT_DP))


_NOT_DP = (
    "This is not differential privacy: if all users of a group have the same update, their mean is everyone's. "
    "And the trained model may tell something about its data."
)
