"""The dashboard's server: one thread follows the ledger, everything else only reads what it saw last.

Programs get what the page shows too: as one JSON object, and as numbers that Prometheus collects.
"""

import asyncio
import ipaddress
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coterie.errors import UsageError
from coterie.federation.ledger import Round, State
from coterie.pages.blocks import evenly
from coterie.pages.dashboard import FederationState, LedgerWatch, alerts, dashboard_page

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


# --- the server

INTERVAL = 0.5
"""Seconds between two looks at the ledger."""
KEEP_ALIVE = 15.0
"""Seconds after which a silent stream says that it is there."""
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class Follower:
    """Follows a ledger in a thread of its own; `state` is what it saw last, and `version` counts its changes."""

    def __init__(self, watch: LedgerWatch) -> None:
        self._watch = watch
        self._stop, self._ready = threading.Event(), threading.Event()
        self._failure: UsageError | None = None
        self.state: FederationState | None = None
        self.trouble = ""
        """Why the ledger cannot be read at present; empty if it can."""
        self.version = 0
        self._thread = threading.Thread(target=self._follow, name="ledger", daemon=True)

    def start(self) -> None:
        """Begin; return when the ledger was read once, or raise why it cannot be."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        # A database belongs to the thread that opened it: the first look does.
        try:
            self._take(self._watch.look())
        except UsageError as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        pause = INTERVAL
        while not self._stop.wait(pause):
            begun = time.monotonic()
            try:
                self._take(self._watch.look())
            except UsageError as error:
                self._say(str(error))
            pause = max(INTERVAL, time.monotonic() - begun)  # half of one core at most
        self._watch.close()

    def _take(self, state: FederationState) -> None:
        before, self.state = self.state, state
        self._say("")
        if before is None or _visible(before) != _visible(state):
            self.version += 1

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble, self.version = trouble, self.version + 1


def _visible(state: FederationState) -> tuple[object, ...]:
    """Return what decides whether two states look the same."""
    return state.snapshot.head, state.live, state.phase, state.audited


def application(follower: Follower, hosts: list[str], stopping: Callable[[], bool]) -> Starlette:
    """Return the application; it answers requests for one of these host names only (`*` for any).

    Streams end when the server is `stopping`.
    """

    @lru_cache(maxsize=1)
    def page(version: int) -> str:
        del version
        return dashboard_page(_state(follower))

    def index(_: Request) -> Response:
        return HTMLResponse(page(follower.version), headers=_HEADERS)

    def state(_: Request) -> Response:
        tables = {**state_tables(_state(follower)), "trouble": follower.trouble}
        return Response(json.dumps(tables, allow_nan=False), media_type="application/json", headers=_HEADERS)

    def metrics(_: Request) -> Response:
        return PlainTextResponse(prometheus_text(_state(follower)), headers=_HEADERS)

    def health(_: Request) -> Response:
        return JSONResponse({"trouble": follower.trouble}, 503 if follower.trouble else 200, headers=_HEADERS)

    async def events(request: Request) -> Response:
        changes = _changes(follower, request, stopping)
        return StreamingResponse(changes, media_type="text/event-stream", headers=_HEADERS)

    routes = [
        Route("/", index),
        Route("/state.json", state),
        Route("/metrics", metrics),
        Route("/health", health),
        Route("/events", events),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)])


def _state(follower: Follower) -> FederationState:
    assert follower.state is not None  # noqa: S101 - the follower has started
    return follower.state


async def _changes(follower: Follower, request: Request, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield an event for every change that a reader has not seen, and a comment where nothing happens for long."""
    seen, waited = -1, 0.0
    while not stopping() and not await request.is_disconnected():
        if follower.version != seen:
            seen, waited = follower.version, 0.0
            data = json.dumps({"version": seen, "trouble": follower.trouble})
            yield f"event: state\nid: {seen}\ndata: {data}\n\n"
        elif waited >= KEEP_ALIVE:
            waited = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL / 2)
        waited += INTERVAL / 2


def host_names(host: str) -> list[str]:
    """Return the host names that requests may be for: on loopback only its own, so that no other page reaches it.

    >>> host_names("127.0.0.1"), host_names("0.0.0.0")
    (['127.0.0.1', 'localhost', '[::1]'], ['*'])
    """
    return ["127.0.0.1", "localhost", "[::1]"] if is_loopback(host) else ["*"]


def is_loopback(host: str) -> bool:
    """Return whether nobody but this machine can reach a host.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("192.0.2.7")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
