"""The server's side of the boxes: it checks their signatures, passes them on, and judges complaints (§5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import PeerError
from coterie.secagg.crypto.keys import KEY_BYTES, verify_signature
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols.pairwise.boxes import Route
from coterie.secagg.protocols.pairwise.contents import key_commitment, seed_commitment
from coterie.secagg.protocols.pairwise.merkle import DIGEST_BYTES, MerkleTree, leaf
from coterie.secagg.protocols.pairwise.messages import Complaint, Complaints, Positions, Receipt, Reveal, Sharing
from coterie.secagg.protocols.pairwise.roster import Roster
from coterie.secagg.protocols.pairwise.sharing import check_complaints, sharing_tree


@dataclass(frozen=True)
class SignedBoxes:
    """A user's boxes, one after the other, with the tree over them and the signature under its root."""

    boxes: bytes | memoryview
    tree: MerkleTree
    signature: bytes


class BoxExchange:
    """All boxes of a round, by sender, and the complaints about them, by sender and holder."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._signed: dict[int, SignedBoxes] = {}
        self._complaints: dict[int, dict[int, Complaint]] = {}
        self._keys: dict[int, bytes] = {}

    @property
    def senders(self) -> frozenset[int]:
        """Who has shared."""
        return frozenset(self._signed)

    def take_boxes(self, place: int, statement: bytes, boxes: bytes | memoryview, signature: bytes) -> None:
        """Take in a user's boxes and what it states beside them; refuse them unsigned, as every holder would."""
        roster, line, box_format = self._roster, self._roster.lines[place], self._roster.box_format
        size = box_format.box_bytes
        expected = size * roster.graph.neighbourhood.degree
        if len(boxes) != expected:
            raise PeerError(f"{line.user} sent {len(boxes)} bytes of boxes, not {expected}")
        parts = (boxes[start : start + size] for start in range(0, expected, size))
        tree = sharing_tree(statement, parts, box_format)
        verify_signature(line.identity, signature, "share", *roster.boxes(place, tree.root), who=line.user)
        self._signed[place] = SignedBoxes(boxes, tree, signature)

    def delivery(self, holder: int) -> tuple[Positions, bytes]:
        """Return the senders of the boxes for a user, and the boxes with signatures and paths."""
        graph = self._roster.graph
        senders = tuple(place for place in graph.neighbours(holder) if place in self._signed)
        parcels: list[bytes | memoryview] = []
        for sender in senders:
            signed = self._signed[sender]
            path = signed.tree.path(1 + graph.index(sender, holder))
            parcels += [self._view(sender, holder), signed.signature, path]
        return senders, b"".join(parcels)

    def take_receipt(self, place: int, message: Receipt) -> None:
        """Take in what a holder says of its boxes; refuse complaints that it did not sign about these boxes."""
        roster = self._roster
        check_complaints(message.complaints, message.user)
        for complaint in message.complaints:
            neighbour = complaint.user in self._signed and complaint.user in roster.graph.neighbours(place)
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
                content = Route(self._roster, sender, holder).revealed_shares(key, self._box(sender, holder))
                one, other = self._roster.lines[sender].user, self._roster.lines[holder].user
                if content is None:
                    liars[sender] = f"sent {other} a box that does not open to what it signed"
                else:
                    liars[holder] = f"complained about a good box of {one}"
        return liars

    def _view(self, sender: int, holder: int) -> memoryview:
        size = self._roster.box_format.box_bytes
        start = size * self._roster.graph.index(sender, holder)
        return memoryview(self._signed[sender].boxes)[start : start + size]

    def _box(self, sender: int, holder: int) -> bytes:
        return bytes(self._view(sender, holder))

    def _digest(self, sender: int, holder: int) -> bytes:
        return leaf(self._view(sender, holder))


class PairExchange(BoxExchange):
    """The boxes with pairs of shares, and what their senders committed to."""

    def __init__(self, roster: Roster) -> None:
        super().__init__(roster)
        self._sharings: dict[int, Sharing] = {}

    def take_sharing(self, place: int, message: Sharing) -> None:
        """Take in a user's boxes, with the digest of its seed and the commitments to the shares that it keeps."""
        self.take_boxes(place, message.seed_digest + message.own_commitments, message.boxes, message.signature)
        self._sharings[place] = message

    def seed_digest(self, place: int) -> bytes:
        """Return what tells a user's right self-mask seed from a wrong one."""
        return self._sharings[place].seed_digest

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
        return self._box(owner, holder)[self._roster.box_format.ciphertext_end :]
