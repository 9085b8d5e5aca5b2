"""What an inner protocol is (§4), and what whoever drives a round of one gives and gets, at both ends."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.secagg.batch.charter import Charter, Parameters, VerifyMember
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import IdentityKey
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.crypto.quantiser import Quantiser, Sum
from coterie.secagg.crypto.ring import Ring, Words
from coterie.secagg.wire.framing import Data, Message
from coterie.secagg.wire.messages import Terms
from coterie.values.text import display_name, listing

MOST_SILENT = 5
"""Users of a batch that are named when they did not answer."""

Outgoing = Mapping[str, bytes]
"""Messages to send, by user. Large ones may be put together only when they are asked for: ask for each once."""


@dataclass(frozen=True)
class RoundSetting:
    """What everybody in a round must see alike; its digest is in every key, signature and message of the round."""

    mode: str
    """"sealed" or "unsealed": no signature or message of the one fits the other."""
    inner: str
    scope: str
    round: int
    terms: Terms
    quantiser: Quantiser
    parameters: Parameters

    @cached_property
    def context(self) -> bytes:
        """SHA-256 over mode, inner protocol, scope, round, terms, and the digests of quantiser and parameters."""
        quantiser = hashlib.sha256(enc("coterie/v2/quantiser", *self.quantiser.encoded_fields)).digest()
        shares = (self.parameters.colluders, self.parameters.losses)
        parameters = hashlib.sha256(enc("coterie/v2/parameters", *shares)).digest()
        fields = (self.mode, self.inner, self.scope, self.round, self.terms.digest, quantiser, parameters)
        return hashlib.sha256(enc("coterie/v2/context", *fields)).digest()

    @classmethod
    def sealed(cls, charter: Charter, round_: int, terms: Terms) -> "RoundSetting":
        """Return what a sealed round is for the members of a batch."""
        return cls("sealed", charter.inner, charter.scope, round_, terms, charter.quantiser, charter.parameters)

    def without_model(self) -> "RoundSetting":
        """Return what a round that is over still needs: the same context and sizes, without the model's bytes."""
        light = replace(self, terms=replace(self.terms, model=b""))
        vars(light)["context"] = self.context  # where cached_property keeps it
        return light

    @property
    def vector_bytes(self) -> int:
        """How long a vector of this round is."""
        return self.quantiser.vector_bytes(self.terms.dimension)


@dataclass(frozen=True)
class Party:
    """Who takes part in a round, and in which one: what stays the same for a client from its first phase on."""

    user: str
    identity: IdentityKey
    verify_member: VerifyMember
    batch: Mapping[str, bytes]
    """The identity keys of the user's own batch, which is in the sum as a whole or not at all."""
    charter: bytes
    """The digest of the batch's charter; empty in an unsealed round."""
    setting: RoundSetting
    largest_roster: int


@dataclass(frozen=True, eq=False)
class Group:
    """Users who are in the sum together or not at all: a batch, or in an unsealed round one user."""

    charter_digest: bytes
    """The charter's digest; empty for a user alone."""
    privacy: int
    identities: Mapping[str, bytes]
    call: bytes
    """What its users are first sent."""


@dataclass(frozen=True)
class Task:
    """What the server asks of a device in one round: train by the recipe on these terms, then seal the update."""

    scope: str
    charter: bytes
    """The charter's digest; empty in an unsealed round."""
    round: int
    terms: Terms
    recipe: bytes
    """The training configuration: the charter's, or the one in the terms if the device's owner permits that."""


@dataclass(frozen=True)
class LearnedSum:
    """A learned set, and its sum."""

    users: tuple[str, ...]
    sum: Sum


@dataclass(frozen=True)
class Exposure:
    """What the server could open from the bytes that it received, whether or not its own code did (§8)."""

    learned: tuple[tuple[str, ...], ...] = ()
    """Sets of users whose sum it could have: the whole of each batch in them."""
    unknown: tuple[str, ...] = ()
    """Users without a seal of whom any sum may be known, also a single one's: nothing is left to rely on."""


@dataclass(frozen=True)
class RoundResult:
    """What a round gave: the sums that the server took, and why some batches are in none of them.

    `open` gives one sum for every complete batch, the other inner protocols one for all included users.
    """

    round: int
    learned: tuple[LearnedSum, ...]
    lost: dict[bytes, str]
    """Charter digest of a batch without a result, and the reason."""
    liars: dict[str, str] = field(default_factory=dict)
    """Users who broke the protocol, and how, as far as it is proven; the round went on without them."""

    @property
    def sum(self) -> Sum:
        """The weighted sum over all learned sets."""
        values = np.sum([part.sum.values for part in self.learned], axis=0)
        return Sum(values, sum(part.sum.weight for part in self.learned))


def no_answer_reason(users: Iterable[str]) -> str:
    """Return why a batch has no result whose members did not answer, some of them by name.

    >>> no_answer_reason({"cas", "ana"})
    'ana, cas did not answer'
    """
    return f"{listing(map(display_name, sorted(users)), MOST_SILENT)} did not answer"


class ServerRound(ABC):
    """The server's side of one round, without I/O.

    Send what `start` returns. Give each answer to `receive`. When nobody is `waiting` any more, or the time is
    over, `advance`, and send what it returns; until that is nothing. Then `finish`. Messages that come late, also
    after `finish`, are given to `receive` too: it refuses them, and counts what they expose.
    """

    table: ClassVar[Mapping[tuple[Any, type[Message]], Any]]
    """The legal order of its users' messages."""
    table_ends: ClassVar[Mapping[Any, Any]]
    """Where users go when a phase ends."""

    def __init__(self, groups: Iterable[Group], setting: RoundSetting, first: Enum) -> None:
        self.round, self._setting = setting.round, setting
        self._set_groups(groups)
        if len(self._group_of) != sum(len(group.identities) for group in self._groups):
            raise UsageError("a user is in two of the batches of this round")
        self._states: dict[str, Any] = dict.fromkeys(self._group_of, first)
        self._over = False

    def _set_groups(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(groups)
        self._group_of = {user: group for group in self._groups for user in group.identities}

    def _complete(self, users: Iterable[str]) -> list[Group]:
        """Return the groups that are there as a whole."""
        there = frozenset(users)
        return [group for group in self._groups if there.issuperset(group.identities)]

    def _in_complete(self, users: Iterable[str]) -> list[str]:
        """Return the users of groups that are there as a whole."""
        return [user for group in self._complete(users) for user in group.identities]

    @property
    def waiting(self) -> frozenset[str]:
        """The users whose answer to this phase is still missing."""
        expecting = {state for state, _ in self.table}
        return frozenset(user for user, state in self._states.items() if state in expecting)

    def start(self) -> Outgoing:
        """Return the calls: the same bytes for all users of a group."""
        return {user: group.call for user, group in self._group_of.items()}

    def receive(self, user: str, data: Data) -> None:
        """Take in a user's answer; a violation raises PeerError and changes nothing but the exposure."""
        if user not in self._states:
            raise PeerError(f"a message came from {user!r}, who was not asked in this round")
        self._receive(user, data)

    @abstractmethod
    def _receive(self, user: str, data: Data) -> None:
        """Take in the answer of a user who was asked."""

    @abstractmethod
    def advance(self) -> Outgoing:
        """End the phase and return the next one's messages; none if there is no further phase.

        Who has not answered is lost to the round from here on. TooFewUsersError ends it.
        """

    def _end_phase(self) -> None:
        self._states = {user: self.table_ends.get(state, state) for user, state in self._states.items()}

    def _demand_batches(self, users: Iterable[str], done: str) -> None:
        """End a round in which too few users are left in complete groups: less than the terms ask for."""
        groups, least = self._complete(users), self._setting.terms.min_included
        included = sum(len(group.identities) for group in groups)
        if included < least:
            raise TooFewUsersError(
                f"{included} users in {len(groups)} of {len(self._groups)} batches {done}; {least} are needed"
            )

    def finish(self) -> RoundResult:
        """Return what the round gave; TooFewUsersError if that is less than the terms ask for.

        A round is finished once, and lets go of its vectors, sums and calls: it can be kept for late messages.
        """
        if self._over:
            raise UsageError(f"round {self.round} is over; a round is finished once")
        return self._finish()

    @abstractmethod
    def _finish(self) -> RoundResult:
        """Return what the round gave, and end it."""

    def _end_round(self) -> None:
        """Let go of everything large; who was heard, and what could be opened, stays known."""
        self._over = True
        self._setting = self._setting.without_model()
        self._set_groups(replace(group, call=b"") for group in self._groups)

    @abstractmethod
    def exposure(self) -> Exposure:
        """Return what the bytes received so far would open, at any moment, however the round goes or went."""


class Participant(Protocol):
    """One user's side of one round, once it has a vector to give; bytes are decoded outside."""

    words: Words
    """Where the vector is to be written, with `masks` among its masks, before `start`."""
    masks: Sequence[Mask]

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be answered in this round."""
        ...

    def start(self) -> bytes | memoryview:
        """Return the first answer."""
        ...

    def take(self, message: Message) -> bytes | memoryview | None:
        """Return the answer to a message of this round; a violation raises PeerError and changes nothing."""
        ...


@runtime_checkable
class StorableParticipant(Participant, Protocol):
    """A participant that a device can store between two messages, and end."""

    def store(self) -> bytes:
        """Return everything that the protocol's `restored` needs: secrets, for the device's own durable store."""
        ...


class InnerProtocol(Protocol):
    """How the sum of vectors is taken. One object for each; `protocols.PROTOCOLS` has them all by name."""

    name: str
    rings: tuple[Ring, ...]
    """What vectors can be added in, the preferred one first."""
    phases: int
    """How many times messages go out and answers come back, if nobody complains."""
    upload_phase: int
    """The phase, from 0, in which vectors leave the devices."""
    runs_unsealed: bool
    """Whether it hides anything by itself, and so can run without a seal, for comparison."""
    storable: bool
    """Whether a device may end after every message: a participant that is not finished is a `StorableParticipant`,
    and the protocol a `StorableProtocol`. One whose only answer is its vector has nothing to store."""
    server_sees: str
    """What the server sees of a sealed round, as a sentence."""
    from_client: tuple[type[Message], ...]
    from_server: tuple[type[Message], ...]

    def cohort_bound(self, per_round: int, largest_batch: int) -> int:
        """Return how many vectors are added at most, where rounds have `per_round` users."""
        ...

    def least_included(self, batch_sizes: Iterable[int], privacy: int) -> int:
        """Return the fewest users that a device of any of these batches wants in a sum."""
        ...

    def thresholds(self, users: int, parameters: Parameters) -> dict[str, int]:
        """Return the numbers that follow from γ and δ for a roster of so many users, each by what it counts."""
        ...

    def participant(self, party: Party, threads: int) -> Participant:
        """Return a client's side of one round."""
        ...

    def server_round(self, groups: Sequence[Group], setting: RoundSetting, threads: int) -> ServerRound:
        """Return the server's side of one round; refuse what devices would refuse with a UsageError."""
        ...


@runtime_checkable
class StorableProtocol(InnerProtocol, Protocol):
    """An inner protocol whose participants a device can store between two messages."""

    def restored(self, party: Party, stored: bytes) -> StorableParticipant:
        """Return a client's side of one round as its device stored it."""
        ...


class RoundPhase(NamedTuple):
    """Where a message belongs: a round (None while batches are formed) and a phase, counted from 0."""

    round: int | None
    phase: int
