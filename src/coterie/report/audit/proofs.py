"""What an audit proves, laid open: isolated users, the lightest combination, the smallest groups."""

from collections.abc import Iterator

import numpy as np

from coterie.audit.engine import IsolatedUser
from coterie.audit.record import fraction_text, integer_text
from coterie.audit.verdict import Verdict
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.audit.wording import user_name
from coterie.report.audit.advice import place
from coterie.report.page.blocks import Block, Details, Points, Table, Text
from coterie.values import ParticipationLog
from coterie.values.words import counted, listing, number, shortened

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
        blocks.append(Text((_elsewhere(verdict, len(verdict.isolated) - len(proofs)),)))
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
    caption = (
        "Isolated users, in the order in which they became so."
        if len(first) == len(verdict.isolated)
        else f"The first {len(first)} of {counted(len(verdict.isolated), 'isolated user')}."
    )
    return Table(caption, ("user", "since round", "proof"), rows, words=("proof",))


def _kind(proof: Combination | FullRank) -> str:
    if isinstance(proof, FullRank):
        return f"the first {number(proof.sets)} sums have full rank"
    return "one sum is this user's update" if len(proof.sets) == 1 else f"a combination of {len(proof.sets)} sums"


def _proof(verdict: Verdict, each: IsolatedUser, proof: Combination, count: int) -> Details:
    table = _combination(proof, verdict.log, f"Proof {count}: the sums, and the factor of each.")
    sums = counted(len(proof.sets), "sum")
    who = shortened(user_name(verdict.log, each.user), LONGEST_IN_SUMMARY)
    summary = f"Proof {count}: {who}, isolated since round {each.round} by {sums}"
    return Details(summary, (Text((f"{_recipe(proof)} What is left is the update of this one user.",)), table))


def _recipe(proof: Combination) -> str:
    if proof.denominator == 1:
        return "Multiply each sum by its factor and add all up."
    return f"Multiply each sum by its factor, add all up, and divide by {long_integer(proof.denominator)}."


def _combination(proof: Combination, log: ParticipationLog, caption: str) -> Table:
    """Return the sums of a combination, each with its factor; of a short one also with its users."""
    rounds = log.set_rounds[list(proof.sets)]
    firsts, ends = np.searchsorted(log.set_rounds, rounds), np.searchsorted(log.set_rounds, rounds, side="right")
    short = len(proof.sets) <= SHORT
    rows: list[tuple[str | int, ...]] = []
    for index, factor, first, end in zip(
        proof.sets, proof.numerators, firsts.tolist(), ends.tolist(), strict=True
    ):
        users = log.members[log.starts[index] : log.starts[index + 1]].tolist()
        round_ = str(log.set_rounds[index]) + (f", sum {index - first + 1}" if end - first > 1 else "")
        who = (listing((user_name(log, user) for user in users), MOST_NAMES),) if short else ()
        rows.append((round_, len(users), long_integer(factor), *who))
    columns = ("round", "users", "factor", "who") if short else ("round", "users", "factor")
    return Table(caption, columns, tuple(rows), words=columns[-1:])


def _elsewhere(verdict: Verdict, left: int) -> str:
    """Say where the proofs are that the page does not lay open, and what stands for them here."""
    text = f"{counted(left, 'more proof is', 'more proofs are')} not laid open here. "
    text += f"`coterie audit {place(verdict)} --json --all-combinations` writes every combination in full."
    primes = {each.proof.prime for each in verdict.isolated if isinstance(each.proof, FullRank)}
    if not primes:
        return text
    text += (
        f" A full rank (as many independent sums as groups, counted modulo the prime {min(primes)}) means that the"
    )
    return f"{text} sum of each group can be solved for: of a user in no group, the update."


def _by_hand(verdict: Verdict) -> Points:
    sums = "The proof names rounds; the log says who is in each one's sum."
    if verdict.question.named_colluders:
        sums += " Leave the named colluders out of every sum, and leave out sums of nobody else."
    sums += " Where a round has several sums, they are counted from 1 in the log's order."
    return Points(
        (
            ("Take the log", sums),
            ("Add factors", "Take one user. Add the factors of all sums in the proof that this user is in."),
            (
                "Compare",
                "For the isolated user the total is the number to divide by, or 1; for all others it is 0.",
            ),
            (
                "By a program",
                f"`coterie audit {place(verdict)} --json` writes the same factors as plain integers.",
            ),
        )
    )


def lightest_blocks(verdict: Verdict) -> Iterator[Block]:
    """Yield the combination that covers the fewest users, unless it is one user's and proven elsewhere."""
    proof = verdict.weak.witness
    if proof is None or (verdict.weak.high == 1 and verdict.isolated):
        return
    covered = counted(len(verdict.witness), "user")
    weights = Table(
        "The users in the lightest combination, with their weights.",
        ("user", "weight"),
        tuple(
            (user_name(verdict.log, user), _weight(fraction_text(weight)))
            for user, weight in list(verdict.witness.items())[:MOST_USERS]
        ),
    )
    left = f"What is left covers {covered}; the rest cancels out."
    if _fits(proof):
        caption = "The sums of the lightest combination, and the factor of each."
        blocks: tuple[Block, ...] = (
            Text((f"{_recipe(proof)} {left}",)),
            weights,
            _combination(proof, verdict.log, caption),
        )
    else:
        blocks = (Text((f"{left} `coterie audit {place(verdict)} --json` writes its factors in full.",)), weights)
    yield Details(f"The lightest combination found: {counted(len(proof.sets), 'sum')}, {covered}", blocks)


def _weight(text: str) -> str:
    return (text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "…").replace("-", "−")


def group_blocks(verdict: Verdict) -> Iterator[Block]:
    """Yield the smallest groups of users that cannot be told apart."""
    classes, log = verdict.classes, verdict.log
    if not verdict.learned:
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
