"""Coterie: federated learning that stays private over many rounds."""

from coterie.errors import CoterieError, UsageError
from coterie.values import AvailabilityLog, BatchPlan, Cohort, LogBuilder, ParticipationLog

__version__ = "0.1.0"

__all__ = [
    "AvailabilityLog",
    "BatchPlan",
    "Cohort",
    "CoterieError",
    "LogBuilder",
    "ParticipationLog",
    "UsageError",
    "__version__",
]
