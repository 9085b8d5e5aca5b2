"""What an audit found, in plain words: never more than the verdict proves."""

from collections.abc import Iterator

from coterie.audit.verdict import Verdict
from coterie.report.page.blocks import Points, Tone
from coterie.report.page.words import counted, number


def learned(verdict: Verdict) -> bool:
    """Say whether any sum is on record."""
    return len(verdict.log.set_rounds) > 0


def answer(verdict: Verdict, told: int = 0) -> tuple[str, Tone]:
    """Return what a reader in a hurry takes along: what was given away, whether the demand is met; and its tone.

    `told` counts the colluders given by name.
    """
    said = [*_unrecorded(verdict), _given_away(verdict), *_colluding(verdict, told), *_demand(verdict)]
    exposed = learned(verdict) and verdict.strong == 1
    if exposed or verdict.met is False or not verdict.certain:
        return " ".join(said), "warning"
    return " ".join(said), "good" if verdict.met and learned(verdict) else "plain"


def _unrecorded(verdict: Verdict) -> Iterator[str]:
    if not verdict.certain:
        rounds = counted(len(verdict.question.unknown), "round")
        yield f"How private this is, nobody can say: what the server learned in {rounds} is on no record."


def _given_away(verdict: Verdict) -> str:
    if not learned(verdict):
        return "No sum is on record, so the log gives nothing away."
    sums = f"the sums of {counted(verdict.log.rounds, 'round')}" if verdict.certain else "the sums on record"
    if verdict.isolated:
        alone = ", each one alone" if len(verdict.isolated) > 1 else " alone"
        return f"From {sums} the server can, in the worst case, compute the update of {_exposed(verdict)}{alone}."
    if verdict.strong > 1:
        groups = f"users come in groups of at least {number(verdict.strong)} that it cannot tell apart"
        whole = ": nobody's update was given away alone" if verdict.certain else ""
        return f"However the server combines {sums}, {groups}{whole}."
    if verdict.isolation_known:
        alone = "the server can compute nobody's update alone"
        if verdict.certain and verdict.weak.low > 1:
            alone += f", for every combination covers {number(verdict.weak.low)} users or more"
    else:
        alone = "the server may be able to compute single updates: that was not decided"
    return f"From {sums} {alone}. But it can give some user a weight that no other user has."


def _exposed(verdict: Verdict) -> str:
    isolated, users = len(verdict.isolated), verdict.users
    if isolated == users:
        return "the only user" if users == 1 else f"all {number(users)} users"
    least = "" if verdict.isolation_known and verdict.certain else "at least "
    return f"{least}{number(isolated)} of {number(users)} users"


def _colluding(verdict: Verdict, told: int) -> Iterator[str]:
    if told:
        yield f"What {counted(told, 'named colluder')} told the server is counted in."
    count = verdict.question.colluders
    if count and learned(verdict):
        telling = f"{counted(count, 'user tells', 'users tell')} the server what they sent"
        yield f"If {telling}, a group can be down to {counted(verdict.strong_left, 'user')}."


def _demand(verdict: Verdict) -> Iterator[str]:
    required = verdict.question.required
    if required is None:
        return
    level = f"The required level of {number(required)}"
    if verdict.met:
        yield f"{level} is met."
    elif verdict.strong_left < required:
        yield f"{level} is not met: it is {_most(verdict)}{number(verdict.strong_left)}."
    else:
        yield f"{level} cannot be shown to be met."


def _most(verdict: Verdict) -> str:
    return "" if verdict.certain else "at most "


def findings(verdict: Verdict, told: int) -> Points:
    """Return what each number means, one statement each; `told` counts the colluders given by name."""
    points = [("Who can do this", _WHO), ("The worst case", _WORST)]
    if learned(verdict):
        points += [
            ("Strong level", _strong(verdict)),
            ("Weak level", _weak(verdict)),
            ("Isolated users", _isolated(verdict)),
        ]
    return Points((*points, *_colluders(verdict, told), *_window(verdict)))


def _strong(verdict: Verdict) -> str:
    if verdict.strong == 1:
        return f"T = 1. {_OWN_WEIGHT}"
    level, bound = number(verdict.strong), "" if verdict.certain else " A sum that is on no record can lower it."
    return f"T {'=' if verdict.certain else '≤'} {level}. {_GROUPS.format(level)}{bound}"


def _weak(verdict: Verdict) -> str:
    low, high = number(verdict.weak.low), number(verdict.weak.high)
    found = f"A combination that covers {counted(verdict.weak.high, 'user')} was found, and is shown below."
    if not verdict.certain:
        return f"At most {high}. {found} What it is below that, nobody can say while rounds are unknown."
    proven = f" That none covers fewer than {low} is proven." if verdict.weak.low > 1 else ""
    if verdict.weak.exact:
        return f"{high}, exactly. {found}{proven}"
    return f"Between {low} and {high}. {found}{proven} Which it is was not decided in the time given."


def _isolated(verdict: Verdict) -> str:
    on_record = "" if verdict.certain else " by the sums on record"
    if verdict.isolated:
        first, last = verdict.isolated[0].round, verdict.isolated[-1].round
        when = f"since round {first}" if first == last else f"the first since round {first}, the last since {last}"
        least = "" if verdict.isolation_known else "At least "
        return f"{least}{counted(len(verdict.isolated), 'user')}{on_record}, {when}. Proofs are below."
    if not verdict.isolation_known:
        return "Not decided. The log has too many different users for it, or the work was stopped."
    if verdict.strong > 1:
        return (
            f"Nobody{on_record}: groups of at least {number(verdict.strong)} stay together in every combination."
        )
    return f"Nobody{on_record}. That is proven with exact arithmetic, for every user."


def _colluders(verdict: Verdict, told: int) -> Iterator[tuple[str, str]]:
    if told:
        tell = f"{counted(told, 'user tells', 'users tell')} the server what they sent."
        yield "Named colluders", f"{tell} It subtracts that from every sum: all numbers here are about the others."
    count = verdict.question.colluders
    if count and learned(verdict):
        low, high = verdict.weak_left
        weak = number(high) if low == high else f"{number(low)}..{number(high)}"
        levels = f"Strong: {_most(verdict)}{number(verdict.strong_left)}. "
        levels += f"Weak: {weak if verdict.certain else f'at most {number(high)}'}."
        text = f"Whoever they are: all in one group of T, they leave T − {number(count)} others to hide in it"
        yield f"With {counted(count, 'colluder')}", f"{text}, and at least the one whom they expose. {levels}"


def _window(verdict: Verdict) -> Iterator[tuple[str, str]]:
    window = verdict.window
    if window is None:
        return
    last = min(window.first + window.width, verdict.log.first + verdict.log.rounds) - 1
    where = f"rounds {window.first} to {last}" if last > window.first else f"round {window.first}"
    level = ("" if verdict.certain and window.complete else "at most ") + number(window.level)
    text = (
        f"A server that keeps the sums of {counted(window.width, 'round')} in a row, and no others, faces a strong"
    )
    text += f" level of {level} at worst, first in {where}."
    yield (
        f"Within {counted(window.width, 'round')}",
        text if window.complete else f"{text} Not all windows were looked at.",
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
