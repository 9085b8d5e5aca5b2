"""What the server does with the shares of the last phase: secrets back from shares, masks off the sum (§5)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from coterie.errors import TooFewUsers
from coterie.secagg.crypto.keys import MaskKey, Seed
from coterie.secagg.crypto.masking import Mask, add_masks
from coterie.secagg.crypto.ring import Ring, Words
from coterie.secagg.crypto.shamir import LIMBS, combine_all
from coterie.secagg.protocols.pairwise.pairs import pair_mask, seed_digest
from coterie.secagg.protocols.pairwise.roster import Roster, least_of
from coterie.values import IntArray

MASKS_AT_ONCE = 256
"""Masks that are taken off in one pass over the sum: each needs a cipher of its own while it lasts."""


@dataclass(frozen=True)
class Shares:
    """All shares that came, one row for each: whose secret it belongs to, who held it, and its limbs."""

    owners: IntArray
    holders: IntArray
    limbs: Words

    @classmethod
    def gathered(cls, held: Mapping[int, tuple[tuple[int, ...], Words]]) -> "Shares":
        """Take the shares of each holder, given with their owners; rows are sorted by owner, then by holder."""
        owners = np.array([owner for places, _ in held.values() for owner in places], dtype=np.int64)
        holders = np.repeat(np.array(list(held), dtype=np.int64), [len(places) for places, _ in held.values()])
        limbs = np.concatenate([shares for _, shares in held.values()] or [np.empty((0, LIMBS), np.uint32)])
        order = np.lexsort((holders, owners))
        return cls(owners[order], holders[order], limbs[order])

    def secrets(self, owners: Iterable[int], threshold: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the secret of each owner, from its first `threshold` shares; TooFewUsers if it has fewer."""
        wanted = np.array(tuple(owners), dtype=np.int64)
        starts, ends = (np.searchsorted(self.owners, wanted, side) for side in ("left", "right"))
        if len(wanted) == 0:
            return
        if (ends - starts).min() < threshold:
            raise TooFewUsers(
                f"{(ends - starts).min()} shares of a user's secret came; {threshold} are needed to open it"
            )
        rows = starts[:, np.newaxis] + np.arange(threshold)
        points = self.holders[rows] + 1
        if (points == points[0]).all():  # everyone's shares are at the same points: one basis for all
            points = points[:1]
        yield from zip(wanted.tolist(), combine_all(points, self.limbs[rows]), strict=True)


def unmask(  # noqa: PLR0917 - a sum, its ring, and all that opens it
    total: Words,
    ring: Ring,
    roster: Roster,
    shares: Shares,
    seed_digests: Mapping[int, bytes],
    included: frozenset[int],
    *,
    threads: int,
) -> None:
    """Take all masks off the sum over the included users that did not cancel in it.

    Those are the self masks of the included users, and the masks that they have in common with sharers who are
    excluded: `seed_digests` has all sharers. A secret that comes out wrong ends the round.
    """
    masks = _left(roster, shares, seed_digests, included)
    while some := list(islice(masks, MASKS_AT_ONCE)):
        add_masks(total, some, ring, threads=threads)


def _left(
    roster: Roster, shares: Shares, seed_digests: Mapping[int, bytes], included: frozenset[int]
) -> Iterator[Mask]:
    """Yield every mask that is left in the sum, with the sign that removes it."""
    threshold = least_of(len(roster.graph.holders(0)))

    def right_seed(place: int, secret: bytes) -> bool:
        return seed_digest(roster.context, roster.lines[place].user, secret) == seed_digests[place]

    for _, secret in _checked(shares.secrets(sorted(included), threshold), roster, right_seed):
        yield Mask(Seed(secret), -1)
    near = {place: included.intersection(roster.graph.holders(place)) for place in seed_digests.keys() - included}
    needed = sorted(place for place, neighbours in near.items() if neighbours)

    def right_key(place: int, secret: bytes) -> bool:
        return MaskKey.from_bytes(secret).public == roster.lines[place].mask_key

    for place, secret in _checked(shares.secrets(needed, threshold), roster, right_key):
        key, user = MaskKey.from_bytes(secret), roster.lines[place].user
        # The excluded user's own sign is the opposite of the one in the included user's vector.
        yield from (pair_mask(roster, user, key, roster.lines[other]) for other in sorted(near[place]))


def _checked(
    secrets: Iterator[tuple[int, bytes | None]], roster: Roster, right: Callable[[int, bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    for place, secret in secrets:
        if secret is None or not right(place, secret):
            raise TooFewUsers(
                f"a holder sent a wrong share: what {roster.lines[place].user!r} shared does not come out"
            )
        yield place, secret
