"""What somebody should look at, before a promise is broken and after: each with what to do."""

from collections.abc import Iterator
from dataclasses import dataclass

from coterie.dashboard.state import FederationState
from coterie.federation.coordinator import RETIRE_AFTER
from coterie.secagg import PROTOCOLS
from coterie.values.text import Tone, counted, listing, number, spans

FRUITLESS = 3
"""Rounds without a result, one after the other, from which on somebody should look."""
SOON = 100
"""Further rounds within which a level that will fall is worth an alert."""
MOST_BATCHES = 5
"""Batches that one alert names."""


@dataclass(frozen=True)
class Alert:
    """Something to look at: a few words that name it, what is the case, and what to do."""

    name: str
    statement: str
    remedy: str
    tone: Tone = "warning"


def alerts(state: FederationState) -> tuple[Alert, ...]:
    """Return all alerts, the gravest first.

    Those of tone "warning" say that a promise is broken or about to be; those of tone "plain" are worth knowing.
    """
    all_alerts = (*_privacy(state), *_coming(state), *_rounds(state), *_batches(state), *_members(state))
    return tuple(sorted(all_alerts, key=lambda alert: alert.tone != "warning"))


def _privacy(state: FederationState) -> Iterator[Alert]:
    snapshot, required = state.snapshot, state.required
    if snapshot.plain_rounds:
        rounds = counted(len(snapshot.plain_rounds), "round")
        yield Alert(
            "Updates in the clear",
            f"In {rounds} aggregation was plain: the server saw every update by itself.",
            "Use a sealed protocol for further rounds; what was seen is seen.",
        )
    elif snapshot.unknown_rounds:
        yield Alert(
            "Not known what was learned",
            f"Rounds {spans(snapshot.unknown_rounds)} were not sealed and broke off: their users count as alone.",
            "Seal rounds. `coterie audit` says who is concerned.",
        )
    elif required is not None and state.level is not None and state.level < required:
        yield Alert(
            "The level is too low",
            f"The privacy level is {number(state.level)}, below the {number(required)} required. It never rises.",
            "Stop, and see with `coterie audit` which round broke it.",
        )
    if snapshot.overrides:
        batches = counted(len(snapshot.overrides), "batch", "batches")
        yield Alert(
            "Overridden batches",
            f"Owners permitted that {batches} are split; the level counts both partitions.",
            "See that every override was wanted (`coterie ledger show`).",
        )


def _coming(state: FederationState) -> Iterator[Alert]:
    """Say that the level will fall below what is required, before it does."""
    forecast, required = state.verdict.forecast if state.verdict is not None else None, state.required
    if forecast is None or state.level is None or state.snapshot.plain_rounds:
        return
    floor, falls = forecast.floor, forecast.falls
    if floor is not None and required is not None and floor < required <= state.level:
        yield Alert(
            "The level will fall",
            f"Further rounds can bring the level to {number(floor)}, below the {number(required)} required.",
            "Retire the batches that are smaller, or form them anew, before they are asked.",
        )
    elif floor is None and state.level > 1 and falls.median is not None and falls.median <= SOON:
        rounds = counted(falls.median, "further round")
        yield Alert(
            "The level will fall",
            f"If rounds go on as they did, the level falls below {number(forecast.level)} within about {rounds}.",
            "Put users into batches (`coterie plan`), and seal them.",
        )


def _rounds(state: FederationState) -> Iterator[Alert]:
    current = state.current
    if current is not None and state.cut_off:
        worst = "every batch that was asked" if current.sealed else "every user who was asked"
        yield Alert(
            "A round was cut off",
            f"Round {current.number} is open and its coordinator is gone.",
            f"Start the server again: it counts {worst} as learned, and goes on with the next round.",
        )
    if state.fruitless >= FRUITLESS:
        last = state.rounds[-1]
        yield Alert(
            "No results",
            f"The last {number(state.fruitless)} rounds gave no result: {last.reason or 'they broke off'}.",
            "See who is available; smaller batches complete more often (`coterie plan`).",
        )


def _batches(state: FederationState) -> Iterator[Alert]:
    snapshot, plan = state.snapshot, state.snapshot.plan
    if plan is None:
        return
    if len(state.failing):
        texts = [_failing(state, batch) for batch in state.failing[:MOST_BATCHES].tolist()]
        more = len(state.failing) - len(texts)
        yield Alert(
            "Close to being retired",
            "; ".join(texts) + (f"; and {counted(more, 'more batch', 'more batches')}" if more else "") + ".",
            f"A batch that is lost in {RETIRE_AFTER} rounds in a row is asked no more. See to the devices named.",
        )
    left = int(plan.sizes[~state.retired].sum())
    least = _least(state)
    if left < least and snapshot.rounds:
        yield Alert(
            "Too few batches left",
            f"Batches with {counted(left, 'user')} are left, and a sum needs {number(least)}.",
            "Enrol users: they form batches of their own.",
        )
    retired = int(state.retired.sum())
    if retired:
        yield Alert(
            "Retired batches",
            f"{number(retired)} of {counted(len(plan), 'batch', 'batches')} are asked no more.",
            "Their users can only come back as new users, with new devices.",
            "plain",
        )


def _least(state: FederationState) -> int:
    """Return the fewest users that devices want in a sum, by the protocol of the last round."""
    plan = state.snapshot.plan
    protocols = (each.protocol for each in reversed(state.snapshot.rounds) if each.protocol)
    protocol = PROTOCOLS.get(next(protocols, ""))
    if plan is None or protocol is None or state.retired.all():
        return 1
    return protocol.least_included(plan.sizes[~state.retired].tolist(), plan.privacy)


def _failing(state: FederationState, batch: int) -> str:
    reasons = state.reasons.get(batch)
    why = f" ({listing(reason for reason, _ in reasons.most_common(2))})" if reasons else ""
    return f"batch {batch}, lost in {state.failures[batch]} rounds in a row{why}"


def _members(state: FederationState) -> Iterator[Alert]:
    if state.snapshot.plan is not None and state.snapshot.waiting:
        yield Alert(
            "Waiting users",
            f"{counted(state.snapshot.waiting, 'user is', 'users are')} enrolled and in no batch yet.",
            f"They take part once {state.snapshot.plan.privacy} of them form a batch.",
            "plain",
        )
