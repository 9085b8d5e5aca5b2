"""A user's secrets on their way to its neighbours, and theirs to it: boxes, complaints, revealed keys (§5)."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from coterie.errors import PeerError
from coterie.secagg.crypto.keys import SIGNATURE_BYTES, BoxKey, IdentityKey, ShareKey, verify_signature
from coterie.secagg.protocols.pairwise.boxes import Route
from coterie.secagg.protocols.pairwise.contents import PAIRS, BoxFormat
from coterie.secagg.protocols.pairwise.merkle import MerkleTree, leaf, path_bytes, path_root
from coterie.secagg.protocols.pairwise.messages import Complaint, Complaints, Delivery
from coterie.secagg.protocols.pairwise.roster import Roster, check_positions


def sharing_tree(
    statement: bytes, boxes: Iterable[bytes | memoryview], box_format: BoxFormat = PAIRS
) -> MerkleTree:
    """Return the tree whose root a sharer signs: its first leaf has what is said beside the boxes, the others the
    signed part of each box, in the roster's order.

    In SecAgg that is the digest of the sharer's seed and the commitments to the shares that it keeps itself.
    """  # noqa: D205 - one sentence
    return MerkleTree([leaf(statement), *(leaf(box_format.signed_part(box)) for box in boxes)])


def parcel_bytes(box_bytes: int, degree: int) -> int:
    """Return the length of a box with its signature and path, where users have so many neighbours."""
    return box_bytes + SIGNATURE_BYTES + path_bytes(degree + 1)


def check_complaints(complaints: Complaints, who: str) -> None:
    """Refuse complaints that are not in order: one about each box at most."""
    if any(later.user <= earlier.user for earlier, later in pairwise(complaints)):
        raise PeerError(f"the complaints from {who} are not in ascending order, or two are about one box")


class SentBoxes:
    """The boxes that a user made, one for each neighbour, and the key of each, which is revealed once at most."""

    def __init__(self, roster: Roster, mine: int, contents: Mapping[int, bytes]) -> None:
        """Encrypt the shares of each holder for it."""
        self._roster, self._mine = roster, mine
        self._keys = {holder: BoxKey.generate() for holder in contents}
        self.boxes = {
            holder: Route(roster, mine, holder).encrypt_shares(self._keys[holder], content)
            for holder, content in contents.items()
        }

    def keys_for(self, complaints: Complaints) -> bytes:
        """Return the keys of boxes that were complained about; refuse complaints that are not their holders'."""
        check_complaints(complaints, "the server")
        if not complaints:
            raise PeerError("the server asks for the keys of boxes without a complaint")
        for complaint in complaints:
            box = self.boxes.get(complaint.user)
            if box is None:
                raise PeerError(f"the server has a complaint by user {complaint.user}, who was sent no box")
            line = self._roster.lines[complaint.user]
            if complaint.box_digest != leaf(box):
                raise PeerError(f"the complaint of {line.user!r} is about another box than it was sent")
            statement = self._roster.complaint(self._mine, complaint.user, complaint.box_digest)
            verify_signature(line.identity, complaint.signature, "complaint", *statement, who=line.user)
        return b"".join(self._keys[complaint.user].to_bytes() for complaint in complaints)


class ReceivedBoxes:
    """The boxes that came from a user's neighbours: the shares in them, or complaints.

    A box without its sender's signature is the server's fault, and refused. A signed box that does not open to its
    commitments is its sender's, and complained about. Between two honest users neither happens.
    """

    def __init__(
        self, roster: Roster, mine: int, share_key: ShareKey, identity: IdentityKey, message: Delivery
    ) -> None:
        self.contents: dict[int, bytes] = {}
        complaints = []
        for sender, box in _signed_boxes(roster, mine, message).items():
            content = Route(roster, sender, mine).decrypt_shares(share_key, box)
            if content is not None:
                self.contents[sender] = content
                continue
            digest = leaf(box)
            signature = identity.sign("complaint", *roster.complaint(sender, mine, digest))
            complaints.append(Complaint(sender, digest, signature))
        self.complaints = tuple(complaints)


def _signed_boxes(roster: Roster, mine: int, message: Delivery) -> dict[int, bytes]:
    """Return the boxes of a delivery by sender; refuse those that their senders did not sign."""
    graph, senders = roster.graph, message.senders
    check_positions(senders, len(roster.lines), "senders")
    strangers = frozenset(senders).difference(graph.neighbours(mine))
    if strangers:
        raise PeerError(f"the server delivers a box of {roster.lines[min(strangers)].user!r}, who is no neighbour")
    box_format = roster.box_format
    box_bytes = box_format.box_bytes
    signature_end = box_bytes + SIGNATURE_BYTES
    size = parcel_bytes(box_bytes, graph.neighbourhood.degree)
    if len(message.parcels) != size * len(senders):
        raise PeerError(
            f"the server delivered {len(message.parcels)} bytes of boxes; {len(senders)} senders give "
            f"{size * len(senders)}"
        )
    boxes = {}
    for number, sender in enumerate(senders):
        parcel = message.parcels[size * number : size * (number + 1)]
        box, signature = parcel[:box_bytes], parcel[box_bytes:signature_end]
        root = path_root(leaf(box_format.signed_part(box)), 1 + graph.index(sender, mine), parcel[signature_end:])
        line = roster.lines[sender]
        verify_signature(line.identity, signature, "share", *roster.boxes(sender, root), who=line.user)
        boxes[sender] = box
    return boxes
