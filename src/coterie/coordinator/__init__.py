"""One round in the one right order; `secure` takes it to users with keys, `simulated` to users in memory."""

from coterie.coordinator.order import Aggregation, Coordinator, Gathered, Outcome

__all__ = ["Aggregation", "Coordinator", "Gathered", "Outcome"]
