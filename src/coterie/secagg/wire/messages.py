"""The messages that every round begins with, the terms in them, and their legal order as tables (§2, §3, §6).

What is not in a table is refused and changes nothing. What follows a call stands with its inner protocol.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, TypeVar

import msgspec

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import LARGEST_BATCH, LARGEST_NAME, LARGEST_RECIPE
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.wire.framing import Count, Digest, Message, PublicKey, RoundNumber, Scope, Signature, UserId


class Invitation(Message, frozen=True, tag=1):
    """Server to client: a batch is to be formed for this scope (§2)."""

    scope: Scope


class Enrolment(Message, frozen=True, tag=2):
    """Client to server: my keys for a charter to come; the seal key is fresh (§2)."""

    scope: Scope
    user: UserId
    identity: PublicKey
    seal: PublicKey
    predecessor: Annotated[bytes, msgspec.Meta(max_length=32)]


class Draft(Message, frozen=True, tag=3):
    """Server to client: the charter that you are asked to sign (§2)."""

    charter: bytes


class CharterSignature(Message, frozen=True, tag=4):
    """Client to server: my signature over the charter of this digest (§2)."""

    scope: Scope
    user: UserId
    charter: Digest
    signature: Signature


class Founding(Message, frozen=True, tag=5):
    """Server to client: the charter with the signatures of all its members (§2)."""

    charter: bytes
    signatures: Annotated[dict[UserId, Signature], msgspec.Meta(max_length=LARGEST_BATCH)]


class CharterAcceptance(Message, frozen=True, tag=6):
    """Client to server: I accepted the charter and am ready for its rounds (§3)."""

    scope: Scope
    user: UserId
    charter: Digest


class RoundCall(Message, frozen=True, tag=7):
    """Server to client: take part in a sealed round under these terms (§3)."""

    scope: Scope
    charter: Digest
    round: RoundNumber
    step: RoundNumber
    model: bytes
    dimension: Count
    min_included: Count
    configuration: Annotated[bytes, msgspec.Meta(max_length=LARGEST_RECIPE)]


class UnsealedCall(Message, frozen=True, tag=9):
    """Server to client: take part in a round without a seal; only clients made for that take it (§4).

    No charter stands behind it: the server says here what a charter would have fixed.
    """

    scope: Scope
    inner: Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
    modulus: Count
    clip: float
    weight_cap: Count
    cohort: Count
    colluders: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    losses: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    recipe: Annotated[bytes, msgspec.Meta(max_length=LARGEST_RECIPE)]
    round: RoundNumber
    step: RoundNumber
    model: bytes
    dimension: Count
    min_included: Count


FROM_CLIENT = (Enrolment, CharterSignature, CharterAcceptance)
FROM_SERVER = (Invitation, Draft, Founding, RoundCall, UnsealedCall)


@dataclass(frozen=True)
class Terms:
    """Every byte that the server sends with a round and that can influence an update.

    Members that were shown different terms produce masks that do not cancel. What turns an update into a vector,
    and how an update is trained, is not here: the charter fixes both for a batch's whole life.
    """

    model: bytes
    dimension: int
    min_included: int = 1
    """The fewest users whose sums the round may give; in most inner protocols devices insist on it (§5)."""
    step: int = 0
    """How many rounds ended before, with a result or without: schedules depend on it. It never goes back."""
    configuration: bytes = b""
    """A training configuration in place of the charter's recipe; devices refuse it unless owners permit it."""

    def __post_init__(self) -> None:
        for name, least in (("dimension", 1), ("min_included", 1), ("step", 0)):
            value = getattr(self, name)
            if not least <= value < 2**63:
                raise UsageError(f"the terms' {name} is {value}; give a whole number from {least} up")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all fields; the model enters by its own digest, so it is hashed once."""
        model = hashlib.sha256(self.model).digest()
        fields = (model, self.dimension, self.min_included, self.step, self.configuration)
        return hashlib.sha256(enc("coterie/v2/terms", *fields)).digest()


def called_terms(call: RoundCall | UnsealedCall) -> Terms:
    """Return the terms in a call; refuse what cannot be terms."""
    configuration = call.configuration if isinstance(call, RoundCall) else b""
    try:
        return Terms(call.model, call.dimension, call.min_included, call.step, configuration)
    except UsageError as error:
        raise PeerError(f"the server's terms are impossible: {error}") from None


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
    (FoundingState.DRAFTED, CharterSignature): FoundingState.SIGNED,
    (FoundingState.FOUNDED, CharterAcceptance): FoundingState.DONE,
}
SERVER_FOUNDING_ENDS: dict[FoundingState, FoundingState] = {
    FoundingState.ENROLLED: FoundingState.DRAFTED,
    FoundingState.SIGNED: FoundingState.FOUNDED,
}
"""The server waits for all members, and moves them on together."""

S = TypeVar("S", bound=Enum)


def next_state(table: Mapping[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> S:
    """Return the state after a message; refuse one that is out of order.

    >>> next_state(SERVER_FOUNDING, FoundingState.INVITED, CharterAcceptance("s", "ann", bytes(32)), "ann")
    Traceback (most recent call last):
    coterie.errors.PeerError: CharterAcceptance came from ann out of order: in the state 'invited' only Enrolment is expected
    """  # noqa: E501 - the message is one line
    after = table.get((state, type(message)))
    if after is None:
        raise refusal(table, state, message, sender)
    return after


def refusal(table: Mapping[tuple[S, type[Message]], S], state: S, message: Message, sender: str) -> PeerError:
    """Return the error that says which messages would have been in order."""
    expected = [kind.__name__ for before, kind in table if before is state]
    return PeerError(
        f"{type(message).__name__} came from {sender} out of order: in the state {state.value!r} only "
        f"{' or '.join(expected) or 'nothing'} is expected"
    )
