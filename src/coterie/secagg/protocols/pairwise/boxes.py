"""The box in which shares travel to their holder, under a key of its own (§5)."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import PeerError
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import KEY_BYTES, BoxKey, Seed, ShareKey, hkdf
from coterie.secagg.protocols.pairwise.roster import Roster

_NONCE = bytes(12)  # every key encrypts one message


@dataclass(frozen=True)
class Route:
    """From whom to whom a box goes, and in which round."""

    roster: Roster
    sender: int
    holder: int

    def encrypt_shares(self, key: BoxKey, content: bytes) -> bytes:
        """Return the box with a holder's shares, under a key that is used for this box alone.

        ChaCha20-Poly1305 under HKDF(X25519(box key, holder's share key), salt = context, info), nonce zero,
        associated data info = enc("coterie/v2/box", context, roster digest, sender, holder, public box key).
        """
        line, info = self.roster.lines[self.holder], self._info(key.public)
        cipher = self._cipher(key.agree(line.share_key, who=line.user), info)
        return key.public + cipher.encrypt(_NONCE, content, info) + self.roster.box_format.commit(content)

    def decrypt_shares(self, key: ShareKey, box: bytes) -> bytes | None:
        """Return what is in a box, for its holder; None if it does not open to its commitments."""
        try:
            shared = key.agree(box[:KEY_BYTES], who=self.roster.lines[self.sender].user)
        except PeerError:  # of low order: signed by its sender, like everything else in the box
            return None
        return self._open(shared, box)

    def revealed_shares(self, key: bytes, box: bytes) -> bytes | None:
        """Return what is in a box, for whoever was given the box's own key; None as for the holder."""
        own, line = BoxKey.from_bytes(key), self.roster.lines[self.holder]
        if own.public != box[:KEY_BYTES]:
            return None
        return self._open(own.agree(line.share_key, who=line.user), box)

    def _open(self, shared: Seed, box: bytes) -> bytes | None:
        info, box_format = self._info(box[:KEY_BYTES]), self.roster.box_format
        end = box_format.ciphertext_end
        try:
            content = self._cipher(shared, info).decrypt(_NONCE, box[KEY_BYTES:end], info)
        except InvalidTag:
            return None
        right = box_format.commit(content) == box[end:] and box_format.is_right(content)
        return content if right else None

    def _info(self, public: bytes) -> bytes:
        roster = self.roster
        users = (roster.lines[self.sender].user, roster.lines[self.holder].user)
        return enc("coterie/v2/box", roster.context, roster.digest, *users, public)

    def _cipher(self, shared: Seed, info: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(hkdf(shared.reveal(), self.roster.context, info))
