"""Choosing a cohort among ten million users: time against reading the availability once, and memory."""

import numpy as np
from measure import extra_megabytes, peak_megabytes, seconds

from coterie.selection import BatchSelector, IndependentDropout, shuffled

USERS, PRIVACY, PER_ROUND = 10_000_000, 10, 10_000


def run() -> dict[str, object]:
    """Time `choose` with nobody away (every batch is a candidate) and with three in ten away."""
    rng = np.random.default_rng(0)
    before = peak_megabytes()
    plan = shuffled(USERS, PRIVACY, rng)
    selector = BatchSelector(plan, PER_ROUND)
    plan_bytes = plan.members.nbytes + plan.starts.nbytes + plan.batch_of.nbytes + plan.sizes.nbytes
    built = peak_megabytes()
    counts = np.zeros(USERS, dtype=np.int32)
    results = {}
    for dropout in (0.0, 0.3):
        available = IndependentDropout(np.full(USERS, dropout)).sample(rng)
        choosing = seconds(lambda a=available: selector.choose(a, counts, rng), repeats=15)
        limit = seconds(lambda a=available: np.flatnonzero(~a), repeats=15)
        results[f"dropout {dropout}"] = {
            **choosing,
            "bar_s": 0.1,
            "times_reading_availability": choosing["median_s"] / limit["median_s"],
            "extra_MB": extra_megabytes(lambda a=available: selector.choose(a, counts, rng)),
        }
    return {
        "what": f"choose a cohort: N={USERS}, T={PRIVACY}, K={PER_ROUND}",
        "plan_MB": plan_bytes / 1e6,
        "plan_bytes_per_user": plan_bytes / USERS,
        "peak_MB_building_the_plan": built - before,
        **results,
    }
