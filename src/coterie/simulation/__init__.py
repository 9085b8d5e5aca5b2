"""Schemes × trials × rounds: the three measures of selection schemes under any availability."""

from coterie.simulation.processes import run_trials
from coterie.simulation.result import SimulationResult, check_size, simulate
from coterie.simulation.setting import Scheme, Simulation, room_for_newcomers
from coterie.simulation.summary import Summary, record
from coterie.simulation.trial import MEASURES, MOST_USERS_FOR_ISOLATION, Trial, run_trial, trial_log

__all__ = [
    "MEASURES",
    "MOST_USERS_FOR_ISOLATION",
    "Scheme",
    "Simulation",
    "SimulationResult",
    "Summary",
    "Trial",
    "check_size",
    "record",
    "room_for_newcomers",
    "run_trial",
    "run_trials",
    "simulate",
    "trial_log",
]
