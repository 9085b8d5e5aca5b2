"""One round in the one right order; `secure` takes it to users with keys, `simulated` to users in memory."""

from coterie.coordinator.late import EndedRounds
from coterie.coordinator.order import Aggregation, Coordinator, RoundOutcome

__all__ = ["Aggregation", "Coordinator", "EndedRounds", "RoundOutcome"]
