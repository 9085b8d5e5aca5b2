"""Whether rounds of SecAgg+ give a sum when exactly ⌊0.3 n⌋ users are lost between Share and Upload.

The graph is the real one, drawn anew for every round; who is lost is random, or random whole batches. Of every
user the shares that are left are counted: a round gives its sum if enough users agree, if every secret can be
opened, and if all who are left hang together.
"""

import hashlib
import time
from typing import Any

import numpy as np

from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.protocols.agreement.roster import Graph, sparse_neighbourhood

ROUNDS, BATCH = 10_000, 10
PARAMETERS = Parameters()


def gives_sum(users: int, number: int, group: int) -> tuple[bool, int]:
    """Play one round in which whole groups are lost; return whether it gives a sum, and the shares to spare."""
    graph = Graph(
        users, sparse_neighbourhood(users, PARAMETERS), Seed(hashlib.sha256(f"{users} {number}".encode()).digest())
    )
    rng = np.random.default_rng((users, number, group))
    lost = rng.permutation(users // group)[: PARAMETERS.most_lost(users) // group]
    left = np.flatnonzero(~np.isin(np.arange(users) // group, lost))
    shares = int(graph.count_holders(left).min())
    enough = len(left) >= max(PARAMETERS.threshold(users), 2 * group)
    spare = shares - graph.neighbourhood.shares_needed
    parts = graph.components(left, left // group)
    return enough and spare >= 0 and not parts.any(), spare


def losses(users: int, group: int, rounds: int) -> dict[str, Any]:
    """Play many rounds, with groups of one user (no seal) or whole batches."""
    start = time.perf_counter()
    played = [gives_sum(users, number, group) for number in range(rounds)]
    neighbourhood = sparse_neighbourhood(users, PARAMETERS)
    return {
        "users": users,
        "degree": neighbourhood.degree,
        "shares_needed": neighbourhood.shares_needed,
        "lost": PARAMETERS.most_lost(users) // group * group,
        "rounds": rounds,
        "sums": sum(good for good, _ in played),
        "fewest_shares_to_spare": min(spare for _, spare in played),
        "seconds": time.perf_counter() - start,
    }


def run() -> dict[str, object]:
    """Play 10 000 rounds of each kind."""
    return {
        "what": f"rounds of SecAgg+ with ⌊0.3 n⌋ users lost after sharing, alone or in whole batches of {BATCH}",
        **{
            f"{users} users, {kind}": losses(users, group, ROUNDS)
            for users in (100, 1000, 10_000)
            for kind, group in (("unsealed", 1), ("sealed", BATCH))
        },
    }
