"""The values that everything else passes around: frozen, array-backed, without I/O.

In: arrays and names.
Out: frozen plans, cohorts and logs, checked once.
"""

from coterie.values.checks import BoolArray, FloatArray, IntArray
from coterie.values.log import AvailabilityLog, LogBuilder, ParticipationLog
from coterie.values.plan import BatchPlan, Cohort

__all__ = [
    "AvailabilityLog",
    "BatchPlan",
    "BoolArray",
    "Cohort",
    "FloatArray",
    "IntArray",
    "LogBuilder",
    "ParticipationLog",
]
