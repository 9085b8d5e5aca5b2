"""The server's side of forming a batch: the rules that all batches share, and the exchange with its users (§2)."""

from collections.abc import Iterable
from dataclasses import dataclass

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import (
    DEFAULT_PARAMETERS,
    LARGEST_BATCH,
    Charter,
    Member,
    Parameters,
    check_name,
    read_recipe,
)
from coterie.secagg.crypto.keys import check_exchange_key, check_identity_key, verify_signature
from coterie.secagg.crypto.quantiser import Quantiser
from coterie.secagg.protocols import DEFAULT_PROTOCOL, PROTOCOLS, messages_from_client
from coterie.secagg.protocols.interface import Outgoing
from coterie.secagg.wire.framing import LARGEST_ROUND, encode
from coterie.secagg.wire.messages import (
    SERVER_FOUNDING,
    SERVER_FOUNDING_ENDS,
    CharterAcceptance,
    CharterSignature,
    Draft,
    Enrolment,
    Founding,
    FoundingState,
    Invitation,
    next_state,
)

LARGEST_ANSWER = 4096
"""Bytes that a client's answer has at most while a batch is being formed."""


@dataclass(frozen=True)
class BatchRules:
    """What all batches of a federation have in common in their charters: everything but the members."""

    scope: str
    privacy: int
    quantiser: Quantiser
    inner: str = DEFAULT_PROTOCOL
    parameters: Parameters = DEFAULT_PARAMETERS
    recipe: bytes = b"{}"

    def __post_init__(self) -> None:
        check_name(self.scope, "a data scope")
        if self.inner not in PROTOCOLS:
            raise UsageError(f"there is no inner protocol {self.inner!r}; give one of {', '.join(PROTOCOLS)}")
        if self.quantiser.ring not in PROTOCOLS[self.inner].rings:
            moduli = " or ".join(str(ring.modulus) for ring in PROTOCOLS[self.inner].rings)
            raise UsageError(f"the modulus is {self.quantiser.ring.modulus}; {self.inner!r} needs {moduli}")
        if self.privacy < 1:
            raise UsageError(f"the privacy level is {self.privacy}; give at least 1")
        read_recipe(self.recipe)

    def charter(self, members: Iterable[Member], first: int) -> Charter:
        """Return the charter of one batch."""
        rules = (self.scope, self.privacy, self.quantiser, self.inner)
        return Charter(*rules, tuple(members), self.parameters, self.recipe, first)


class BatchFounder:
    """Forms one batch of the given users. `receive` returns what to send next, once everybody has answered.

    `first` is the first round that the batch is to be called to: the server's next one, or a later one.
    """

    def __init__(self, rules: BatchRules, users: Iterable[str], first: int = 0) -> None:
        self.users = tuple(users)
        count = len(set(self.users))
        if count < max(rules.privacy, 2):
            raise UsageError(f"a batch of {count} users cannot have the privacy level {rules.privacy}")
        if len(self.users) > min(LARGEST_BATCH, rules.quantiser.cohort):
            raise UsageError(
                f"a batch of {len(self.users)} users is too large; at most "
                f"{min(LARGEST_BATCH, rules.quantiser.cohort)} are allowed"
            )
        if not 0 <= first <= LARGEST_ROUND:
            raise UsageError(f"the first round is {first}; give one from 0 to {LARGEST_ROUND}")
        self._rules, self._first = rules, first
        self._states = dict.fromkeys(self.users, FoundingState.INVITED)
        self._members: dict[str, Member] = {}
        self._signatures: dict[str, bytes] = {}
        self._draft: Charter
        """What is to be signed, once everybody has enrolled."""

    def invitations(self) -> Outgoing:
        """Return the first messages."""
        return dict.fromkeys(self.users, encode(Invitation(self._rules.scope)))

    @property
    def charter(self) -> Charter | None:
        """The charter, once all members have accepted it."""
        done = all(state is FoundingState.DONE for state in self._states.values())
        return self._draft if done else None

    def receive(self, user: str, data: bytes) -> Outgoing:
        """Take in a user's message; a violation raises PeerError and changes nothing."""
        if user not in self._states:
            raise PeerError(f"a message came from {user!r}, who is not to be in this batch")
        message, _ = messages_from_client.decode(data, largest=LARGEST_ANSWER)
        state = next_state(SERVER_FOUNDING, self._states[user], message, user)
        assert isinstance(message, Enrolment | CharterSignature | CharterAcceptance)  # noqa: S101 - the table has no others
        if message.scope != self._rules.scope or message.user != user:
            raise PeerError(f"{user} sent a message of {message.user!r} for the scope {message.scope!r}")
        if isinstance(message, Enrolment):
            self._members[user] = self._new_member(message)
        elif message.charter != self._draft.digest:
            raise PeerError(
                f"{user} speaks of another charter: {message.charter.hex()}, not {self._draft.digest.hex()}"
            )
        elif isinstance(message, CharterSignature):
            identity = self._members[user].identity
            verify_signature(identity, message.signature, "charter", self._draft.encode(), who=user)
            self._signatures[user] = message.signature
        self._states[user] = state
        return self._go_on()

    def _new_member(self, message: Enrolment) -> Member:
        """Return the charter's line for an enrolment; refuse one with which nobody would sign."""
        check_identity_key(message.identity, message.user)
        check_exchange_key(message.seal, "seal", message.user)
        try:
            member = Member(message.user, message.identity, message.seal, message.predecessor)
        except UsageError as error:
            raise PeerError(f"{message.user} enrolled with what no charter can hold: {error}") from None
        for other in self._members.values():
            if member.identity == other.identity or member.seal == other.seal:
                raise PeerError(f"{message.user} enrolled with a key of {other.user}")
        return member

    def _go_on(self) -> Outgoing:
        """Move all members on once the last of them has answered."""
        message: Draft | Founding
        states = set(self._states.values())
        if states == {FoundingState.ENROLLED}:
            self._draft = self._rules.charter(self._members.values(), self._first)
            message = Draft(self._draft.encode())
        elif states == {FoundingState.SIGNED}:
            message = Founding(self._draft.encode(), dict(self._signatures))
        else:
            return {}
        self._states = dict.fromkeys(self.users, SERVER_FOUNDING_ENDS[states.pop()])
        return dict.fromkeys(self.users, encode(message))
