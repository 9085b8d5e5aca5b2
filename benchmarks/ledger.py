"""A ledger of a million users and ten thousand rounds: its size, its appends against plain ones, reading it."""

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import peak_megabytes

from coterie.federation.ledger import Ledger
from coterie.selection import shuffled
from coterie.values import BatchPlan, Cohort

USERS, PER_ROUND, PRIVACY, ROUNDS = 1_000_000, 1000, 10, 10_000
LOST = 0.1
BARS_MB = {"batches": 30, "random": 60}


def cohorts(plan: BatchPlan | None, rounds: int) -> Iterator[Cohort]:
    """Draw cohorts of 1000: whole batches, or users."""
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        if plan is None:
            yield Cohort(np.sort(rng.choice(USERS, PER_ROUND, replace=False)), np.zeros(0, dtype=np.int64))
        else:
            batches = np.sort(rng.choice(len(plan), PER_ROUND // PRIVACY, replace=False))
            yield Cohort(plan.users_of(batches), batches)


def fill(path: Path, plan: BatchPlan | None, rounds: int, peers: "Peers") -> list[float]:
    """Run rounds, one in ten users of a random cohort lost; return the seconds that each append took."""
    rng = np.random.default_rng(2)
    seconds = []
    with Ledger.create(path) as ledger:
        ledger.enrol([f"device-{user:07}" for user in range(USERS)])
        if plan is not None:
            ledger.publish_plan(plan)
        with ledger.claim():
            for cohort in cohorts(plan, rounds):
                learned = cohort.users[rng.random(PER_ROUND) >= LOST] if plan is None else cohort.users
                start = time.perf_counter()
                number = ledger.open_round(cohort, sealed=plan is not None, protocol="open" if plan else "secagg")
                seconds.append(time.perf_counter() - start)
                peers.append()
                start = time.perf_counter()
                ledger.commit_round(number, [learned], metrics={"loss": rng.random()})
                seconds.append(time.perf_counter() - start)
                peers.append()
    return seconds


class Peers:
    """What an append is measured against, at the same time: a bare table that takes the same bytes, and a sync."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._table = sqlite3.connect(ledger.with_name("plain.sqlite"), isolation_level=None)
        self._table.executescript("PRAGMA page_size = 8192; PRAGMA synchronous = EXTRA;")
        self._table.execute("CREATE TABLE record (seq INTEGER PRIMARY KEY, body BLOB)")
        self._file = ledger.with_name("synced").open("wb", buffering=0)
        self._source: sqlite3.Connection | None = None
        self.plain: list[float] = []
        self.sync: list[float] = []

    def append(self) -> None:
        """Append the ledger's last body to a bare table, as durably; write 4 KB and sync."""
        if self._source is None:
            self._source = sqlite3.connect(self._ledger)
        body = self._source.execute("SELECT body FROM record ORDER BY seq DESC LIMIT 1").fetchone()
        start = time.perf_counter()
        self._table.execute("INSERT INTO record (body) VALUES (?)", body)
        self.plain.append(time.perf_counter() - start)
        start = time.perf_counter()
        self._file.write(bytes(4096))
        os.fsync(self._file.fileno())
        self.sync.append(time.perf_counter() - start)

    def close(self) -> None:
        """Let go of the files."""
        self._table.close()
        self._file.close()
        if self._source is not None:
            self._source.close()


def measured(kind: str, rounds: int) -> dict[str, float]:
    """Fill a ledger, then open it and take its log."""
    plan = shuffled(USERS, PRIVACY, np.random.default_rng(0)) if kind == "batches" else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        peers = Peers(path)
        appends = fill(path, plan, rounds, peers)
        peers.close()
        start = time.perf_counter()
        with Ledger.open(path, read_only=True) as ledger:
            opened = time.perf_counter()
            log = ledger.log()
        read = time.perf_counter()
        median = float(np.median(appends))
        return {
            "rounds": rounds,
            "size_MB": path.stat().st_size / 1e6,
            "size_bar_MB": BARS_MB[kind],
            "append_median_ms": median * 1e3,
            "append_p99_ms": float(np.quantile(appends, 0.99)) * 1e3,
            "append_over_plain": median / float(np.median(peers.plain)),
            "append_over_one_sync": median / float(np.median(peers.sync)),
            "open_s": opened - start,
            "log_s": read - opened,
            "learned_sets": len(log.set_rounds),
        }


def run(rounds: int = ROUNDS) -> dict[str, object]:
    """Measure a batch plan and random selection."""
    return {
        "what": f"ledger: {USERS} users, {rounds} rounds of {PER_ROUND}",
        **{kind: measured(kind, rounds) for kind in BARS_MB},
        "peak_MB": peak_megabytes(),
    }


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
