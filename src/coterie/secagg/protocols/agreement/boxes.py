"""The boxes in which shares travel to their holders: made, signed, passed on, opened, complained about (§5).

One signature is for all boxes of a user, of which a holder sees only its own: a Merkle tree over their digests.
leaf = SHA-256(0x00 ‖ content), node = SHA-256(0x01 ‖ left ‖ right); leaves missing to a power of two are 32 zero
bytes. So the path of every leaf is equally long.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from coterie.errors import PeerError
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    BoxKey,
    IdentityKey,
    Seed,
    ShareKey,
    hkdf,
)
from coterie.secagg.protocols.agreement.messages import Complaint, Complaints, Delivery, Receipt, Reveal
from coterie.secagg.protocols.agreement.roster import BoxFormat, Roster, check_positions
from coterie.secagg.wire.framing import Data, encode_parts

DIGEST_BYTES = 32
_MISSING = bytes(DIGEST_BYTES)
_NONCE = bytes(12)  # every key encrypts one message


def leaf(content: bytes | memoryview) -> bytes:
    """Return the digest of what stands at a leaf."""
    digest = hashlib.sha256(b"\0")
    digest.update(content)
    return digest.digest()


def leaves_of(boxes: memoryview, size: int) -> bytes:
    """Return the digests of boxes of this size, one after the other, where all of a box stands at its leaf."""
    return b"".join([leaf(boxes[start : start + size]) for start in range(0, len(boxes), size)])


def stated_leaves(boxes: memoryview, size: int) -> bytes:
    """Return the digests of boxes of this size that end with their own, as their sender states it."""
    return np.frombuffer(boxes, dtype=np.uint8).reshape(-1, size)[:, -DIGEST_BYTES:].tobytes()


def _node(children: bytes) -> bytes:
    return hashlib.sha256(b"\1" + children).digest()


def path_bytes(leaves: int) -> int:
    """Return how long the path of a leaf is, one sibling after the other from the leaf up.

    >>> [path_bytes(leaves) // DIGEST_BYTES for leaves in (1, 2, 12, 16, 17)]
    [0, 1, 4, 4, 5]
    """
    return DIGEST_BYTES * (leaves - 1).bit_length()


class MerkleTree:
    """The tree over some leaves, given one after the other.

    >>> leaves = [leaf(bytes([number])) for number in range(5)]
    >>> tree = MerkleTree(b"".join(leaves))
    >>> all(path_root(leaves[n], n, tree.path(n)) == tree.root for n in range(5))
    True
    """

    def __init__(self, leaves: bytes) -> None:
        row, empty, self.nodes = leaves, _MISSING, b""
        """All nodes but the root, row by row from the leaves up, each row filled up to an even number."""
        self.starts: list[int] = []
        """Where the rows begin, counted in nodes."""
        while len(row) > DIGEST_BYTES:
            if len(row) % (2 * DIGEST_BYTES):
                row += empty
            self.starts.append(len(self.nodes) // DIGEST_BYTES)
            self.nodes += row
            row = b"".join([_node(row[at : at + 2 * DIGEST_BYTES]) for at in range(0, len(row), 2 * DIGEST_BYTES)])
            empty = _node(2 * empty)
        self.root = row
        """What is signed for all leaves."""

    def path(self, place: int) -> bytes:
        """Return the siblings on the way from a leaf to the root."""
        siblings = (start + (place >> depth ^ 1) for depth, start in enumerate(self.starts))
        return b"".join(self.nodes[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)] for at in siblings)


def path_root(digest: bytes, place: int, path: bytes | memoryview) -> bytes:
    """Return the root of a tree that has this leaf in this place, with this path."""
    for start in range(0, len(path), DIGEST_BYTES):
        sibling = bytes(path[start : start + DIGEST_BYTES])
        digest = _node(sibling + digest) if place & 1 else _node(digest + sibling)
        place >>= 1
    return digest


@dataclass(frozen=True)
class Route:
    """From whom to whom a box goes, and in which round."""

    roster: Roster
    sender: int
    holder: int

    def encrypt_shares(self, key: BoxKey, content: bytes) -> bytes:
        """Return the box with a holder's shares, under a key that is used for this box alone.

        ChaCha20-Poly1305 under HKDF(X25519(box key, holder's share key), salt = context, info), nonce zero,
        associated data info = enc("coterie/v2/box", context, roster digest, sender, holder, public box key).
        """
        line, info = self.roster.lines[self.holder], self._info(key.public)
        cipher = self._cipher(key.agree(line.share_key, who=line.user), info)
        sealed = key.public + cipher.encrypt(_NONCE, content, info)
        return sealed + self.roster.box_format.commit(content, sealed)

    def decrypt_shares(self, key: ShareKey, box: bytes) -> bytes | None:
        """Return what is in a box, for its holder; None if it does not open to its commitments."""
        try:
            shared = key.agree(box[:KEY_BYTES], who=self.roster.lines[self.sender].user)
        except PeerError:  # of low order: signed by its sender, like everything else in the box
            return None
        return self._open(shared, box)

    def revealed_shares(self, key: bytes, box: bytes) -> bytes | None:
        """Return what is in a box, for whoever was given the box's own key; None as for the holder."""
        own, line = BoxKey.from_bytes(key), self.roster.lines[self.holder]
        if own.public != box[:KEY_BYTES]:
            return None
        return self._open(own.agree(line.share_key, who=line.user), box)

    def _open(self, shared: Seed, box: bytes) -> bytes | None:
        info, box_format = self._info(box[:KEY_BYTES]), self.roster.box_format
        end = box_format.ciphertext_end
        try:
            content = self._cipher(shared, info).decrypt(_NONCE, box[KEY_BYTES:end], info)
        except InvalidTag:
            return None
        right = box_format.commit(content, box[:end]) == box[end:] and box_format.is_valid_content(content)
        return content if right else None

    def _info(self, public: bytes) -> bytes:
        roster = self.roster
        users = (roster.lines[self.sender].user, roster.lines[self.holder].user)
        return enc("coterie/v2/box", roster.context, roster.digest, *users, public)

    def _cipher(self, shared: Seed, info: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(hkdf(shared.reveal(), self.roster.context, info))


def sharing_tree(statement: bytes, boxes: bytes | memoryview, box_format: BoxFormat) -> MerkleTree:
    """Return the tree whose root a sharer signs: first what it says beside the boxes, then all boxes in order.

    In SecAgg the statement is the digest of its seed and the commitments to the shares that it keeps itself.
    """
    return MerkleTree(leaf(statement) + box_format.box_digests(memoryview(boxes), box_format.box_bytes))


def parcel_bytes(box_bytes: int, degree: int) -> int:
    """Return the length of a box with its signature and path, where users have so many neighbours."""
    return box_bytes + SIGNATURE_BYTES + path_bytes(degree + 1)


def check_complaints(complaints: Complaints, who: str) -> None:
    """Refuse complaints that are not in order: one about each box at most."""
    if any(later.user <= earlier.user for earlier, later in pairwise(complaints)):
        raise PeerError(f"the complaints from {who} are not in ascending order, or two are about one box")


class SentBoxes:
    """The boxes that a user made, one for each neighbour, and the key of each, which is revealed once at most."""

    def __init__(
        self, roster: Roster, own_position: int, keys: Mapping[int, BoxKey], boxes: Mapping[int, bytes]
    ) -> None:
        self._roster, self._own_position = roster, own_position
        self.keys, self.boxes = keys, boxes

    @classmethod
    def encrypt(cls, roster: Roster, own_position: int, contents: Mapping[int, bytes]) -> "SentBoxes":
        """Encrypt the shares of each holder for it."""
        keys = {holder: BoxKey.generate() for holder in contents}
        boxes = {
            holder: Route(roster, own_position, holder).encrypt_shares(keys[holder], content)
            for holder, content in contents.items()
        }
        return cls(roster, own_position, keys, boxes)

    def keys_for(self, complaints: Complaints) -> bytes:
        """Return the keys of boxes that were complained about; refuse complaints that are not their holders'."""
        check_complaints(complaints, "the server")
        if not complaints:
            raise PeerError("the server asks for the keys of boxes without a complaint")
        for complaint in complaints:
            if complaint.user not in self.boxes:
                raise PeerError(f"the server has a complaint by user {complaint.user}, who was sent no box")
            line = self._roster.lines[complaint.user]
            if complaint.box_digest != leaf(self.boxes[complaint.user]):
                raise PeerError(f"the complaint of {line.user!r} is about another box than it was sent")
            statement = self._roster.complaint_to_sign(self._own_position, complaint.user, complaint.box_digest)
            self._roster.verify(complaint.user, complaint.signature, statement)
        return b"".join(self.keys[complaint.user].to_bytes() for complaint in complaints)


def open_boxes(
    roster: Roster, own_position: int, share_key: ShareKey, identity: IdentityKey, message: Delivery
) -> tuple[dict[int, bytes], Complaints]:
    """Return the shares in the boxes of a user's neighbours, by sender, and complaints about the other boxes.

    A box without its sender's signature is the server's fault, and refused. A signed box that does not open to its
    commitments is its sender's, and complained about. Between two honest users neither happens.
    """
    shares, complaints = {}, []
    for sender, box in _signed_boxes(roster, own_position, message).items():
        content = Route(roster, sender, own_position).decrypt_shares(share_key, box)
        if content is not None:
            shares[sender] = content
            continue
        digest = leaf(box)
        signature = identity.sign(*roster.complaint_to_sign(sender, own_position, digest))
        complaints.append(Complaint(sender, digest, signature))
    return shares, tuple(complaints)


def _signed_boxes(roster: Roster, own_position: int, message: Delivery) -> dict[int, bytes]:
    """Return the boxes of a delivery by sender; refuse those that their senders did not sign."""
    graph, senders = roster.graph, message.senders
    check_positions(senders, len(roster.lines), "senders")
    strangers = frozenset(senders).difference(graph.neighbours(own_position))
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
        root = path_root(
            box_format.box_digests(memoryview(box), box_bytes),
            1 + graph.index(sender, own_position),
            parcel[signature_end:],
        )
        roster.verify(sender, signature, roster.boxes_to_sign(sender, root))
        boxes[sender] = box
    return boxes


@dataclass(frozen=True)
class SignedBoxes:
    """A user's boxes, one after the other, with the tree over them and the signature under its root."""

    boxes: memoryview
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
        roster, box_format = self._roster, self._roster.box_format
        expected = box_format.box_bytes * roster.graph.neighbourhood.degree
        if len(boxes) != expected:
            raise PeerError(f"{roster.lines[place].user} sent {len(boxes)} bytes of boxes, not {expected}")
        tree = sharing_tree(statement, boxes, box_format)
        roster.verify(place, signature, roster.boxes_to_sign(place, tree.root))
        self._signed[place] = SignedBoxes(memoryview(boxes), tree, signature)

    def deliveries(self, users: Iterable[str], head: tuple[str, bytes]) -> "Deliveries":
        """Return the messages with the boxes of some holders."""
        return Deliveries(self._roster, self._signed, tuple(users), head)

    def take_receipt(self, place: int, message: Receipt) -> None:
        """Take in what a holder says of its boxes; refuse complaints that it did not sign about these boxes."""
        roster = self._roster
        check_complaints(message.complaints, message.user)
        for complaint in message.complaints:
            neighbour = complaint.user in self._signed and complaint.user in roster.graph.neighbours(place)
            if not neighbour or complaint.box_digest != leaf(self.box(complaint.user, place)):
                raise PeerError(f"{message.user} complains about a box that it was not sent")
            statement = roster.complaint_to_sign(complaint.user, place, complaint.box_digest)
            roster.verify(place, complaint.signature, statement)
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
                content = Route(self._roster, sender, holder).revealed_shares(key, bytes(self.box(sender, holder)))
                one, other = self._roster.lines[sender].user, self._roster.lines[holder].user
                if content is None:
                    liars[sender] = f"sent {other} a box that does not open to what it signed"
                else:
                    liars[holder] = f"complained about a good box of {one}"
        return liars

    def box(self, sender: int, holder: int) -> memoryview:
        """Return the box that a sender made for a holder."""
        size = self._roster.box_format.box_bytes
        start = size * self._roster.graph.index(sender, holder)
        return self._signed[sender].boxes[start : start + size]


class Deliveries(Mapping[str, bytes]):
    """The messages with boxes, signatures and paths, each put together when it is asked for.

    So the boxes are copied once, and of all messages only one need be in memory. All trees have one shape, and all
    paths of one holder are taken out of them in one pass.
    """

    def __init__(
        self, roster: Roster, signed: Mapping[int, SignedBoxes], users: Sequence[str], head: tuple[str, bytes]
    ) -> None:
        self._roster, self._users, self._head = roster, users, head
        self._row = {sender: row for row, sender in enumerate(sorted(signed))}
        self._boxes = [signed[sender].boxes for sender in self._row]
        self._signatures = _rows(signed[sender].signature for sender in self._row)
        trees = [signed[sender].tree for sender in self._row]
        self._nodes = _rows(tree.nodes for tree in trees).reshape(len(trees), -1, DIGEST_BYTES)
        self._starts = np.array(trees[0].starts, dtype=np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)

    def __getitem__(self, user: str) -> bytes:
        """Return the message for a user, who is the holder of what is in it."""
        roster, holder = self._roster, self._roster.position[user]
        near = tuple(sender for sender in roster.graph.neighbours(holder) if sender in self._row)
        rows = np.array([self._row[sender] for sender in near], dtype=np.int64)
        places = roster.graph.indices(near, holder)
        leaves = places[:, np.newaxis] + 1  # the first leaf is the statement's
        siblings = self._starts + (leaves >> np.arange(len(self._starts)) ^ 1)
        paths = self._nodes[rows[:, np.newaxis], siblings].reshape(len(near), -1)
        proofs = np.concatenate((self._signatures[rows], paths), axis=1)
        size, parts = roster.box_format.box_bytes, list[Data]()
        for row, start, proof in zip(rows.tolist(), (size * places).tolist(), map(bytes, proofs), strict=True):
            parts += (self._boxes[row][start : start + size], proof)
        return encode_parts(Delivery(*self._head, near, b""), parts)


def _rows(parts: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.array([np.frombuffer(part, dtype=np.uint8) for part in parts])
