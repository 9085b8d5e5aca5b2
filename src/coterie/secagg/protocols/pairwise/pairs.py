"""What two users of a pairwise round have between them: a mask, and a way for shares (§5)."""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import PeerError
from coterie.secagg.batch.chain import ordered
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import MaskKey, Seed, hkdf
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols.pairwise.messages import RosterLine
from coterie.secagg.protocols.pairwise.roster import Roster

PAIR_BYTES = 2 * SHARE_BYTES
"""A share of the self-mask seed, and one of the mask key."""
BOX_BYTES = PAIR_BYTES + 16
"""The same, encrypted."""
_NONCE = bytes(12)  # every key encrypts one message


def pair_mask(roster: Roster, user: str, key: MaskKey, other: RosterLine) -> Mask:
    """Return the mask that a user and another one have in common, with the user's sign: the lower id adds it.

    seed = HKDF(X25519(own, other), salt = context, info = enc("coterie/v2/pair", roster digest, lower, higher)).
    """
    secret = key.agree(other.mask_key, who=other.user).reveal()
    info = enc("coterie/v2/pair", roster.digest, *ordered(user, other.user))
    sign = 1 if user.encode() < other.user.encode() else -1
    return Mask(Seed(hkdf(secret, roster.context, info)), sign)


def seed_digest(context: bytes, user: str, seed: bytes) -> bytes:
    """Return what tells a right self-mask seed from a wrong one, and nothing else about it."""
    return hashlib.sha256(enc("coterie/v2/seed", context, user, seed)).digest()


def locked(roster: Roster, secret: Seed, sender: str, receiver: str, shares: bytes) -> bytes:
    """Return a pair of shares, encrypted for one receiver; `secret` is X25519 of the two share keys.

    ChaCha20-Poly1305 under HKDF(secret, salt = context, info), nonce zero, associated data info, with
    info = enc("coterie/v2/share", context, roster digest, sender, receiver).
    """
    info = _info(roster, sender, receiver)
    return ChaCha20Poly1305(hkdf(secret.reveal(), roster.context, info)).encrypt(_NONCE, shares, info)


def unlocked(roster: Roster, secret: Seed, sender: str, receiver: str, box: bytes) -> bytes:
    """Return the pair of shares in a box; refuse one that the sender did not make for this round and receiver."""
    info = _info(roster, sender, receiver)
    try:
        return ChaCha20Poly1305(hkdf(secret.reveal(), roster.context, info)).decrypt(_NONCE, box, info)
    except InvalidTag:
        raise PeerError(f"the shares of {sender!r} are forged, or made for another round or receiver") from None


def _info(roster: Roster, sender: str, receiver: str) -> bytes:
    return enc("coterie/v2/share", roster.context, roster.digest, sender, receiver)
