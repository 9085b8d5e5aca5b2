"""The mask that two users of a pairwise round have in common, and the digest of a self-mask seed (§5)."""

import hashlib

from coterie.secagg.batch.chain import ordered
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import MaskKey, Seed, hkdf
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.protocols.pairwise.messages import RosterLine
from coterie.secagg.protocols.pairwise.roster import Roster


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
