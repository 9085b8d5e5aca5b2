"""What the server remembers: an append-only chain of records, in SQLite or PostgreSQL.

`Ledger` is what callers use. Beneath it, `history` folds `events` into a state and holds the rules, `bodies` and
`packing` turn events into bytes, and a `Store` (`sqlite`, `postgres`) keeps these without knowing what they mean.
"""

from coterie.ledger.interface import Behind, Busy, Damaged, Head
from coterie.ledger.ledger import Ledger
from coterie.ledger.rounds import Round, State

__all__ = ["Behind", "Busy", "Damaged", "Head", "Ledger", "Round", "State"]
