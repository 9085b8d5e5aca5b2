"""What the page shows, for programs: as one JSON object, and as numbers that Prometheus collects."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from coterie.dashboard.alerts import alerts
from coterie.dashboard.state import FederationState
from coterie.federation.ledger import Round, State
from coterie.report.page.blocks import evenly

MOST_POINTS = 1000
"""Rounds of the history in the JSON object, evenly spaced."""


def state_tables(state: FederationState) -> dict[str, Any]:
    """Return a state as one object of JSON."""
    snapshot, current = state.snapshot, state.current
    words = None if state.verdict is None else state.verdict.words
    return {
        "ledger": state.place,
        "head": {"count": snapshot.head.count, "hash": snapshot.head.hash.hex()},
        "changed": state.changed,
        "users": snapshot.users,
        "rounds": {str(each): count for each, count in snapshot.states.items()},
        "strong": state.level,
        "required": state.required,
        "fairness_gap": state.measures.fairness_gap,
        "cardinality": state.measures.cardinality,
        "groups": state.groups,
        "verdict": None if words is None else {
            "headline": words.headline, "tone": words.tone, "rounds": state.audited,
            "sentences": list(words.sentences), "forecast": list(words.forecast),
        },
        "current": None if current is None else _current(state, current),
        "batches": _batches(state),
        "alerts": [asdict(alert) for alert in alerts(state)],
        "history": [state.history[place] for place in evenly(len(state.rounds), MOST_POINTS).tolist()],
    }  # fmt: skip


def _current(state: FederationState, current: Round) -> dict[str, Any]:
    cohort = current.cohort
    return {
        "round": current.number,
        "protocol": current.protocol,
        "sealed": current.sealed,
        "opened": current.opened,
        "asked": 0 if cohort is None else len(cohort),
        "batches": [] if cohort is None else cohort.batches.tolist(),
        "phase": None if state.phase is None else state.phase.number,
        "live": state.live,
    }


def _batches(state: FederationState) -> dict[str, Any] | None:
    if state.snapshot.plan is None:
        return None
    return {
        "all": len(state.retired),
        "chartered": len(state.snapshot.charters),
        "retired": int(state.retired.sum()),
        "failing": [
            {
                "batch": batch,
                "lost_in_a_row": int(state.failures[batch]),
                "reasons": dict(state.reasons.get(batch, {})),
            }
            for batch in state.failing.tolist()
        ],
    }


def prometheus_text(state: FederationState) -> bytes:
    """Return a state in the text form that Prometheus collects."""
    registry, snapshot, tested = CollectorRegistry(), state.snapshot, state.last_tested
    numbers = {
        "users": ("Users enrolled", snapshot.users),
        "privacy_level": ("Strong privacy level T of the rounds that are over", state.level),
        "privacy_level_required": ("The level that is required", state.required),
        "fairness_gap": ("Fairness gap F", state.measures.fairness_gap),
        "cardinality": ("Users in the model per round, C", state.measures.cardinality),
        "accuracy": (
            "Accuracy after the last round that was tested",
            None if tested is None else tested.metric("accuracy"),
        ),
        "round_open": ("Whether a round is open", state.current is not None),
        "coordinator_live": ("Whether a coordinator is in a round", state.live),
        "changed_timestamp_seconds": ("When the ledger last changed", state.changed / 1000),
    }
    for name, (what, value) in numbers.items():
        if value is not None:
            Gauge(f"coterie_{name}", what, registry=registry).set(value)
    tones = Counter(alert.tone for alert in alerts(state))
    counts = {
        "rounds": ("Rounds by how they ended", "state", {str(each): snapshot.states[each] for each in State}),
        "alerts": ("What somebody should look at", "tone", {tone: tones[tone] for tone in ("warning", "plain")}),
        "batches": ("Batches of the plan in force", "state", _batch_counts(state)),
    }
    for name, (what, label, values) in counts.items():
        if values:
            gauge = Gauge(f"coterie_{name}", what, [label], registry=registry)
            for key, value in values.items():
                gauge.labels(key).set(value)
    return generate_latest(registry)


def _batch_counts(state: FederationState) -> dict[str, int]:
    """Return how many batches the plan in force has, by how they fare; nothing without a plan."""
    if state.snapshot.plan is None:
        return {}
    return {"all": len(state.retired), "retired": int(state.retired.sum()), "failing": len(state.failing)}
