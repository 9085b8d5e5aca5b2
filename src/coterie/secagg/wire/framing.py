"""The bytes of a message: a fixed header, a bounded MessagePack body, and for vectors a raw tail of words."""

import struct
from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar, Union

import msgspec
import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import LARGEST_NAME

MAGIC = b"COT"
VERSION = 2
ALIGNMENT = 64
"""The tail begins at a multiple of this many bytes, so that its words can be used where they lie."""
LARGEST_MESSAGE = 1 << 30

_HEADER = struct.Struct("<3sBIQ")  # magic, version, length of the body, length of the tail
_encoder = msgspec.msgpack.Encoder()
_NO_BYTES, _LONG_BYTES = b"\xc4\0", struct.Struct(">BI")  # MessagePack's forms of no bytes, and of up to 2^32 - 1

Data: TypeAlias = bytes | memoryview
"""A message's bytes."""

UserId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
Scope: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
Digest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
PublicKey: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
LARGEST_ROUND = 2**63 - 1
RoundNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ROUND)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="t"):
    """What one role sends to the other; frozen, and typed once decoded."""

    has_tail: ClassVar[bool] = False
    """Whether raw bytes follow the body: words of the ring, little-endian, or boxes."""


class RoundMessage(Message, frozen=True):
    """A message in the phases of a round; the context says which round, and under which terms."""

    scope: Scope
    context: Digest


class RoundAnswer(RoundMessage, frozen=True):
    """A client's message in the phases of a round."""

    user: UserId


def encode(message: Message) -> bytes:
    """Return the bytes of a message without a tail."""
    body = _encoder.encode(message)
    return _HEADER.pack(MAGIC, VERSION, len(body), 0) + body


def blank(message: Message, tail: int) -> tuple[memoryview, memoryview]:
    """Return a message's bytes with room for its tail, and a view of that room to be filled in place."""
    body = _encoder.encode(message)
    start = _tail_start(len(body)) if tail else _HEADER.size + len(body)
    # numpy takes large buffers in large pages, and unlike a bytearray does not fill them with zeros first.
    data = np.empty(start + tail, dtype=np.uint8).data
    _HEADER.pack_into(data, 0, MAGIC, VERSION, len(body), tail)
    data[_HEADER.size : start] = body.ljust(start - _HEADER.size, b"\0")
    return data, data[start:]


def encode_parts(message: Message, parts: Sequence[Data]) -> bytes:
    """Return the bytes of a message whose last field, empty bytes, is all these parts, each copied once."""
    body = _encoder.encode(message)
    if body[-2:] != _NO_BYTES:
        raise UsageError(f"the last field of {type(message).__name__} is not empty bytes")
    size = sum(map(len, parts))
    head = body[:-2] + _LONG_BYTES.pack(0xC6, size)
    return b"".join([_HEADER.pack(MAGIC, VERSION, len(head) + size, 0), head, *parts])


def rewrite(data: memoryview, message: Message) -> None:
    """Put another message of the same length into bytes that `blank` made; their tail stays."""
    body = _encoder.encode(message)
    _, _, size, _ = _HEADER.unpack_from(data)
    if len(body) != size:
        raise UsageError(f"a body of {len(body)} bytes cannot take the place of one of {size}")
    data[_HEADER.size : _HEADER.size + size] = body


def _tail_start(body: int) -> int:
    return -(-(_HEADER.size + body) // ALIGNMENT) * ALIGNMENT


M = TypeVar("M", bound=Message)


class MessageDecoder(Generic[M]):
    """Decodes the messages that one role may send, and refuses everything else with a PeerError."""

    def __init__(self, kinds: Collection[type[M]], sender: str) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(_union(kinds))
        self._sender = sender

    def decode(self, data: Data, largest: int = LARGEST_MESSAGE) -> tuple[M, memoryview]:
        """Return the message in some bytes, and its tail."""
        body, tail = _unframed(data, self._sender, largest)
        try:
            message = self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise PeerError(f"a malformed message came from the {self._sender}: {error}") from None
        for name in (getattr(message, field, "") for field in ("user", "scope", "inner")):
            if len(name.encode()) > LARGEST_NAME:
                raise PeerError(
                    f"a name of {len(name.encode())} bytes came from the {self._sender}; at most {LARGEST_NAME} "
                    "are read"
                )
        if bool(tail) != message.has_tail:
            raise PeerError(
                f"{type(message).__name__} came from the {self._sender} with a tail of {len(tail)} bytes"
            )
        return message, tail


def begins_with_tail(data: Data) -> bool:
    """Whether bytes begin like a message that has a tail: a vector, or as much as has come of one."""
    if len(data) < _HEADER.size:
        return False
    magic, version, _, tail = _HEADER.unpack_from(data)
    return bool(magic == MAGIC and version == VERSION and tail)


def _union(kinds: Collection[type[M]]) -> Any:  # noqa: ANN401 - a type that is put together at run time
    return Union[tuple(kinds)]  # noqa: UP007 - the members are not known when this is written


def _unframed(data: Data, sender: str, largest: int) -> tuple[memoryview, memoryview]:
    """Return the body and the tail, once header, lengths and padding are right."""
    if len(data) > largest:
        raise PeerError(f"a message of {len(data)} bytes came from the {sender}; at most {largest} are read")
    if len(data) < _HEADER.size:
        raise PeerError(f"{len(data)} bytes came from the {sender}; a message has at least {_HEADER.size}")
    magic, version, body, tail = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PeerError(
            f"what came from the {sender} is not a message of Coterie: it begins with {magic!r}, not {MAGIC!r}"
        )
    if version != VERSION:
        raise PeerError(f"a message of version {version} came from the {sender}; this is version {VERSION}")
    start, view = _tail_start(body) if tail else _HEADER.size + body, memoryview(data)
    if start + tail != len(data):
        raise PeerError(f"a message from the {sender} is {len(data)} bytes long but says {start + tail}")
    if any(view[_HEADER.size + body : start]):
        raise PeerError(f"a message from the {sender} has bytes in its padding")
    return view[_HEADER.size : _HEADER.size + body], view[start:]
