"""What the server remembers: an append-only chain of records, in SQLite or PostgreSQL.

`Ledger` is what callers use, and `Snapshot` what they read. Beneath, `history` folds `events` into a state and
holds the rules, `bodies` turns events into bytes, and a `Store` (`sqlite`, `postgres`) keeps these without knowing
what they mean.
"""

from coterie.ledger.interface import Behind, Busy, Damaged, Head
from coterie.ledger.ledger import Ledger
from coterie.ledger.rounds import Round, State
from coterie.ledger.snapshot import Snapshot

__all__ = ["Behind", "Busy", "Damaged", "Head", "Ledger", "Round", "Snapshot", "State"]
