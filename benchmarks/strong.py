"""The strong privacy level of a long streamed log: time against touching each participation, and memory."""

import time

import numpy as np
from measure import peak_megabytes

from coterie.leakage import StrongLevel
from coterie.selection import BatchSelector, RandomSelector, consecutive

USERS, ROUNDS, PER_ROUND, PRIVACY = 1_000_000, 10_000, 1_000, 10


def run() -> dict[str, object]:
    """Stream ten thousand rounds of random selection and of batches through the level; draw them untimed."""
    everyone, counts = np.ones(USERS, dtype=np.bool_), np.zeros(USERS, dtype=np.int32)
    results = {}
    for name, selector in (
        ("random selection", RandomSelector(PER_ROUND)),
        (f"batches of {PRIVACY}", BatchSelector(consecutive(USERS, PRIVACY), PER_ROUND)),
    ):
        rng = np.random.default_rng(0)
        before = peak_megabytes()
        level = StrongLevel(USERS)
        touched = np.zeros(USERS, dtype=np.int32)
        level_s = limit_s = 0.0
        for _ in range(ROUNDS):
            users = selector.choose(everyone, counts, rng).users
            start = time.perf_counter()
            level.add(users)
            middle = time.perf_counter()
            touched[users] += 1
            limit_s += time.perf_counter() - middle
            level_s += middle - start
        results[name] = {
            "level": level.level,
            "seconds": level_s,
            "bar_s": 10,
            "times_touching_each_participation": level_s / limit_s,
            "extra_peak_MB": peak_megabytes() - before,
        }
    return {"what": f"strong level: {USERS} users, {ROUNDS} rounds of {PER_ROUND}", **results}
