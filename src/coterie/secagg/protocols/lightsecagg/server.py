"""The server's side of LightSecAgg: the sum of the included users' masks is decoded once (§5)."""

from collections.abc import Iterable

import numpy as np

from coterie.errors import PeerError, TooFewUsers
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.ring import PRIME_31, Words
from coterie.secagg.protocols.interface import Group, RoundSetting
from coterie.secagg.protocols.lightsecagg.messages import CodedSharing, ShareSum
from coterie.secagg.protocols.lightsecagg.roster import CodedRoster
from coterie.secagg.protocols.lightsecagg.states import SERVER_TABLE
from coterie.secagg.protocols.pairwise.delivery import BoxExchange
from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    MaskedVector,
    Receipt,
    Reveal,
    RosterLine,
)
from coterie.secagg.protocols.pairwise.round import AgreedRound, check_words
from coterie.secagg.wire.framing import Message, MessageDecoder


class LightRound(AgreedRound):
    """The server's side of one round of LightSecAgg."""

    table = SERVER_TABLE
    from_client = MessageDecoder(
        (Advertisement, CodedSharing, Receipt, Reveal, MaskedVector, Agreement, ShareSum), "client"
    )
    has_masks = False
    _roster: CodedRoster

    def __init__(self, groups: Iterable[Group], setting: RoundSetting) -> None:
        super().__init__(groups, setting)
        self._sums: dict[int, Words] = {}

    def _new_roster(self, lines: tuple[RosterLine, ...]) -> None:
        self._roster = CodedRoster(self._setting, lines)
        self._boxes = BoxExchange(self._roster)

    def _take_secret(self, user: str, message: Message, tail: memoryview) -> None:
        place = self._roster.position[user]
        if isinstance(message, CodedSharing):
            self._boxes.take_boxes(place, b"", tail, message.signature)
            return
        size = PRIME_31.dtype.itemsize * self._roster.share_words
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes as a sum of shares, not {size}")
        words: Words = np.frombuffer(tail, dtype=PRIME_31.dtype)
        check_words(words, PRIME_31, user)
        self._sums[place] = words

    def _drop_secrets(self) -> None:
        self._sums.clear()

    def _demand_holders(self, places: Iterable[int]) -> None:
        holders, needed = len(tuple(places)), self._roster.code.needed
        if holders < needed:
            raise TooFewUsers(f"{holders} holders of shares are left; {needed} are needed to decode the masks")

    def _remove_masks(self, total: Words) -> None:
        """Decode the sum of masks from the sums of shares; wrong ones are corrected, and nobody is named for them.

        A user whose share was wrong from the start may have made a holder's sum wrong. Whoever sent a wrong one
        told the server no more than colluders can, so that the round still ends as it was agreed.
        """
        holders = sorted(self._sums)
        sums = np.array([self._sums[place] for place in holders], dtype=PRIME_31.dtype)
        roster = self._roster
        masks = roster.code.decode(holders, sums, roster.mask_words, Seed.generate())
        PRIME_31.subtract_into(total, masks)
