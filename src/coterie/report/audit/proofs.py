"""What an audit proves, laid open: isolated users, lightest combination, smallest groups; and what to do then."""

import shlex
from collections.abc import Iterator
from itertools import islice

import numpy as np

from coterie.leakage.isolation import MOST_CLASSES, IsolatedUser
from coterie.leakage.proofs import Combination, FullRank
from coterie.leakage.verdict import Verdict, fraction_text, integer_text
from coterie.leakage.wording import user_name
from coterie.report.page.blocks import Block, Commands, Details, Points, Table, Text
from coterie.values import ParticipationLog
from coterie.values.text import counted, listing, number, printable, shortened

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
    return Points(tuple(_steps(verdict))), Commands(tuple(_commands(verdict)))


def _steps(verdict: Verdict) -> Iterator[tuple[str, str]]:
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
