"""Messages of rounds that are over: what the server could open of them since is added to the ledger."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import PeerError
from coterie.ledger import Ledger
from coterie.values import IntArray

if TYPE_CHECKING:  # plain rounds run where the cryptography is not installed
    from coterie.secagg.protocols.interface import Exposure, ServerRound
    from coterie.secagg.wire.framing import Data

REMEMBERED = 16
"""Rounds whose late messages are still told apart."""


@dataclass
class _Ended:
    server: "ServerRound"
    number: Mapping[str, int]
    recorded: "Exposure"


class EndedRounds:
    """The last rounds of a coordinator, whose exposure can still grow.

    A server that has once sent its messages cannot help receiving the answers, however late; a sum that they
    complete lies open to it, and counts from then on.
    """

    def __init__(self, ledger: Ledger, remembered: int = REMEMBERED) -> None:
        self._ledger = ledger
        self._rounds: deque[_Ended] = deque(maxlen=remembered)

    def add(self, server: "ServerRound", number: Mapping[str, int], recorded: "Exposure") -> None:
        """Remember a round that is over, its users' numbers, and what the ledger was told of it."""
        self._rounds.append(_Ended(server, number, recorded))

    def take(self, user: str, data: "Data") -> None:
        """Offer a message that the present round refused to those before it, and record what it opens."""
        for ended in reversed(self._rounds):
            if user not in ended.number:
                continue
            try:
                ended.server.receive(user, data)
            except PeerError:
                exposure = ended.server.exposure()
                if exposure != ended.recorded:
                    self._record(ended, exposure)
                    return

    def _record(self, ended: _Ended, exposure: "Exposure") -> None:
        learned = [each for each in exposure.learned if each not in ended.recorded.learned]
        alone = [user for user in exposure.unknown if user not in ended.recorded.unknown]
        ended.recorded = exposure
        if learned or alone:
            sets = [numbers_of(each, ended.number) for each in learned]
            self._ledger.expose(ended.server.round, sets, numbers_of(alone, ended.number))


def numbers_of(users: tuple[str, ...] | list[str], number: Mapping[str, int]) -> IntArray:
    """Return users, given by name, as sorted numbers."""
    return np.array(sorted(number[user] for user in users), dtype=np.int64)
