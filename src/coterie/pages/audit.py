"""The page of an audit: what a federation has given away, to whom, and what to do about it.

What the audit proves is laid open: isolated users, the lightest combination, the smallest groups.
"""

import shlex
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from coterie.leakage import StrongLevel
from coterie.leakage.isolation import MOST_CLASSES, IsolatedUser
from coterie.leakage.proofs import Combination, FullRank
from coterie.leakage.verdict import Verdict, fraction_text, integer_text
from coterie.leakage.wording import user_name
from coterie.pages.blocks import (
    Block,
    Commands,
    Curve,
    Curves,
    Details,
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
from coterie.pages.render import render
from coterie.values import IntArray, ParticipationLog
from coterie.values.text import counted, display_name, listing, number, printable, shortened, spans

MOST_USERS = 500
"""Isolated users in the table."""
MOST_PROOFS = 20
"""Combinations laid open."""
MOST_TERMS = 400
MOST_DIGITS = 20_000
"""Of one combination; a longer one is for programs."""
SHORT = 8
"""Combinations of up to so many sums name the users of each sum."""
MOST_NAMES = 30
LONGEST_IN_SUMMARY = 20
MOST_LETTERS = 40
"""Of a weight."""
_DIGITS_PER_BIT = 0.302
_UNGROUPED = 4  # digits
_THIN = "\N{THIN SPACE}"  # a line may end there


def exposed_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return who is isolated, since when and why, and how to check it."""
    if not verdict.isolated:
        return (Text((_nobody(verdict),)),)
    proofs = [
        (each, each.proof)
        for each in verdict.isolated
        if isinstance(each.proof, Combination) and _fits(each.proof)
    ][:MOST_PROOFS]
    blocks: list[Block] = [Text((_EXPOSED,)), _table(verdict)]
    if proofs:
        details = (_proof(verdict, each, proof, count) for count, (each, proof) in enumerate(proofs, start=1))
        blocks.append(Details("The proofs, and how to check them by hand", (_by_hand(verdict), *details)))
    if len(proofs) < len(verdict.isolated):
        blocks.append(Text((_further_proofs(verdict, len(verdict.isolated) - len(proofs)),)))
    return tuple(blocks)


def _nobody(verdict: Verdict) -> str:
    if len(verdict.log.set_rounds) == 0:
        return "Nobody: no sum is on record."
    if not verdict.certain:
        maybe = counted(len(verdict.maybe_isolated), "user")
        return f"Nobody by the sums on record. What else the server learned of {maybe} is not known."
    if verdict.strong > 1:
        return (
            "Nobody. Every user shares a group with others who took part in exactly the same rounds, and every "
            "combination of sums holds such a group whole or not at all."
        )
    if verdict.isolation_known:
        return "Nobody. No combination of the sums is the update of one user; that was proven for each."
    return "Not decided: the log has too many different users for it, or the work was stopped."


def _fits(proof: Combination) -> bool:
    """Say whether a proof is short enough for a page."""
    bits = sum(weight.bit_length() for weight in (*proof.numerators, proof.denominator))
    return len(proof.sets) <= MOST_TERMS and bits * _DIGITS_PER_BIT <= MOST_DIGITS


def _table(verdict: Verdict) -> Table:
    first = verdict.isolated[:MOST_USERS]
    rows = tuple((user_name(verdict.log, each.user), each.round, _kind(each.proof)) for each in first)
    caption = "Isolated users, in the order in which they became so."
    if len(first) < len(verdict.isolated):
        caption = f"The first {len(first)} of {counted(len(verdict.isolated), 'isolated user')}."
    return Table(caption, ("user", "since round", "proof"), rows, words=("proof",))


def _kind(proof: Combination | FullRank) -> str:
    if isinstance(proof, FullRank):
        return f"the first {number(proof.sets)} sums have full rank"
    return "one sum is this user's update" if len(proof.sets) == 1 else f"a combination of {len(proof.sets)} sums"


def _proof(verdict: Verdict, each: IsolatedUser, proof: Combination, count: int) -> Details:
    table = _combination(proof, verdict.log, f"Proof {count}: the sums, and the factor of each.")
    sums = counted(len(proof.sets), "sum")
    who = shortened(user_name(verdict.log, each.user), LONGEST_IN_SUMMARY)
    how = Text((f"{_instructions(proof)} What is left is the update of this one user.",))
    return Details(f"Proof {count}: {who}, isolated since round {each.round} by {sums}", (how, table))


def _instructions(proof: Combination) -> str:
    if proof.denominator == 1:
        return "Multiply each sum by its factor and add all up."
    return f"Multiply each sum by its factor, add all up, and divide by {long_integer(proof.denominator)}."


def _combination(proof: Combination, log: ParticipationLog, caption: str) -> Table:
    """Return the sums of a combination, each with its factor; of a short one also with its users."""
    rounds = log.set_rounds[list(proof.sets)]
    firsts, ends = np.searchsorted(log.set_rounds, rounds), np.searchsorted(log.set_rounds, rounds, side="right")
    short = len(proof.sets) <= SHORT
    rows: list[tuple[str | int, ...]] = []
    places = zip(proof.sets, proof.numerators, firsts.tolist(), ends.tolist(), strict=True)
    for index, factor, first, end in places:
        users = log.members[log.starts[index] : log.starts[index + 1]].tolist()
        round_ = str(log.set_rounds[index]) + (f", sum {index - first + 1}" if end - first > 1 else "")
        who = (listing((user_name(log, user) for user in users), MOST_NAMES),) if short else ()
        rows.append((round_, len(users), long_integer(factor), *who))
    columns = ("round", "users", "factor", "who") if short else ("round", "users", "factor")
    return Table(caption, columns, tuple(rows), words=columns[-1:])


def _further_proofs(verdict: Verdict, left: int) -> str:
    """Say where the proofs are that the page does not lay open, and what stands for them here."""
    text = f"{counted(left, 'more proof is', 'more proofs are')} not laid open here. "
    text += f"`coterie audit {log_argument(verdict)} --json --all-combinations` writes every combination in full."
    primes = {each.proof.prime for each in verdict.isolated if isinstance(each.proof, FullRank)}
    if not primes:
        return text
    text += f" A full rank (as many independent sums as groups, counted modulo the prime {min(primes)}) means that"
    return f"{text} the sum of each group can be solved for: of a user in no group, the update."


def _by_hand(verdict: Verdict) -> Points:
    sums = "The proof names rounds; the log says who is in each one's sum."
    if verdict.question.named_colluders:
        sums += " Leave the named colluders out of every sum, and leave out sums of nobody else."
    sums += " Where a round has several sums, they are counted from 1 in the log's order."
    total = "For the isolated user the total is the number to divide by, or 1; for all others it is 0."
    program = f"`coterie audit {log_argument(verdict)} --json` writes the same factors as plain integers."
    return Points(
        (
            ("Take the log", sums),
            ("Add factors", "Take one user. Add the factors of all sums in the proof that this user is in."),
            ("Compare", total),
            ("By a program", program),
        )
    )


def lightest_blocks(verdict: Verdict) -> Iterator[Block]:
    """Yield the combination that covers the fewest users, unless it is one user's and proven elsewhere."""
    proof = verdict.weak.witness
    if proof is None or (verdict.weak.high == 1 and verdict.isolated):
        return
    covered = counted(len(verdict.witness), "user")
    rows = tuple(
        (user_name(verdict.log, user), _weight(fraction_text(weight)))
        for user, weight in islice(verdict.witness.items(), MOST_USERS)
    )
    weights = Table("The users in the lightest combination, with their weights.", ("user", "weight"), rows)
    left = f"What is left covers {covered}; the rest cancels out."
    blocks: tuple[Block, ...]
    if _fits(proof):
        caption = "The sums of the lightest combination, and the factor of each."
        sums = _combination(proof, verdict.log, caption)
        blocks = (Text((f"{_instructions(proof)} {left}",)), weights, sums)
    else:
        full = f"`coterie audit {log_argument(verdict)} --json` writes its factors in full."
        blocks = (Text((f"{left} {full}",)), weights)
    yield Details(f"The lightest combination found: {counted(len(proof.sets), 'sum')}, {covered}", blocks)


def _weight(text: str) -> str:
    return (text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "…").replace("-", "−")


def group_blocks(verdict: Verdict) -> Iterator[Block]:
    """Yield the smallest groups of users that cannot be told apart."""
    classes, log = verdict.classes, verdict.log
    if not verdict.has_sums:
        yield Text(("No sum is on record, so nothing tells users apart.",))
        return
    groups = [[user_name(log, user) for user in users] for users in classes.smallest]
    if classes.level == 1:
        yield Text((f"{counted(classes.count, 'user is', 'users are')} in no group with others. {_ALONE}",))
        caption = _of(len(groups), classes.count, "user in no group", "users in no group")
        yield Details("Who they are", (Table(caption, ("user",), tuple((users[0],) for users in groups)),))
        return
    size = counted(classes.level, "user")
    yield Text((f"The smallest groups have {size}, who took part together or not at all.",))
    rows = tuple((str(count), listing(users, MOST_NAMES)) for count, users in enumerate(groups, start=1))
    caption = _of(len(rows), classes.count, f"group of {size}", f"groups of {size}")
    yield Table(caption, ("group", "users"), rows, words=("users",))


def _of(rows: int, count: int, one: str, many: str) -> str:
    """Say how many of something are listed.

    >>> _of(2, 2, "group", "groups"), _of(20, 51, "group", "groups")
    ('2 groups.', '20 of 51 groups.')
    """
    return f"{counted(count, one, many)}." if rows == count else f"{rows} of {counted(count, one, many)}."


def long_integer(value: int) -> str:
    r"""Return an integer of any length, in groups of three digits between which a line may end.

    >>> long_integer(-1234567), long_integer(1200)
    ('−1\u2009234\u2009567', '1200')
    """
    digits = integer_text(abs(value))
    sign = "−" if value < 0 else ""
    if len(digits) <= _UNGROUPED:
        return sign + digits
    ends = range(len(digits), 0, -3)
    return sign + _THIN.join(reversed([digits[max(end - 3, 0) : end] for end in ends]))


_EXPOSED = (
    "Each of these users is isolated: a combination of the rounds' sums is that user's update and nobody else's. "
    "Anyone who has the log can check it."
)
_ALONE = (
    "Nobody else took part in exactly the same rounds, and some combination of the sums gives each a weight of "
    "its own. By itself that isolates nobody."
)


def advice_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """Return what to do, most urgent first, and what to type for it."""
    return Points(tuple(_elimination_steps(verdict))), Commands(tuple(_commands(verdict)))


def _elimination_steps(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if verdict.isolated:
        yield "Treat as disclosed", _DISCLOSED
    if verdict.subject.plain:
        yield "Encrypt the aggregation", _PLAIN
    if not verdict.certain:
        yield "Settle the unknown rounds", _UNKNOWN
    yield from _grouping(verdict)
    required, colluders = verdict.question.required, verdict.question.colluders
    if required is not None and colluders:
        size = required + colluders
        yield "Make room for colluders", _ROOM.format(required=required, colluders=colluders, size=size)
    coming = verdict.forecast
    if verdict.strong == 1 and coming is not None and coming.first_isolated.low:
        yield "Stop in time", _STOP.format(counted(coming.first_isolated.low, "further round"))
    if not verdict.isolation_known and verdict.certain:
        yield "Decide who is isolated", _UNDECIDED


def _grouping(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Say what to do about who takes part together."""
    if not verdict.has_sums:
        yield "Check the log", _EMPTY
    elif verdict.breaches:
        yield "Require the seal", _SEAL
        if any(breach.missing for breach in verdict.breaches):
            yield "Retire what was split", _RETIRE
    elif verdict.strong > 1:
        yield "Keep groups whole", _KEEP.format(counted(verdict.strong, "user"))
    elif verdict.evidence.plan is None:
        yield "Choose whole batches", _BATCHES


def _commands(verdict: Verdict) -> Iterator[tuple[str, str]]:
    question, log = verdict.question, log_argument(verdict)
    fallen = verdict.has_sums and (verdict.strong == 1 or verdict.strong_left < (question.required or 1))
    if fallen and verdict.evidence.plan is None:
        yield _plan_command(verdict), "A plan of batches for your devices; ONLINE.csv says who was online when."
    if verdict.has_sums and not verdict.weak.exact:
        yield f"coterie audit {log} --budget 600", "The same audit with ten minutes to narrow the weak level."
    if len(verdict.isolated) > 1:
        every = f"coterie audit {log} --json --all-combinations"
        yield every, "Every isolated user with the whole proof, for programs."
    if not verdict.certain:
        yield f"coterie ledger verify {log}", "Whether the ledger is whole and unchanged, record by record."
    # A level never rises again, so a log that fell is not worth watching; what comes after it is.
    later, meaning = (log, "Again after every round.")
    if fallen:
        later, meaning = "LATER --plan plan.json", "The rounds after this log, by themselves."
    level = question.required or ("T" if fallen or not verdict.has_sums else verdict.strong)
    yield f"coterie audit {later} --require {level}", f"{meaning} The exit code is 1 if the level is below."


def log_argument(verdict: Verdict) -> str:
    """Return the log as one would type it in a command."""
    if verdict.source is None or verdict.source.place == "standard input":
        return "LOG"
    return shlex.quote(printable(verdict.source.place))


def _plan_command(verdict: Verdict) -> str:
    log, required = verdict.log, verdict.question.required
    per_round = max(round(verdict.measures.cardinality * log.rounds / max(log.completed, 1)), 2)
    privacy = f" --privacy {required}" if required is not None and 1 < required <= per_round else ""
    return f"coterie plan --per-round {per_round}{privacy} --availability ONLINE.csv --out plan.json"


_DISCLOSED = (
    "A level never rises again, and nothing takes a sum back. Treat the updates of the isolated users as known to "
    "the server, and to whoever may hold its records."
)
_PLAIN = (
    "Plain aggregation hides nothing. Choose a secure one (`--aggregation secagg+`, or `open` with batches) for "
    "the next round."
)
_UNKNOWN = (
    "Find out what the server learned in them. If nobody can, count every set of users that was asked there as "
    "learned, and audit again."
)
_BATCHES = (
    "Put users into fixed batches that take part whole or not at all. That protects what is sent from then on; "
    "what this log gave away stays given away."
)
_KEEP = (
    "The level stays as long as each group takes part whole or not at all: groups of at least {} here. New users "
    "form groups of their own; when a user leaves for good, the others of the group stop too."
)
_ROOM = "A level of {required} that {colluders} colluders do not break takes groups of {size} users or more."
_STOP = (
    "Until batches are in place, run fewer than {}: in the simulation hardly anybody was isolated before. That is "
    "an estimate, and no protection."
)
_SEAL = (
    "The plan was broken; nothing but the server's honesty stood behind it. With the seal every user of a batch "
    "adds masks that cancel only in the sum of the whole batch, so an incomplete batch gives noise and not a sum."
)
_RETIRE = (
    "If the missing users are gone for good, stop asking the rest of their batch. A sum without them, beside one "
    "with them, tells the two parts apart."
)
_UNDECIDED = (
    f"Run the audit again and let it end. With more than {MOST_CLASSES} different users it is not tried: then the "
    "strong level is what counts."
)
_EMPTY = "It names no sum. Is it the right file, with a row for every user in every round's sum?"


# --- the page

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
