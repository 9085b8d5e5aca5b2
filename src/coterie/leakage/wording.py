"""A verdict in words, made once: console, page, notebook and JSON show these and no others.

Nothing here says more than the verdict proves. A level is the worst case's; a bound is never shown as a number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.leakage.forecast import Policy, Span
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.text import KeyNumber, Tone, counted, display_name, number, spans

if TYPE_CHECKING:
    from coterie.leakage.verdict import Verdict


@dataclass(frozen=True)
class Wording:
    """What a verdict says.

    `headline` is the verdict in one sentence, `sentences` tell it in a few. `figures` are the three numbers that
    lead, `further_numbers` the others; `explanations` say what they mean, each under a few words that name it.
    `forecast` says what further rounds do, `assumptions` what all of it rests on.
    """

    headline: str
    tone: Tone
    sentences: tuple[str, ...]
    figures: tuple[KeyNumber, ...]
    further_numbers: tuple[KeyNumber, ...]
    explanations: tuple[tuple[str, str], ...]
    forecast: tuple[str, ...]
    assumptions: tuple[str, ...]


def words_of(verdict: "Verdict") -> Wording:
    """Return a verdict in words."""
    return Wording(
        headline=_headline(verdict),
        tone=_tone(verdict),
        sentences=tuple(_sentences(verdict)),
        figures=tuple(figure for figure, _ in lead_numbers(verdict)),
        further_numbers=tuple(further_numbers(verdict)),
        explanations=tuple(explanations(verdict)),
        forecast=tuple(_forecast(verdict)),
        assumptions=tuple(_assumptions(verdict)),
    )


def user_name(of: ParticipationLog | BatchPlan | None, user: int) -> str:
    """Return what to call a user of a log or a plan: its name, or its number.

    >>> user_name(ParticipationLog.from_dense([[1, 1]]), 1)
    'user 1'
    """
    return f"user {user}" if of is None or of.names is None else display_name(of.names[user])


# --- the headline -------------------------------------------------------------------------------------------


def _headline(verdict: "Verdict") -> str:
    """Say in one sentence what matters most: whether the demand is met, and what was given away."""
    finding, required = _main_finding(verdict), verdict.question.required
    if required is None:
        return f"{finding[0].upper()}{finding[1:]}."
    outcome = "is met" if verdict.met else "is not met"
    return f"The required level of {number(required)} {outcome}: {finding}."


def _main_finding(verdict: "Verdict") -> str:
    """Say what was given away, the gravest first: what is proven, then what is not known, then what is safe."""
    isolated = len(verdict.isolated)
    if verdict.subject.plain:
        return f"the server saw every update by itself in {_of_rounds(len(verdict.subject.plain), verdict)}"
    if isolated and isolated == len(verdict.classes.participants):
        return "the server can compute the update of every user who took part"
    if isolated:
        updates, alone = ("updates", ", each alone") if isolated > 1 else ("update", " alone")
        return f"the server can compute the {updates} of {_isolated_of_all(verdict)}{alone}"
    if not verdict.certain:
        rounds = _of_rounds(len(verdict.subject.unknown), verdict)
        return f"nobody can say how private this is, because what the server learned in {rounds} is not known"
    return _finding_without_isolated(verdict)


def _finding_without_isolated(verdict: "Verdict") -> str:
    """Say what was given away where nobody is isolated and every round is known."""
    if not verdict.has_sums:
        return "no sum is on record, so the log gives nothing away"
    if verdict.strong > 1:
        return _groups(verdict)
    if not verdict.isolation_known:
        return "it was not decided whether the server can compute single updates"
    return "the server can compute no update alone, but it can tell some user apart from all others"


def _groups(verdict: "Verdict") -> str:
    """Say how large the groups are that users hide in, and what holds them together or did not."""
    colluders, promised, outlook = verdict.question.colluders, verdict.promised, verdict.forecast
    text = f"users hide in groups of at least {number(verdict.strong_left)}"
    if colluders:
        text = f"with {counted(colluders, 'colluder')}, {text}"
    if verdict.below_plan and promised is not None:
        return f"{text}, and the plan promised {number(promised)}"
    if not verdict.sealed or outlook is None or outlook.floor is None:
        return text
    if outlook.floor < verdict.strong:
        return f"{text} so far; the users' own keys keep it at {number(outlook.floor)} or more"
    return f"{text}, and their own keys keep it so"


def _isolated_of_all(verdict: "Verdict") -> str:
    """Say how many of all users are isolated."""
    isolated, users = len(verdict.isolated), verdict.users
    if isolated == users:
        return "the only user" if users == 1 else f"all {number(users)} users"
    least = "" if verdict.isolation_known else "at least "
    return f"{least}{number(isolated)} of {number(users)} users"


def _of_rounds(count: int, verdict: "Verdict") -> str:
    """Return some of the rounds in words."""
    rounds = verdict.log.rounds
    if count == rounds:
        return "the only round" if rounds == 1 else f"all {number(rounds)} rounds"
    return f"{number(count)} of {counted(rounds, 'round')}"


def _tone(verdict: "Verdict") -> Tone:
    unmet = verdict.below_plan if verdict.met is None else not verdict.met
    if verdict.has_sums and (verdict.strong_left == 1 or unmet):
        return "warning"
    return "good" if verdict.has_sums and (verdict.met or verdict.sealed) else "plain"


# --- the sentences ------------------------------------------------------------------------------------------


def _sentences(verdict: "Verdict") -> Iterator[str]:
    if verdict.has_sums or verdict.met is False:
        yield from _demand(verdict)
    yield from _plain(verdict)
    yield from _given_away(verdict)
    yield from _unknown(verdict)
    yield from _colluding(verdict)
    yield from _against_plan(verdict)
    yield from _window(verdict)
    yield from (
        f"Left out: {omission.part} ({omission.reason})."
        for omission in verdict.omissions
        if verdict.has_sums or omission.part != "the forecast"
    )


def _demand(verdict: "Verdict") -> Iterator[str]:
    required, colluders = verdict.question.required, verdict.question.colluders
    if required is None:
        return
    if verdict.met:
        yield f"The strong level is {number(verdict.strong_left)}, as high as required."
        return
    counts = "counts as" if not verdict.certain else "is"
    after = f", {counted(colluders, 'colluder')} counted in" if colluders else ""
    yield f"The strong level {counts} {number(verdict.strong_left)}{after}; {number(required)} was required."


def _plain(verdict: "Verdict") -> Iterator[str]:
    plain = len(verdict.subject.plain)
    if plain:
        users = counted(len(verdict.isolated), "user")
        yield (
            f"In {_of_rounds(plain, verdict)} aggregation was plain: nothing hid an update from the server. The "
            f"updates of {users} are known to it."
        )


def _given_away(verdict: "Verdict") -> Iterator[str]:
    log = verdict.log
    if len(log.set_rounds) == 0:
        if not verdict.certain:
            yield "No sum is on record."
        return
    sums = f"the sums of {counted(log.rounds, 'round')}" if verdict.certain else "the sums on record"
    isolated = len(verdict.isolated)
    if isolated:
        if not verdict.subject.plain:
            first, last = verdict.isolated[0].round, verdict.isolated[-1].round
            since = f"since round {last}" if first == last else f"the first since round {first}"
            alone = ", each alone" if isolated > 1 else " alone"
            yield (
                f"From {sums} the server can, in the worst case, compute the update of "
                f"{_isolated_of_all(verdict)}{alone}: {since}."
            )
    elif verdict.strong > 1:
        yield (
            f"However the server combines {sums}, users come in groups of at least {number(verdict.strong)} that "
            "it cannot tell apart: nobody's update was given away alone."
        )
    elif verdict.isolation_known:
        low = verdict.weak.low
        every = f", for every combination covers {number(low)} users or more" if low > 1 else ""
        yield f"From {sums} the server can compute nobody's update alone{every}."
        yield "But some user hides in no group: some combination gives it a weight that no other user has."
    elif verdict.certain:
        yield f"From {sums} the server may be able to compute single updates: that was not decided."


def _unknown(verdict: "Verdict") -> Iterator[str]:
    subject = verdict.subject
    if verdict.certain:
        return
    rounds = [round_ for round_, users in subject.unknown.items() if len(users)]
    which = f"{'round' if len(rounds) == 1 else 'rounds'} {spans(rounds)}"
    senders = counted(
        len(subject.unknown_users), "user who sent something there counts", "users who sent something there count"
    )
    yield f"What the server learned in {which} is not recorded: the {senders} as alone."
    yield f"Before round {rounds[0]} the strong level was {number(verdict.before_unknown or 0)}, for certain."


def _colluding(verdict: "Verdict") -> Iterator[str]:
    named, count = len(verdict.question.named_colluders), verdict.question.colluders
    if named:
        telling = counted(named, "named colluder")
        yield f"What {telling} told the server is counted in; all numbers are about the others."
    if count and verdict.has_sums:
        telling = f"{counted(count, 'user tells', 'users tell')} the server what they sent"
        yield f"If {telling}, a group can be down to {counted(verdict.strong_left, 'user')}."


def _against_plan(verdict: "Verdict") -> Iterator[str]:
    breaches = verdict.breaches
    if breaches is not None and verdict.has_sums:
        rounds = len({breach.round for breach in breaches})
        split = len({breach.batch for breach in breaches if breach.batch is not None})
        if not breaches:
            plain = "; in plain rounds that hides nothing" if verdict.subject.plain else ""
            yield f"Batches took part whole or not at all, as the plan says{plain}."
        elif split:
            yield f"{counted(rounds, 'round')} left the plan and split {counted(split, 'batch', 'batches')}."
        else:
            yield f"{counted(rounds, 'round')} left the plan: users of no batch took part."
    moved = len(verdict.subject.overrides)
    if moved:
        owners = f"The {'owner' if moved == 1 else 'owners'} of {counted(moved, 'device')}"
        it = "it" if moved == 1 else "them"
        yield f"{owners} let {it} leave a batch by an override; the level counts the sums of both batches."


def _window(verdict: "Verdict") -> Iterator[str]:
    window = verdict.window
    if window is None:
        return
    last = min(window.first + window.width, verdict.log.first + verdict.log.rounds) - 1
    where = f"rounds {window.first} to {last}" if last > window.first else f"round {window.first}"
    level = ("" if window.complete else "at most ") + number(window.level)
    yield (
        f"A server that keeps the sums of {counted(window.width, 'round')} in a row, and no others, faces a "
        f"strong level of {level} at worst, first in {where}."
    )


# --- what further rounds do ---------------------------------------------------------------------------------


def _forecast(verdict: "Verdict") -> Iterator[str]:
    outlook = verdict.forecast
    if outlook is None:
        yield from (f"Left out: {each.reason}." for each in verdict.omissions if each.part == "the forecast")
        return
    if outlook.policy is Policy.PLAIN:
        yield "Every further round with plain aggregation shows the server the update of everyone who takes part."
        return
    if outlook.floor == 1 and verdict.strong == 1:
        yield "The strong level counts as 1 already, and no further round lowers it."
        return
    if outlook.floor is not None:
        yield _LASTING[outlook.policy].format(floor=number(outlook.floor))
        if outlook.floor < verdict.strong:
            yield f"It is {number(verdict.strong)} now, because some batches always took part together so far."
        return
    if len(verdict.isolated) == len(verdict.classes.participants):
        yield "Everyone who took part is isolated already. Further rounds change nothing about that."
        return
    yield _SIMULATED[outlook.policy].format(trials=counted(outlook.trials, "time"))
    yield (
        f"The strong level is below {number(outlook.level)} {after(outlook.falls)}, the first user is isolated "
        f"{after(outlook.first_isolated)}, everyone {after(outlook.all_isolated)}."
    )


def after(span: Span) -> str:
    """Say after how many further rounds something happens.

    >>> after(Span(2, 3, None)), after(Span(0, 0, 0))
    ('after 3 further rounds (90 % of simulations: 2 to more than were simulated)', 'already')
    """
    if span.median is None:
        return "not within the rounds simulated"
    if span.median == 0:
        return "already"
    rounds = f"after {counted(span.median, 'further round')}"
    if span.low == span.high:
        return rounds
    high = "more than were simulated" if span.high is None else number(span.high)
    return f"{rounds} (90 % of simulations: {number(span.low or 0)} to {high})"


_LASTING = {
    Policy.SEALED: (
        "The rounds are sealed: the users' own keys keep batches whole. However many further rounds follow, the "
        "strong level stays at least {floor}."
    ),
    Policy.PLAN: (
        "Every round followed the plan. As long as rounds take whole batches, the strong level stays at least "
        "{floor}; without the seal nothing but the server's honesty sees to that."
    ),
    Policy.BATCHES: (
        "The same users always came together. As long as they do, the strong level stays at least {floor}; one "
        "round that splits a group lowers it."
    ),
}
_SIMULATED = {
    Policy.LOSSES: (
        "Whole batches of the plan that lose users on the way as often as in the log were simulated {trials}: an "
        "estimate, not a proof."
    ),
    Policy.RANDOM: (
        "Users drawn at random, as many in a round as in the log, were simulated {trials}: an estimate, not a "
        "proof."
    ),
}


# --- what it rests on ---------------------------------------------------------------------------------------


def _assumptions(verdict: "Verdict") -> Iterator[str]:
    """Say what the verdict rests on, and what it does not say."""
    subject, log, users = verdict.subject, verdict.log, verdict.users
    never = users - len(verdict.classes.participants)
    extent = "and no other" if verdict.certain else "where that is known"
    yield f"The log names every set of users whose sum the server learned, {extent}."
    yield "Updates are taken to be the same in every round, the worst case; where they change, rounds tell less."
    yield "The levels count users in a sum; they do not limit what a sum itself tells about its users."
    yield (
        f"F counts {counted(users, 'user')}, {number(never)} of whom never took part. Users who never appear in "
        "the log are counted only where their number was given."
    )
    yield f"F and C count {counted(log.rounds, 'round')}, from round {log.first} on."
    if verdict.question.colluders:
        colluders = counted(verdict.question.colluders, "colluder stands", "colluders stand")
        yield f"The {colluders} where it helps the server most, and tell it their updates."
    if subject.assumed:
        cut = counted(len(subject.assumed), "sealed round was", "sealed rounds were")
        yield (
            f"{cut} cut off; every batch asked there counts as learned by itself, the worst that can have been."
        )
    if not verdict.certain:
        rounds = counted(len(subject.unknown), "round")
        yield f"In {rounds} of which nothing is known, everyone who sent something counts as seen alone."


# --- the key numbers


def lead_numbers(verdict: "Verdict") -> tuple[tuple[KeyNumber, str], ...]:
    """Return the three numbers that lead, both levels and who is isolated, each with what it says in full."""
    return _strong(verdict), _weak(verdict), (_isolated(verdict), _explain_isolated(verdict))


def _strong(verdict: "Verdict") -> tuple[KeyNumber, str]:
    label, level = "Strong privacy level T", number(verdict.strong)
    if not verdict.has_sums:
        return KeyNumber(label, "–", "no sum is on record"), ""
    if not verdict.certain:
        return KeyNumber(label, "1", "counts as 1: some sums are not recorded", "warning"), (
            "T counts as 1. In rounds whose sums are not recorded the server may have seen anybody alone who sent "
            "something there. A level is claimed only where it is proven."
        )
    if verdict.strong == 1:
        return KeyNumber(label, "1", "some user is told apart from all others", "warning"), (
            "T = 1. Some combination of the sums gives at least one user a weight that no other user has. That "
            "alone does not lay an update open; isolation does."
        )
    meaning = "users in the smallest group that cannot be told apart"
    if verdict.promised is not None:
        meaning = f"users in the smallest group; the plan promised {number(verdict.promised)}"
    tone: Tone = "warning" if verdict.below_plan else "good" if verdict.met or verdict.sealed else "plain"
    return KeyNumber(label, level, meaning, tone), (
        f"T = {level}. In every combination of the sums, users come in groups of at least {level} that carry one "
        "and the same weight. No arithmetic on the sums tells the users of such a group apart."
    )


def _weak(verdict: "Verdict") -> tuple[KeyNumber, str]:
    label, weak = "Weak privacy level", verdict.weak
    if not verdict.has_sums:
        return KeyNumber(label, "–", "no sum is on record"), ""
    low, high, proof = number(weak.low), number(weak.high), ""
    if weak.witness is not None:
        proof = f" A combination that covers {counted(weak.high, 'user')} was found, and is shown below."
    if weak.low > 1 and (weak.exact or verdict.certain):
        proof += f" That none covers fewer than {low} is proven."
    if weak.exact:
        meaning, text = "fewest users in any combination of sums, exactly", f"{high}, exactly.{proof}"
    elif verdict.certain:
        meaning = "proven bounds on the fewest users in any combination"
        text = f"Between {low} and {high}.{proof} Which it is was not decided in the time given."
    else:
        meaning = "counts as the lower one: some sums are not recorded"
        text = f"Between {low} and {high}.{proof} What it is below that, nobody can say while rounds are unknown."
    return KeyNumber(label, str(weak), meaning, "warning" if weak.low == 1 else "plain"), text


def _isolated(verdict: "Verdict") -> KeyNumber:
    label, count, maybe = "Isolated users", len(verdict.isolated), len(verdict.maybe_isolated)
    meaning = "their updates alone can be computed" if count else "nobody's update alone can be computed"
    if verdict.isolation_known:
        value = f"{number(count)} of {number(verdict.users)}"
        return KeyNumber(label, value, meaning, "warning" if count else "plain")
    if maybe:
        value = f"{number(count)} to {number(count + maybe)}"
        return KeyNumber(label, value, "not known: some sums are not recorded", "warning")
    if count:
        return KeyNumber(label, f"at least {number(count)}", meaning, "warning")
    return KeyNumber(label, "unknown", "not decided", "warning")


def _explain_isolated(verdict: "Verdict") -> str:
    maybe = len(verdict.maybe_isolated)
    more = f" For {counted(maybe, 'more user', 'more users')} nobody can say." if maybe else ""
    if verdict.isolated:
        first, last = verdict.isolated[0].round, verdict.isolated[-1].round
        when = f"since round {first}" if first == last else f"the first since round {first}, the last since {last}"
        least = "" if verdict.isolation_known or maybe else "At least "
        return f"{least}{counted(len(verdict.isolated), 'user')}, {when}. Proofs are below.{more}"
    if maybe:
        return f"Nobody by the sums on record.{more}"
    if not verdict.isolation_known:
        return "Not decided. The log has too many different users for it, or the work was stopped."
    if verdict.strong > 1:
        return f"Nobody: groups of at least {number(verdict.strong)} stay together in every combination."
    return "Nobody. That is proven with exact arithmetic, for every user."


def further_numbers(verdict: "Verdict") -> Iterator[KeyNumber]:
    """Yield what was asked for beside the levels, and the size and measures of the log."""
    measures, question, sizes = verdict.measures, verdict.question, np.diff(verdict.log.starts)
    if question.required is not None:
        tone: Tone = "good" if verdict.met and verdict.has_sums else "plain" if verdict.met else "warning"
        yield KeyNumber("Required level", number(question.required), "met" if verdict.met else "not met", tone)
    if question.colluders and verdict.has_sums:
        label = f"Strong with {counted(question.colluders, 'colluder')}"
        yield KeyNumber(label, number(verdict.strong_left), f"wherever they stand; weak {verdict.weak_left}")
    if verdict.window is not None:
        level = ("" if verdict.window.complete else "≤") + number(verdict.window.level)
        meaning = f"strong, at worst: from round {verdict.window.first} on"
        yield KeyNumber(f"Within {counted(verdict.window.width, 'round')}", level, meaning)
    participants = len(verdict.classes.participants)
    took = "all took part" if participants == verdict.users else f"{number(participants)} took part"
    without = f"{number(measures.skipped)} without a result" if measures.skipped else "each with a result"
    yield KeyNumber("Users", number(verdict.users), took)
    yield KeyNumber("Rounds", number(verdict.log.rounds), without if verdict.log.rounds else "none on record")
    yield KeyNumber("Sums learned", number(len(sizes)), _sizes(sizes))
    yield KeyNumber(
        "Fairness gap F", f"{measures.fairness_gap:.3f}", "between the users' shares of rounds; 0 is fair"
    )
    yield KeyNumber("Cardinality C", f"{measures.cardinality:.2f}", "users in a round's sums, on average")


def _sizes(sizes: IntArray) -> str:
    """Say of how many users the sums are."""
    if len(sizes) == 0:
        return "none on record"
    low, high = int(sizes.min()), int(sizes.max())
    return f"of {counted(low, 'user')} each" if low == high else f"of {number(low)} to {number(high)} users"


def explanations(verdict: "Verdict") -> Iterator[tuple[str, str]]:
    """Yield statements, each with a few words that name it."""
    if verdict.subject.plain:
        yield "Plain aggregation", _PLAIN
    yield "Who can do this", _WHO
    yield "The worst case", _WORST
    if not verdict.has_sums:
        return
    titles = ("Strong level", "Weak level", "Isolated users")
    yield from zip(titles, (text for _, text in lead_numbers(verdict)), strict=True)
    count = verdict.question.colluders
    if count:
        text = f"Whoever they are: all in one group of T, they leave T − {number(count)} others to hide in it"
        levels = f"Strong: {number(verdict.strong_left)}. Weak: {verdict.weak_left}."
        yield f"With {counted(count, 'colluder')}", f"{text}, and at least the one whom they expose. {levels}"
    if verdict.question.named_colluders:
        telling = counted(len(verdict.question.named_colluders), "user tells", "users tell")
        text = f"{telling} the server what they sent. It subtracts that from every sum"
        yield "Named colluders", f"{text}: all numbers here are about the others."


_PLAIN = (
    "Updates reached the server as they were, and it added them up itself. In such a round every update is a sum "
    "of its own, and whoever reads the server's memory or traffic has it: no combination is needed."
)
_WHO = (
    "The server, and whoever else gets hold of the rounds' sums and of the list of who took part. It takes linear "
    "algebra and no more: sums of different rounds overlap, and what they share cancels out."
)
_WORST = (
    "A user's update is taken to be the same in every round. Near the end of training that is almost so. Where "
    "updates change, a combination of rounds tells less than is said here."
)
