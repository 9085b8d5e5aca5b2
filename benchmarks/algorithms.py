"""The fast selector against Algorithms 1 and 2 as the paper writes them, at N = 120, K = 12, T = 3."""

import sys
import time
from pathlib import Path

import numpy as np
from measure import seconds

from coterie.selection import BatchSelector, IndependentDropout, consecutive, draw_dropout

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import reference

USERS, PER_ROUND, PRIVACY = 120, 12, 3


def run() -> dict[str, object]:
    """Time one round of both, and the family that only the direct implementation needs."""
    rng = np.random.default_rng(0)
    model = IndependentDropout(draw_dropout([0.1, 0.2, 0.3, 0.4, 0.5], USERS, rng))
    counts = np.zeros(USERS, dtype=np.int64)
    start = time.perf_counter()
    family = reference.algorithm_1(USERS, PER_ROUND, PRIVACY)
    making_family = time.perf_counter() - start
    selector = BatchSelector(consecutive(USERS, PRIVACY), PER_ROUND)
    direct = seconds(lambda: reference.choose_row(family, model.sample(rng), counts, rng), repeats=5)
    fast = seconds(lambda: selector.choose(model.sample(rng), counts, rng), repeats=500)
    return {
        "what": f"one round: N={USERS}, K={PER_ROUND}, T={PRIVACY}, family of {len(family)} rows",
        "direct_family_s": making_family,
        "direct_round_s": direct["median_s"],
        "coterie_round_s": fast["median_s"],
        "times_faster_per_round": direct["median_s"] / fast["median_s"],
    }
