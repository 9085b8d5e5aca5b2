"""The server's side of a round that ends in an agreement, phase by phase: one sum over complete batches (§5).

What users share, and how masks come off the sum, is for each inner protocol to say.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.secagg.crypto.quantiser import dequantise
from coterie.secagg.crypto.ring import Ring, Words
from coterie.secagg.protocols.agreement.boxes import BoxExchange
from coterie.secagg.protocols.agreement.messages import (
    LARGEST_ROSTER,
    SERVER_TABLE_ENDS,
    Advertisement,
    Agreement,
    MaskedVector,
    Opening,
    Positions,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    RosterLine,
    ServerState,
    SharersCall,
)
from coterie.secagg.protocols.agreement.roster import Roster, check_line
from coterie.secagg.protocols.interface import (
    Exposure,
    Group,
    LearnedSum,
    Outgoing,
    RoundResult,
    RoundSetting,
    ServerRound,
    no_answer_reason,
)
from coterie.secagg.wire.framing import Data, Message, MessageDecoder, RoundAnswer, encode
from coterie.secagg.wire.messages import next_state


def least_included(batch_sizes: Iterable[int], privacy: int) -> int:
    """Return the largest batch and T more: else a sum less that batch's would be one of fewer than T users."""
    return max(batch_sizes) + privacy


class Uploads:
    """The sum over all complete batches so far, and the signature under every vector."""

    def __init__(self, setting: RoundSetting) -> None:
        self._ring = setting.quantiser.ring
        size = setting.terms.dimension + setting.quantiser.extra_words
        self.total: Words = np.zeros(size, dtype=self._ring.dtype)
        self.signatures: dict[str, bytes] = {}
        self._partial: dict[bytes, Words] = {}

    def clear(self) -> None:
        """Let go of all vectors."""
        self.total = self.total[:0].copy()
        self._partial.clear()

    def add(self, user: str, group: Group, signature: bytes, words: Words) -> None:
        """Add a vector to its batch's; the last one takes the batch into the sum."""
        self.signatures[user] = signature
        if self.signatures.keys() >= group.identities.keys():
            self._ring.add_into(self.total, words)
            if group.charter_digest in self._partial:
                self._ring.add_into(self.total, self._partial.pop(group.charter_digest))
        elif group.charter_digest in self._partial:
            self._ring.add_into(self._partial[group.charter_digest], words)
        else:
            self._partial[group.charter_digest] = words.copy()


def read_words(tail: memoryview, ring: Ring, user: str) -> Words:
    """Return what a user sent as words; refuse those that no number modulo q has."""
    words: Words = np.frombuffer(tail, dtype=ring.dtype)
    if not ring.wraps and words.max(initial=0) >= ring.modulus:
        raise PeerError(f"{user} sent a word of {words.max()}; words are below {ring.modulus}")
    return words


LARGEST_HEAD = 4096
"""Bytes that a message has at most beside its boxes, shares or words."""


class AgreedRound(ServerRound):
    """The server's side of one round: what comes in a phase, and how the phase ends, one phase after the other."""

    table_ends = SERVER_TABLE_ENDS
    kinds: ClassVar[tuple[type[Message], ...]]
    from_client: ClassVar[MessageDecoder[Any]]

    def __init_subclass__(cls) -> None:
        """Decode what the table of an inner protocol's rounds has."""
        cls.kinds = tuple(kind for _, kind in cls.table)
        cls.from_client = MessageDecoder(cls.kinds, "client")

    def __init__(
        self, groups: Iterable[Group], setting: RoundSetting, roster_kind: type[Roster], threads: int
    ) -> None:
        super().__init__(groups, setting, ServerState.CALLED)
        self._roster_kind, self._threads = roster_kind, threads
        self._head = (setting.scope, setting.context)
        self._check_sizes()
        self._lines: dict[str, RosterLine] = {}
        self._owner_of: dict[bytes, str] = {}
        self._uploads = Uploads(setting)
        self._signatures: dict[str, bytes] = {}
        self.liars: dict[str, str] = {}
        """Users who lied, and what they did: left out or corrected, and proven by what they signed."""
        self._next_step: Callable[[], Outgoing] | None = self._fix_roster
        self._vectors_from: set[str] = set()
        self._uploading = False
        """Whether vectors may come."""
        self._opened = False
        """Whether the opening was sent, so that the sum can be had."""
        self._ended_as_agreed = False
        self._irregular = False
        """Whether something came that no honest round has; without a seal the round then counts as unknown."""
        self._clear_secrets()

    def _check_sizes(self) -> None:
        """Refuse a round that is too large for its quantiser, or in whose sum devices would not agree to be."""
        users, most = len(self._group_of), min(self._setting.quantiser.cohort, LARGEST_ROSTER)
        if users > most:
            raise UsageError(f"{users} users are asked, more than the {most} that the quantiser allows")
        wanted = self._setting.terms.min_included
        least = max((least_included([len(each.identities)], each.privacy) for each in self._groups), default=2)
        if not least <= wanted <= users:
            raise UsageError(
                f"min_included is {wanted}; give {least} (the largest batch and T more) to {users} "
                "(everyone asked)"
            )

    # --- what inner protocols differ in

    @abstractmethod
    def _take_secret(self, user: str, message: Message, tail: memoryview) -> None:
        """Take in a user's boxes (phase 1), or its last answer (phase 5)."""

    @abstractmethod
    def _demand_holders(self, places: Iterable[int]) -> None:
        """End a round that cannot be opened before anything more is sent: nothing is learned then."""

    @abstractmethod
    def _remove_masks(self, total: Words) -> None:
        """Take the included users' masks off their sum; TooFewUsersError if they do not come out."""

    @abstractmethod
    def _clear_secrets(self) -> None:
        """Have none of what `_take_secret` keeps: at the beginning, and once the round is over."""

    # --- what whoever drives the round calls in every phase

    def _receive(self, user: str, data: Data) -> None:
        largest = LARGEST_HEAD + max(self._setting.vector_bytes, self._largest_sharing)
        vector = self._uploading  # bytes that cannot be read may have been one
        try:
            message, tail = self.from_client.decode(data, largest)
            vector = isinstance(message, MaskedVector) and message.context == self._setting.context
            if self._over:
                raise PeerError(f"{user} answered out of order: the round is over")  # noqa: TRY301 - it counts as any
            state = next_state(self.table, self._states[user], message, user)
            self._take(user, message, tail)
        except PeerError:
            self._irregular |= vector
            raise
        finally:
            self._vectors_from |= {user} if vector else set()
        self._states[user] = state

    @property
    def _largest_sharing(self) -> int:
        """How many bytes all boxes of one user have."""
        if self._next_step == self._fix_roster:
            return 0
        return self._roster.box_format.box_bytes * len(self._roster.lines)

    def _take(self, user: str, message: RoundAnswer, tail: memoryview) -> None:
        received = (message.scope, message.context.hex(), message.user)
        expected = (self._setting.scope, self._setting.context.hex(), user)
        for name, one, other in zip(("scope", "round", "user"), received, expected, strict=True):
            if one != other:
                raise PeerError(f"{user} answered for another {name}: {one!r}, not {other!r}")
        match message:
            case Advertisement():
                self._take_keys(user, message)
            case Receipt():
                self._boxes.take_receipt(self._roster.position[user], message)
            case Reveal():
                self._boxes.take_reveal(self._roster.position[user], message)
            case MaskedVector():
                self._take_vector(user, message.signature, tail)
            case Agreement():
                self._roster.verify(self._roster.position[user], message.signature, self._agreement)
                self._signatures[user] = message.signature
            case _:
                self._take_secret(user, message, tail)

    def advance(self) -> Outgoing:
        """End the phase: who has not answered is lost, or as a sharer without a vector excluded."""
        try:
            return {} if self._next_step is None else self._next_step()
        except TooFewUsersError:
            self._end_round()
            raise

    def _demand_responders(self, users: int, done: str) -> None:
        """End a round in which too few users of the roster are left for any agreement."""
        if users < self._roster.users_needed:
            raise TooFewUsersError(
                f"{users} of {len(self._roster.lines)} users {done}; {self._roster.users_needed} are needed"
            )

    def _users(self, places: Iterable[int]) -> list[str]:
        return [self._roster.lines[place].user for place in places]

    def _places(self, users: Iterable[str]) -> Positions:
        return tuple(sorted(self._roster.position[user] for user in users))

    # --- phase 0: keys come, and the roster is fixed

    def _take_keys(self, user: str, message: Advertisement) -> None:
        identity = self._group_of[user].identities[user]
        line = RosterLine(user, identity, message.mask_key, message.share_key, message.signature)
        check_line(line, self._setting.context, masks=self._roster_kind.has_masks)
        keys = {line.mask_key, line.share_key} if self._roster_kind.has_masks else {line.share_key}
        for key in keys & self._owner_of.keys():
            raise PeerError(f"{user} advertised a key of {self._owner_of[key]}")
        self._owner_of |= dict.fromkeys(keys, user)
        self._lines[user] = line

    def _fix_roster(self) -> Outgoing:
        self._end_phase()
        self._demand_batches(self._lines, "advertised")
        lines = sorted(self._lines.values(), key=lambda line: line.user.encode())
        self._set_roster(self._roster_kind(self._setting, tuple(lines)))
        self._next_step = self._deliver
        return dict.fromkeys(self._lines, encode(RosterCall(*self._head, self._roster.lines)))

    def _set_roster(self, roster: Roster) -> None:
        self._roster, self._boxes = roster, BoxExchange(roster)

    # --- phase 1: boxes come (_take_secret), and are passed on

    def _deliver(self) -> Outgoing:
        self._end_phase()
        users = self._users(self._boxes.senders)
        self._demand_responders(len(users), "shared")
        self._demand_batches(users, "shared")
        self._next_step = self._hear_complaints
        return self._boxes.deliveries(users, self._head)

    # --- phase 2: receipts come; after complaints also keys of boxes; then the sharers are fixed

    def _hear_complaints(self) -> Outgoing:
        """Ask whoever is complained about for the keys of these boxes; mostly nobody is."""
        users = [user for user, state in self._states.items() if state is ServerState.RECEIVED]
        complaints = {user: self._boxes.complaints(self._roster.position[user]) for user in users}
        accused = {user: some for user, some in complaints.items() if some}
        if not accused:
            return self._fix_sharers()
        for user, state in self._states.items():
            if state is ServerState.DELIVERED:
                self._states[user] = ServerState.LOST
        self._states |= dict.fromkeys(accused, ServerState.ACCUSED)
        self._next_step = self._judge
        return {user: encode(RevealCall(*self._head, some)) for user, some in accused.items()}

    def _judge(self) -> Outgoing:
        liars = {self._roster.lines[place].user: reason for place, reason in self._boxes.verdicts().items()}
        self.liars |= liars
        self._states |= dict.fromkeys(liars, ServerState.LOST)
        return self._fix_sharers()

    def _fix_sharers(self) -> Outgoing:
        self._end_phase()
        users = [user for user, state in self._states.items() if state is ServerState.FIXED]
        self._demand_responders(len(users), "have good boxes")
        self._demand_batches(users, "have good boxes")
        complete = self._in_complete(users)
        self._states |= dict.fromkeys(set(users).difference(complete), ServerState.HELPING)
        self._sharers = self._places(users)
        self._demand_holders(self._sharers)
        self._next_step, self._uploading = self._propose, True
        return dict.fromkeys(users, encode(SharersCall(*self._head, self._sharers)))

    # --- phase 3: vectors come, and those of complete batches are proposed for the sum

    def _take_vector(self, user: str, signature: bytes, tail: memoryview) -> None:
        size = self._setting.vector_bytes
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes of words, not {size}")
        place, roster = self._roster.position[user], self._roster
        roster.verify(place, signature, roster.upload_to_sign(self._sharers))
        words = read_words(tail, self._setting.quantiser.ring, user)
        self._uploads.add(user, self._group_of[user], signature, words)

    def _propose(self) -> Outgoing:
        # Of an incomplete batch nobody was asked for a vector; absent are only those who did not answer.
        gone = (ServerState.LOST, ServerState.FIXED)
        self._absent = frozenset(user for user, state in self._states.items() if state in gone)
        left = self._states.keys() - self._absent
        self._end_phase()
        self._demand_batches(left, "uploaded")
        self._included = self._places(self._in_complete(left))
        self._excluded = tuple(sorted(frozenset(self._sharers).difference(self._included)))
        self._agreement = self._roster.agreement_to_sign(self._sharers, self._included, self._excluded)
        self._learned = self._components()
        self._next_step = self._open
        proposal = encode(Proposal(*self._head, self._included, self._excluded))
        return dict.fromkeys(self._users(self._sharers), proposal)

    def _components(self) -> tuple[tuple[str, ...], ...]:
        """Return the included users, apart where no mask joins them: each part has a sum of its own."""
        users = self._users(self._included)
        batches = enumerate(self._groups)
        number = {user: number for number, group in batches for user in group.identities}
        groups = np.array([number[user] for user in users])
        parts = self._roster.graph.components(np.array(self._included), groups)
        return tuple(
            tuple(user for user, part in zip(users, parts.tolist(), strict=True) if part == number)
            for number in range(int(parts.max(initial=-1)) + 1)
        )

    # --- phase 4: signatures under the agreement come, and are shown to those who signed

    def _open(self) -> Outgoing:
        self._end_phase()
        self._demand_responders(len(self._signatures), "agreed")
        places = self._roster.position
        self._demand_holders([places[user] for user in self._signatures])
        chosen = sorted(self._signatures, key=places.__getitem__)[: self._roster.users_needed]
        signers = tuple(places[user] for user in chosen)
        agreed = (self._signatures[user] for user in chosen)
        silent = self._users(sorted(frozenset(self._included).difference(signers)))
        uploaded = (self._uploads.signatures[user] for user in silent)
        self._next_step, self._opened = self._end, True
        return dict.fromkeys(self._signatures, encode(Opening(*self._head, signers, (*agreed, *uploaded))))

    # --- phase 5: last answers come (_take_secret), and the masks are taken off

    def _end(self) -> Outgoing:
        self._end_phase()
        self._next_step = None
        return {}

    def _finish(self) -> RoundResult:
        """Open what the agreement calls for, and return the sum over the included users."""
        if self._next_step is not None:
            raise UsageError("the round is not over; advance until nothing is to be sent")
        total = self._uploads.total
        try:
            self._remove_masks(total)
        finally:
            self._end_round()
        users = tuple(self._users(self._included))
        try:
            learned = LearnedSum(users, dequantise(total, self._setting.quantiser, len(users)))
        except PeerError as error:
            raise TooFewUsersError(f"round {self.round} gave no sum: {error}") from None
        self._ended_as_agreed = True
        return RoundResult(self.round, (learned,), self._lost_batches(), dict(self.liars))

    def _end_round(self) -> None:
        super()._end_round()
        self._uploads.clear()
        self._clear_secrets()
        if self._next_step != self._fix_roster:
            self._set_roster(replace(self._roster, setting=self._roster.setting.without_model()))

    def _lost_batches(self) -> dict[bytes, str]:
        """Return the batches that absent users are missing from, and the reason: they lied, or did not answer."""
        reasons = {}
        for group in self._groups:
            missing = self._absent.intersection(group.identities)
            if group.charter_digest and missing:
                lies = [f"{user} {self.liars[user]}" for user in sorted(missing & self.liars.keys())]
                reasons[group.charter_digest] = "; ".join(lies) or no_answer_reason(missing)
        return reasons

    # --- at any moment

    def exposure(self) -> Exposure:
        """Return what the bytes received so far would open (§8).

        In a sealed round: the included users, one set for each part that no mask joins to the rest, from the
        moment the opening was sent. In an unsealed one: the same if it ended as agreed and nothing irregular came;
        otherwise of everybody whose vector came anything may be known.
        """
        if all(group.charter_digest for group in self._groups):
            return Exposure(self._learned if self._opened else ())
        if self._ended_as_agreed and not self._irregular:
            return Exposure(self._learned)
        return Exposure(unknown=tuple(sorted(self._vectors_from)))
