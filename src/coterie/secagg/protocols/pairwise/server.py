"""The server's side of a pairwise round: five phases, then one sum over all complete batches (§5)."""

from collections.abc import Iterable

import numpy as np

from coterie.errors import PeerError, TooFewUsers, UsageError
from coterie.secagg.crypto.keys import verify_signature
from coterie.secagg.crypto.ring import EXTRA_WORDS, RING_32, Words, dequantise
from coterie.secagg.crypto.shamir import LIMBS, SHARE_BYTES
from coterie.secagg.protocols.interface import Exposure, LearnedSum, Outgoing, RoundResult
from coterie.secagg.protocols.pairwise.grouping import Group, Grouping
from coterie.secagg.protocols.pairwise.pairs import BOX_BYTES
from coterie.secagg.protocols.pairwise.recovery import Shares, unmask
from coterie.secagg.protocols.pairwise.roster import Roster, check_line
from coterie.secagg.protocols.pairwise.setting import Setting
from coterie.secagg.wire.messages import (
    Advertisement,
    Agreement,
    ClientMessage,
    Data,
    Delivery,
    MaskedVector,
    Opening,
    PhaseAnswer,
    Proposal,
    RosterCall,
    RosterLine,
    Sharing,
    Unmasking,
    decode_from_client,
    encode,
)
from coterie.secagg.wire.states import SERVER_PAIRWISE, SERVER_PAIRWISE_ENDS, Pairing, following

LARGEST_HEAD = 4096
"""Bytes that a message has at most beside its shares or words."""
PHASES = 5
_EXPECTING = frozenset(state for state, _ in SERVER_PAIRWISE)


class PairwiseRound:
    """The server's side of one round of SecAgg or SecAgg+."""

    def __init__(self, groups: Iterable[Group], setting: Setting, *, threads: int) -> None:
        self.round, self._terms, self._setting = setting.round, setting.terms, setting
        self._head = (setting.scope, setting.context)
        self._grouping = Grouping(groups, setting.terms)
        self._threads = threads
        self._quantisation = setting.terms.quantisation(RING_32)
        self._states = dict.fromkeys(self._grouping.of, Pairing.CALLED)
        self._lines: dict[str, RosterLine] = {}
        self._boxes: dict[str, bytes] = {}
        self._seed_digests: dict[str, bytes] = {}
        self._partial: dict[bytes, Words] = {}
        self._total: Words = np.zeros(setting.terms.dimension + EXTRA_WORDS, dtype=np.uint32)
        self._uploads: dict[str, bytes] = {}
        self._signatures: dict[str, bytes] = {}
        self._opened: dict[str, Words] = {}
        self._phase = 0
        self._agreed = False

    # --- what whoever drives the round calls

    def start(self) -> Outgoing:
        """Return the calls: the same bytes for all users of a group."""
        return {user: group.call for user, group in self._grouping.of.items()}

    @property
    def waiting(self) -> frozenset[str]:
        """The users whose answer to this phase is still missing."""
        return frozenset(user for user, state in self._states.items() if state in _EXPECTING)

    def receive(self, user: str, data: Data) -> None:
        """Take in a user's answer; a violation raises PeerError and changes nothing."""
        if user not in self._states:
            raise PeerError(f"a message came from {user!r}, who was not asked in this round")
        words = 4 * (self._terms.dimension + EXTRA_WORDS)
        largest = LARGEST_HEAD + max(words, BOX_BYTES * len(self._states))
        message, tail = decode_from_client(data, largest)
        state = following(SERVER_PAIRWISE, self._states[user], message, user)
        self._take(user, message, tail)
        self._states[user] = state

    def advance(self) -> Outgoing:
        """End the phase: who has not answered is lost, or as a sharer without a vector excluded."""
        steps = (self._fix_roster, self._fix_sharers, self._propose, self._open, self._end)
        if self._phase == len(steps):
            return {}
        outgoing = steps[self._phase]()
        self._phase += 1
        return outgoing

    def finish(self) -> RoundResult:
        """Open what the agreement calls for, and return the sum over the included users."""
        if self._phase < PHASES:
            raise UsageError(f"phase {self._phase} of {PHASES} is not over; advance until nothing is to be sent")
        places = self._roster.position
        held = {places[user]: (self._held_by(places[user]), shares) for user, shares in self._opened.items()}
        digests = {places[user]: digest for user, digest in self._seed_digests.items()}
        total = self._total.copy()
        included = frozenset(self._included)
        unmask(total, self._roster, Shares.gathered(held), digests, included, threads=self._threads)
        users = tuple(self._roster.lines[place].user for place in self._included)
        try:
            found = LearnedSum(users, dequantise(total, self._quantisation, len(users)))
        except PeerError as error:
            raise TooFewUsers(f"round {self.round} gave no sum: {error}") from None
        self._agreed = True
        return RoundResult(self.round, (found,), self._grouping.lost(self._absent))

    def exposure(self) -> Exposure:
        """Return the included once shares may have been sent; unsealed, what did not end as agreed is unknown."""
        included: tuple[tuple[str, ...], ...] = ()
        if self._phase >= PHASES - 1:
            included = (tuple(self._roster.lines[place].user for place in self._included),)
        if self._setting.kind == "sealed" or self._agreed:
            return Exposure(included)
        return Exposure((), tuple(self._uploads))

    # --- what comes

    def _take(self, user: str, message: ClientMessage, tail: memoryview) -> None:
        if not isinstance(message, PhaseAnswer):
            raise PeerError(f"{type(message).__name__} came from {user}, which no phase asks for")
        said = (message.scope, message.context.hex(), message.user)
        meant = (self._setting.scope, self._setting.context.hex(), user)
        for name, came, right in zip(("scope", "round", "user"), said, meant, strict=True):
            if came != right:
                raise PeerError(f"{user} answered for another {name}: {came!r}, not {right!r}")
        match message:
            case Advertisement():
                self._lines[user] = self._checked_line(user, message)
            case Sharing():
                expected = BOX_BYTES * (len(self._roster.graph.holders(self._roster.position[user])) - 1)
                if len(message.shares) != expected:
                    raise PeerError(f"{user} sent {len(message.shares)} bytes of shares, not {expected}")
                self._boxes[user], self._seed_digests[user] = message.shares, message.seed_digest
            case MaskedVector():
                self._add(user, message, tail)
            case Agreement():
                self._verify(user, message.signature, "agree", *self._agreement)
                self._signatures[user] = message.signature
            case Unmasking():
                self._opened[user] = self._checked_shares(user, message)

    def _verify(self, user: str, signature: bytes, purpose: str, *signed: bytes) -> None:
        verify_signature(self._grouping.of[user].identities[user], signature, purpose, *signed, who=user)

    def _checked_line(self, user: str, message: Advertisement) -> RosterLine:
        identity = self._grouping.of[user].identities[user]
        line = RosterLine(user, identity, message.mask_key, message.share_key, message.signature)
        check_line(line, self._setting.context)
        for other in self._lines.values():
            if line.mask_key == other.mask_key or line.share_key == other.share_key:
                raise PeerError(f"{user} advertised a key of {other.user}")
        return line

    def _add(self, user: str, message: MaskedVector, tail: memoryview) -> None:
        """Add a vector to its batch's; the last one takes the batch into the sum."""
        size = 4 * (self._terms.dimension + EXTRA_WORDS)
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes of words, not {size}")
        self._verify(user, message.signature, "upload", *self._roster.upload(self._sharers))
        self._uploads[user] = message.signature
        words = np.frombuffer(tail, dtype="<u4")
        group = self._grouping.of[user]
        others = [self._states[other] for other in group.identities if other != user]
        if all(state is Pairing.UPLOADED for state in others):
            RING_32.add_into(self._total, words)
            if group.name in self._partial:
                RING_32.add_into(self._total, self._partial.pop(group.name))
        elif group.name in self._partial:
            RING_32.add_into(self._partial[group.name], words)
        else:
            self._partial[group.name] = words.copy()

    def _held_by(self, place: int) -> tuple[int, ...]:
        """Return the sharers whose shares a user holds, its own among them."""
        sharers = frozenset(self._sharers)
        return tuple(other for other in self._roster.graph.holders(place) if other in sharers)

    def _checked_shares(self, user: str, message: Unmasking) -> Words:
        held = self._held_by(self._roster.position[user])
        if len(message.shares) != SHARE_BYTES * len(held):
            raise PeerError(f"{user} sent {len(message.shares)} bytes of shares, not {SHARE_BYTES * len(held)}")
        return np.frombuffer(message.shares, dtype="<u4").reshape(len(held), LIMBS)

    # --- the ends of the phases

    def _fix_roster(self) -> Outgoing:
        self._end_phase()
        self._grouping.demand(self._lines, "advertised")
        lines = sorted(self._lines.values(), key=lambda line: line.user.encode())
        self._roster = Roster(self._setting.context, self._setting.inner, tuple(lines))
        return dict.fromkeys(self._lines, encode(RosterCall(*self._head, self._roster.lines)))

    def _fix_sharers(self) -> Outgoing:
        self._end_phase()
        self._demand_responders(len(self._boxes), "shared")
        self._grouping.demand(self._boxes, "shared")
        complete = {user for group in self._grouping.complete(self._boxes) for user in group.identities}
        self._states |= dict.fromkeys(self._boxes.keys() - complete, Pairing.HELPING)
        places, holders = self._roster.position, self._roster.graph.holders
        self._sharers = tuple(sorted(places[user] for user in self._boxes))
        delivered: dict[int, list[memoryview]] = {place: [] for place in self._sharers}
        for place in self._sharers:
            boxes = memoryview(self._boxes.pop(self._roster.lines[place].user))
            others = (holder for holder in holders(place) if holder != place)
            for number, holder in enumerate(others):
                if holder in delivered:
                    delivered[holder].append(boxes[BOX_BYTES * number : BOX_BYTES * (number + 1)])
        return {
            self._roster.lines[place].user: encode(Delivery(*self._head, self._sharers, b"".join(boxes)))
            for place, boxes in delivered.items()
        }

    def _propose(self) -> Outgoing:
        # Of an incomplete batch nobody was asked for a vector; absent are only those who did not answer.
        gone = (Pairing.LOST, Pairing.DELIVERED)
        self._absent = frozenset(user for user, state in self._states.items() if state in gone)
        left = self._states.keys() - self._absent
        self._end_phase()
        self._grouping.demand(left, "uploaded")
        included = {user for group in self._grouping.complete(left) for user in group.identities}
        places = self._roster.position
        self._included = tuple(sorted(places[user] for user in included))
        excluded = tuple(place for place in self._sharers if self._roster.lines[place].user not in included)
        self._agreement = self._roster.agreement(self._sharers, self._included, excluded)
        proposal = encode(Proposal(*self._head, self._included, excluded))
        return dict.fromkeys(self._seed_digests, proposal)

    def _open(self) -> Outgoing:
        self._end_phase()
        self._demand_responders(len(self._signatures), "agreed")
        places = self._roster.position
        chosen = sorted(self._signatures, key=places.__getitem__)[: self._roster.threshold]
        signers = tuple(places[user] for user in chosen)
        agreed = (self._signatures[user] for user in chosen)
        silent = [place for place in self._included if place not in frozenset(signers)]
        uploaded = (self._uploads[self._roster.lines[place].user] for place in silent)
        opening = encode(Opening(*self._head, signers, (*agreed, *uploaded)))
        return dict.fromkeys(self._signatures, opening)

    def _end(self) -> Outgoing:
        self._end_phase()
        return {}

    def _end_phase(self) -> None:
        self._states = {user: SERVER_PAIRWISE_ENDS.get(state, state) for user, state in self._states.items()}

    def _demand_responders(self, users: int, done: str) -> None:
        if users < self._roster.threshold:
            raise TooFewUsers(
                f"{users} of {len(self._roster.lines)} users {done}; {self._roster.threshold} are needed"
            )
