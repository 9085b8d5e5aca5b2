"""The messages of both roles, and their bytes: a fixed header, a bounded MessagePack body, a raw tail."""

import struct
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import LARGEST_BATCH, LARGEST_NAME

MAGIC = b"COT"
VERSION = 1
ALIGNMENT = 64
"""The tail begins at a multiple of this many bytes, so that its words can be used where they lie."""
LARGEST_MESSAGE = 1 << 30

_HEADER = struct.Struct("<3sBIQ")  # magic, version, length of the body, length of the tail

Data: TypeAlias = bytes | memoryview
"""A message's bytes."""

UserId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
Scope: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
Digest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
PublicKey: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
LARGEST_ROUND = 2**63 - 1
Round: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ROUND)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
LARGEST_ROSTER = 2**16 - 1
"""The most users in a pairwise round: a user's place, from 1 on, is also where its shares are evaluated."""
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_ROSTER)]
Positions: TypeAlias = Annotated[tuple[Position, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]
"""Users by their place in the roster, counted from 0, in ascending order."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="t"):
    """What one role sends to the other; frozen, and typed once decoded."""


class Invitation(Message, frozen=True, tag=1):
    """Server to client: a batch is to be formed for this scope (§2)."""

    scope: Scope


class Enrolment(Message, frozen=True, tag=2):
    """Client to server: my keys for a charter to come; the seal key is fresh (§2)."""

    scope: Scope
    user: UserId
    identity: PublicKey
    seal: PublicKey
    predecessor: Annotated[bytes, msgspec.Meta(max_length=32)]


class Draft(Message, frozen=True, tag=3):
    """Server to client: the charter that you are asked to sign (§2)."""

    charter: bytes


class Signed(Message, frozen=True, tag=4):
    """Client to server: my signature over the charter of this digest (§2)."""

    scope: Scope
    user: UserId
    charter: Digest
    signature: Signature


class Founding(Message, frozen=True, tag=5):
    """Server to client: the charter with the signatures of all its members (§2)."""

    charter: bytes
    signatures: Annotated[dict[UserId, Signature], msgspec.Meta(max_length=LARGEST_BATCH)]


class Accepted(Message, frozen=True, tag=6):
    """Client to server: I accepted the charter and am ready for its rounds (§3)."""

    scope: Scope
    user: UserId
    charter: Digest


class RoundCall(Message, frozen=True, tag=7):
    """Server to client: take part in a sealed round under these terms (§3)."""

    scope: Scope
    charter: Digest
    round: Round
    model: bytes
    configuration: bytes
    dimension: Count
    clip: float
    cohort: Count
    weight_cap: Count
    min_included: Count


class SealedVector(Message, frozen=True, tag=8):
    """Client to server: my sealed vector; its words, four bytes each, little-endian, are the tail (§3)."""

    scope: Scope
    charter: Digest
    round: Round
    user: UserId
    terms: Digest


class UnsealedCall(Message, frozen=True, tag=9):
    """Server to client: take part in a round without a seal; only clients made for that take it (§4)."""

    scope: Scope
    inner: Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
    round: Round
    model: bytes
    configuration: bytes
    dimension: Count
    clip: float
    cohort: Count
    weight_cap: Count
    min_included: Count


class Advertisement(Message, frozen=True, tag=10):
    """Client to server: my keys for this round, signed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    mask_key: PublicKey
    share_key: PublicKey
    signature: Signature


class RosterLine(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One user of a roster: what it advertised, with its identity key."""

    user: UserId
    identity: PublicKey
    mask_key: PublicKey
    share_key: PublicKey
    signature: Signature


class RosterCall(Message, frozen=True, tag=11):
    """Server to client: all who advertised; share your secrets among them (§5)."""

    scope: Scope
    context: Digest
    lines: Annotated[tuple[RosterLine, ...], msgspec.Meta(max_length=LARGEST_ROSTER)]


class Sharing(Message, frozen=True, tag=12):
    """Client to server: encrypted shares for my holders, in the roster's order, one after the other (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    seed_digest: Digest
    shares: bytes


class Delivery(Message, frozen=True, tag=13):
    """Server to client: all who shared, and their encrypted shares for you, in the roster's order (§5)."""

    scope: Scope
    context: Digest
    sharers: Positions
    shares: bytes


class MaskedVector(Message, frozen=True, tag=14):
    """Client to server: my masked vector; its words, four bytes each, little-endian, are the tail (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    signature: Signature


class Proposal(Message, frozen=True, tag=15):
    """Server to client: whose vectors are to be summed, and whose are not; sign it if it is right (§5)."""

    scope: Scope
    context: Digest
    included: Positions
    excluded: Positions


class Agreement(Message, frozen=True, tag=16):
    """Client to server: my signature over the lists that were proposed (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    signature: Signature


class Opening(Message, frozen=True, tag=17):
    """Server to client: so many have signed the same lists; send the shares that they call for (§5)."""

    scope: Scope
    context: Digest
    signers: Positions
    signatures: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=2 * LARGEST_ROSTER)]
    """The signers' under the agreement, then those of all other included users under their uploads."""


class Unmasking(Message, frozen=True, tag=18):
    """Client to server: of each sharer whose holder I am one share, in the roster's order (§5)."""

    scope: Scope
    context: Digest
    user: UserId
    shares: bytes


PhaseMessage: TypeAlias = RosterCall | Delivery | Proposal | Opening
"""What the server sends in the phases of a pairwise round."""
PhaseAnswer: TypeAlias = Advertisement | Sharing | MaskedVector | Agreement | Unmasking
"""What a client answers there."""
ClientMessage: TypeAlias = Enrolment | Signed | Accepted | SealedVector | PhaseAnswer
ServerMessage: TypeAlias = Invitation | Draft | Founding | RoundCall | UnsealedCall | PhaseMessage
WITH_TAIL = (SealedVector, MaskedVector)

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_from_server: msgspec.msgpack.Decoder[ServerMessage] = msgspec.msgpack.Decoder(ServerMessage)


def encode(message: Message) -> bytes:
    """Return the bytes of a message without a tail."""
    return bytes(blank(message, 0)[0])


def blank(message: Message, tail: int) -> tuple[memoryview, memoryview]:
    """Return a message's bytes with room for its tail, and a view of that room to be filled in place."""
    body = _encoder.encode(message)
    start = _tail_start(len(body)) if tail else _HEADER.size + len(body)
    # numpy takes large buffers in large pages, and unlike a bytearray does not fill them with zeros first.
    data = np.empty(start + tail, dtype=np.uint8).data
    _HEADER.pack_into(data, 0, MAGIC, VERSION, len(body), tail)
    data[_HEADER.size : start] = body.ljust(start - _HEADER.size, b"\0")
    return data, data[start:]


def rewrite(data: memoryview, message: Message) -> None:
    """Put another message of the same length into bytes that `blank` made; their tail stays."""
    body = _encoder.encode(message)
    _, _, size, _ = _HEADER.unpack_from(data)
    if len(body) != size:
        raise UsageError(f"a body of {len(body)} bytes cannot take the place of one of {size}")
    data[_HEADER.size : _HEADER.size + size] = body


def _tail_start(body: int) -> int:
    return -(-(_HEADER.size + body) // ALIGNMENT) * ALIGNMENT


def decode_from_client(data: Data, largest: int = LARGEST_MESSAGE) -> tuple[ClientMessage, memoryview]:
    """Return the message in bytes that a client sent, and its tail; refuse anything else with a PeerError."""
    return _decode(_from_client, data, "client", largest)


def decode_from_server(data: Data, largest: int = LARGEST_MESSAGE) -> ServerMessage:
    """Return the message in bytes that the server sent; refuse anything else with a PeerError."""
    message, _ = _decode(_from_server, data, "server", largest)
    return message


M = TypeVar("M", bound=Message)


def _decode(decoder: msgspec.msgpack.Decoder[M], data: Data, sender: str, largest: int) -> tuple[M, memoryview]:
    body, tail = _unframed(data, sender, largest)
    try:
        message = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise PeerError(f"a malformed message came from the {sender}: {error}") from None
    for name in (getattr(message, field, "") for field in ("user", "scope", "inner")):
        if len(name.encode()) > LARGEST_NAME:
            raise PeerError(
                f"a name of {len(name.encode())} bytes came from the {sender}; at most {LARGEST_NAME} are read"
            )
    if bool(tail) != isinstance(message, WITH_TAIL):
        raise PeerError(f"{type(message).__name__} came from the {sender} with a tail of {len(tail)} bytes")
    return message, tail


def _unframed(data: Data, sender: str, largest: int) -> tuple[memoryview, memoryview]:
    """Return the body and the tail, once header, lengths and padding are right."""
    if len(data) > largest:
        raise PeerError(f"a message of {len(data)} bytes came from the {sender}; at most {largest} are read")
    if len(data) < _HEADER.size:
        raise PeerError(f"{len(data)} bytes came from the {sender}; a message has at least {_HEADER.size}")
    magic, version, body, tail = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PeerError(f"what came from the {sender} is no message: it begins with {magic!r}")
    if version != VERSION:
        raise PeerError(f"a message of version {version} came from the {sender}; this is version {VERSION}")
    start, view = _tail_start(body) if tail else _HEADER.size + body, memoryview(data)
    if start + tail != len(data):
        raise PeerError(f"a message from the {sender} is {len(data)} bytes long but says {start + tail}")
    if any(view[_HEADER.size + body : start]):
        raise PeerError(f"a message from the {sender} has bytes in its padding")
    return view[_HEADER.size : _HEADER.size + body], view[start:]
