"""The legal order of messages, as tables: what is not in them is refused and changes nothing."""

from enum import Enum
from typing import TypeVar

from coterie.errors import PeerError
from coterie.secagg.messages import (
    Accepted,
    Draft,
    Enrolment,
    Founding,
    Invitation,
    Message,
    RoundCall,
    SealedVector,
    Signed,
)


class Joining(Enum):
    """A client on its way into a batch, for one data scope."""

    IDLE = "idle"
    ENROLLED = "enrolled"
    SIGNED = "signed"


class Taking(Enum):
    """A client in the rounds of its charter, for one data scope."""

    OUTSIDE = "outside"
    READY = "ready"
    CALLED = "called"


class Forming(Enum):
    """The server on its way to a charter, as it sees one member."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    DRAFTED = "drafted"
    SIGNED = "signed"
    FOUNDED = "founded"
    DONE = "done"


class Collecting(Enum):
    """The server in one round, as it sees one member."""

    ASKED = "asked"
    RECEIVED = "received"


CLIENT_JOINING: dict[tuple[Joining, type[Message]], Joining] = {
    (Joining.IDLE, Invitation): Joining.ENROLLED,
    (Joining.ENROLLED, Invitation): Joining.ENROLLED,
    (Joining.SIGNED, Invitation): Joining.ENROLLED,
    (Joining.ENROLLED, Draft): Joining.SIGNED,
    (Joining.SIGNED, Draft): Joining.SIGNED,
    (Joining.SIGNED, Founding): Joining.IDLE,
}
CLIENT_TAKING: dict[tuple[Taking, type[Message]], Taking] = {
    (Taking.READY, RoundCall): Taking.CALLED,
    (Taking.CALLED, RoundCall): Taking.CALLED,
}
SERVER_FORMING: dict[tuple[Forming, type[Message]], Forming] = {
    (Forming.INVITED, Enrolment): Forming.ENROLLED,
    (Forming.DRAFTED, Signed): Forming.SIGNED,
    (Forming.FOUNDED, Accepted): Forming.DONE,
}
"""Between these steps the server waits for all members: it moves them on together."""
SERVER_COLLECTING: dict[tuple[Collecting, type[Message]], Collecting] = {
    (Collecting.ASKED, SealedVector): Collecting.RECEIVED,
}

S = TypeVar("S", bound=Enum)


def following(table: dict[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> S:
    """Return the state after a message; refuse one that is out of order.

    >>> following(SERVER_FORMING, Forming.INVITED, Accepted("s", "ann", bytes(32)), "ann")
    Traceback (most recent call last):
    coterie.errors.PeerError: Accepted came from ann out of order: in the state 'invited' only Enrolment is expected
    """  # noqa: E501 - the message is one line
    try:
        return table[state, type(message)]
    except KeyError:
        expected = [kind.__name__ for held, kind in table if held is state]
        raise PeerError(
            f"{type(message).__name__} came from {sender} out of order: in the state {state.value!r} only "
            f"{' or '.join(expected) or 'nothing'} is expected"
        ) from None
