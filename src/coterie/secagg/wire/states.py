"""The legal order of messages, as tables: what is not in them is refused and changes nothing."""

from enum import Enum
from typing import TypeVar

from coterie.errors import PeerError
from coterie.secagg.wire.messages import (
    Accepted,
    Advertisement,
    Agreement,
    Delivery,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    MaskedVector,
    Message,
    Opening,
    Proposal,
    RosterCall,
    RoundCall,
    SealedVector,
    Sharing,
    Signed,
    Unmasking,
    UnsealedCall,
)


class Joining(Enum):
    """A client on its way into a batch, for one data scope."""

    IDLE = "idle"
    ENROLLED = "enrolled"
    SIGNED = "signed"


class Taking(Enum):
    """A client in the rounds of its charter, for one data scope; the last four are a pairwise round's phases."""

    OUTSIDE = "outside"
    READY = "ready"
    CALLED = "called"
    ADVERTISED = "advertised"
    SHARED = "shared"
    UPLOADED = "uploaded"
    AGREED = "agreed"


class Forming(Enum):
    """The server on its way to a charter, as it sees one member."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    DRAFTED = "drafted"
    SIGNED = "signed"
    FOUNDED = "founded"
    DONE = "done"


class Collecting(Enum):
    """The server in an `open` round, as it sees one member."""

    ASKED = "asked"
    RECEIVED = "received"
    LOST = "lost"


class Pairing(Enum):
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


CLIENT_JOINING: dict[tuple[Joining, type[Message]], Joining] = {
    (Joining.IDLE, Invitation): Joining.ENROLLED,
    (Joining.ENROLLED, Invitation): Joining.ENROLLED,
    (Joining.SIGNED, Invitation): Joining.ENROLLED,
    (Joining.ENROLLED, Draft): Joining.SIGNED,
    (Joining.SIGNED, Draft): Joining.SIGNED,
    (Joining.SIGNED, Founding): Joining.IDLE,
}
CLIENT_PHASES: dict[tuple[Taking, type[Message]], Taking] = {
    (Taking.ADVERTISED, RosterCall): Taking.SHARED,
    (Taking.SHARED, Delivery): Taking.UPLOADED,
    (Taking.UPLOADED, Proposal): Taking.AGREED,
    (Taking.AGREED, Opening): Taking.READY,
}
CLIENT_TAKING: dict[tuple[Taking, type[Message]], Taking] = {
    **{(state, RoundCall): Taking.CALLED for state in Taking if state is not Taking.OUTSIDE},
    **CLIENT_PHASES,
}
CLIENT_UNSEALED: dict[tuple[Taking, type[Message]], Taking] = {
    **{(state, UnsealedCall): Taking.CALLED for state in Taking if state is not Taking.OUTSIDE},
    **CLIENT_PHASES,
}
"""An unsealed client is never outside: it belongs to no batch."""
CLIENT_STEPS: dict[tuple[Taking, str], Taking] = {
    (Taking.OUTSIDE, "accept a charter"): Taking.READY,
    (Taking.CALLED, "seal in open"): Taking.READY,
    (Taking.CALLED, "seal in a pairwise round"): Taking.ADVERTISED,
}
"""What a client does by itself."""
SERVER_FORMING: dict[tuple[Forming, type[Message]], Forming] = {
    (Forming.INVITED, Enrolment): Forming.ENROLLED,
    (Forming.DRAFTED, Signed): Forming.SIGNED,
    (Forming.FOUNDED, Accepted): Forming.DONE,
}
SERVER_FORMING_ENDS: dict[Forming, Forming] = {
    Forming.ENROLLED: Forming.DRAFTED,
    Forming.SIGNED: Forming.FOUNDED,
}
"""The server waits for all members, and moves them on together."""
SERVER_COLLECTING: dict[tuple[Collecting, type[Message]], Collecting] = {
    (Collecting.ASKED, SealedVector): Collecting.RECEIVED,
}
SERVER_COLLECTING_ENDS: dict[Collecting, Collecting] = {Collecting.ASKED: Collecting.LOST}
"""Where users go when the time is over."""
SERVER_PAIRWISE: dict[tuple[Pairing, type[Message]], Pairing] = {
    (Pairing.CALLED, Advertisement): Pairing.ADVERTISED,
    (Pairing.LISTED, Sharing): Pairing.SHARED,
    (Pairing.DELIVERED, MaskedVector): Pairing.UPLOADED,
    (Pairing.PROPOSED, Agreement): Pairing.AGREED,
    (Pairing.OPENED, Unmasking): Pairing.DONE,
}
SERVER_PAIRWISE_ENDS: dict[Pairing, Pairing] = {
    Pairing.CALLED: Pairing.LOST,
    Pairing.ADVERTISED: Pairing.LISTED,
    Pairing.LISTED: Pairing.LOST,
    Pairing.SHARED: Pairing.DELIVERED,
    Pairing.DELIVERED: Pairing.PROPOSED,
    Pairing.HELPING: Pairing.PROPOSED,
    Pairing.UPLOADED: Pairing.PROPOSED,
    Pairing.PROPOSED: Pairing.LOST,
    Pairing.AGREED: Pairing.OPENED,
    Pairing.OPENED: Pairing.LOST,
}
"""Where users go when a phase ends; but who has shared in a batch that is incomplete only helps."""

S = TypeVar("S", bound=Enum)


def following(table: dict[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> S:
    """Return the state after a message; refuse one that is out of order.

    >>> following(SERVER_FORMING, Forming.INVITED, Accepted("s", "ann", bytes(32)), "ann")
    Traceback (most recent call last):
    coterie.errors.PeerError: Accepted came from ann out of order: in the state 'invited' only Enrolment is expected
    """  # noqa: E501 - the message is one line
    after = table.get((state, type(message)))
    if after is None:
        raise refusal(table, state, message, sender)
    return after


def refusal(table: dict[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> PeerError:
    """Return the error that says which messages would have been in order."""
    expected = [kind.__name__ for held, kind in table if held is state]
    return PeerError(
        f"{type(message).__name__} came from {sender} out of order: in the state {state.value!r} only "
        f"{' or '.join(expected) or 'nothing'} is expected"
    )
