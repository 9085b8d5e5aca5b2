"""What a run guarantees, who enforces it, and what nobody should read into it: the points of its page.

The verdict itself, its level and its words, is the audit's (`RunResult.verdict`). What is said here beside it are
the facts of docs/guarantee.md and docs/threat-model.md that hold for the run's aggregation.
"""

from coterie.lab.experiments.spec import AggregationSettings
from coterie.leakage import Verdict
from coterie.report.page.blocks import Points
from coterie.values.text import counted


def guaranteed(verdict: Verdict, aggregation: AggregationSettings) -> Points:
    """Return what holds, thanks to whom, and what the server saw."""
    level = dict(verdict.words.explanations).get(
        "Strong level", "There is no sum, so there is nothing to hide in."
    )
    stays = " ".join(verdict.words.forecast) or "The level can only fall. It never rises again."
    return Points(
        (
            ("The level", level),
            ("Who enforces it", _enforcement(verdict)),
            ("What the server saw in a round", _server_view(aggregation)),
            ("When rounds are added", stays),
        )
    )


def not_guaranteed(verdict: Verdict) -> Points:
    """Return what nobody should read into the level."""
    batch = "Who is in which batch, who" if verdict.evidence.plan is not None else "Who"
    return Points(
        (
            ("What a sum reveals", _A_SUM),
            ("Users who work with the server", _collusion(verdict)),
            ("Who took part", f"{batch} was available, who answered and when: the server sees that."),
            ("The model", _THE_MODEL),
            ("Honest updates", _POISONING) if verdict.sealed else ("A server that deviates", _HONEST_SERVER),
        )
    )


def assumptions(verdict: Verdict) -> tuple[str, ...]:
    """Return what a run's verdict rests on: what every audit does, one machine, and with a seal the devices."""
    return (_ONE_MACHINE, *verdict.words.assumptions, *((_REAL_MEMBERS, _DEVICES) if verdict.sealed else ()))


def _enforcement(verdict: Verdict) -> str:
    if verdict.sealed:
        return _KEYS
    if verdict.evidence.plan is None:
        return _ONE_BY_ONE
    split = len({breach.batch for breach in verdict.breaches or ()})
    if not split:
        return _HONESTY
    return f"{_HONESTY} That happened: {counted(split, 'batch was', 'batches were')} split. The level counts it."


def _server_view(aggregation: AggregationSettings) -> str:
    if aggregation.plain:
        view = "Every single update: they were added without any cryptography."
    else:
        from coterie.secagg import PROTOCOLS

        view = PROTOCOLS[aggregation.protocol].server_sees
        view += "" if aggregation.sealed else " Without a seal that is a sum over those who stayed to the end."
    return f"{view} Also who was asked, who answered, when, and who was lost."


def _collusion(verdict: Verdict) -> str:
    text = "If c users of a group tell the server their updates, the other T − c hide among each other."
    if not verdict.has_sums or verdict.strong == 1:
        return text
    left = verdict.strong - 1
    return f"{text} Here one such user leaves {counted(left, 'user')}, and {left} of them leave one user alone."


_KEYS = (
    "The users' own keys. Each member of a batch adds masks that cancel only in the sum over the whole batch. A "
    "server that asks for a part of a batch, shows its members different models, or loses a member on the way "
    "gets noise."
)
_HONESTY = (
    "The server's honesty. It chose whole batches, but without the seal nothing would have stopped it from "
    "asking for a part of one, and a user lost after being chosen leaves a sum of the others."
)
_ONE_BY_ONE = (
    "Nobody. Users were chosen one by one, so the sums of different rounds overlap, and their differences "
    "single users out. With random selection every update is exposed after about as many rounds as there are "
    "users."
)
_A_SUM = (
    "T bounds which sums exist, not what a sum tells. If all users of a group have the same update, their mean "
    "is everyone's; if one update is extreme, it shows. This is not differential privacy, which is "
    "complementary."
)
_THE_MODEL = (
    "The trained model may itself tell something about the data that it was trained on. And a server can "
    "publish a model that is not the result."
)
_POISONING = "A user can send any vector, and nobody can look inside. A user can also make its own batch fail."
_HONEST_SERVER = (
    "All of this rests on a server that follows the rules. One that does not can learn more, unnoticed."
)
_ONE_MACHINE = (
    "All users lived on one machine in this run. It shows what the server of a real federation would have "
    "learned; it protects nobody from the owner of this machine."
)
_REAL_MEMBERS = (
    "A batch of T users is T different parties. In a deployment its check of identities must see to that."
)
_DEVICES = (
    "A device seals a round once, and its record is neither copied nor put back. X25519, Ed25519, AES-256 and "
    "SHA-256 are taken to be secure."
)
