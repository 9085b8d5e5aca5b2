"""What the server remembers: an append-only chain of records, in SQLite or PostgreSQL.

`Ledger` is what callers use, and `Snapshot` what they read. Beneath, `ledger` takes `events` from the chain,
`history` folds them into a state and holds the rules, and a store (SQLite in `store`, PostgreSQL in `postgres`)
keeps their bytes without knowing what they mean.

In: events: users, plans, charters, rounds opened and closed.
Out: a hash chain in SQLite or PostgreSQL, and a `Snapshot` of what it says.
"""

from coterie.federation.ledger.history import PLAIN, Phase, Round, Snapshot, State
from coterie.federation.ledger.ledger import Ledger
from coterie.federation.ledger.store import BusyError, DamagedError, Head, NotFoundError, StaleError

__all__ = [
    "PLAIN",
    "BusyError",
    "DamagedError",
    "Head",
    "Ledger",
    "NotFoundError",
    "Phase",
    "Round",
    "Snapshot",
    "StaleError",
    "State",
]  # fmt: skip
