"""The page of a running federation, in the style of the reports."""

import shlex
from collections.abc import Iterator
from importlib.resources import files

import numpy as np

from coterie.dashboard.alerts import Alert, alerts
from coterie.dashboard.state import RECENT, FederationState
from coterie.federation.coordinator import RETIRE_AFTER
from coterie.federation.ledger import Round
from coterie.federation.ledger.history import time_text
from coterie.federation.ledger.store import is_postgres_url
from coterie.lab.experiments.result import BatchHealth
from coterie.report.page.blocks import (
    Block,
    Commands,
    Footer,
    Page,
    Points,
    Section,
    Table,
    Text,
)
from coterie.report.page.html import render
from coterie.report.run.plots import batch_blocks, learning_blocks, measures_plots
from coterie.secagg import PROTOCOLS
from coterie.values.text import KeyNumber, Tone, counted, display_name, listing, number, percent, shortened

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
    return render(
        page, live=files("coterie.dashboard").joinpath("templates", "live.js").read_text(encoding="utf-8")
    )


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
