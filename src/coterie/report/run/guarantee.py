"""What a run guarantees and what it does not, in words that are made once.

The console, the page and the JSON summary show the same `Guarantee`. The facts behind the words are those of
docs/guarantee.md and docs/threat-model.md.
"""

from dataclasses import dataclass
from typing import Any

from coterie.audit import Bracket
from coterie.report.page.blocks import Points
from coterie.values.text import KeyNumber, Tone, counted, number


@dataclass(frozen=True)
class Facts:
    """What the words about a run depend on."""

    users: int
    rounds: int
    learned: int
    """Sums that the server learned."""
    level: int | None
    """The strong privacy level T of the log; None where nobody knows which sums were learned."""
    weak: Bracket | None
    """What is proven of the weak level; None without a sum, or where nobody knows which were learned."""
    required: int | None
    """The level that was asked for; None for a scheme without batches."""
    split: int
    """Batches that some learned sum contains a part of."""
    lost: int
    """How often a batch lost a member on the way."""
    unfinished: int
    """Rounds that a crash cut off."""
    aggregation: str
    """The protocol's name, or "plain" where there was none."""
    sealed: bool
    batches: bool
    """Whether users were chosen in whole batches."""


@dataclass(frozen=True)
class Guarantee:
    """What can be said about a run's privacy: its verdict in words, both levels, what holds and what does not."""

    headline: str
    tone: Tone
    sentences: tuple[str, ...]
    strong: KeyNumber
    weak: KeyNumber
    holds: Points
    limits: Points
    assumptions: tuple[str, ...]

    def tables(self) -> dict[str, Any]:
        """Return the verdict for programs: its headline, its tone and its sentences."""
        return {"headline": self.headline, "tone": self.tone, "sentences": list(self.sentences)}


def guarantee(facts: Facts) -> Guarantee:
    """Return what can be said about a run's privacy."""
    headline, tone, sentences = _verdict(facts)
    return Guarantee(
        headline=headline,
        tone=tone,
        sentences=sentences,
        strong=_strong_tile(facts),
        weak=_weak_tile(facts),
        holds=_holds(facts),
        limits=_limits(facts),
        assumptions=(_ONE_MACHINE, _LOGGED, *((_REAL_MEMBERS, _DEVICES) if facts.sealed else ())),
    )


def _verdict(facts: Facts) -> tuple[str, Tone, tuple[str, ...]]:
    """Return the headline, how it is meant, and the sentences that a reader in a hurry takes along."""
    rounds = counted(facts.rounds, "round")
    if facts.level is None:
        unfinished = counted(facts.unfinished, "round without a seal was", "rounds without a seal were")
        unknown = f"{unfinished} cut off, and which sums the server learned there is on no record."
        return "How private this run is cannot be known", "warning", (unknown,)
    if not facts.learned:
        return "No sum was learned", "plain", ("Nothing was given away, and nothing was trained.",)
    if facts.aggregation == "plain":
        clear = "Updates were added up without cryptography, as a simulation may: the server saw each one."
        return "Not private: every update was in the clear", "warning", (clear,)
    headline, tone, sentences = _of_level(facts, facts.level, rounds)
    return headline, tone, (*sentences, *_losses(facts))


def _of_level(facts: Facts, level: int, rounds: str) -> tuple[str, Tone, tuple[str, ...]]:
    """Return the same for a run with cryptography whose level is known."""
    if level == 1:
        own = f"Combining the sums of {rounds}, the server can give some user a weight that no other user has."
        return "Not private: the privacy level is 1", "warning", (own,)
    fewer = f"it never isolates a sum over fewer than {level} users"
    claim = f"However the server combines the sums of all {rounds}, {fewer}."
    if facts.required is not None and level < facts.required:
        return f"Privacy level {level}, below the {facts.required} asked for", "warning", (claim,)
    if facts.sealed:
        by = "The users' own keys enforce it."
        return f"Private: never fewer than {level} users in a sum", "good", (claim, by)
    trust = "That rests on the server's honesty: nothing was sealed."
    return f"Privacy level {level}, if the server was honest", "plain", (claim, trust)


def _losses(facts: Facts) -> tuple[str, ...]:
    """Say what became of batches that lost a member on the way."""
    if not facts.lost or not facts.batches:
        return ()
    times = "once" if facts.lost == 1 else counted(facts.lost, "time")
    if facts.sealed:
        return (f"A batch lost a member on the way {times} and was left out whole.",)
    if facts.split:
        split = counted(facts.split, "batch was", "batches were")
        return (f"A batch lost a member on the way {times}, and {split} split: the sum of the others came out.",)
    return (f"A batch lost a member on the way {times}.",)


def _strong_tile(facts: Facts) -> KeyNumber:
    label = "Privacy level T"
    if facts.level is None:
        return KeyNumber(label, "unknown", "rounds without a seal were cut off", "warning")
    if not facts.learned:
        return KeyNumber(label, "–", "no sum was learned")
    level = number(facts.level)
    if facts.aggregation == "plain":
        return KeyNumber(label, level, "the server saw every update by itself", "warning")
    if facts.required is None:
        meaning = "no level was asked for: users come one by one"
        return KeyNumber(label, level, meaning, "warning" if facts.level == 1 else "plain")
    if facts.level < facts.required:
        return KeyNumber(label, level, f"below the {facts.required} asked for", "warning")
    return KeyNumber(label, level, f"at least the {facts.required} asked for", "good" if facts.sealed else "plain")


def _weak_tile(facts: Facts) -> KeyNumber:
    label, weak = "Weak privacy level", facts.weak
    if weak is None:
        return KeyNumber(label, "unknown" if facts.level is None else "–", _strong_tile(facts).meaning)
    if weak.exact:
        return KeyNumber(label, number(weak.low), "fewest users in any combination of sums, exactly")
    bounds = f"{number(weak.low)}..{number(weak.high)}"
    return KeyNumber(label, bounds, "proven bounds on the fewest users in any combination of sums")


def _holds(facts: Facts) -> Points:
    """Return what holds, thanks to whom, and what the server saw."""
    return Points(
        (
            ("The level", _level(facts)),
            ("Who enforces it", _enforcement(facts)),
            ("What the server saw in a round", _server_view(facts)),
            ("When rounds are added", _more_rounds(facts)),
        )
    )


def _limits(facts: Facts) -> Points:
    """Return what nobody should read into the level."""
    batch = "Who is in which batch, who" if facts.batches else "Who"
    return Points(
        (
            ("What a sum reveals", _A_SUM),
            ("Users who work with the server", _collusion(facts)),
            ("Who took part", f"{batch} was available, who answered and when: the server sees that."),
            ("The model", _THE_MODEL),
            ("Honest updates", _POISONING) if facts.sealed else ("A server that deviates", _HONEST_SERVER),
        )
    )


def _level(facts: Facts) -> str:
    if facts.level is None:
        rounds = f"Unknown. {counted(facts.unfinished, 'round')} broke off without a seal."
        return f"{rounds} Which sums the server had by then is on no record, and any of them could split a group."
    if not facts.learned:
        return "Nothing was learned, so there is no sum over few users either."
    if facts.aggregation == "plain":
        return "1, whoever was chosen together: the server had every user's update by itself."
    text = _NO_GROUP if facts.level == 1 else _GROUPS.format(facts.level)
    if facts.unfinished:
        rounds = counted(facts.unfinished, "round was", "rounds were")
        text += f" {rounds} cut off by a crash: every batch asked there counts as learned, "
        text += "which is the worst case."
    return text


def _enforcement(facts: Facts) -> str:
    if facts.sealed:
        return _KEYS
    if not facts.batches:
        return _ONE_BY_ONE
    if not facts.split:
        return _HONESTY
    split = counted(facts.split, "batch was", "batches were")
    return f"{_HONESTY} That happened: {split} split. The level counts it."


def _server_view(facts: Facts) -> str:
    if facts.aggregation == "plain":
        view = "Every single update: they were added without any cryptography."
    else:
        from coterie.secagg import PROTOCOLS

        view = PROTOCOLS[facts.aggregation].server_sees
        view += "" if facts.sealed else " Without a seal that is a sum over those who stayed to the end."
    return f"{view} Also who was asked, who answered, when, and who was lost."


def _more_rounds(facts: Facts) -> str:
    if facts.sealed:
        return "The level stays, however many rounds follow: a batch takes part whole or not at all."
    if facts.batches:
        return "The level stays as long as every batch takes part whole. Once it has fallen it never rises again."
    return "The level can only fall. It never rises again."


def _collusion(facts: Facts) -> str:
    text = "c users who hand over their updates, all in one group, leave T − c of it."
    if facts.level is None or not facts.learned or facts.level == 1:
        return text
    left = facts.level - 1
    return f"{text} Here one of them leaves {counted(left, 'user')}, and {left} of them leave one user alone."


_NO_GROUP = (
    "T = 1. Some combination of the sums gives at least one user a weight that no other user has. Whether it also "
    "leaves a user alone is what `coterie audit` proves."
)
_GROUPS = (
    "T = {0}. In every combination of the sums, users come in groups of at least {0} that carry one and the same "
    "weight. No arithmetic on the sums tells the users of such a group apart."
)
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
_LOGGED = (
    "The measures count the sums that the participation log names. A sum learned and not logged is not in them."
)
_REAL_MEMBERS = (
    "A batch of T users is T different parties. In a deployment its check of identities must see to that."
)
_DEVICES = (
    "A device seals a round once, and its record is neither copied nor put back. X25519, Ed25519, AES-256 and "
    "SHA-256 hold what is believed of them."
)
