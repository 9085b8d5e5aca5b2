"""One round in the one right order; `aggregation` takes it to users with keys, `simulated` to users in memory.

In: a selector, a ledger, a way to reach users.
Out: rounds that were asked, summed and recorded, in that order.
"""

from coterie.coordinator.coordinator import Aggregation, Coordinator, EndedRounds, RoundOutcome

__all__ = ["Aggregation", "Coordinator", "EndedRounds", "RoundOutcome"]
