"""The vectors of a pairwise round at the server: added up batch by batch, complete batches into the sum (§5)."""

import numpy as np

from coterie.secagg.crypto.ring import Words
from coterie.secagg.protocols.interface import RoundSetting
from coterie.secagg.protocols.pairwise.grouping import Grouping


class Uploads:
    """The sum over all complete batches so far, and the signature under every vector."""

    def __init__(self, grouping: Grouping, setting: RoundSetting) -> None:
        self._grouping, self._ring = grouping, setting.quantiser.ring
        size = setting.terms.dimension + setting.quantiser.extra_words
        self.total: Words = np.zeros(size, dtype=self._ring.dtype)
        self.signatures: dict[str, bytes] = {}
        self._partial: dict[bytes, Words] = {}

    def clear(self) -> None:
        """Let go of all vectors."""
        self.total = self.total[:0].copy()
        self._partial.clear()

    def add(self, user: str, signature: bytes, words: Words) -> None:
        """Add a vector to its batch's; the last one takes the batch into the sum."""
        self.signatures[user] = signature
        group = self._grouping.of[user]
        if self.signatures.keys() >= group.identities.keys():
            self._ring.add_into(self.total, words)
            if group.name in self._partial:
                self._ring.add_into(self.total, self._partial.pop(group.name))
        elif group.name in self._partial:
            self._ring.add_into(self._partial[group.name], words)
        else:
            self._partial[group.name] = words.copy()
