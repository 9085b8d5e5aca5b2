"""Who shares masks and secrets with whom: everyone, or in SecAgg+ a few neighbours that nobody chose (§5)."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, cached_property
from math import comb

import numpy as np

from coterie.secagg.batch.parameters import Parameters
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32
from coterie.values import IntArray

SECRECY_BITS = 41
"""A secret in colluders' hands, or honest users who fall apart: each has a probability of at most 2^-41."""
RECOVERY_BITS = 20
"""A secret with too few holders left has a probability of at most 2^-20."""


@dataclass(frozen=True)
class Neighbourhood:
    """How many neighbours every user has, and how many shares open a secret (k and t')."""

    degree: int
    threshold: int


def complete_neighbourhood(users: int, parameters: Parameters) -> Neighbourhood:
    """Return that of SecAgg: everyone is everyone's neighbour, and secrets need as many users as agreements."""
    return Neighbourhood(users - 1, parameters.threshold(users))


@cache
def sparse_neighbourhood(users: int, parameters: Parameters) -> Neighbourhood:
    """Return that of SecAgg+: the least even k, and with it the least t', for which all this holds.

    Users stand in a circle in a random order, with the k/2 before and the k/2 after them as neighbours, so the
    neighbours of one user are a random k of the n - 1 others. Of all n users c = ⌊γn⌋ collude and ⌊δn⌋ are lost,
    whoever they are but chosen without a look at the graph.

    - Some user has t' colluding neighbours: at most n·Pr[Hyp(n - 1, c, k) ≥ t'] ≤ 2^-41.
    - Some lost user, who gives no share of its own, has fewer than t' neighbours left: at most
      n·Pr[Hyp(n - 1, n - ⌊δn⌋, k) < t'] ≤ 2^-20. A user who is left gives its own share, and fares no worse.
    - The honest users who are left fall apart, for which k/2 in a row must be gone at two places of the circle: at
      most n(n - 1)/2·Pr[k given places are all gone] ≤ 2^-41.

    Whole numbers only: every device must find the same.

    >>> [sparse_neighbourhood(users, Parameters()) for users in (12, 100)]
    [Neighbourhood(degree=6, threshold=3), Neighbourhood(degree=48, threshold=21)]
    """
    colluding, lost = parameters.colluding(users), parameters.lost(users)
    for degree in range(2, users - 1, 2):
        threshold = _safe_threshold(users, colluding, degree)
        if _recovers(users, lost, degree, threshold) and _connected(users, colluding + lost, degree):
            return Neighbourhood(degree, threshold)
    return complete_neighbourhood(users, parameters)


def _safe_threshold(users: int, colluding: int, degree: int) -> int:
    """Return the least t' with n·Pr[Hyp(n - 1, c, k) ≥ t'] ≤ 2^-41; never 1, which would be no secret."""
    honest, count = users - 1 - colluding, min(degree, colluding)
    choices = comb(colluding, count) * comb(honest, degree - count)
    tail, bound = choices, comb(users - 1, degree)
    while users * tail << SECRECY_BITS <= bound:
        # The ways for one colluder fewer follow from those for `count`, without a remainder.
        choices = choices * count * (honest - degree + count) // ((colluding - count + 1) * (degree - count + 1))
        count -= 1
        tail += choices
    return max(count + 1, 2)


def _recovers(users: int, lost: int, degree: int, threshold: int) -> bool:
    """Whether a lost user has t' neighbours left, but for 2^-20 over all users."""
    others_lost = max(lost - 1, 0)
    left = users - 1 - others_lost
    fewest = max(degree - others_lost, 0)
    short = sum(comb(left, count) * comb(others_lost, degree - count) for count in range(fewest, threshold))
    return degree >= threshold and users * short << RECOVERY_BITS <= comb(users - 1, degree)


def _connected(users: int, absent: int, degree: int) -> bool:
    """Whether those who are left hang together, but for 2^-41."""
    if absent < degree:
        return True
    pairs = users * (users - 1) // 2
    return pairs * comb(users - degree, absent - degree) << SECRECY_BITS <= comb(users, absent)


@dataclass(frozen=True)
class Graph:
    """Users in a circle, in an order that the seed decides, each with half of its neighbours on either side.

    The order is that of the first n words of 64 bits of the seed's keystream, smallest first.
    """

    users: int
    neighbourhood: Neighbourhood
    seed: Seed

    @property
    def is_complete(self) -> bool:
        """Whether all are neighbours of all."""
        return self.neighbourhood.degree == self.users - 1

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
        if self.is_complete:
            return tuple(range(self.users))
        half = self.neighbourhood.degree // 2
        around = np.arange(-half, half + 1) + self._place[position]
        return tuple(np.sort(self._order[around % self.users]).tolist())

    def neighbours(self, position: int) -> tuple[int, ...]:
        """Return the neighbours of a user, in ascending order."""
        return tuple(holder for holder in self.holders(position) if holder != position)

    def index(self, owner: int, neighbour: int) -> int:
        """Return which of an owner's neighbours a user is, counted from 0 in ascending order."""
        if self.is_complete:
            return neighbour - (neighbour > owner)
        if owner not in self._sorted:
            self._sorted[owner] = self.neighbours(owner)
        return bisect_left(self._sorted[owner], neighbour)

    @cached_property
    def _sorted(self) -> dict[int, tuple[int, ...]]:
        return {}

    def count_holders(self, present: IntArray) -> IntArray:
        """Return for every user how many of its holders, itself among them, are present."""
        marks = np.zeros(self.users, dtype=np.int64)
        marks[present] = 1
        if self.is_complete:
            return np.full(self.users, marks.sum())
        half = self.neighbourhood.degree // 2
        around = np.concatenate(
            ([0], np.cumsum(marks[np.take(self._order, np.arange(-half, self.users + half), mode="wrap")]))
        )
        counts = np.empty_like(marks)
        counts[self._order] = around[2 * half + 1 :] - around[: self.users]
        return counts

    def components(self, users: IntArray, groups: IntArray) -> IntArray:
        """Return the component of each of some users, as a number, if those of one group are one node.

        Two of them hang together if they are neighbours: along the circle, as long as no k/2 in a row are missing.
        `groups` has a number for each user's group.
        """
        if self.is_complete or len(users) == 0:
            return np.zeros(len(users), dtype=np.int64)
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        along = np.argsort(self._place[users])
        places = self._place[users][along]
        gaps = np.diff(places, append=places[0] + self.users) > self.neighbourhood.degree // 2
        arcs = np.empty(len(users), dtype=np.int64)
        arcs[along] = np.concatenate(([0], np.cumsum(gaps[:-1])))
        if not gaps[-1]:  # the circle closes: the last arc goes on into the first
            arcs[arcs == arcs.max()] = 0
        _, nodes = np.unique(groups, return_inverse=True)
        size = len(users)
        edges = coo_array((np.ones(size), (arcs, size + nodes)), shape=(2 * size, 2 * size))
        _, parts = connected_components(edges, directed=False)
        _, numbers = np.unique(parts[arcs], return_inverse=True)
        return numbers
