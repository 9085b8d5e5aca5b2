"""The server's side of SecAgg and SecAgg+: secrets back from right shares, masks off the sum (§5)."""

from collections.abc import Iterable

import numpy as np

from coterie.errors import PeerError, TooFewUsers
from coterie.secagg.crypto.ring import Words
from coterie.secagg.crypto.shamir import LIMBS, SHARE_BYTES
from coterie.secagg.protocols.interface import Group, RoundSetting
from coterie.secagg.protocols.pairwise.delivery import PairExchange
from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    MaskedVector,
    Receipt,
    Reveal,
    RosterLine,
    Sharing,
    Unmasking,
)
from coterie.secagg.protocols.pairwise.recovery import Masked, Recovery, Shares, unmask
from coterie.secagg.protocols.pairwise.roster import NeighbourhoodOf, Roster
from coterie.secagg.protocols.pairwise.round import AgreedRound
from coterie.secagg.protocols.pairwise.states import SERVER_TABLE
from coterie.secagg.wire.framing import Message, MessageDecoder


class PairwiseRound(AgreedRound):
    """The server's side of one round of SecAgg or SecAgg+."""

    table = SERVER_TABLE
    from_client = MessageDecoder(
        (Advertisement, Sharing, Receipt, Reveal, MaskedVector, Agreement, Unmasking), "client"
    )
    has_masks = True
    _boxes: PairExchange

    def __init__(
        self, groups: Iterable[Group], setting: RoundSetting, neighbourhood_of: NeighbourhoodOf, threads: int
    ) -> None:
        super().__init__(groups, setting)
        self._neighbourhood_of, self._threads = neighbourhood_of, threads
        self._shares: dict[int, tuple[list[int], Words]] = {}

    def _new_roster(self, lines: tuple[RosterLine, ...]) -> None:
        self._roster = Roster(self._setting, lines, self._neighbourhood_of)
        self._boxes = PairExchange(self._roster)

    def _take_secret(self, user: str, message: Message, tail: memoryview) -> None:
        del tail
        match message:
            case Sharing():
                self._boxes.take_sharing(self._roster.position[user], message)
            case Unmasking():
                self._take_shares(user, message.shares)

    def _take_shares(self, user: str, shares: bytes) -> None:
        """Keep a holder's shares, but for those that their owners did not commit to: these are as if lost."""
        place, sharers = self._roster.position[user], frozenset(self._sharers)
        owners = [owner for owner in self._roster.graph.holders(place) if owner in sharers]
        if len(shares) != SHARE_BYTES * len(owners):
            raise PeerError(f"{user} sent {len(shares)} bytes of shares, not {SHARE_BYTES * len(owners)}")
        right = self._boxes.right_shares(place, owners, shares, frozenset(self._included))
        words: Words = np.frombuffer(shares, dtype="<u4").reshape(len(owners), LIMBS)
        self._shares[place] = [owner for owner, good in zip(owners, right, strict=True) if good], words[right]
        if not all(right):
            self.liars[user] = f"sent {right.count(False)} wrong shares"
            self._irregular = True

    def _drop_secrets(self) -> None:
        self._shares.clear()

    def _demand_holders(self, places: Iterable[int]) -> None:
        """End a round that cannot be opened before anything more is sent: nothing is learned then."""
        graph, needed = self._roster.graph, self._roster.graph.neighbourhood.threshold
        fewest = int(graph.count_holders(np.array(tuple(places)))[list(self._sharers)].min())
        if fewest < needed:
            raise TooFewUsers(f"{fewest} holders of a user's secret are left; {needed} are needed to open it")

    def _remove_masks(self, total: Words) -> None:
        roster = self._roster
        recovery = Recovery(roster, Shares.of_holders(self._shares))
        masked = Masked(frozenset(self._included), frozenset(self._excluded), self._boxes.seed_digest)
        try:
            unmask(total, self._setting.quantiser.ring, recovery, roster, masked, threads=self._threads)
        finally:
            self.liars |= {roster.lines[place].user: reason for place, reason in recovery.liars.items()}
            self._irregular |= bool(recovery.liars)
