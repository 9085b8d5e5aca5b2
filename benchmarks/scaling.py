"""What a sealed round costs clients and server, with hundreds of users, losses, and each inner protocol."""

from typing import Any

import numpy as np

from coterie.errors import TooFewUsers
from secagg import UPLOAD, Sealed, check, middle, timed_round


def scaling(inner: str, users: int, losses: float, dimension: int = 100_000) -> dict[str, Any]:
    """One sealed round of many users, of whom some are lost before they upload, in whole batches."""
    party = Sealed(users, inner)
    rng = np.random.default_rng(0)
    vector = rng.normal(0, 0.1, dimension).astype(np.float32).clip(-1, 1)
    vectors = dict.fromkeys(party.users, vector)
    lost = party.losing(round(losses * len(party.users)))
    try:
        result, spent = timed_round(party.round(0, dimension), party.clients, vectors, lost, UPLOAD[inner])
    except TooFewUsers as error:
        return {"users": len(party.users), "lost": len(lost), "gave": str(error)}
    check(result, vectors)
    left = [user for user in party.users if user not in lost]
    return {
        "users": len(party.users),
        "lost": len(lost),
        "included": sum(len(part.users) for part in result.learned),
        "client_s": middle(spent.clients[user] for user in left),
        "server_s": spent.server,
        "client_bytes_up": middle(spent.up[user] for user in left),
        "client_bytes_down": middle(spent.down[user] for user in left),
    }


def run() -> dict[str, object]:
    """Measure every protocol, size and share of losses."""
    return {
        "what": "sealed rounds (T=6) of 100 000 float32, one thread; users are lost before they upload",
        **{
            f"{inner}, {users} users, {losses:.0%} lost": scaling(inner, users, losses)
            for users in (100, 300, 1000)
            for inner in ("open", "secagg+", "secagg")
            for losses in (0.0, 0.1, 0.3)
        },
    }
