"""The server's side of the boxes: it checks their signatures, passes them on, and judges complaints (§5)."""

from collections.abc import Sequence

import numpy as np

from coterie.errors import PeerError
from coterie.secagg.crypto.keys import KEY_BYTES, verify_signature
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols.pairwise.boxes import (
    BOX_BYTES,
    Route,
    box_commitments,
    key_commitment,
    seed_commitment,
)
from coterie.secagg.protocols.pairwise.merkle import DIGEST_BYTES, MerkleTree
from coterie.secagg.protocols.pairwise.messages import Complaint, Complaints, Positions, Receipt, Reveal, Sharing
from coterie.secagg.protocols.pairwise.roster import Roster
from coterie.secagg.protocols.pairwise.sharing import check_complaints, sharing_tree


class BoxExchange:
    """All boxes of a round, by sender, and the complaints about them, by sender and holder."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._sharings: dict[int, Sharing] = {}
        self._trees: dict[int, MerkleTree] = {}
        self._complaints: dict[int, dict[int, Complaint]] = {}
        self._keys: dict[int, bytes] = {}

    @property
    def senders(self) -> frozenset[int]:
        """Who has shared."""
        return frozenset(self._sharings)

    def take_sharing(self, place: int, message: Sharing) -> None:
        """Take in a user's boxes; refuse them unsigned, since no holder would take them."""
        roster, user = self._roster, message.user
        expected = BOX_BYTES * roster.graph.neighbourhood.degree
        if len(message.boxes) != expected:
            raise PeerError(f"{user} sent {len(message.boxes)} bytes of boxes, not {expected}")
        boxes = (message.boxes[start : start + BOX_BYTES] for start in range(0, expected, BOX_BYTES))
        tree = sharing_tree(message.seed_digest, message.own_commitments, boxes)
        statement = roster.boxes(place, tree.root)
        verify_signature(roster.lines[place].identity, message.signature, "share", *statement, who=user)
        self._sharings[place], self._trees[place] = message, tree

    def seed_digest(self, place: int) -> bytes:
        """Return what tells a user's right self-mask seed from a wrong one."""
        return self._sharings[place].seed_digest

    def delivery(self, holder: int) -> tuple[Positions, bytes]:
        """Return the senders of the boxes for a user, and the boxes with signatures and paths."""
        graph = self._roster.graph
        senders = tuple(place for place in graph.neighbours(holder) if place in self._sharings)
        parcels = []
        for sender in senders:
            path = self._trees[sender].path(1 + graph.index(sender, holder))
            parcels += [self._box(sender, holder), self._sharings[sender].signature, path]
        return senders, b"".join(parcels)

    def take_receipt(self, place: int, message: Receipt) -> None:
        """Take in what a holder says of its boxes; refuse complaints that it did not sign about these boxes."""
        roster = self._roster
        check_complaints(message.complaints, message.user)
        for complaint in message.complaints:
            neighbour = complaint.user in self._sharings and complaint.user in roster.graph.neighbours(place)
            if not neighbour or complaint.box_digest != self._digest(complaint.user, place):
                raise PeerError(f"{message.user} complains about a box that it was not sent")
            statement = roster.complaint(complaint.user, place, complaint.box_digest)
            identity = roster.lines[place].identity
            verify_signature(identity, complaint.signature, "complaint", *statement, who=message.user)
        for complaint in message.complaints:
            self._complaints.setdefault(complaint.user, {})[place] = complaint

    def complaints(self, sender: int) -> Complaints:
        """Return the complaints about a user's boxes, as that user is to read them."""
        about = self._complaints.get(sender, {})
        return tuple(
            Complaint(holder, about[holder].box_digest, about[holder].signature) for holder in sorted(about)
        )

    def take_reveal(self, place: int, message: Reveal) -> None:
        """Take in the keys of the boxes that were complained about."""
        expected = KEY_BYTES * len(self._complaints[place])
        if len(message.keys) != expected:
            raise PeerError(f"{message.user} sent {len(message.keys)} bytes of keys, not {expected}")
        self._keys[place] = message.keys

    def verdicts(self) -> dict[int, str]:
        """Return who lied: the holder if the box opens to its commitments, else the sender."""
        liars = {}
        for sender, keys in self._keys.items():
            for number, holder in enumerate(sorted(self._complaints[sender])):
                key = keys[KEY_BYTES * number : KEY_BYTES * (number + 1)]
                pair = Route(self._roster, sender, holder).revealed_shares(key, self._box(sender, holder))
                one, other = self._roster.lines[sender].user, self._roster.lines[holder].user
                if pair is None:
                    liars[sender] = f"sent {other} a box that does not open to what it signed"
                else:
                    liars[holder] = f"complained about a good box of {one}"
        return liars

    def right_shares(self, holder: int, owners: Sequence[int], shares: bytes, seeds: frozenset[int]) -> list[bool]:
        """Return which of a holder's shares are those that their owners committed to: of the seeds, or of keys.

        A share has words below p: an honest holder would have complained about others.
        """
        words = np.frombuffer(shares, dtype="<u4").reshape(len(owners), -1)
        right: list[bool] = (words < PRIME_31.modulus).all(axis=1).tolist()  # type: ignore[assignment]
        for number, owner in enumerate(owners):
            share = shares[SHARE_BYTES * number : SHARE_BYTES * (number + 1)]
            both = self._commitments(owner, holder)
            if owner in seeds:
                right[number] &= both[:DIGEST_BYTES] == seed_commitment(share)
            else:
                right[number] &= both[DIGEST_BYTES:] == key_commitment(share)
        return right

    def _commitments(self, owner: int, holder: int) -> bytes:
        if owner == holder:
            return self._sharings[owner].own_commitments
        return box_commitments(self._box(owner, holder))

    def _box(self, sender: int, holder: int) -> bytes:
        start = BOX_BYTES * self._roster.graph.index(sender, holder)
        return self._sharings[sender].boxes[start : start + BOX_BYTES]

    def _digest(self, sender: int, holder: int) -> bytes:
        return self._trees[sender].leaves[1 + self._roster.graph.index(sender, holder)]
