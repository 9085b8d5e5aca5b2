"""The values that everything else passes around: frozen, array-backed, without I/O."""

from coterie.values.arrays import BoolArray, FloatArray, IntArray
from coterie.values.availability import AvailabilityLog
from coterie.values.log import LogBuilder, ParticipationLog
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
