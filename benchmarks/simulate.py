"""The paper's simulation against its selections alone, and a million users for a thousand rounds."""

import os
import time

import numpy as np
from measure import peak_megabytes

from coterie.selection import (
    BatchSelector,
    IndependentDropout,
    RandomSelector,
    WeightedRandomSelector,
    consecutive,
    draw_dropout,
    user_partition,
)
from coterie.selection.simulation import Scheme, Simulation, run_trial, run_trials

TRIALS, ROUNDS = 200, 200


def paper() -> Simulation:
    """Six schemes at N = 120, K = 12, dropout from 0.1 to 0.5."""
    schemes = (
        Scheme("random", RandomSelector(12)),
        Scheme("weighted", WeightedRandomSelector(12)),
        Scheme("partition", user_partition(120, 12)),
        *(Scheme(f"T{privacy}", BatchSelector(consecutive(120, privacy), 12)) for privacy in (6, 4, 3)),
    )
    dropout = draw_dropout([0.1, 0.2, 0.3, 0.4, 0.5], 120, np.random.default_rng(0))
    return Simulation(120, 12, ROUNDS, schemes, IndependentDropout(dropout))


def selections_only(simulation: Simulation) -> float:
    """Return the seconds that one trial's draws and choices take, without any measure."""
    start = time.perf_counter()
    for scheme in simulation.schemes:
        rng, counts = np.random.default_rng(0), np.zeros(simulation.users, dtype=np.int64)
        online = simulation.availability.rounds(rng)
        for _ in range(simulation.rounds):
            cohort = scheme.selector.choose(next(online), counts, rng)
            if cohort is not None:
                counts[cohort.users] += 1
    return time.perf_counter() - start


def million() -> dict[str, float]:
    """A million users, K = 1000, T = 10, three in ten away, a thousand rounds."""
    users = 1_000_000
    scheme = Scheme("T10", BatchSelector(consecutive(users, 10), 1000))
    simulation = Simulation(users, 1000, 1000, (scheme,), IndependentDropout(np.full(users, 0.3)))
    start = time.perf_counter()
    trial = run_trial(simulation, scheme=0, trial=0)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "strong": float(trial.strong[-1]), "peak_MB": peak_megabytes()}


def run() -> dict[str, object]:
    """Time both."""
    simulation = paper()
    cores = os.cpu_count() or 1
    start = time.perf_counter()
    for _ in run_trials(simulation, TRIALS, cores):
        pass
    seconds = time.perf_counter() - start
    return {
        "what": f"simulate: 6 schemes, {TRIALS} trials, {ROUNDS} rounds, {cores} processes",
        "seconds": seconds,
        "bar_s": 60,
        "core_time_over_selections_alone": seconds * cores / (selections_only(simulation) * TRIALS),
        "a million users, a thousand rounds, one process": million(),
    }
