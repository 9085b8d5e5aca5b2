"""Coterie: federated learning that stays private over many rounds."""

# The call takes the name of the room that it is made of, which is loaded by then: `from coterie.audit import …`
# imports from the room as before.
from coterie.auditing import audit
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
    "audit",
]
