"""One user's side of LightSecAgg: coded shares of its mask, and one sum of the shares that it holds (§5)."""

from collections.abc import Iterable

import numpy as np

from coterie.secagg.crypto.keys import SIGNATURE_BYTES, Seed
from coterie.secagg.crypto.masking import Keystream, Mask
from coterie.secagg.crypto.ring import PRIME_31, Words
from coterie.secagg.protocols.interface import Party
from coterie.secagg.protocols.lightsecagg.messages import CodedSharing, ShareSum
from coterie.secagg.protocols.lightsecagg.roster import CodedRoster
from coterie.secagg.protocols.pairwise.messages import RosterLine
from coterie.secagg.protocols.pairwise.participant import AgreedParticipant
from coterie.secagg.protocols.pairwise.roster import Roster
from coterie.secagg.protocols.pairwise.sharing import sharing_tree
from coterie.secagg.wire.framing import blank, rewrite


class LightParticipant(AgreedParticipant):
    """A user in one round of LightSecAgg.

    Mask and noise are drawn anew for every round, and a round has one roster. The shares of others are in memory
    only: after a restart there are none, so that no round can be opened a second time.
    """

    def __init__(self, party: Party) -> None:
        super().__init__(party, threads=1)

    def _roster_of(self, lines: tuple[RosterLine, ...]) -> CodedRoster:
        return CodedRoster(self._setting, lines)

    def _split(self, roster: Roster, mine: int) -> dict[int, bytes]:
        """Encode the mask; the noise in it is drawn for this mask alone."""
        del mine
        assert isinstance(roster, CodedRoster)  # noqa: S101 - see _roster_of
        mask: Words = np.empty(roster.mask_words, dtype=PRIME_31.dtype)
        Keystream(self._seed, PRIME_31).words_into(mask)
        shares = roster.code.encode(mask, Seed.generate())
        return {place: share.astype(PRIME_31.dtype).tobytes() for place, share in enumerate(shares)}

    def _sharing(self, roster: Roster, mine: int, own: bytes, boxes: Iterable[bytes]) -> memoryview:
        del own
        content = tuple(boxes)
        size = sum(map(len, content))
        message, tail = blank(CodedSharing(*self._head, bytes(SIGNATURE_BYTES)), size)
        start = 0
        for box in content:
            tail[start : start + len(box)] = box
            start += len(box)
        root = sharing_tree(b"", content, roster.box_format).root
        rewrite(message, CodedSharing(*self._head, self._party.identity.sign("share", *roster.boxes(mine, root))))
        return message.toreadonly()

    def _pair_masks(self, others: Iterable[RosterLine]) -> list[Mask]:
        """No two users have a mask in common."""
        del others
        return []

    def _opening(self) -> memoryview:
        """Add up the shares of exactly the included users' masks: of every sharer this device has one."""
        message, tail = blank(ShareSum(*self._head), len(self._shares[self._mine]))
        total: Words = np.frombuffer(tail, dtype=PRIME_31.dtype)
        total[:] = 0
        for place in sorted(self._included):
            PRIME_31.add_into(total, np.frombuffer(self._shares[place], dtype=PRIME_31.dtype))
        return message.toreadonly()
