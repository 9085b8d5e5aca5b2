"""A participant of a pairwise round as bytes, for a device that ends after every message (§5)."""

from abc import ABC
from typing import Self

import msgspec
import numpy as np

from coterie.secagg.crypto.keys import MaskKey, Seed, ShareKey
from coterie.secagg.protocols.agreement.boxes import SentBoxes
from coterie.secagg.protocols.agreement.client import AgreedParticipant
from coterie.secagg.protocols.agreement.messages import ParticipantState, Positions, RosterLine
from coterie.secagg.protocols.interface import Party


class StoredParticipant(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A participant between two messages; what it needs no more, or has not yet, is empty."""

    state: ParticipantState
    mask_key: bytes
    share_key: bytes
    seed: bytes
    words: bytes
    """The vector, with the seal's masks and the self mask."""
    lines: tuple[RosterLine, ...]
    boxes: dict[int, tuple[bytes, bytes]]
    shares: dict[int, bytes]
    sharers: Positions
    complete: bool
    included: Positions

    def __repr__(self) -> str:
        return "StoredParticipant(…)"


_decoder = msgspec.msgpack.Decoder(StoredParticipant)
_BEFORE_UPLOAD = (
    ParticipantState.ADVERTISED, ParticipantState.SHARED, ParticipantState.RECEIVED, ParticipantState.REVEALED,
)  # fmt: skip


class StorableAgreedParticipant(AgreedParticipant, ABC):
    """A user in one round, whose secrets are small enough to be stored between two messages."""

    _mask_key: MaskKey

    @property
    def party(self) -> Party:
        """Who takes part, and in which round: with these `restored` goes on."""
        return self._party

    def store(self) -> bytes:
        """Return everything that `restored` needs: secrets, for the device's own durable store and nobody else.

        Whoever stores it must do so before the answer leaves, and may restore only what was stored last: a device
        that went back would sign a second division of the sharers, or open one user's seed and key.
        """
        state, pending = self._state, self._state in _BEFORE_UPLOAD
        alone = state is ParticipantState.ADVERTISED
        shared = state is ParticipantState.SHARED
        agreed = state is ParticipantState.AGREED
        stored = StoredParticipant(
            state=state,
            mask_key=self._mask_key.to_bytes() if pending else b"",
            share_key=self._share_key.to_bytes() if alone or shared else b"",
            seed=self._seed.reveal() if pending else b"",
            words=self.words.tobytes() if pending else b"",
            lines=() if alone else self._roster.lines,
            boxes=self._sent.secrets if pending and not alone else {},
            shares={} if alone else {self._mine: self._own_share} if shared else self._shares,
            sharers=() if pending else self._sharers,
            complete=not pending and self._complete,
            included=tuple(sorted(self._included)) if agreed else (),
        )
        return msgspec.msgpack.encode(stored)

    def _restored(self, party: Party, stored: bytes) -> Self:
        """Become the participant that `store` wrote last, which is not finished."""
        saved = _decoder.decode(stored)
        self._enter(party, threads=1)
        self._state, pending = saved.state, saved.state in _BEFORE_UPLOAD
        if pending:
            self._mask_key, self._seed = MaskKey.from_bytes(saved.mask_key), Seed(saved.seed)
            self._make_room()
            self.words[:] = np.frombuffer(saved.words, dtype=self._ring.dtype)
            self.masks = ()
        if saved.share_key:
            self._share_key = ShareKey.from_bytes(saved.share_key)
        if saved.state is ParticipantState.ADVERTISED:
            self._advertise(self._mask_key.public)
            return self
        self._roster = self._roster_of(saved.lines)
        self._mine = self._roster.position[party.user]
        if pending:
            self._sent = SentBoxes.restored(self._roster, self._mine, saved.boxes)
        if saved.state is ParticipantState.SHARED:
            self._own_share = saved.shares[self._mine]
            return self
        self._shares = saved.shares
        if not pending:
            self._sharers, self._complete = saved.sharers, saved.complete
            self._own = self._own_places & frozenset(saved.sharers)
        if saved.state is ParticipantState.AGREED:
            self._included = frozenset(saved.included)
            excluded = tuple(sorted(frozenset(saved.sharers) - self._included))
            self._statement = self._roster.agreement_to_sign(saved.sharers, saved.included, excluded)
        return self
