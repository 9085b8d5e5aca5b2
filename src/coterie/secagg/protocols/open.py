"""The server in an `open` round: it sees the sum of each complete batch, and of an incomplete one noise (§4)."""

from collections.abc import Iterable

import numpy as np

from coterie.errors import PeerError, TooFewUsers, UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.crypto.ring import EXTRA_WORDS, Ring, Words, dequantise
from coterie.secagg.protocols.interface import Exposure, LearnedSum, Outgoing, RoundResult
from coterie.secagg.wire.messages import Data, SealedVector, decode_from_client, encode
from coterie.secagg.wire.states import SERVER_COLLECTING, SERVER_COLLECTING_ENDS, Collecting, following
from coterie.secagg.wire.terms import Terms, round_call

INNER = "open"
"""The inner protocol's name in a charter: a batch founded for another one never shows its own sum."""

LARGEST_HEAD = 4096
"""Bytes that a sealed message has at most before its words."""


class OpenRound:
    """The server's side of one sealed `open` round over several batches."""

    def __init__(self, charters: Iterable[Charter], round_: int, terms: Terms) -> None:
        self.charters = tuple(charters)
        self.round, self.terms = round_, terms
        self._batch_of = {member.user: charter for charter in self.charters for member in charter.members}
        users = sum(len(charter.members) for charter in self.charters)
        if len(self._batch_of) != users:
            raise UsageError("a user is in two of the batches of this round")
        if users > terms.cohort:
            raise UsageError(f"{users} users are asked, more than the {terms.cohort} that the terms allow")
        self._ring = {charter.digest: Ring(charter.modulus) for charter in self.charters}
        for ring in self._ring.values():
            terms.quantisation(ring)  # refuses terms whose sum could wrap around, before anyone is called
        self._states = dict.fromkeys(self._batch_of, Collecting.ASKED)
        self._sums: dict[bytes, Words] = {}
        self._received: set[str] = set()

    def start(self) -> Outgoing:
        """Return the first messages: the same bytes for all members of a batch."""
        outgoing = {}
        for charter in self.charters:
            data = encode(round_call(charter, self.round, self.terms))
            outgoing.update(dict.fromkeys((member.user for member in charter.members), data))
        return outgoing

    def receive(self, user: str, data: Data) -> None:
        """Take in a user's sealed vector; a violation raises PeerError and changes nothing."""
        if user not in self._states:
            raise PeerError(f"a message came from {user!r}, who was not asked in this round")
        size = 4 * (self.terms.dimension + EXTRA_WORDS)
        message, tail = decode_from_client(data, largest=size + LARGEST_HEAD)
        if not isinstance(message, SealedVector):
            raise PeerError(f"{type(message).__name__} came from {user}, not a sealed vector")
        charter = self._batch_of[user]
        said = (message.scope, message.charter, message.round, message.user, message.terms)
        meant = (charter.scope, charter.digest, self.round, user, self.terms.digest)
        names = ("scope", "charter", "round", "user", "terms")
        for name, came, expected in zip(names, said, meant, strict=True):
            if came != expected:
                raise PeerError(f"{user} sealed for another {name}: {came!r}, not {expected!r}")
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes of words, not {size}")
        words = np.frombuffer(tail, dtype="<u4")
        ring = self._ring[charter.digest]
        if ring.modulus < 2**32 and words.max() >= ring.modulus:
            raise PeerError(f"{user} sent a word that is not below {ring.modulus}")
        self._received.add(user)
        state = following(SERVER_COLLECTING, self._states[user], message, user)
        if charter.digest in self._sums:
            ring.add_into(self._sums[charter.digest], words)
        else:
            self._sums[charter.digest] = words.copy()
        self._states[user] = state

    @property
    def waiting(self) -> frozenset[str]:
        """The users whose vector has not come."""
        return frozenset(user for user, state in self._states.items() if state is Collecting.ASKED)

    def advance(self) -> Outgoing:
        """End the only phase: vectors that come later are refused."""
        self._states = {user: SERVER_COLLECTING_ENDS.get(state, state) for user, state in self._states.items()}
        return {}

    def exposure(self) -> Exposure:
        """Return the batches of which all vectors came, in time or not, with right check words or wrong ones."""
        batches = (tuple(member.user for member in charter.members) for charter in self.charters)
        return Exposure(tuple(users for users in batches if self._received.issuperset(users)))

    def finish(self) -> RoundResult:
        """End the round with what has come; TooFewUsers if too few users are in complete batches."""
        missing = {user for user, state in self._states.items() if state is not Collecting.RECEIVED}
        found, lost = [], {}
        for charter in self.charters:
            users = tuple(member.user for member in charter.members)
            absent = [user for user in users if user in missing]
            if absent:
                lost[charter.digest] = f"{len(absent)} of {len(users)} users did not answer"
                continue
            quantisation = self.terms.quantisation(self._ring[charter.digest])
            try:
                found.append(LearnedSum(users, dequantise(self._sums[charter.digest], quantisation, len(users))))
            except PeerError as error:
                lost[charter.digest] = str(error)
        included = sum(len(part.users) for part in found)
        if included < self.terms.min_included:
            raise TooFewUsers(
                f"{included} users in {len(found)} of {len(self.charters)} batches gave a sum in round "
                f"{self.round}; {self.terms.min_included} are needed"
            )
        return RoundResult(self.round, tuple(found), lost)
