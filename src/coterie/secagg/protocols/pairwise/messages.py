"""The messages of the phases of a pairwise round (§5)."""

from typing import Annotated, TypeAlias

import msgspec

from coterie.secagg.wire.framing import Digest, Message, PublicKey, Scope, Signature, UserId, VectorMessage

LARGEST_ROSTER = 2**16 - 1
"""The most users in a pairwise round: a user's place, from 1 on, is also where its shares are evaluated."""
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_ROSTER)]
Positions: TypeAlias = Annotated[tuple[Position, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]
"""Users by their place in the roster, counted from 0, in ascending order."""


class Advertisement(Message, frozen=True, tag=10):
    """Client to server: my keys for this round, signed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    mask_key: PublicKey
    share_key: PublicKey
    signature: Signature


class RosterLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One user of a roster: what it advertised, with its identity key."""

    user: UserId
    identity: PublicKey
    mask_key: PublicKey
    share_key: PublicKey
    signature: Signature


class RosterCall(Message, frozen=True, tag=11):
    """Server to client: all who advertised; share your secrets among them (§5)."""

    scope: Scope
    context: Digest
    lines: Annotated[tuple[RosterLine, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]


class Sharing(Message, frozen=True, tag=12):
    """Client to server: encrypted shares for my holders, in the roster's order, one after the other (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    seed_digest: Digest
    shares: bytes


class Delivery(Message, frozen=True, tag=13):
    """Server to client: all who shared, and their encrypted shares for you, in the roster's order (§5)."""

    scope: Scope
    context: Digest
    sharers: Positions
    shares: bytes


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


ServerPhase: TypeAlias = RosterCall | Delivery | Proposal | Opening
"""What the server sends in the phases of a pairwise round."""
ClientPhase: TypeAlias = Advertisement | Sharing | MaskedVector | Agreement | Unmasking
"""What a client answers there."""
