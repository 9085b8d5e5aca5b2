"""`open`: one message from each user, and the server sees the sum of every complete batch (§4).

Of an incomplete batch it sees noise, like everybody: the seal's masks are all there is.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.crypto.quantiser import dequantise
from coterie.secagg.crypto.ring import RING_16, RING_32, Ring, Words
from coterie.secagg.protocols.interface import (
    Exposure,
    Group,
    LearnedSum,
    Outgoing,
    Party,
    RoundResult,
    RoundSetting,
    ServerRound,
    no_answer_reason,
)
from coterie.secagg.wire.framing import (
    Data,
    Digest,
    Message,
    MessageDecoder,
    RoundMessage,
    UserId,
    begins_with_tail,
    blank,
)
from coterie.secagg.wire.messages import next_state

LARGEST_HEAD = 4096
"""Bytes that a sealed message has at most before its words."""


class SealedVector(RoundMessage, frozen=True, tag=8):
    """Client to server: my sealed vector; its words are the tail (§3)."""

    has_tail = True
    charter: Digest
    user: UserId


class CollectionState(Enum):
    """The server in an `open` round, as it sees one member."""

    ASKED = "asked"
    RECEIVED = "received"
    LATE = "late"
    """The time is over; a vector that still comes is not used, but it was seen."""


SERVER_TABLE: dict[tuple[CollectionState, type[Message]], CollectionState] = {
    (CollectionState.ASKED, SealedVector): CollectionState.RECEIVED,
}
SERVER_TABLE_ENDS: dict[CollectionState, CollectionState] = {CollectionState.ASKED: CollectionState.LATE}
"""Where users go when the time is over."""

_from_client = MessageDecoder((SealedVector,), "client")


class OpenParticipant:
    """One user's side of one `open` round: the sealed vector is all that it sends."""

    masks: Sequence[Mask] = ()
    finished = True

    def __init__(self, party: Party) -> None:
        setting = party.setting
        head = SealedVector(setting.scope, setting.context, party.charter, party.user)
        self._message, tail = blank(head, setting.vector_bytes)
        self.words: Words = np.frombuffer(tail, dtype=setting.quantiser.ring.dtype)

    def start(self) -> memoryview:
        """Return the sealed vector."""
        return self._message.toreadonly()

    def take(self, message: Message) -> bytes:
        """Refuse any further message."""
        raise PeerError(f"{type(message).__name__} came from the server; an open round has one message each way")


class OpenRound(ServerRound):
    """The server's side of one `open` round over several batches."""

    table = SERVER_TABLE
    table_ends = SERVER_TABLE_ENDS

    def __init__(self, groups: Iterable[Group], setting: RoundSetting) -> None:
        super().__init__(groups, setting, CollectionState.ASKED)
        largest = max((len(group.identities) for group in self._groups), default=0)
        if largest > setting.quantiser.cohort:
            raise UsageError(
                f"a batch has {largest} users, more than the {setting.quantiser.cohort} that its charter allows"
            )
        self._sums: dict[bytes, Words] = {}
        self._seen: set[str] = set()

    def _receive(self, user: str, data: Data) -> None:
        size = self._setting.vector_bytes
        try:
            message, tail = _from_client.decode(data, largest=size + LARGEST_HEAD)
        except PeerError:
            if begins_with_tail(data):  # cut off or garbled on the way: what has come of its words can be added
                self._seen.add(user)
            raise
        group = self._group_of[user]
        received = (message.scope, message.context.hex(), message.charter.hex(), message.user)
        expected = (self._setting.scope, self._setting.context.hex(), group.charter_digest.hex(), user)
        for name, one, other in zip(("scope", "round", "charter", "user"), received, expected, strict=True):
            if one != other:
                raise PeerError(f"{user} sealed for another {name}: {one!r}, not {other!r}")
        self._seen.add(user)
        if self._over:
            raise PeerError(f"{user} answered out of order: the round is over")
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes of words, not {size}")
        state = next_state(SERVER_TABLE, self._states[user], message, user)
        words: Words = np.frombuffer(tail, dtype=self._setting.quantiser.ring.dtype)
        if group.charter_digest in self._sums:
            self._setting.quantiser.ring.add_into(self._sums[group.charter_digest], words)
        else:
            self._sums[group.charter_digest] = words.copy()
        self._states[user] = state

    def advance(self) -> Outgoing:
        """End the only phase: vectors that come later are refused."""
        self._end_phase()
        return {}

    def _finish(self) -> RoundResult:
        totals, self._sums = self._sums, {}
        missing = {user for user, state in self._states.items() if state is not CollectionState.RECEIVED}
        sums, lost = [], {}
        for group in self._groups:
            users = tuple(group.identities)
            absent = missing.intersection(users)
            if absent:
                lost[group.charter_digest] = no_answer_reason(absent)
                continue
            try:
                total = dequantise(totals[group.charter_digest], self._setting.quantiser, len(users))
                sums.append(LearnedSum(users, total))
            except PeerError as error:
                lost[group.charter_digest] = str(error)
        self._end_round()
        self._demand_batches([user for part in sums for user in part.users], f"gave a sum in round {self.round}")
        return RoundResult(self.round, tuple(sums), lost)

    def exposure(self) -> Exposure:
        """Return every batch of which all vectors have come, in time or late, with right check words or not."""
        return Exposure(tuple(tuple(group.identities) for group in self._complete(self._seen)))


class Open:
    """The inner protocol `open`."""

    name = "open"
    rings: tuple[Ring, ...] = (RING_16, RING_32)
    phases = 1
    upload_phase = 0
    runs_unsealed = False
    storable = True
    server_sees = "The sum of each complete batch by itself; batches are not hidden in one another."
    from_client: tuple[type[Message], ...] = (SealedVector,)
    from_server: tuple[type[Message], ...] = ()

    def cohort_bound(self, per_round: int, largest_batch: int) -> int:
        """Return twice the largest batch: only a batch's own vectors are added, and two batches may merge."""
        del per_round
        return 2 * largest_batch

    def least_included(self, batch_sizes: Iterable[int], privacy: int) -> int:
        """Return 1: a batch's sum is shown by itself anyway."""
        del batch_sizes, privacy
        return 1

    def thresholds(self, users: int, parameters: Parameters) -> dict[str, int]:
        """Return none: nobody agrees to anything, and nothing is shared."""
        del users, parameters
        return {}

    def participant(self, party: Party, threads: int) -> OpenParticipant:
        """Return a client's side of one round."""
        del threads
        return OpenParticipant(party)

    def server_round(self, groups: Sequence[Group], setting: RoundSetting, threads: int) -> OpenRound:
        """Return the server's side of one round."""
        del threads
        return OpenRound(groups, setting)
