"""The roster of a round of LightSecAgg, and the code that follows from it (§5)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.secagg.crypto.keys import KEY_BYTES
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.protocols.lightsecagg.coding import Code
from coterie.secagg.protocols.pairwise.contents import TAG_BYTES, BoxFormat
from coterie.secagg.protocols.pairwise.graph import complete_neighbourhood
from coterie.secagg.protocols.pairwise.roster import NeighbourhoodOf, Roster


@dataclass(frozen=True)
class CodedRoster(Roster):
    """A roster in which everyone holds one coded share of everyone's mask, without pairwise masks."""

    neighbourhood_of: NeighbourhoodOf = complete_neighbourhood

    @cached_property
    def code(self) -> Code:
        """How masks are shared: n is the roster's size, t and U follow from it and the charter."""
        return Code.of(len(self.lines), self.setting.parameters)

    @property
    def has_masks(self) -> bool:
        """Whether two users have a mask in common: no."""
        return False

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
        """A box holds one share of a mask, of words below p.

        There is no commitment: a short share could be guessed from it, and wrong sums name nobody anyway. Signed
        are the box's key and its tag, not the long content: whoever opens the box has what its sender encrypted.
        """
        return BoxFormat(PRIME_31.dtype.itemsize * self.share_words, 0, _no_commitment, _is_share, _key_and_tag)


def _no_commitment(share: bytes) -> bytes:
    del share
    return b""


def _key_and_tag(box: bytes | memoryview) -> bytes:
    return bytes(box[:KEY_BYTES]) + bytes(box[-TAG_BYTES:])


def _is_share(share: bytes) -> bool:
    return bool(np.frombuffer(share, dtype=PRIME_31.dtype).max(initial=0) < PRIME_31.modulus)
