"""Which users a growing log singles out, by elimination modulo a prime: fast enough for every round."""

import numpy as np
from numpy.typing import ArrayLike

from coterie.values import IntArray
from coterie.values.log import learned_set

PRIME = 2**31 - 1
"""Products of two residues fit into 64 bits."""


class IsolatedUsers:
    """The users whose update alone is a combination of the sums learned so far, modulo a prime.

    User i is isolated if the unit vector e_i lies in the row space of P. In the reduced row echelon form that
    is a row whose only entry is in column i. The form is kept up to date: a new 0/1 row costs rank × N.

    Modulo a prime this is a measurement for simulations and not a proof: a log exists in which a user is
    isolated over the rationals and not modulo the prime. If *everyone* is isolated modulo a prime, that holds
    over the rationals too (a non-zero determinant modulo a prime is non-zero).

    >>> isolated = IsolatedUsers(users=3)
    >>> for members in ([0, 1], [1, 2], [0, 2]):
    ...     isolated.add(members)
    ...     print(isolated.users.tolist())
    []
    []
    [0, 1, 2]
    """

    def __init__(self, users: int) -> None:
        self._users = users
        self._reduced = np.zeros((0, users), dtype=np.int64)
        self._pivots: list[int] = []

    def add(self, members: ArrayLike) -> None:
        """Take in one more learned set."""
        row = np.zeros(self._users, dtype=np.int64)
        row[learned_set(members, self._users)] = 1
        # The row is 0/1 at the pivots, so reducing it is a subtraction of rows.
        row = (row - self._reduced[row[self._pivots] == 1].sum(axis=0)) % PRIME
        entries = np.flatnonzero(row)
        if len(entries) == 0:
            return
        pivot = int(entries[0])
        row = row * pow(int(row[pivot]), -1, PRIME) % PRIME
        touched = np.flatnonzero(self._reduced[:, pivot])
        factors = self._reduced[touched, pivot]
        self._reduced[np.ix_(touched, entries)] -= np.outer(factors, row[entries]) % PRIME
        self._reduced[np.ix_(touched, entries)] %= PRIME
        self._reduced = np.vstack((self._reduced, row))
        self._pivots.append(pivot)

    @property
    def rank(self) -> int:
        """The rank of the learned sets, modulo the prime."""
        return len(self._pivots)

    @property
    def users(self) -> IntArray:
        """The isolated users."""
        alone = np.count_nonzero(self._reduced, axis=1) == 1
        return np.sort(np.array(self._pivots, dtype=np.int64)[alone])
