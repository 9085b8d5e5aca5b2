"""The messages of rounds that end in an agreement, and their legal order as tables (§5)."""

from enum import Enum
from typing import Annotated, TypeAlias, get_args

import msgspec

from coterie.secagg.wire.framing import Digest, Message, PublicKey, RoundAnswer, RoundMessage, Signature, UserId

LARGEST_ROSTER = 2**16 - 1
"""The most users in a pairwise round: shares are evaluated at a user's position plus one, below 2^16."""
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_ROSTER)]
Positions: TypeAlias = Annotated[tuple[Position, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]
"""Users by their position in the roster, from 0 on, in ascending order."""
MaskPublicKey: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=32)]
"""Empty in LightSecAgg, where no two users have a mask in common."""


class Advertisement(RoundAnswer, frozen=True, tag=10):
    """Client to server: my keys for this round, signed (§5)."""

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


class RosterCall(RoundMessage, frozen=True, tag=11):
    """Server to client: all who advertised; share your secrets among them (§5)."""

    lines: Annotated[tuple[RosterLine, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]


class Delivery(RoundMessage, frozen=True, tag=13):
    """Server to client: of each neighbour of yours who shared the box for you, with signature and path (§5)."""

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


class Receipt(RoundAnswer, frozen=True, tag=19):
    """Client to server: I have looked into my boxes; these do not open to what their senders signed (§5)."""

    complaints: Complaints


class RevealCall(RoundMessage, frozen=True, tag=20):
    """Server to client: complaints about boxes of yours; reveal the key of each of them (§5)."""

    complaints: Complaints


class Reveal(RoundAnswer, frozen=True, tag=21):
    """Client to server: the keys of the boxes that were complained about, one after the other (§5)."""

    keys: bytes


class SharersCall(RoundMessage, frozen=True, tag=22):
    """Server to client: the sharers, fixed for the rest of the round; send your vector (§5)."""

    sharers: Positions


class MaskedVector(RoundAnswer, frozen=True, tag=14):
    """Client to server: my masked vector; its words are the tail (§5)."""

    has_tail = True
    signature: Signature


class Proposal(RoundMessage, frozen=True, tag=15):
    """Server to client: whose vectors are to be summed, and whose are not; sign it if it is right (§5)."""

    included: Positions
    excluded: Positions


class Agreement(RoundAnswer, frozen=True, tag=16):
    """Client to server: my signature over the lists that were proposed (§5)."""

    signature: Signature


class Opening(RoundMessage, frozen=True, tag=17):
    """Server to client: so many have signed the same lists; send the shares that they call for (§5)."""

    signers: Positions
    signatures: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=2 * LARGEST_ROSTER)]
    """The signers' under the agreement, then those of all other included users under their uploads."""


ServerPhase: TypeAlias = RosterCall | Delivery | RevealCall | SharersCall | Proposal | Opening
"""What the server sends in the phases of such a round."""


class ParticipantState(Enum):
    """A client in such a round."""

    ADVERTISED = "advertised"
    SHARED = "shared"
    RECEIVED = "received"
    REVEALED = "revealed"
    UPLOADED = "uploaded"
    AGREED = "agreed"
    DONE = "done"


class ServerState(Enum):
    """The server in such a round, as it sees one user."""

    CALLED = "called"
    ADVERTISED = "advertised"
    LISTED = "listed"
    SHARED = "shared"
    DELIVERED = "delivered"
    RECEIVED = "received"
    ACCUSED = "accused"
    REVEALED = "revealed"
    FIXED = "fixed"
    HELPING = "helping"
    UPLOADED = "uploaded"
    PROPOSED = "proposed"
    AGREED = "agreed"
    OPENED = "opened"
    DONE = "done"
    LOST = "lost"


CLIENT_TABLE: dict[tuple[ParticipantState, type[Message]], ParticipantState] = {
    (ParticipantState.ADVERTISED, RosterCall): ParticipantState.SHARED,
    (ParticipantState.SHARED, Delivery): ParticipantState.RECEIVED,
    (ParticipantState.RECEIVED, RevealCall): ParticipantState.REVEALED,
    (ParticipantState.RECEIVED, SharersCall): ParticipantState.UPLOADED,
    (ParticipantState.REVEALED, SharersCall): ParticipantState.UPLOADED,
    (ParticipantState.UPLOADED, Proposal): ParticipantState.AGREED,
    (ParticipantState.AGREED, Opening): ParticipantState.DONE,
}
FROM_SERVER: tuple[type[Message], ...] = get_args(ServerPhase)


def server_table(
    sharing: type[Message], opening: type[Message]
) -> dict[tuple[ServerState, type[Message]], ServerState]:
    """Return the legal order of clients' messages, where these two carry boxes and what opens the sum.

    They answer in turn a call, a `RosterCall`, a `Delivery` (and, if there are complaints, a `RevealCall`), a
    `SharersCall`, a `Proposal` and an `Opening`. The two are each protocol's own, such as `pairwise.Sharing`.
    """
    return {
        (ServerState.CALLED, Advertisement): ServerState.ADVERTISED,
        (ServerState.LISTED, sharing): ServerState.SHARED,
        (ServerState.DELIVERED, Receipt): ServerState.RECEIVED,
        (ServerState.ACCUSED, Reveal): ServerState.REVEALED,
        (ServerState.FIXED, MaskedVector): ServerState.UPLOADED,
        (ServerState.PROPOSED, Agreement): ServerState.AGREED,
        (ServerState.OPENED, opening): ServerState.DONE,
    }


SERVER_TABLE_ENDS: dict[ServerState, ServerState] = {
    ServerState.CALLED: ServerState.LOST,
    ServerState.ADVERTISED: ServerState.LISTED,
    ServerState.LISTED: ServerState.LOST,
    ServerState.SHARED: ServerState.DELIVERED,
    ServerState.DELIVERED: ServerState.LOST,
    ServerState.RECEIVED: ServerState.FIXED,
    ServerState.ACCUSED: ServerState.LOST,
    ServerState.REVEALED: ServerState.FIXED,
    ServerState.FIXED: ServerState.PROPOSED,
    ServerState.HELPING: ServerState.PROPOSED,
    ServerState.UPLOADED: ServerState.PROPOSED,
    ServerState.PROPOSED: ServerState.LOST,
    ServerState.AGREED: ServerState.OPENED,
    ServerState.OPENED: ServerState.LOST,
}
"""Where users go when a phase ends. But a user about whose boxes there are complaints is `accused` first, one who
lied is lost, and a user of an incomplete batch sends no vector and helps the others to open theirs."""
