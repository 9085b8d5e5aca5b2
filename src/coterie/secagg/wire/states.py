"""The legal order of messages, as tables: what is not in them is refused and changes nothing.

The tables here are those of every round; the phases of an inner protocol have theirs in its own package.
"""

from enum import Enum
from typing import TypeVar

from coterie.errors import PeerError
from coterie.secagg.wire.framing import Message
from coterie.secagg.wire.messages import (
    Accepted,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    RoundCall,
    Signed,
    UnsealedCall,
)


class EnrolmentState(Enum):
    """A client on its way into a batch, for one data scope."""

    IDLE = "idle"
    ENROLLED = "enrolled"
    SIGNED = "signed"


class ClientState(Enum):
    """A client in the rounds of its charter, for one data scope."""

    OUTSIDE = "outside"
    READY = "ready"
    CALLED = "called"
    ANSWERING = "answering"
    """In the phases of an inner protocol, whose own table goes on from here."""


class FoundingState(Enum):
    """The server on its way to a charter, as it sees one member."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    DRAFTED = "drafted"
    SIGNED = "signed"
    FOUNDED = "founded"
    DONE = "done"


CLIENT_ENROLMENT: dict[tuple[EnrolmentState, type[Message]], EnrolmentState] = {
    (EnrolmentState.IDLE, Invitation): EnrolmentState.ENROLLED,
    (EnrolmentState.ENROLLED, Invitation): EnrolmentState.ENROLLED,
    (EnrolmentState.SIGNED, Invitation): EnrolmentState.ENROLLED,
    (EnrolmentState.ENROLLED, Draft): EnrolmentState.SIGNED,
    (EnrolmentState.SIGNED, Draft): EnrolmentState.SIGNED,
    (EnrolmentState.SIGNED, Founding): EnrolmentState.IDLE,
}
CLIENT_SEALED: dict[tuple[ClientState, type[Message]], ClientState] = {
    (state, RoundCall): ClientState.CALLED for state in ClientState if state is not ClientState.OUTSIDE
}
CLIENT_UNSEALED: dict[tuple[ClientState, type[Message]], ClientState] = {
    (state, UnsealedCall): ClientState.CALLED for state in ClientState if state is not ClientState.OUTSIDE
}
"""An unsealed client is never outside: it belongs to no batch."""
CLIENT_STEPS: dict[tuple[ClientState, str], ClientState] = {
    (ClientState.OUTSIDE, "accept a charter"): ClientState.READY,
    (ClientState.CALLED, "seal"): ClientState.ANSWERING,
    (ClientState.ANSWERING, "give the last answer"): ClientState.READY,
}
"""What a client does by itself."""
SERVER_FOUNDING: dict[tuple[FoundingState, type[Message]], FoundingState] = {
    (FoundingState.INVITED, Enrolment): FoundingState.ENROLLED,
    (FoundingState.DRAFTED, Signed): FoundingState.SIGNED,
    (FoundingState.FOUNDED, Accepted): FoundingState.DONE,
}
SERVER_FOUNDING_ENDS: dict[FoundingState, FoundingState] = {
    FoundingState.ENROLLED: FoundingState.DRAFTED,
    FoundingState.SIGNED: FoundingState.FOUNDED,
}
"""The server waits for all members, and moves them on together."""

S = TypeVar("S", bound=Enum)


def following(table: dict[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> S:
    """Return the state after a message; refuse one that is out of order.

    >>> following(SERVER_FOUNDING, FoundingState.INVITED, Accepted("s", "ann", bytes(32)), "ann")
    Traceback (most recent call last):
    coterie.errors.PeerError: Accepted came from ann out of order: in the state 'invited' only Enrolment is expected
    """  # noqa: E501 - the message is one line
    after = table.get((state, type(message)))
    if after is None:
        raise refusal(table, state, message, sender)
    return after


def refusal(table: dict[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> PeerError:
    """Return the error that says which messages would have been in order."""
    expected = [kind.__name__ for before, kind in table if before is state]
    return PeerError(
        f"{type(message).__name__} came from {sender} out of order: in the state {state.value!r} only "
        f"{' or '.join(expected) or 'nothing'} is expected"
    )
