"""Secrets, and all that is done with them: derive, sign and verify, agree (docs/protocol.md §2 and §3)."""

import hmac
from typing import Any, ClassVar, Generic, NoReturn, Self, SupportsIndex, TypeVar, final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.encoding import enc

KEY_BYTES = 32
SIGNATURE_BYTES = 64
UNREADABLE = "what the device stored of a round cannot be read (it is damaged, or of another Coterie)"

_PRIME = 2**255 - 19
_SIGN_BIT = 1 << 255
# The y of the 8 points of small order of edwards25519; each but 1 and -1 stands for two points, x and -x.
_SMALL_ORDER_Y = frozenset({
    0, 1, _PRIME - 1,
    0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826,
    0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7,
})  # fmt: skip
# The u that an X25519 key maps to zero: all points of small order of curve25519 and of its twist.
_LOW_ORDER_U = frozenset({
    0, 1, _PRIME - 1,
    0x00b8495f16056286fdb1329ceb8d09da6ac49ff1fae35616aeb8413b7c7aebe0,
    0x57119fd0dd4e22d8868e1c58c45c44045bef839c55b1d0b1248c50a3bc959c5f,
})  # fmt: skip


_K = TypeVar("_K", Ed25519PrivateKey, X25519PrivateKey)


class _Secret:
    """What holds a secret: it prints as nothing, and is neither pickled nor copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is secret: it is neither pickled nor copied")


class StoredSecrets(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a device keeps in a durable store of its own, secrets among it: it prints as nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []

    def encode(self) -> bytes:
        """Return the bytes to store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, content: bytes, refusal: str = UNREADABLE) -> Self:
        """Return what `encode` wrote; what is damaged, or of another version, is refused with these words."""
        try:
            return msgspec.msgpack.decode(content, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{refusal}: {error}") from None


@final
class Seed(_Secret):
    """Thirty-two secret bytes, for one purpose and one message.

    >>> Seed(bytes(32))
    Seed(…)
    >>> Seed(bytes(32)) == Seed(bytes(32))
    True
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = _checked_secret(secret, "a seed")

    @classmethod
    def generate(cls) -> "Seed":
        """Return a new seed from the operating system's generator."""
        return cls(ChaCha20Poly1305.generate_key())

    def reveal(self) -> bytes:
        """Return the secret bytes."""
        return self._secret

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Seed):
            return NotImplemented
        return hmac.compare_digest(self._secret, other._secret)

    __hash__ = None  # type: ignore[assignment]  # a hash would be a fingerprint of the secret


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA-256 (RFC 5869): extract with the salt, then expand with the info."""
    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(secret)


def hkdf_expand(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand-SHA-256 (RFC 5869 §2.3), for a key that is uniform already."""
    return HKDFExpand(SHA256(), KEY_BYTES, info).derive(key)


class _PrivateKey(_Secret, Generic[_K]):
    """A key pair, for one purpose."""

    __slots__ = ("_key", "public")
    kind: ClassVar[str]
    algorithm: ClassVar[type[Any]]

    def __init__(self, key: _K) -> None:
        self._key: _K = key
        self.public = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """Return a new key from the operating system's generator."""
        return cls(cls.algorithm.generate())

    @classmethod
    def from_bytes(cls, secret: bytes) -> Self:
        """Return the key that `to_bytes` wrote."""
        return cls(cls.algorithm.from_private_bytes(_checked_secret(secret, f"the secret {cls.kind} key")))

    def to_bytes(self) -> bytes:
        """Return the secret bytes, for the device's own store and nobody else."""
        return self._key.private_bytes_raw()


@final
class IdentityKey(_PrivateKey[Ed25519PrivateKey]):
    """A user's long-term Ed25519 key: it signs with a purpose tag and context, and does nothing else (§2).

    >>> key = IdentityKey.generate()
    >>> signature = key.sign("charter", b"its encoding")
    >>> verify_signature(key.public, signature, "charter", b"its encoding", who="ana")
    >>> verify_signature(key.public, signature, "agree", b"its encoding", who="ana")
    Traceback (most recent call last):
    coterie.errors.PeerError: the signature of 'ana' for 'agree' is forged, or made for something else
    """

    __slots__ = ()
    kind = "identity"
    algorithm = Ed25519PrivateKey

    def sign(self, purpose: str, *context: bytes | str | int) -> bytes:
        """Return the signature over enc("coterie/v2/" + purpose, context …)."""
        return self._key.sign(_signed(purpose, context))


def verify_signature(public: bytes, signature: bytes, purpose: str, *context: bytes | str | int, who: str) -> None:
    """Refuse a signature that the identity key did not make for this purpose and context (§2)."""
    check_identity_key(public, who)
    if len(signature) != SIGNATURE_BYTES:
        raise PeerError(
            f"the signature of {who!r} for {purpose!r} has {len(signature)} bytes, not {SIGNATURE_BYTES}"
        )
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed(purpose, context))
    except InvalidSignature:
        raise PeerError(
            f"the signature of {who!r} for {purpose!r} is forged, or made for something else"
        ) from None


def check_identity_key(public: bytes, who: str) -> None:
    """Refuse an Ed25519 key of small order, under which a signature fits many messages, or not canonical.

    OpenSSL takes both. Whether the bytes are a point of the curve at all shows when a signature is verified.
    """
    y = _public_number(public, "identity", who) % _SIGN_BIT
    if y % _PRIME in _SMALL_ORDER_Y:
        raise PeerError(f"the identity key of {who!r} has small order: {public.hex()}")
    if y >= _PRIME:
        raise PeerError(f"the identity key of {who!r} is not canonical: {public.hex()}")


class _ExchangeKey(_PrivateKey[X25519PrivateKey]):
    """An X25519 key."""

    __slots__ = ()
    algorithm = X25519PrivateKey

    def agree(self, peer: bytes, who: str) -> Seed:
        """Return X25519(own, peer) as in RFC 7748; refuse a peer of low order, with whom all agree on zero."""
        if _public_number(peer, self.kind, who) % _SIGN_BIT % _PRIME in _LOW_ORDER_U:
            raise PeerError(f"the {self.kind} key of {who!r} has low order: {peer.hex()}")
        try:
            return Seed(self._key.exchange(X25519PublicKey.from_public_bytes(peer)))
        except ValueError as error:  # all zeros: OpenSSL's own test for low order, should our list ever be wrong
            raise PeerError(f"the {self.kind} key of {who!r} gives no secret: {peer.hex()}") from error


@final
class SealKey(_ExchangeKey):
    """Fresh for every charter, and deleted once the chain has started (§2, §3).

    >>> mine, yours = SealKey.generate(), SealKey.generate()
    >>> mine.agree(yours.public, who="bob") == yours.agree(mine.public, who="ana")
    True
    """

    __slots__ = ()
    kind = "seal"


@final
class MaskKey(_ExchangeKey):
    """Fresh for every pairwise round; its shares are opened if its user is excluded (§5)."""

    __slots__ = ()
    kind = "mask"


@final
class ShareKey(_ExchangeKey):
    """Fresh for every pairwise round: shares travel under it (§5)."""

    __slots__ = ()
    kind = "share"


@final
class BoxKey(_ExchangeKey):
    """Fresh for every box with shares; revealed if the box's holder complains about it (§5)."""

    __slots__ = ()
    kind = "box"


def check_exchange_key(public: bytes, kind: str, who: str) -> None:
    """Refuse an X25519 key of low order, or not canonical: in a list, equal keys must be equal bytes."""
    number = _public_number(public, kind, who)
    if number % _SIGN_BIT % _PRIME in _LOW_ORDER_U:
        raise PeerError(f"the {kind} key of {who!r} has low order: {public.hex()}")
    if number >= _PRIME:
        raise PeerError(f"the {kind} key of {who!r} is not canonical: {public.hex()}")


def _signed(purpose: str, context: tuple[bytes | str | int, ...]) -> bytes:
    return enc(f"coterie/v2/{purpose}", *context)


def _checked_secret(secret: bytes, what: str) -> bytes:
    # The length is asked first: bytes(32) of an integer would be 32 zeros. The message must not show the value.
    if len(secret) != KEY_BYTES:
        raise UsageError(f"{what} is made of {KEY_BYTES} bytes, not of {len(secret)}")
    return bytes(secret)


def _public_number(public: bytes, kind: str, who: str) -> int:
    if len(public) != KEY_BYTES:
        raise PeerError(f"the {kind} key of {who!r} has {len(public)} bytes, not {KEY_BYTES}")
    return int.from_bytes(public, "little")
