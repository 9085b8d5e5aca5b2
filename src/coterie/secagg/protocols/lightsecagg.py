"""LightSecAgg (docs/protocol.md §5): masks are shared in coded form, and the server decodes their sum once."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.coded_masks import Code
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.masking import Keystream, Mask
from coterie.secagg.crypto.ring import PRIME_31, Ring, Words
from coterie.secagg.protocols.agreement import AgreedProtocol
from coterie.secagg.protocols.agreement.boxes import DIGEST_BYTES, leaf, sharing_tree, stated_leaves
from coterie.secagg.protocols.agreement.client import AgreedParticipant
from coterie.secagg.protocols.agreement.messages import RosterLine, server_table
from coterie.secagg.protocols.agreement.roster import BoxFormat, Roster
from coterie.secagg.protocols.agreement.server import AgreedRound, read_words
from coterie.secagg.wire.framing import Message, RoundAnswer, Signature, blank


class CodedSharing(RoundAnswer, frozen=True, tag=23):
    """Client to server: boxes with shares of my mask for all others, in the roster's order, one signature (§5).

    The tail is the boxes, one after the other.
    """

    has_tail = True
    signature: Signature


class ShareSum(RoundAnswer, frozen=True, tag=24):
    """Client to server: the sum of the shares that I hold of the included users' masks; its words are the tail."""

    has_tail = True


def _sizes(users: int, parameters: Parameters) -> tuple[int, int, int]:
    """Return t, U and e for a roster: U = n - ⌊δn⌋ - 2e and t = ⌊γn⌋, but at least 1.

    e is a twentieth of the users, at least one where there is room for it. With t = 0, as ⌊γn⌋ is below five users
    by default, a single holder would read pieces of the others' masks.
    """
    privacy, left = max(1, parameters.most_colluding(users)), users - parameters.most_lost(users)
    errors = min(max(1, users // 20), max(0, (left - privacy - 1) // 2))
    return privacy, left - 2 * errors, errors


def code_for(users: int, parameters: Parameters) -> Code:
    """Return the code for a roster; everybody derives it from the charter and the roster, and it is never sent.

    If no more than ⌊δn⌋ users are lost, U + 2e evaluations are left, so that e wrong ones are corrected.

    >>> code_for(100, Parameters()), code_for(3, Parameters())
    (Code(users=100, privacy=20, needed=60), Code(users=3, privacy=1, needed=3))
    >>> code_for(100, Parameters()).pieces
    40
    """
    privacy, needed, _ = _sizes(users, parameters)
    return Code(users, privacy, needed)


@dataclass(frozen=True)
class CodedRoster(Roster):
    """A roster in which everyone holds one coded share of everyone's mask, without pairwise masks."""

    has_masks = False

    @cached_property
    def code(self) -> Code:
        """How masks are shared: n is the roster's size, t and U follow from it and the charter."""
        return code_for(len(self.lines), self.setting.parameters)

    @property
    def mask_words(self) -> int:
        """How long a mask is: as long as a vector."""
        return self.setting.terms.dimension + self.setting.quantiser.extra_words

    @property
    def share_words(self) -> int:
        """How long a share of a mask is."""
        return self.code.share_words(self.mask_words)

    @cached_property
    def box_format(self) -> BoxFormat:
        """A box holds one share of a mask, of words below p, and ends with its leaf, the digest of all before it.

        There is no commitment to the share: a short one could be guessed from it, and wrong sums name nobody
        anyway. The server need not hash all boxes to pass them on: if a leaf is wrong, the holder complains.
        """
        size = PRIME_31.dtype.itemsize * self.share_words
        return BoxFormat(size, DIGEST_BYTES, lambda _, sealed: leaf(sealed), _is_share, stated_leaves)


def _is_share(share: bytes) -> bool:
    return bool(np.frombuffer(share, dtype=PRIME_31.dtype).max(initial=0) < PRIME_31.modulus)


class LightParticipant(AgreedParticipant):
    """A user in one round of LightSecAgg.

    Mask and noise are drawn anew for every round, and a round has one roster. The shares of others are in memory
    only: after a restart there are none, so that no round can be opened a second time.
    """

    def _split(self, roster: Roster, own_position: int) -> dict[int, bytes]:
        """Encode the mask; the noise in it is drawn for this mask alone."""
        del own_position
        assert isinstance(roster, CodedRoster)  # noqa: S101 - the protocol's `roster_kind`
        mask: Words = np.empty(roster.mask_words, dtype=PRIME_31.dtype)
        Keystream(self._seed, PRIME_31).words_into(mask)
        shares = roster.code.encode(mask, Seed.generate())
        return {place: share.astype(PRIME_31.dtype).tobytes() for place, share in enumerate(shares)}

    def _sharing(self, roster: Roster, own_position: int, own: bytes, boxes: Iterable[bytes]) -> memoryview:
        del own
        content = b"".join(boxes)
        root = sharing_tree(b"", content, roster.box_format).root
        signature = self._party.identity.sign(*roster.boxes_to_sign(own_position, root))
        message, tail = blank(CodedSharing(*self._head, signature), len(content))
        tail[:] = content
        return message.toreadonly()

    def _pair_masks(self, others: Iterable[RosterLine]) -> list[Mask]:
        """No two users have a mask in common."""
        del others
        return []

    def _opening(self) -> memoryview:
        """Add up the shares of exactly the included users' masks: of every sharer this device has one."""
        message, tail = blank(ShareSum(*self._head), len(self._shares[self._own_position]))
        total: Words = np.frombuffer(tail, dtype=PRIME_31.dtype)
        total[:] = 0
        for place in sorted(self._included):
            PRIME_31.add_into(total, np.frombuffer(self._shares[place], dtype=PRIME_31.dtype))
        return message.toreadonly()


class LightRound(AgreedRound):
    """The server's side of one round of LightSecAgg."""

    table = server_table(CodedSharing, ShareSum)
    _roster: CodedRoster

    def _clear_secrets(self) -> None:
        self._sums: dict[int, Words] = {}

    def _take_secret(self, user: str, message: Message, tail: memoryview) -> None:
        place = self._roster.position[user]
        if isinstance(message, CodedSharing):
            self._boxes.take_boxes(place, b"", tail, message.signature)
            return
        size = PRIME_31.dtype.itemsize * self._roster.share_words
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes as a sum of shares, not {size}")
        self._sums[place] = read_words(tail, PRIME_31, user)

    def _demand_holders(self, places: Iterable[int]) -> None:
        holders, needed = len(tuple(places)), self._roster.code.needed
        if holders < needed:
            raise TooFewUsersError(
                f"{holders} holders of shares are left; {needed} are needed to decode the masks"
            )

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


class LightSecAgg(AgreedProtocol):
    """The inner protocol `lightsecagg`: everyone holds a coded share of everyone's mask."""

    name = "lightsecagg"
    rings: tuple[Ring, ...] = (PRIME_31,)
    storable = False  # it holds a share of every other user's vector
    from_client = LightRound.kinds
    participant_kind = LightParticipant
    round_kind = LightRound
    roster_kind = CodedRoster

    def thresholds(self, users: int, parameters: Parameters) -> dict[str, int]:
        """Return how many must agree, and t, U and e of the code."""
        names = ("shares reveal nothing (t)", "sums are needed to decode (U)", "wrong sums are corrected (e)")
        numbers = dict(zip(names, _sizes(users, parameters), strict=True))
        return super().thresholds(users, parameters) | numbers
