"""Who shares masks and secrets with whom: everyone, or in SecAgg+ a few neighbours that nobody chose (§5)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32
from coterie.values import IntArray

SECURITY_BITS = 40


def degree(users: int) -> int:
    """Return k, the number of neighbours: the least 2h with 3^h ≥ 2^40·n, or all others if they are fewer.

    Users stand in a circle in a random order, and know the h before and the h after them. If a third of them are
    lost or collude, those left fall apart only if h in a row are gone, which for n places has a probability of at
    most n·3^-h ≤ 2^-40.

    >>> [degree(users) for users in (12, 50, 100, 1000, 10_000)]
    [11, 49, 60, 64, 68]
    """
    half = 0
    while 3**half < users << SECURITY_BITS:
        half += 1
    return min(2 * half, users - 1)


@dataclass(frozen=True)
class Complete:
    """The graph of SecAgg: everyone holds shares of everyone."""

    users: int

    def holders(self, position: int) -> tuple[int, ...]:
        """Return the neighbours of a user and the user itself, in ascending order."""
        del position
        return tuple(range(self.users))


@dataclass(frozen=True)
class Circle:
    """The graph of SecAgg+: users in an order that the seed decides, each with `degree / 2` on either side.

    The order is that of the first n words of 64 bits of the seed's keystream, smallest first.
    """

    users: int
    seed: Seed

    @cached_property
    def _order(self) -> IntArray:
        words = np.empty(2 * self.users, dtype="<u4")
        Keystream(self.seed, RING_32).words_into(words)
        return np.argsort(words.view("<u8"), kind="stable")

    @cached_property
    def _place(self) -> IntArray:
        return np.argsort(self._order)

    def holders(self, position: int) -> tuple[int, ...]:
        """Return the neighbours of a user and the user itself, in ascending order."""
        reach = degree(self.users)
        if reach == self.users - 1:
            return tuple(range(self.users))
        around = np.arange(-(reach // 2), reach // 2 + 1) + self._place[position]
        return tuple(np.sort(self._order[around % self.users]).tolist())


Graph = Complete | Circle
