"""Schemes × trials × rounds: the three measures of selection schemes under any availability.

In: schemes, a model of availability, the number of rounds and trials.
Out: T, F, C, isolated users and skipped rounds of each scheme, with their spread.
"""

from coterie.simulation.result import SimulationResult, Summary, check_size, simulate
from coterie.simulation.setting import Scheme, Simulation, room_for_newcomers, selector_name
from coterie.simulation.trial import MEASURES, MOST_USERS_FOR_ISOLATION, Trial, run_trial, run_trials, trial_log

__all__ = [
    "MEASURES",
    "MOST_USERS_FOR_ISOLATION",
    "Scheme",
    "Simulation",
    "SimulationResult",
    "Summary",
    "Trial",
    "check_size",
    "room_for_newcomers",
    "run_trial",
    "run_trials",
    "selector_name",
    "simulate",
    "trial_log",
]
