"""The legal order of messages in a pairwise round, as tables (§5)."""

from enum import Enum

from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    RosterCall,
    Sharing,
    Unmasking,
)
from coterie.secagg.wire.framing import Message


class ParticipantState(Enum):
    """A client in a pairwise round."""

    ADVERTISED = "advertised"
    SHARED = "shared"
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
    HELPING = "helping"
    UPLOADED = "uploaded"
    PROPOSED = "proposed"
    AGREED = "agreed"
    OPENED = "opened"
    DONE = "done"
    LOST = "lost"


CLIENT_TABLE: dict[tuple[ParticipantState, type[Message]], ParticipantState] = {
    (ParticipantState.ADVERTISED, RosterCall): ParticipantState.SHARED,
    (ParticipantState.SHARED, Delivery): ParticipantState.UPLOADED,
    (ParticipantState.UPLOADED, Proposal): ParticipantState.AGREED,
    (ParticipantState.AGREED, Opening): ParticipantState.DONE,
}
SERVER_TABLE: dict[tuple[ServerState, type[Message]], ServerState] = {
    (ServerState.CALLED, Advertisement): ServerState.ADVERTISED,
    (ServerState.LISTED, Sharing): ServerState.SHARED,
    (ServerState.DELIVERED, MaskedVector): ServerState.UPLOADED,
    (ServerState.PROPOSED, Agreement): ServerState.AGREED,
    (ServerState.OPENED, Unmasking): ServerState.DONE,
}
SERVER_TABLE_ENDS: dict[ServerState, ServerState] = {
    ServerState.CALLED: ServerState.LOST,
    ServerState.ADVERTISED: ServerState.LISTED,
    ServerState.LISTED: ServerState.LOST,
    ServerState.SHARED: ServerState.DELIVERED,
    ServerState.DELIVERED: ServerState.PROPOSED,
    ServerState.HELPING: ServerState.PROPOSED,
    ServerState.UPLOADED: ServerState.PROPOSED,
    ServerState.PROPOSED: ServerState.LOST,
    ServerState.AGREED: ServerState.OPENED,
    ServerState.OPENED: ServerState.LOST,
}
"""Where users go when a phase ends; but who has shared in a batch that is incomplete only helps."""
