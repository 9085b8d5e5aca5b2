"""Logs to audit: small ones of every kind, and those on which arithmetic that is not exact goes wrong."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from coterie import LogBuilder, ParticipationLog


@st.composite
def small_logs(draw):
    """Logs of up to 7 users: shared columns (batches), sets that repeat or are sums of others, many in a round."""
    users = draw(st.integers(1, 7))
    row = st.lists(st.integers(0, 1), min_size=users, max_size=users)
    rows = draw(st.lists(row, min_size=1, max_size=7))
    if draw(st.booleans()):  # users in batches
        batch_of = draw(st.lists(st.integers(0, users - 1), min_size=users, max_size=users))
        rows = [[row[batch] for batch in batch_of] for row in rows]
    if draw(st.booleans()):  # dependence: a repeated row, and the union of two that do not meet
        rows.append(rows[0])
        sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairwise(rows)]
        rows.extend(row for row in sums if max(row) < 2)
    steps = draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    return ParticipationLog.from_dense(rows, rounds=np.cumsum(steps))


def doubling_cycle(doublings):
    """A log of 3k users: everyone is isolated over the rationals and, if 2^k - 1 is prime, nobody modulo it.

    Users x_i, y_i, z_i for each i; the sums {x_i, y_i}, {x_i, z_i} and {x_(i+1), y_i, z_i} vanish only if
    y_i = z_i = -x_i and x_(i+1) = 2 x_i, around the cycle: x_0 = 2^k x_0. Modulo 2^k - 1 that holds with every x_i
    a power of two; over the rationals only with 0.
    """
    log = LogBuilder(3 * doublings)
    for i in range(doublings):
        x, y, z, following = 3 * i, 3 * i + 1, 3 * i + 2, 3 * ((i + 1) % doublings)
        for members in ([x, y], [x, z], [following, y, z]):
            log.append(members)
    return log.build()


def doubling_chain(doublings):
    """A log of 3k + 1 users with T = 2 (the same without closing the cycle): null vectors are multiples of 2^i."""
    log = LogBuilder(3 * doublings + 1)
    for i in range(doublings):
        x, y, z = 3 * i, 3 * i + 1, 3 * i + 2
        for members in ([x, y], [x, z], [x + 3, y, z]):
            log.append(members)
    return log.build()


def random_selection(users, per_round, rounds, rng):
    """A log of uniformly drawn cohorts."""
    log = LogBuilder(users)
    for _ in range(rounds):
        log.append(rng.choice(users, per_round, replace=False))
    return log.build()


def planted(users, rounds, weight, rng):
    """Rows over `users` users with a vector of the given weight in their row space: a round less another one.

    The two rounds differ in `weight` users and the rest are dense, so that a lighter vector is unlikely.
    """
    rows = (rng.random((rounds, users)) < 0.5).astype(int)
    light = rng.choice(users, weight, replace=False)
    rows[1] = rows[0]
    rows[1, light] = 1 - rows[0, light]
    return rows[rng.permutation(rounds)]


def dense(log):
    """The rows of a log as lists: a row per learned set, and one of zeros for a round without a result."""
    return np.asarray(log.to_dense(), dtype=int).tolist()


def learned(log):
    """The learned sets of a log as lists of 0 and 1."""
    return [row for row in dense(log) if any(row)]
