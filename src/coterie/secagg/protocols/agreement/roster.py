"""The roster of a round, fixed once users have advertised, and who of it holds shares of whom (§5)."""

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import comb
from typing import ClassVar, TypeAlias

import numpy as np

from coterie.errors import PeerError
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import KEY_BYTES, MaskKey, Seed, ShareKey, check_exchange_key, verify_signature
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32
from coterie.secagg.protocols.agreement.messages import Positions, RosterLine
from coterie.secagg.protocols.interface import RoundSetting
from coterie.values import IntArray

TAG_BYTES = 16
SECRECY_BITS = 41
"""A secret in colluders' hands, or honest users who fall apart: each has a probability of at most 2^-41."""
RECOVERY_BITS = 20
"""A secret with too few holders left has a probability of at most 2^-20."""


@dataclass(frozen=True)
class Neighbourhood:
    """How many neighbours every user has, and how many shares open a secret (k and t')."""

    degree: int
    shares_needed: int


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
    [Neighbourhood(degree=6, shares_needed=3), Neighbourhood(degree=48, shares_needed=21)]
    """
    colluding, lost = parameters.most_colluding(users), parameters.most_lost(users)
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
    def _circle_slot(self) -> IntArray:
        """Where on the circle each user stands."""
        return np.argsort(self._order)

    def holders(self, position: int) -> tuple[int, ...]:
        """Return the neighbours of a user and the user itself, in ascending order."""
        if self.is_complete:
            return tuple(range(self.users))
        half = self.neighbourhood.degree // 2
        around = np.arange(-half, half + 1) + self._circle_slot[position]
        return tuple(np.sort(self._order[around % self.users]).tolist())

    def neighbours(self, position: int) -> tuple[int, ...]:
        """Return the neighbours of a user, in ascending order."""
        if self.is_complete:
            return (*range(position), *range(position + 1, self.users))
        if position not in self._near:
            self._near[position] = tuple(holder for holder in self.holders(position) if holder != position)
        return self._near[position]

    @cached_property
    def _near(self) -> dict[int, tuple[int, ...]]:
        """The neighbours of users who were asked for."""
        return {}

    def index(self, owner: int, neighbour: int) -> int:
        """Return which of an owner's neighbours a user is, counted from 0 in ascending order."""
        if self.is_complete:
            return neighbour - (neighbour > owner)
        return bisect_left(self.neighbours(owner), neighbour)

    def indices(self, owners: Sequence[int], neighbour: int) -> IntArray:
        """Return which of each owner's neighbours a user is."""
        if self.is_complete:
            return neighbour - (np.array(owners, dtype=np.int64) < neighbour)
        return np.array([self.index(owner, neighbour) for owner in owners], dtype=np.int64)

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

        along = np.argsort(self._circle_slot[users])
        slots = self._circle_slot[users][along]
        gaps = np.diff(slots, append=slots[0] + self.users) > self.neighbourhood.degree // 2
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


def encode_positions(positions: Iterable[int]) -> bytes:
    """Return users as they are signed: the position of each, 4 bytes, little-endian."""
    return np.array(tuple(positions), dtype="<u4").tobytes()


def check_positions(positions: Positions, users: int, what: str) -> None:
    """Refuse a list that names a user whom the roster does not have, or not in ascending order, each once."""
    if positions and positions[-1] >= users:
        raise PeerError(f"the server's {what} name user {positions[-1]} of a roster of {users}")
    if any(later <= earlier for earlier, later in pairwise(positions)):
        raise PeerError(f"the server's {what} are not in ascending order, or name a user twice")


@dataclass(frozen=True)
class BoxFormat:
    """The format of all boxes of a round: the public half of a box's key, encrypted content, commitments.

    That of secagg and secagg+ is `pairwise.PAIRS`; what a sender signs is the root of a tree over the digests.
    """

    content_bytes: int
    commitment_bytes: int
    commit: Callable[[bytes, bytes], bytes]
    """What a sender commits to beside the box, and everyone may see, from the content and the box before it."""
    is_valid_content: Callable[[bytes], bool]
    """Whether bytes of this length can be content."""
    box_digests: Callable[[memoryview, int], bytes]
    """The digests of boxes of a size, which their sender signs."""

    @property
    def ciphertext_end(self) -> int:
        """Where the commitments begin."""
        return KEY_BYTES + self.content_bytes + TAG_BYTES

    @property
    def box_bytes(self) -> int:
        """How long a box is."""
        return self.ciphertext_end + self.commitment_bytes


Statement: TypeAlias = tuple[str, *tuple[bytes | str, ...]]
"""A purpose, and what is signed for it."""


@dataclass(frozen=True)
class Roster(ABC):
    """The users of one round in the order of their ids' bytes; a user is named by its position, counted from 0."""

    setting: RoundSetting
    lines: tuple[RosterLine, ...]
    has_masks: ClassVar[bool]
    """Whether two users have a mask in common, and everyone a key for that."""
    neighbourhood_of = staticmethod(complete_neighbourhood)
    """How many neighbours and shares there are among so many users: what SecAgg and SecAgg+ differ in."""

    @property
    @abstractmethod
    def box_format(self) -> BoxFormat:
        """What its users' boxes hold."""

    @property
    def context(self) -> bytes:
        """What every key, signature and message of the round is tied to."""
        return self.setting.context

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the context and all lines but their signatures."""
        lines = (enc(line.user, line.identity, line.mask_key, line.share_key) for line in self.lines)
        return hashlib.sha256(enc("coterie/v2/roster", self.context, len(self.lines), *lines)).digest()

    @cached_property
    def position(self) -> dict[str, int]:
        """Every user's position in the roster."""
        return {line.user: position for position, line in enumerate(self.lines)}

    @property
    def users_needed(self) -> int:
        """How many users of the whole roster must share, and then sign an agreement (t)."""
        return self.setting.parameters.threshold(len(self.lines))

    @cached_property
    def graph(self) -> Graph:
        """Who holds shares of whom; no message can change it."""
        neighbourhood = self.neighbourhood_of(len(self.lines), self.setting.parameters)
        return Graph(len(self.lines), neighbourhood, Seed(hashlib.sha256(self.context + self.digest).digest()))

    def boxes_to_sign(self, position: int, root: bytes) -> Statement:
        """Return what a user signs for all its boxes."""
        return "share", self.context, self.digest, self.lines[position].user, root

    def complaint_to_sign(self, sender: int, holder: int, box_digest: bytes) -> Statement:
        """Return what a holder signs who complains about a sender's box."""
        users = (self.lines[sender].user, self.lines[holder].user)
        return "complaint", self.context, self.digest, *users, box_digest

    def upload_to_sign(self, sharers: Positions) -> Statement:
        """Return what is signed with a vector: which masks it has follows from that."""
        return "upload", self.context, self.digest, encode_positions(sharers)

    def agreement_to_sign(
        self, sharers: Iterable[int], included: Iterable[int], excluded: Iterable[int]
    ) -> Statement:
        """Return what is signed in an agreement."""
        lists = (encode_positions(sharers), encode_positions(included), encode_positions(excluded))
        return "agree", self.context, self.digest, *lists

    def verify(self, position: int, signature: bytes, statement: Statement) -> None:
        """Refuse a statement that the user in this position did not sign."""
        line = self.lines[position]
        verify_signature(line.identity, signature, *statement, who=line.user)


def check_line(line: RosterLine, context: bytes, *, masks: bool = True) -> None:
    """Refuse keys of low order, and keys that the line's identity did not sign for this round.

    `masks` says whether there is a key for pairwise masks.
    """
    if masks:
        check_exchange_key(line.mask_key, MaskKey.kind, line.user)
    elif line.mask_key:
        raise PeerError(f"{line.user!r} has a mask key, and this round has no pairwise masks")
    check_exchange_key(line.share_key, ShareKey.kind, line.user)
    signed = (context, line.user, line.mask_key, line.share_key)
    verify_signature(line.identity, line.signature, "advertise", *signed, who=line.user)
