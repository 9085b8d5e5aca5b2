"""A running federation in the browser: what its ledger tells, read only, while rounds go on.

The watch follows the ledger and holds what it tells at one moment, alerts say what somebody should look at,
before a promise is broken and after, and the page shows it in the style of the reports.
"""

import math
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.federation.audit import audit, evidence_of
from coterie.federation.coordinator import RETIRE_AFTER
from coterie.federation.ledger import Ledger, Phase, Round, Snapshot, State
from coterie.federation.ledger.history import time_text
from coterie.federation.ledger.ledger import Clock, system_clock
from coterie.federation.ledger.store import Location, is_postgres_url
from coterie.lab.experiments.result import BatchHealth
from coterie.leakage import Verdict
from coterie.leakage.measures import RoundMeasures, RunningMeasures
from coterie.pages.blocks import Block, Commands, Footer, Page, Points, Section, Table, Text
from coterie.pages.render import render
from coterie.pages.run import batch_blocks, learning_blocks, measures_plots
from coterie.secagg import PROTOCOLS
from coterie.values import BoolArray, IntArray
from coterie.values.text import KeyNumber, Tone, counted, display_name, listing, number, percent, shortened, spans

AUDIT_SECONDS = 1.0
"""Seconds that an audit may take for its forecast and the weak level."""
REAUDIT_FACTOR = 10.0
"""An audit is not begun again before so many times its own duration have passed."""
RECENT = 100
"""Rounds that reasons for losses are counted over."""
METRICS = {"accuracy": "accuracy", "loss": "loss", "training_loss": "train-loss"}
"""What was measured of a model after a round, and the metric of the ledger that it is noted as."""
CLOSE = RETIRE_AFTER // 2
"""Rounds in a row that a batch was lost in, from which on it is close to being retired."""


@dataclass(frozen=True, eq=False)
class FederationState:
    """A federation as its ledger shows it.

    `snapshot` has all rounds, the open one last; measures and verdict are of those that are over. The verdict can
    be some rounds behind: `audited` says how many it is about. `failures` and `retired` are by batch of the plan.
    """

    place: str
    changed: int
    """When something was last appended, as far as was seen: UTC, in milliseconds since 1970."""
    snapshot: Snapshot
    after: Sequence[RoundMeasures]
    """The measures after each round that is over."""
    measures: RoundMeasures
    groups: int
    """Groups of users that the sums so far tell apart."""
    verdict: Verdict | None
    audited: int
    live: bool
    """Whether a coordinator is in a round right now."""
    phase: Phase | None
    failures: IntArray
    retired: BoolArray
    required: int | None
    """The level that is demanded: as given, else the plan's."""

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds that are over."""
        return self.snapshot.rounds[: len(self.after)]

    @property
    def current(self) -> Round | None:
        """The round that is open."""
        return self.snapshot.open_round

    @property
    def cut_off(self) -> bool:
        """Whether a round is open and nobody works at it."""
        return self.current is not None and not self.live

    @property
    def learned(self) -> bool:
        """Whether the server could open any sum so far."""
        return self.measures.skipped < len(self.after)

    @property
    def level(self) -> int | None:
        """The strong level of the rounds that are over; None without a sum, or where sums are not known."""
        return None if not self.learned or self.snapshot.unknown_rounds else self.measures.strong

    @cached_property
    def health(self) -> BatchHealth | None:
        """How the batches of the plan fared in the rounds that are over."""
        return BatchHealth.of(self.snapshot)

    @cached_property
    def failing(self) -> IntArray:
        """The batches that are close to being retired, those closest first."""
        order = np.argsort(-self.failures, kind="stable")
        return order[(self.failures[order] >= CLOSE) & ~self.retired[order]]

    @cached_property
    def reasons(self) -> dict[int, Counter[str]]:
        """Why batches of the plan were lost in recent rounds, and how often."""
        reasons: dict[int, Counter[str]] = {}
        for each in self.snapshot.rounds[-RECENT:]:
            if each.plan == self.snapshot.plan_number and self.snapshot.plan is not None:
                for batch, reason in each.lost.items():
                    reasons.setdefault(batch, Counter())[reason] += 1
        return reasons

    @property
    def last_tested(self) -> Round | None:
        """The last round after which an accuracy was measured."""
        return next((each for each in reversed(self.rounds) if each.metric("accuracy") is not None), None)

    @property
    def fruitless(self) -> int:
        """How many rounds at the end gave no result, one after the other."""
        return len(tuple(takewhile(lambda each: not len(each.included), reversed(self.rounds))))

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The rounds that are over, each with the measures after it; None where nothing was measured."""
        return [
            {
                "round": each.number,
                "state": str(each.state),
                "included": len(each.included),
                **{name: each.metric(metric) for name, metric in METRICS.items()},
                "strong": after.strong,
                "fairness_gap": after.fairness_gap,
                "cardinality": after.cardinality,
            }
            for each, after in zip(self.rounds, self.after, strict=True)
        ]

    @cached_property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The history as columns, an array for each value; NaN where nothing was measured."""
        return {
            name: np.array([math.nan if each[name] is None else each[name] for each in self.history])
            for name in (self.history[0] if self.history else ())
        }


class LedgerWatch:
    """Looks at a ledger, again and again, from one thread.

    Measures are carried on round by round. An audit is made of all rounds at once, so of a large ledger it comes
    less often. The first look opens the ledger; what cannot be read now (a database that restarts) is tried again
    at the next.
    """

    def __init__(self, location: Location, required: int | None = None, clock: Clock = system_clock) -> None:
        self._location, self._required, self._clock = location, required, clock
        self._ledger: Ledger | None = None
        self._snapshot: Snapshot | None = None
        self._changed = 0
        self._measures, self._after = RunningMeasures(0), list[RoundMeasures]()
        self._measured_for = 0, 0
        self._verdict: Verdict | None = None
        self._audited, self._audit_again = 0, 0.0

    def look(self) -> FederationState:
        """Return how things stand; raise UsageError if the ledger cannot be read."""
        if self._ledger is None:
            self._ledger = Ledger.open(self._location, read_only=True)
        ledger = self._ledger
        try:
            live, phase = ledger.coordinated, ledger.phase
            ledger.refresh()
            if self._snapshot is None or self._snapshot.head != ledger.head:
                self._snapshot, self._changed = ledger.snapshot(), self._clock()
        except UsageError:
            self.close()
            raise
        snapshot = self._snapshot
        is_open = bool(snapshot.rounds) and snapshot.rounds[-1].state is State.OPEN
        closed = snapshot.rounds[:-1] if is_open else snapshot.rounds
        self._measure(snapshot.users, closed)
        self._audit(replace(snapshot, rounds=closed), ledger.place)
        plan, current = snapshot.plan, snapshot.rounds[-1].number if is_open else None
        return FederationState(
            place=ledger.place,
            changed=self._changed,
            snapshot=snapshot,
            after=tuple(self._after),
            measures=self._measures.now,
            groups=self._measures.strong.classes,
            verdict=self._verdict,
            audited=self._audited,
            live=live,
            phase=phase if phase is not None and phase.round == current else None,
            failures=ledger.failures,
            retired=ledger.retired,
            required=self._required if self._required is not None or plan is None else plan.privacy,
        )

    def close(self) -> None:
        """Let go of the database."""
        if self._ledger is not None:
            with suppress(UsageError):
                self._ledger.close()
            self._ledger = None

    def _measure(self, users: int, rounds: tuple[Round, ...]) -> None:
        """Carry the measures on over new rounds; begin anew where users joined, or sums came late."""
        measured_for = users, sum(each.late for each in rounds)
        if measured_for != self._measured_for:
            self._measured_for, self._measures, self._after = measured_for, RunningMeasures(users), []
        for each in rounds[len(self._after) :]:
            self._measures.add_round(each.exposure)
            self._after.append(self._measures.now)

    def _audit(self, snapshot: Snapshot, place: str) -> None:
        """Audit the rounds that are over, if there are new ones and the last audit is long enough ago."""
        rounds, begun = len(snapshot.rounds), time.monotonic()
        if rounds == self._audited or begun < self._audit_again:
            return
        self._verdict = audit(evidence_of(snapshot, place), require=self._required, budget=AUDIT_SECONDS)
        self._audited, done = rounds, time.monotonic()
        self._audit_again = done + REAUDIT_FACTOR * (done - begun)


# --- alerts: each with what to do

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
    all_alerts = (
        *_privacy(state),
        *_forecast_alert(state),
        *_rounds(state),
        *_batch_alerts(state),
        *_members(state),
    )
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


def _forecast_alert(state: FederationState) -> Iterator[Alert]:
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


def _batch_alerts(state: FederationState) -> Iterator[Alert]:
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


# --- the page

LAST_ROUNDS = 25
"""Rows of the table of rounds."""
MOST_LOSSES = 10
"""Rows of the table of reasons."""
MOST_NAMED = 8
"""Users of the open round who are named."""
LONGEST_REMARK = 160
"""Letters of a remark in the table of rounds."""


def dashboard_page(state: FederationState) -> str:
    """Return the page of a federation, which keeps itself up to date while its server runs."""
    warnings = alerts(state)
    headline, tone, sentences = _verdict(state)
    page = Page(
        kind="Dashboard",
        subject=f"{counted(state.snapshot.users, 'user')}, {counted(len(state.rounds), 'round')}",
        date=f"{time_text(state.changed)} UTC",
        title=headline,
        tone=tone,
        answer=" ".join((_now(state), *sentences)),
        tiles=_tiles(state),
        sections=tuple(_sections(state, warnings)),
        footer=_footer(state),
    )
    return render(page, live=files("coterie.pages").joinpath("templates", "live.js").read_text(encoding="utf-8"))


def _sections(state: FederationState, warnings: tuple[Alert, ...]) -> Iterator[Section]:
    attention = Points(tuple((each.name, f"{each.statement} {each.remedy}") for each in warnings))
    yield Section("To look at", (attention,) if warnings else (Text(("Nothing needs attention.",)),))
    yield Section("The round", _round(state))
    if state.rounds:
        yield Section("Over the rounds", (_measures(state), *_learning(state)))
    yield Section("What the server has learned", (Text(tuple(_learned(state))),))
    yield Section("What is coming", (Text(tuple(_coming(state))),))
    if state.health is not None:
        yield Section("The batches", tuple(_batches(state, state.health)))
    if state.rounds:
        yield Section("The last rounds", (_last_rounds(state),))
    yield Section("Elsewhere", (_elsewhere(state),))


def _verdict(state: FederationState) -> tuple[str, Tone, tuple[str, ...]]:
    if state.verdict is None:
        return "No round has ended yet.", "plain", ()
    words = state.verdict.words
    behind = len(state.rounds) - state.audited
    late = (f"The verdict is about all but the last {counted(behind, 'round')}.",) if behind else ()
    return words.headline, words.tone, late


def _now(state: FederationState) -> str:
    """Say in a sentence what is happening."""
    current = state.current
    if current is None:
        rounds = len(state.rounds)
        return (
            f"Round {rounds - 1} was the last; none is open." if rounds else "The federation has begun no round."
        )
    if state.cut_off:
        return f"Round {current.number} is open, and nobody works at it."
    return f"Round {current.number} is running{_phase(state, current)}."


def _phase(state: FederationState, current: Round) -> str:
    if state.phase is None:
        return ""
    protocol = PROTOCOLS.get(current.protocol)
    of = f" of {max(protocol.phases, state.phase.number + 1)}" if protocol is not None else ""
    return f": phase {state.phase.number + 1}{of}, {counted(state.phase.asked, 'user')} asked"


def _tiles(state: FederationState) -> tuple[KeyNumber, ...]:
    measures, snapshot = state.measures, state.snapshot
    tested, rounds, without = state.last_tested, len(state.rounds), measures.skipped
    tiles = [_level(state)]
    if tested is not None:
        accuracy = percent(tested.metric("accuracy") or 0.0)
        tiles.append(KeyNumber("Accuracy", accuracy, f"after round {tested.number}"))
    meaning = f"of {number(rounds)}; {number(without)} gave none" if without else "every round gave one"
    meaning = meaning if rounds else "no round has ended"
    tiles.append(KeyNumber("Rounds with a result", number(rounds - without), meaning))
    if state.verdict is not None:
        tiles += state.verdict.words.figures[1:]
    tiles += [
        KeyNumber("Cardinality C", f"{measures.cardinality:.2f}", "users in a round's sums, on average"),
        KeyNumber("Fairness gap F", f"{measures.fairness_gap:.3f}", "between users' shares of rounds; 0 is fair"),
    ]
    if snapshot.plan is not None:
        tiles.append(_batches_tile(state))
    return tuple(tiles)


def _level(state: FederationState) -> KeyNumber:
    label = "Strong privacy level T"
    if state.level is None:
        unknown = bool(state.snapshot.unknown_rounds)
        words = ("unknown", "rounds without a seal broke off") if unknown else ("–", "no sum was learned yet")
        return KeyNumber(label, *words, "warning" if unknown else "plain")
    if state.required is None:
        meaning = f"after round {state.rounds[-1].number}; no level is required"
        return KeyNumber(label, number(state.level), meaning, "warning" if state.level == 1 else "plain")
    holds = state.level >= state.required
    meaning = f"{'at least' if holds else 'below'} the {number(state.required)} required"
    return KeyNumber(label, number(state.level), meaning, "good" if holds else "warning")


def _batches_tile(state: FederationState) -> KeyNumber:
    failing, retired = len(state.failing), int(state.retired.sum())
    meaning = f"{number(retired)} retired, {number(failing)} close to it"
    return KeyNumber("Batches", number(len(state.retired)), meaning, "warning" if failing else "plain")


def _round(state: FederationState) -> tuple[Block, ...]:
    current = state.current
    if current is None or current.cohort is None:
        return (Text((_now(state),)),)
    snapshot, batches = state.snapshot, current.cohort.batches.tolist()
    named = [display_name(snapshot.names[user]) for user in current.cohort.users[: MOST_NAMED + 1].tolist()]
    more = len(current.cohort) - MOST_NAMED
    users = ", ".join(named[:MOST_NAMED]) + (f" and {number(more)} more" if more > 0 else "")
    points = [
        ("State", _now(state)),
        ("Began", f"{time_text(current.opened)} UTC"),
        ("Asked", f"{counted(len(current.cohort), 'user')}: {users}"),
        ("How", current.aggregation),
    ]
    if batches:
        points.insert(3, ("Batches", f"{number(len(batches))}: {listing(map(str, batches))}"))
    return (Points(tuple(points)),)


def _measures(state: FederationState) -> Block:
    return measures_plots(state.columns, known=not state.snapshot.unknown_rounds)


def _learning(state: FederationState) -> tuple[Block, ...]:
    tested = any(np.isfinite(state.columns[name]).any() for name in ("accuracy", "loss"))
    return learning_blocks(state.columns) if tested else ()


def _learned(state: FederationState) -> Iterator[str]:
    if state.verdict is None:
        yield "Nothing: no round has ended."
        return
    yield from state.verdict.words.sentences
    if state.learned:
        yield f"The sums so far tell {counted(state.groups, 'group')} of users apart, and nothing inside a group."


def _coming(state: FederationState) -> Iterator[str]:
    if state.verdict is None:
        yield "Nothing can be said before a round has ended."
        return
    yield from state.verdict.words.forecast or ("Nothing can be said yet.",)
    for batch in state.failing[:1].tolist():
        left = RETIRE_AFTER - int(state.failures[batch])
        yield f"Batch {batch} is retired if it is lost in {counted(left, 'more round')} in a row."


def _batches(state: FederationState, health: BatchHealth) -> Iterator[Block]:
    rows: list[tuple[str, int, str]] = []
    for batch in health.worst_first().tolist():
        if batch not in state.reasons or len(rows) == MOST_LOSSES:
            continue
        reasons = state.reasons[batch].most_common(3)
        in_a_row = int(state.failures[batch])
        rows.append((str(batch), in_a_row, "; ".join(f"{reason} ({times}×)" for reason, times in reasons)))
    if rows:
        caption = f"Who kept a batch from completing, in the last {RECENT} rounds."
        columns = ("batch", "lost in a row", "why")
        yield Table(caption, columns, tuple(rows), words=("why",))
    yield from batch_blocks(health)


def _last_rounds(state: FederationState) -> Table:
    rows = [_row(state, place) for place in range(len(state.rounds) - 1, -1, -1)[:LAST_ROUNDS]]
    columns = ("round", "outcome", "asked", "in the model", "batches lost", "accuracy", "T", "seconds", "remarks")
    return Table("The last rounds, the newest first.", columns, tuple(rows), words=("outcome", "remarks"))


def _row(state: FederationState, place: int) -> tuple[str | int | float, ...]:
    each, accuracy = state.rounds[place], state.rounds[place].metric("accuracy")
    seconds = "–" if each.closed is None else f"{(each.closed - each.opened) / 1000:.1f}"
    asked = 0 if each.cohort is None else len(each.cohort)
    remark = each.reason or "; ".join(f"batch {batch}: {reason}" for batch, reason in list(each.lost.items())[:3])
    return (str(each.number), str(each.state), asked, len(each.included), len(each.lost),
            "–" if accuracy is None else percent(accuracy), state.after[place].strong, seconds,
            shortened(remark, LONGEST_REMARK))  # fmt: skip


def _elsewhere(state: FederationState) -> Commands:
    place = "LEDGER" if is_postgres_url(state.place) else shlex.quote(state.place)
    return Commands(
        (
            (f"coterie audit {place} --html audit.html", "The verdict with all its proofs, on a page to keep."),
            (f"coterie ledger verify {place}", "Whether the ledger is whole and unchanged."),
            ("/state.json", "What this page shows, for programs."),
            ("/metrics", "The same as numbers, for Prometheus."),
        )
    )


def _footer(state: FederationState) -> Footer:
    head = state.snapshot.head
    return Footer(
        facts=(
            ("Ledger", state.place),
            ("Records", number(head.count)),
            ("Head", head.hash.hex()),
        ),
        assumptions=(
            "The page shows what the ledger tells. A sum that was learned and not recorded is not in it.",
            "Rounds that are still open are not in the measures.",
        ),
    )
