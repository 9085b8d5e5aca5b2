"""The legal order of messages in a pairwise round, as tables (§5)."""

from enum import Enum

from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
    Sharing,
    Unmasking,
)
from coterie.secagg.wire.framing import Message


class ParticipantState(Enum):
    """A client in a pairwise round."""

    ADVERTISED = "advertised"
    SHARED = "shared"
    RECEIVED = "received"
    REVEALED = "revealed"
    UPLOADED = "uploaded"
    AGREED = "agreed"
    DONE = "done"


class ServerState(Enum):
    """The server in a pairwise round, as it sees one user."""

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
SERVER_TABLE: dict[tuple[ServerState, type[Message]], ServerState] = {
    (ServerState.CALLED, Advertisement): ServerState.ADVERTISED,
    (ServerState.LISTED, Sharing): ServerState.SHARED,
    (ServerState.DELIVERED, Receipt): ServerState.RECEIVED,
    (ServerState.ACCUSED, Reveal): ServerState.REVEALED,
    (ServerState.FIXED, MaskedVector): ServerState.UPLOADED,
    (ServerState.PROPOSED, Agreement): ServerState.AGREED,
    (ServerState.OPENED, Unmasking): ServerState.DONE,
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
lied is lost, and a sharer of a batch that is incomplete only helps."""
