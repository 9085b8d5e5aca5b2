"""One user's side of SecAgg and SecAgg+: Shamir's shares of a seed and of a key, and pairwise masks (§5)."""

from collections.abc import Iterable

from coterie.secagg.crypto.keys import MaskKey, Seed
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.crypto.shamir import SHARE_BYTES, split
from coterie.secagg.protocols.interface import Party
from coterie.secagg.protocols.pairwise.contents import commitments
from coterie.secagg.protocols.pairwise.messages import RosterLine, SharersCall, Sharing, Unmasking
from coterie.secagg.protocols.pairwise.pairs import pair_mask, seed_digest
from coterie.secagg.protocols.pairwise.participant import AgreedParticipant
from coterie.secagg.protocols.pairwise.roster import NeighbourhoodOf, Roster
from coterie.secagg.protocols.pairwise.sharing import sharing_tree
from coterie.secagg.wire.framing import encode


class PairwiseParticipant(AgreedParticipant):
    """A user in one round of SecAgg or SecAgg+."""

    def __init__(self, party: Party, neighbourhood_of: NeighbourhoodOf, threads: int) -> None:
        self._neighbourhood_of, self._mask_key = neighbourhood_of, MaskKey.generate()
        super().__init__(party, threads, self._mask_key.public)

    def _roster_of(self, lines: tuple[RosterLine, ...]) -> Roster:
        return Roster(self._setting, lines, self._neighbourhood_of)

    def _split(self, roster: Roster, mine: int) -> dict[int, bytes]:
        """Share the seed and the mask key."""
        holders = roster.graph.holders(mine)
        secrets = (self._seed.reveal(), self._mask_key.to_bytes())
        points = [place + 1 for place in holders]
        shares = split(secrets, roster.graph.neighbourhood.threshold, points, Seed.generate()).astype("<u4")
        return {place: share.tobytes() for place, share in zip(holders, shares, strict=True)}

    def _sharing(self, roster: Roster, mine: int, own: bytes, boxes: Iterable[bytes]) -> bytes:
        digest, boxes = seed_digest(self._setting.context, self._party.user, self._seed.reveal()), tuple(boxes)
        committed = commitments(own)
        tree = sharing_tree(digest + committed, boxes)
        signature = self._party.identity.sign("share", *roster.boxes(mine, tree.root))
        return encode(Sharing(*self._head, digest, committed, b"".join(boxes), signature))

    def _pair_masks(self, others: Iterable[RosterLine]) -> list[Mask]:
        return [pair_mask(self._roster, self._party.user, self._mask_key, line) for line in others]

    def _upload(self, message: SharersCall) -> memoryview | None:
        answer = super()._upload(message)
        del self._mask_key
        return answer

    def _opening(self) -> bytes:
        """Give seed shares of the included, and key shares of the excluded."""
        shares = [
            pair[:SHARE_BYTES] if place in self._included else pair[SHARE_BYTES:]
            for place, pair in sorted(self._shares.items())
        ]
        return encode(Unmasking(*self._head, b"".join(shares)))
