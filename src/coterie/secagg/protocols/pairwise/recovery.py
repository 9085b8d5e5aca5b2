"""What the server does with the shares of the last phase: secrets back from shares, masks off the sum (§5)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from coterie.errors import TooFewUsers
from coterie.secagg.crypto.keys import MaskKey, Seed
from coterie.secagg.crypto.masking import Mask, add_masks
from coterie.secagg.crypto.ring import Ring, Words
from coterie.secagg.crypto.shamir import LIMBS, combine_all, correct
from coterie.secagg.protocols.pairwise.pairs import pair_mask, seed_digest
from coterie.secagg.protocols.pairwise.roster import Roster
from coterie.values import IntArray

MASKS_AT_ONCE = 256
"""Masks that are taken off in one pass over the sum: each needs a cipher of its own while it lasts."""

IsRight = Callable[[int, bytes], bool]
"""Whether a secret is the one that the user in this place shared."""


@dataclass(frozen=True)
class Shares:
    """All shares that came and are right, one row for each: whose secret it belongs to, who held it, its limbs."""

    owners: IntArray
    holders: IntArray
    limbs: Words

    @classmethod
    def of_holders(cls, by_holder: Mapping[int, tuple[list[int], Words]]) -> "Shares":
        """Take the shares of each holder, given with their owners; rows are sorted by owner, then by holder."""
        owners = np.array([owner for places, _ in by_holder.values() for owner in places], dtype=np.int64)
        counts = [len(places) for places, _ in by_holder.values()]
        holders = np.repeat(np.array(list(by_holder), dtype=np.int64), counts)
        limbs = np.concatenate([shares for _, shares in by_holder.values()] or [np.empty((0, LIMBS), np.uint32)])
        order = np.lexsort((holders, owners))
        return cls(owners[order], holders[order], limbs[order])


class Recovery:
    """Secrets that come back from shares, each of which is the one that its owner committed to."""

    def __init__(self, roster: Roster, shares: Shares) -> None:
        self._roster, self._shares = roster, shares
        self._threshold = roster.graph.neighbourhood.threshold
        self.liars: dict[int, str] = {}
        """Users who committed to shares that lie on no one polynomial."""

    def secrets(self, owners: list[int], is_right: IsRight) -> Iterator[tuple[int, bytes]]:
        """Yield the secret of each owner, from its first shares; TooFewUsers if one does not come out."""
        if not owners:
            return
        owner_places, shares = np.array(owners, dtype=np.int64), self._shares
        starts, ends = (np.searchsorted(shares.owners, owner_places, side) for side in ("left", "right"))
        fewest = int((ends - starts).min())
        if fewest < self._threshold:
            raise TooFewUsers(f"{fewest} shares of a user's secret came; {self._threshold} are needed to open it")
        rows = starts[:, np.newaxis] + np.arange(self._threshold)
        points = shares.holders[rows] + 1
        if (points == points[0]).all():  # everyone's shares are at the same points: one basis for all
            points = points[:1]
        secrets = combine_all(points, shares.limbs[rows])
        for owner, secret, start, end in zip(owners, secrets, starts.tolist(), ends.tolist(), strict=True):
            if secret is not None and is_right(owner, secret):
                yield owner, secret
            else:
                yield owner, self._corrected(owner, slice(start, end), is_right)

    def _corrected(self, owner: int, rows: slice, is_right: IsRight) -> bytes:
        """Return a secret whose owner committed to some wrong shares: it lied, and nobody else did."""
        user = self._roster.lines[owner].user
        self.liars[owner] = "shared a secret in pieces that do not belong together"
        points, limbs = (self._shares.holders[rows] + 1).tolist(), self._shares.limbs[rows]
        corrected = correct(points, limbs, self._threshold)
        if corrected is None or not is_right(owner, corrected[0]):
            raise TooFewUsers(f"{user} {self.liars[owner]}: its secret does not come out of {len(limbs)} shares")
        return corrected[0]


def unmask(
    total: Words,
    ring: Ring,
    recovery: Recovery,
    roster: Roster,
    masked: "Masked",
    *,
    threads: int,
) -> None:
    """Take all masks off the sum over the included users that did not cancel in it.

    Those are the self masks of the included users, and the masks that they have in common with sharers who are
    excluded. A secret that does not come out ends the round.
    """
    masks = _left(recovery, roster, masked)
    while some := list(islice(masks, MASKS_AT_ONCE)):
        add_masks(total, some, ring, threads=threads)


@dataclass(frozen=True)
class Masked:
    """Whose masks are in a sum: the included users and the excluded sharers, and the digests of their seeds."""

    included: frozenset[int]
    excluded: frozenset[int]
    seed_digest: Callable[[int], bytes]


def _left(recovery: Recovery, roster: Roster, masked: Masked) -> Iterator[Mask]:
    """Yield every mask that is left in the sum, with the sign that removes it."""

    def right_seed(place: int, secret: bytes) -> bool:
        return seed_digest(roster.context, roster.lines[place].user, secret) == masked.seed_digest(place)

    def right_key(place: int, secret: bytes) -> bool:
        return MaskKey.from_bytes(secret).public == roster.lines[place].mask_key

    for _, secret in recovery.secrets(sorted(masked.included), right_seed):
        yield Mask(Seed(secret), -1)
    near = {place: masked.included.intersection(roster.graph.neighbours(place)) for place in masked.excluded}
    needed = sorted(place for place, neighbours in near.items() if neighbours)
    for place, secret in recovery.secrets(needed, right_key):
        key, user = MaskKey.from_bytes(secret), roster.lines[place].user
        # The excluded user's own sign is the opposite of the one in the included user's vector.
        yield from (pair_mask(roster, user, key, roster.lines[other]) for other in sorted(near[place]))
