"""The messages of the phases of a pairwise round, most of which LightSecAgg has too (§5)."""

from typing import Annotated, TypeAlias

import msgspec

from coterie.secagg.wire.framing import Digest, Message, PublicKey, Scope, Signature, UserId, VectorMessage

LARGEST_ROSTER = 2**16 - 1
"""The most users in a pairwise round: a user's place, from 1 on, is also where its shares are evaluated."""
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_ROSTER)]
Positions: TypeAlias = Annotated[tuple[Position, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]
"""Users by their place in the roster, counted from 0, in ascending order."""
MaskPublicKey: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=32)]
"""Empty in LightSecAgg, where no two users have a mask in common."""


class Advertisement(Message, frozen=True, tag=10):
    """Client to server: my keys for this round, signed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    mask_key: MaskPublicKey
    share_key: PublicKey
    signature: Signature


class RosterLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One user of a roster: what it advertised, with its identity key."""

    user: UserId
    identity: PublicKey
    mask_key: MaskPublicKey
    share_key: PublicKey
    signature: Signature


class RosterCall(Message, frozen=True, tag=11):
    """Server to client: all who advertised; share your secrets among them (§5)."""

    scope: Scope
    context: Digest
    lines: Annotated[tuple[RosterLine, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]


class Sharing(Message, frozen=True, tag=12):
    """Client to server: boxes with shares for my neighbours, in the roster's order, one signature for all (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    seed_digest: Digest
    own_commitments: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
    """To the two shares that the sender keeps itself."""
    boxes: bytes
    signature: Signature


class Delivery(Message, frozen=True, tag=13):
    """Server to client: of each neighbour of yours who shared the box for you, with signature and path (§5)."""

    scope: Scope
    context: Digest
    senders: Positions
    parcels: bytes
    """One after the other, of equal length: box, signature, path."""


class Complaint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A signed box does not open to its commitments; the signature is the holder's, and nothing here is secret."""

    user: Position
    """The other one of the two: the sender where the holder writes, the holder where the sender reads."""
    box_digest: Digest
    signature: Signature


Complaints: TypeAlias = Annotated[tuple[Complaint, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]
"""By the user whom they name, in ascending order."""


class Receipt(Message, frozen=True, tag=19):
    """Client to server: I have looked into my boxes; these do not open to what their senders signed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    complaints: Complaints


class RevealCall(Message, frozen=True, tag=20):
    """Server to client: complaints about boxes of yours; reveal the key of each of them (§5)."""

    scope: Scope
    context: Digest
    complaints: Complaints


class Reveal(Message, frozen=True, tag=21):
    """Client to server: the keys of the boxes that were complained about, one after the other (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    keys: bytes


class SharersCall(Message, frozen=True, tag=22):
    """Server to client: the sharers, fixed for the rest of the round; send your vector (§5)."""

    scope: Scope
    context: Digest
    sharers: Positions


class MaskedVector(VectorMessage, frozen=True, tag=14):
    """Client to server: my masked vector; its words are the tail (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    signature: Signature


class Proposal(Message, frozen=True, tag=15):
    """Server to client: whose vectors are to be summed, and whose are not; sign it if it is right (§5)."""

    scope: Scope
    context: Digest
    included: Positions
    excluded: Positions


class Agreement(Message, frozen=True, tag=16):
    """Client to server: my signature over the lists that were proposed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    signature: Signature


class Opening(Message, frozen=True, tag=17):
    """Server to client: so many have signed the same lists; send the shares that they call for (§5)."""

    scope: Scope
    context: Digest
    signers: Positions
    signatures: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=2 * LARGEST_ROSTER)]
    """The signers' under the agreement, then those of all other included users under their uploads."""


class Unmasking(Message, frozen=True, tag=18):
    """Client to server: of each sharer whose holder I am one share, in the roster's order (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    shares: bytes


ServerPhase: TypeAlias = RosterCall | Delivery | RevealCall | SharersCall | Proposal | Opening
"""What the server sends in the phases of a pairwise round."""
ClientPhase: TypeAlias = Advertisement | Sharing | Receipt | Reveal | MaskedVector | Agreement | Unmasking
"""What a client answers there."""
