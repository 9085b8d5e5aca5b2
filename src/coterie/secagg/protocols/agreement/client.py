"""One user's side of a round that ends in an agreement, phase by phase (§5); bytes are decoded outside.

What is shared, and what is given back after the agreement, is for each inner protocol to say.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from threading import Lock

import numpy as np

from coterie.errors import PeerError
from coterie.secagg.batch.charter import LARGEST_NAME, check_user
from coterie.secagg.crypto.keys import SIGNATURE_BYTES, Seed, ShareKey
from coterie.secagg.crypto.masking import Mask, add_masks
from coterie.secagg.crypto.ring import Words
from coterie.secagg.protocols.agreement.boxes import SentBoxes, open_boxes
from coterie.secagg.protocols.agreement.messages import (
    CLIENT_TABLE,
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    ParticipantState,
    Positions,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    RosterLine,
    ServerPhase,
    SharersCall,
)
from coterie.secagg.protocols.agreement.roster import Roster, Statement, check_line, check_positions
from coterie.secagg.protocols.interface import Party
from coterie.secagg.wire.framing import Message, blank, encode, rewrite
from coterie.secagg.wire.messages import next_state


class AgreedParticipant(ABC):
    """A user in one round. Secrets are kept in memory only, each as long as it is needed: a restart ends it.

    Only a device that moves on in a durable transaction before every answer may store one.
    """

    def __init__(self, party: Party, roster_kind: type[Roster], threads: int, mask_key: bytes = b"") -> None:
        """Begin a round; `mask_key` is the public key for pairwise masks, where there are any."""
        self._enter(party, roster_kind, threads)
        self._share_key, self._seed = ShareKey.generate(), Seed.generate()
        self._make_room()
        self.masks: Sequence[Mask] = (Mask(self._seed, 1),)
        """The mask that is opened if the user is included: alone, or in a sum."""
        self._advertise(mask_key)

    def _enter(self, party: Party, roster_kind: type[Roster], threads: int) -> None:
        """Take in what is no secret of this round's."""
        self._party, self._setting, self._threads = party, party.setting, threads
        self._roster_kind = roster_kind
        self._shares: dict[int, bytes] = {}
        self._sharers: Positions = ()
        self._included: frozenset[int] = frozenset()
        self._head = (party.setting.scope, party.setting.context, party.user)
        self._state, self._lock = ParticipantState.ADVERTISED, Lock()
        self._ring = party.setting.quantiser.ring

    def _make_room(self) -> None:
        """Make room for the vector, in the message that it will leave with."""
        head = MaskedVector(*self._head, bytes(SIGNATURE_BYTES))
        self._message, tail = blank(head, self._setting.vector_bytes)
        self.words: Words = np.frombuffer(tail, dtype=self._ring.dtype)

    def _advertise(self, mask_key: bytes) -> None:
        keys = (mask_key, self._share_key.public)
        signature = self._party.identity.sign("advertise", self._setting.context, self._party.user, *keys)
        self.advertisement = Advertisement(*self._head, *keys, signature)

    # --- what inner protocols differ in

    @abstractmethod
    def _split(self, roster: Roster, own_position: int) -> dict[int, bytes]:
        """Return what each holder is to hold, the user itself too."""

    @abstractmethod
    def _sharing(
        self, roster: Roster, own_position: int, own: bytes, boxes: Iterable[bytes]
    ) -> bytes | memoryview:
        """Return the signed message with all boxes."""

    @abstractmethod
    def _pair_masks(self, others: Iterable[RosterLine]) -> list[Mask]:
        """Return the masks that the user has in common with others."""

    @abstractmethod
    def _opening(self) -> bytes | memoryview:
        """Return the last answer: what the agreed lists call for, of the shares that the user holds."""

    @property
    def finished(self) -> bool:
        """Whether the last answer was given."""
        return self._state is ParticipantState.DONE

    def start(self) -> bytes | memoryview:
        """Return the advertisement; the vector waits for its phase."""
        return encode(self.advertisement)

    def take(self, message: Message) -> bytes | memoryview | None:
        """Return the answer to a message of this round; a violation raises PeerError and changes nothing.

        One message at a time, whatever threads they come in: two proposals at once must not both be signed.
        """
        with self._lock:
            return self._take(message)

    def _take(self, message: Message) -> bytes | memoryview | None:
        state = next_state(CLIENT_TABLE, self._state, message, "the server")
        assert isinstance(message, ServerPhase)  # noqa: S101 - the table has no others
        if message.context != self._setting.context:
            raise PeerError(
                f"the server speaks of the round {message.context.hex()}; this device is in "
                f"{self._setting.context.hex()}"
            )
        answer: bytes | memoryview | None
        match message:
            case RosterCall():
                answer = self._share(message)
            case Delivery():
                answer = self._look(message)
            case RevealCall():
                answer = self._reveal(message)
            case SharersCall():
                answer = self._upload(message)
            case Proposal():
                answer = self._agree(message)
            case Opening():
                answer = self._open(message)
        self._state = state
        return answer

    def _share(self, message: RosterCall) -> bytes | memoryview:
        """Phase 1: share the secrets among the holders."""
        party, setting = self._party, self._setting
        roster = self._roster_kind(setting, message.lines)
        self._check_roster(roster)
        own_position = roster.position[party.user]
        contents = self._split(roster, own_position)
        own = contents.pop(own_position)
        sent = SentBoxes.encrypt(roster, own_position, contents)
        answer = self._sharing(roster, own_position, own, sent.boxes.values())
        self._roster, self._own_position, self._sent, self._shares = (
            roster,
            own_position,
            sent,
            {own_position: own},
        )
        return answer

    def _check_roster(self, roster: Roster) -> None:
        """Refuse a roster in which this user could be deceived about whom its round is with (§5).

        Signatures are verified for the user's neighbours, with whom it shares masks; of everyone else only the
        identity key matters, for the agreement.
        """
        party, own, lines = self._party, self.advertisement, roster.lines
        least = self._setting.terms.min_included
        most = min(self._setting.quantiser.cohort, party.largest_roster)
        if not least <= len(lines) <= most:
            raise PeerError(f"the server's roster has {len(lines)} users; this round takes {least} to {most}")
        _check_lines(roster, party.batch)
        own_position = roster.position.get(own.user)
        if own_position is None:
            raise PeerError(f"the server's roster does not have {own.user!r}, this device's user")
        line = lines[own_position]
        if (line.mask_key, line.share_key, line.signature) != (own.mask_key, own.share_key, own.signature):
            raise PeerError(
                f"the server's roster has {own.user!r}, this device's user, with other keys than it sent"
            )
        for place in roster.graph.neighbours(own_position):
            check_line(lines[place], roster.context, masks=roster.has_masks)
        for line in lines:
            check_user(line.user, line.identity, party.verify_member)

    def _look(self, message: Delivery) -> bytes:
        """Phase 2: open the neighbours' boxes, and complain about those that hold something else than signed."""
        identity = self._party.identity
        shares, complaints = open_boxes(self._roster, self._own_position, self._share_key, identity, message)
        self._shares = shares | self._shares
        del self._share_key
        return encode(Receipt(*self._head, complaints))

    def _reveal(self, message: RevealCall) -> bytes:
        """Only after complaints: give the keys of these boxes, which show no more than what their holders hold."""
        return encode(Reveal(*self._head, self._sent.keys_for(message.complaints)))

    def _upload(self, message: SharersCall) -> memoryview | None:
        """Phase 3: mask the vector, unless the own batch is incomplete already: then only stay to help."""
        party, roster, sharers = self._party, self._roster, message.sharers
        present = self._checked_sharers(sharers)
        neighbours = present.intersection(self._sent.boxes)
        answer = None
        if self._is_whole(present):
            # Within the batch the seal's masks already do what these do: it is in the sum as a whole or not.
            others = [roster.lines[place] for place in sorted(neighbours - self._own_among(present))]
            add_masks(self.words, self._pair_masks(others), self._ring, threads=self._threads)
            signature = party.identity.sign(*roster.upload_to_sign(sharers))
            rewrite(self._message, MaskedVector(*self._head, signature))
            answer = self._message.toreadonly()
        self._shares = {place: share for place, share in self._shares.items() if place in present}
        self._sharers = sharers
        del self._message, self.words, self.masks, self._sent, self._seed
        return answer

    def _own_among(self, places: Iterable[int]) -> frozenset[int]:
        """Return the user's batch, as far as it is in these places of the roster."""
        return frozenset(place for place in places if self._roster.lines[place].user in self._party.batch)

    def _is_whole(self, places: Iterable[int]) -> bool:
        """Whether the user's whole batch is in these places."""
        return len(self._own_among(places)) == len(self._party.batch)

    def _checked_sharers(self, sharers: Positions) -> frozenset[int]:
        """Refuse sharers that are too few, without this user, or with a neighbour whose share it does not hold."""
        roster = self._roster
        check_positions(sharers, len(roster.lines), "sharers")
        present = frozenset(sharers)
        if self._own_position not in present:
            raise PeerError(f"the server's sharers do not have {self._party.user!r}, this device's user")
        if len(sharers) < roster.users_needed:
            raise PeerError(
                f"the server has {len(sharers)} sharers among {len(roster.lines)} users; "
                f"{roster.users_needed} are needed"
            )
        missing = present.intersection(self._sent.boxes).difference(self._shares)
        if missing:
            raise PeerError(
                f"the server's sharers have {self._name(min(missing))}, of whom this device has no share"
            )
        return present

    def _agree(self, message: Proposal) -> bytes:
        """Phase 4: sign one division of the sharers, if it is one that this user can accept."""
        party, roster = self._party, self._roster
        for name, positions in (("included users", message.included), ("excluded users", message.excluded)):
            check_positions(positions, len(roster.lines), name)
        included, excluded = frozenset(message.included), frozenset(message.excluded)
        if included & excluded:
            raise PeerError(f"the server both includes and excludes {self._name(min(included & excluded))}")
        if included | excluded != frozenset(self._sharers):
            odd = min((included | excluded) ^ frozenset(self._sharers))
            raise PeerError(f"the server's lists are not the sharers: they differ in {self._name(odd)}")
        if self._own_among(included) and not self._is_whole(included):
            raise PeerError(f"the server includes a part of the batch of {party.user!r}, not the whole")
        least = self._setting.terms.min_included
        if len(included) < least:
            raise PeerError(f"the server includes {len(included)} users; at least {least} are needed")
        self._included = included
        return encode(Agreement(*self._head, party.identity.sign(*self._agreed_lists())))

    def _agreed_lists(self) -> Statement:
        """Return what an agreement signs: sharers who are not included are excluded."""
        excluded = sorted(self._included.symmetric_difference(self._sharers))
        return self._roster.agreement_to_sign(self._sharers, sorted(self._included), excluded)

    def _open(self, message: Opening) -> bytes | memoryview:
        """Phase 5: if enough have signed these lists, give what they call for, and keep no share.

        An included user must have masked its vector for the sharers of the agreement: shown fewer of them, it has
        no mask in common with those left out, and its batch would lie open in a sum with none but them. A signer
        of the agreement has said so by that; of the others the signatures under their uploads do.
        """
        roster, signers = self._roster, message.signers
        check_positions(signers, len(roster.lines), "signers")
        if len(signers) < roster.users_needed:
            raise PeerError(
                f"the server has {len(signers)} users under the agreement; {roster.users_needed} are needed"
            )
        silent = sorted(self._included.difference(signers))
        if len(message.signatures) != len(signers) + len(silent):
            raise PeerError(
                f"the server has {len(message.signatures)} signatures of {len(signers)} users under the agreement "
                f"and {len(silent)} under their uploads"
            )
        agreed, uploaded = message.signatures[: len(signers)], message.signatures[len(signers) :]
        agreement = self._agreed_lists()
        for place, signature in zip(signers, agreed, strict=True):
            roster.verify(place, signature, agreement)
        for place, signature in zip(silent, uploaded, strict=True):
            if place in self._shares:
                roster.verify(place, signature, roster.upload_to_sign(self._sharers))
        answer = self._opening()
        del self._shares
        return answer

    def _name(self, place: int) -> str:
        return repr(self._roster.lines[place].user)


def _check_lines(roster: Roster, batch: Mapping[str, bytes]) -> None:
    """Refuse users out of order or twice, keys that come twice, and other identity keys than the charter's."""
    for earlier, later in pairwise(roster.lines):
        if earlier.user.encode() >= later.user.encode():
            raise PeerError(f"the server's roster is not in order, or has {later.user!r} twice")
    for line in roster.lines:
        if len(line.user.encode()) > LARGEST_NAME:
            raise PeerError(f"the server's roster has an id of {len(line.user.encode())} bytes: {line.user!r}")
        if line.identity != batch.get(line.user, line.identity):
            raise PeerError(f"the server's roster has {line.user!r} with another identity key than the charter")
    for kind in ("identity", "mask_key", "share_key") if roster.has_masks else ("identity", "share_key"):
        if len({getattr(line, kind) for line in roster.lines}) < len(roster.lines):
            raise PeerError(f"two users of the server's roster have the same {kind.replace('_', ' ')}")
