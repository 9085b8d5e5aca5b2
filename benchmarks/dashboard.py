"""A dashboard over a ledger of a million users: reading it, a look after a round, its page and its numbers."""

import tempfile
import time
from pathlib import Path

import numpy as np
from ledger import PRIVACY, USERS, cohorts
from measure import peak_megabytes, seconds

from coterie.federation.ledger import Ledger
from coterie.pages.dashboard import LedgerWatch, dashboard_page
from coterie.pages.dashboard_server import prometheus_text, state_tables
from coterie.selection import shuffled
from coterie.values import Cohort

ROUNDS = 2000
BAR_S = 2.0  # a look after a round, and its page


def run() -> dict[str, object]:
    """Measure everything."""
    plan = shuffled(USERS, PRIVACY, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with Ledger.create(path) as ledger:
            ledger.enrol([f"device-{user:07}" for user in range(USERS)])
            ledger.publish_plan(plan)
            with ledger.claim():
                rounds = cohorts(plan, ROUNDS + 3)
                for _ in range(ROUNDS):
                    _run(ledger, next(rounds))
                start = time.perf_counter()
                watch = LedgerWatch(path)
                state = watch.look()
                opened = time.perf_counter() - start
                looks = []
                for cohort in rounds:
                    _run(ledger, cohort)
                    start = time.perf_counter()
                    state = watch.look()
                    looks.append(time.perf_counter() - start)
                idle = seconds(watch.look, 3)
                watch.close()
    return {
        "what": f"a dashboard over a ledger of {USERS} users in batches of {PRIVACY} and {ROUNDS} rounds of 1000",
        "open_s": opened,
        "look_where_nothing_happened": idle,
        "look_after_a_round_s": min(looks),
        "look_with_an_audit_s": max(looks),
        "page": seconds(lambda: dashboard_page(state), 3) | {"bytes": len(dashboard_page(state))},
        "json": seconds(lambda: state_tables(state), 3),
        "prometheus": seconds(lambda: prometheus_text(state), 3),
        "peak_mb": peak_megabytes(),
        "bar_s": BAR_S,
    }


def _run(ledger: Ledger, cohort: Cohort) -> None:
    number = ledger.open_round(cohort, sealed=True, protocol="open")
    ledger.commit_round(number, [cohort.users], metrics={"loss": 0.5})


if __name__ == "__main__":
    print(run())
