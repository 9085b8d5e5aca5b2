"""The box in which a pair of shares travels to its holder, and what its sender commits to (§5).

A box is the public half of a key of its own, the encrypted pair, and a commitment to each of the two shares. To
whoever holds fewer than t' shares each other one is nine uniform words below p, 279 bits that nobody guesses: so a
plain digest hides it.
"""

import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import PeerError
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import KEY_BYTES, BoxKey, Seed, ShareKey, hkdf
from coterie.secagg.crypto.shamir import SHARE_BYTES, are_shares
from coterie.secagg.protocols.pairwise.merkle import DIGEST_BYTES
from coterie.secagg.protocols.pairwise.roster import Roster

PAIR_BYTES = 2 * SHARE_BYTES
"""A share of the self-mask seed, and one of the mask key."""
_CIPHERTEXT_END = KEY_BYTES + PAIR_BYTES + 16
COMMITMENTS_BYTES = 2 * DIGEST_BYTES
BOX_BYTES = _CIPHERTEXT_END + COMMITMENTS_BYTES
_NONCE = bytes(12)  # every key encrypts one message
_SEED_TAG, _KEY_TAG = enc("coterie/v2/commitment", "seed"), enc("coterie/v2/commitment", "key")


def seed_commitment(share: bytes) -> bytes:
    """Return the commitment to a share of a self-mask seed."""
    return hashlib.sha256(_SEED_TAG + share).digest()


def key_commitment(share: bytes) -> bytes:
    """Return the commitment to a share of a mask key."""
    return hashlib.sha256(_KEY_TAG + share).digest()


def commitments(pair: bytes) -> bytes:
    """Return the commitments to both shares of a pair."""
    return seed_commitment(pair[:SHARE_BYTES]) + key_commitment(pair[SHARE_BYTES:])


def box_commitments(box: bytes) -> bytes:
    """Return the commitments of a box to both its shares."""
    return box[_CIPHERTEXT_END:]


@dataclass(frozen=True)
class Route:
    """From whom to whom a box goes, and in which round."""

    roster: Roster
    sender: int
    holder: int

    def encrypt_shares(self, key: BoxKey, pair: bytes) -> bytes:
        """Return the box with a pair of shares, under a key that is used for this box alone.

        ChaCha20-Poly1305 under HKDF(X25519(box key, holder's share key), salt = context, info), nonce zero,
        associated data info = enc("coterie/v2/box", context, roster digest, sender, holder, public box key).
        """
        line, info = self.roster.lines[self.holder], self._info(key.public)
        cipher = self._cipher(key.agree(line.share_key, who=line.user), info)
        return key.public + cipher.encrypt(_NONCE, pair, info) + commitments(pair)

    def decrypt_shares(self, key: ShareKey, box: bytes) -> bytes | None:
        """Return the pair of shares in a box, for its holder; None if it does not open to its commitments."""
        try:
            shared = key.agree(box[:KEY_BYTES], who=self.roster.lines[self.sender].user)
        except PeerError:  # of low order: signed by its sender, like everything else in the box
            return None
        return self._open(shared, box)

    def revealed_shares(self, key: bytes, box: bytes) -> bytes | None:
        """Return the pair of shares, for whoever was given the box's own key; None as for the holder."""
        own, line = BoxKey.from_bytes(key), self.roster.lines[self.holder]
        if own.public != box[:KEY_BYTES]:
            return None
        return self._open(own.agree(line.share_key, who=line.user), box)

    def _open(self, shared: Seed, box: bytes) -> bytes | None:
        info = self._info(box[:KEY_BYTES])
        try:
            pair = self._cipher(shared, info).decrypt(_NONCE, box[KEY_BYTES:_CIPHERTEXT_END], info)
        except InvalidTag:
            return None
        return pair if commitments(pair) == box[_CIPHERTEXT_END:] and are_shares(pair) else None

    def _info(self, public: bytes) -> bytes:
        roster = self.roster
        users = (roster.lines[self.sender].user, roster.lines[self.holder].user)
        return enc("coterie/v2/box", roster.context, roster.digest, *users, public)

    def _cipher(self, shared: Seed, info: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(hkdf(shared.reveal(), self.roster.context, info))
