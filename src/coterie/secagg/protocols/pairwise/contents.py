"""What a box holds: how long it is, what its sender commits to beside it, and what is refused in it (§5).

In SecAgg it is a pair of shares, with a commitment to each. To whoever holds fewer than t' shares each other one
is nine uniform words below p, 279 bits that nobody guesses: so a plain digest hides it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import KEY_BYTES
from coterie.secagg.crypto.shamir import SHARE_BYTES, are_shares
from coterie.secagg.protocols.pairwise.merkle import DIGEST_BYTES

PAIR_BYTES = 2 * SHARE_BYTES
"""A share of the self-mask seed, and one of the mask key."""
COMMITMENTS_BYTES = 2 * DIGEST_BYTES
TAG_BYTES = 16
_SEED_TAG, _KEY_TAG = enc("coterie/v2/commitment", "seed"), enc("coterie/v2/commitment", "key")


@dataclass(frozen=True)
class BoxFormat:
    """The format of all boxes of a round: the public half of a box's key, encrypted content, commitments."""

    content_bytes: int
    commitment_bytes: int
    commit: Callable[[bytes], bytes]
    """What a sender signs of the content, and everyone may see."""
    is_right: Callable[[bytes], bool]
    """Whether bytes of this length can be content."""
    signed_part: Callable[[bytes | memoryview], bytes | memoryview]
    """The bytes of a box that its sender signs, from which all others follow for whoever can open it."""

    @property
    def ciphertext_end(self) -> int:
        """Where the commitments begin."""
        return KEY_BYTES + self.content_bytes + TAG_BYTES

    @property
    def box_bytes(self) -> int:
        """How long a box is."""
        return self.ciphertext_end + self.commitment_bytes


def seed_commitment(share: bytes) -> bytes:
    """Return the commitment to a share of a self-mask seed."""
    return hashlib.sha256(_SEED_TAG + share).digest()


def key_commitment(share: bytes) -> bytes:
    """Return the commitment to a share of a mask key."""
    return hashlib.sha256(_KEY_TAG + share).digest()


def commitments(pair: bytes) -> bytes:
    """Return the commitments to both shares of a pair."""
    return seed_commitment(pair[:SHARE_BYTES]) + key_commitment(pair[SHARE_BYTES:])


def _whole(box: bytes | memoryview) -> bytes | memoryview:
    return box


PAIRS = BoxFormat(PAIR_BYTES, COMMITMENTS_BYTES, commitments, are_shares, _whole)
