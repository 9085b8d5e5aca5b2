"""What the numbers of a verdict mean, one statement each, for readers who want to know."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.values.words import counted, number

if TYPE_CHECKING:
    from coterie.audit.verdict import Verdict


def explanations(verdict: "Verdict") -> Iterator[tuple[str, str]]:
    """Yield statements, each with a few words that name it."""
    if verdict.judged.plain:
        yield "Plain aggregation", _PLAIN
    yield "Who can do this", _WHO
    yield "The worst case", _WORST
    if not verdict.learned:
        return
    yield "Strong level", _strong(verdict)
    yield "Weak level", _weak(verdict)
    yield "Isolated users", _isolated(verdict)
    count = verdict.question.colluders
    if count:
        text = f"Whoever they are: all in one group of T, they leave T − {number(count)} others to hide in it"
        low, high = verdict.weak_left
        weak = number(high) if low == high else f"{number(low)}..{number(high)}"
        levels = f"Strong: {number(verdict.strong_left)}. Weak: {weak}."
        yield f"With {counted(count, 'colluder')}", f"{text}, and at least the one whom they expose. {levels}"
    if verdict.question.named_colluders:
        telling = counted(len(verdict.question.named_colluders), "user tells", "users tell")
        text = f"{telling} the server what they sent. It subtracts that from every sum"
        yield "Named colluders", f"{text}: all numbers here are about the others."


def _strong(verdict: "Verdict") -> str:
    if not verdict.certain:
        return f"T counts as 1. {_UNKNOWN}"
    if verdict.strong == 1:
        return f"T = 1. {_OWN_WEIGHT}"
    level = number(verdict.strong)
    return f"T = {level}. {_GROUPS.format(level)}"


def _weak(verdict: "Verdict") -> str:
    low, high = number(verdict.weak.low), number(verdict.weak.high)
    witness = ""
    if verdict.weak.witness is not None:
        witness = f" A combination that covers {counted(verdict.weak.high, 'user')} was found, and is shown below."
    if not verdict.certain and not verdict.weak.exact:
        return (
            f"Between {low} and {high}.{witness} What it is below that, nobody can say while rounds are unknown."
        )
    proven = f" That none covers fewer than {low} is proven." if verdict.weak.low > 1 else ""
    if verdict.weak.exact:
        return f"{high}, exactly.{witness}{proven}"
    return f"Between {low} and {high}.{witness}{proven} Which it is was not decided in the time given."


def _isolated(verdict: "Verdict") -> str:
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
_OWN_WEIGHT = (
    "Some combination of the sums gives at least one user a weight that no other user has. That alone does not "
    "lay an update open; isolation does."
)
_GROUPS = (
    "In every combination of the sums, users come in groups of at least {} that carry one and the same weight. No "
    "arithmetic on the sums tells the users of such a group apart."
)
_UNKNOWN = (
    "In rounds that are on no record the server may have seen anybody alone who sent something there. A level is "
    "claimed only where it is proven."
)
