"""What a sealed round costs clients and server, for each inner protocol, with many users and losses."""

import statistics
from typing import Any

import numpy as np
from rounds import PRIVACY, Sealed, timed_round

from coterie.errors import TooFewUsers
from coterie.secagg import PROTOCOLS

DIMENSION = 100_000
LOSSES = (0.0, 0.1, 0.3)
USERS = (12, 100)
MANY = 1000
"""Measured only where a user does not work for every other one: all others would take hours."""


def scaling(inner: str, users: int, losses: float) -> dict[str, Any]:
    """One sealed round of many users, of whom some are lost before they upload, in whole batches."""
    party = Sealed(users, inner)
    rng = np.random.default_rng(0)
    vector = rng.normal(0, 0.1, DIMENSION).astype(np.float32).clip(-1, 1)
    lost = frozenset(party.users[: round(losses * len(party.users)) // PRIVACY * PRIVACY])
    size = {"users": len(party.users), "lost": len(lost)}
    try:
        result, spent = timed_round(party, 0, dict.fromkeys(party.users, vector), lost)
    except TooFewUsers as error:
        return {**size, "no_sum": str(error)}
    left = [user for user in party.users if user not in lost]
    return {
        **size,
        "included": sum(len(part.users) for part in result.learned),
        "client_s": statistics.median(spent.clients[user] for user in left),
        "server_s": spent.server,
        "client_bytes_up": statistics.median(spent.up[user] for user in left),
        "client_bytes_down": statistics.median(spent.down[user] for user in left),
        "messages": spent.messages,
    }


def run() -> dict[str, object]:
    """Measure every protocol, size and share of losses."""
    return {
        "what": f"sealed rounds (T={PRIVACY}) of {DIMENSION} float32, one thread, whole batches lost at upload",
        **{
            f"{inner}, {users} users, {losses:.0%} lost": scaling(inner, users, losses)
            for users in (*USERS, MANY)
            for inner, protocol in PROTOCOLS.items()
            for losses in LOSSES
            if users < MANY or protocol.phases == 1
        },
    }
