"""How Coterie's bytes travel in Flower's messages: as arrays, which Flower cuts into chunks and sends once."""

import logging
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coterie.errors import PeerError
from coterie.secagg.wire.framing import Data

_T = TypeVar("_T", str, bytes)

LOG = logging.getLogger("flwr")
"""Flower's own logger: what is said there is seen where a run's messages are seen."""

RECORD = "coterie"
"""The record, in every message and reply, that says what it is."""
_BYTES = "coterie-bytes"

MESSAGE, IDENTITY_REQUEST, INTRODUCTION, REFUSAL = "message", "identity-request", "introduction", "refusal"
"""What a Flower message can be: bytes of the protocol, or who are you, or I am, or a refusal without a reason."""

CHALLENGE_BYTES = 32
"""How long the challenge of an identity request is, which a device signs to show who it is."""
PURPOSE = "flower/hello"
"""What an identity key signs an introduction for."""


def wrap(kind: str, *pieces: Data, **fields: str | bytes) -> RecordDict:
    """Return the content of a Flower message; equal pieces of several messages are stored and sent once."""
    content = RecordDict({RECORD: ConfigRecord({"kind": kind, **fields})})
    if pieces:
        arrays = {str(number): Array(np.frombuffer(piece, dtype=np.uint8)) for number, piece in enumerate(pieces)}
        content[_BYTES] = ArrayRecord(arrays)
    return content


def kind_of(content: RecordDict) -> str:
    """Return what a message is; empty for one that Coterie did not make."""
    record = content.config_records.get(RECORD)
    return str(record.get("kind", "")) if record is not None else ""


def field_of(content: RecordDict, name: str, kind: type[_T]) -> _T:
    """Return a field of a message that was made by `wrap`: text or bytes."""
    value = content.config_records[RECORD].get(name)
    if not isinstance(value, kind):
        raise PeerError(f"a message came without {name!r}, as {'text' if kind is str else 'bytes'}")
    return value


def has_bytes(content: RecordDict) -> bool:
    """Return whether a message has any of the protocol's bytes; a member that only helps has none to send."""
    return _BYTES in content.array_records


def unwrap(content: RecordDict) -> bytes:
    """Return the protocol's bytes in a message, put together again."""
    record = content.array_records.get(_BYTES)
    if record is None:
        raise PeerError("a message came without its bytes")
    try:
        pieces = [record[str(number)].numpy() for number in range(len(record))]
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise PeerError(f"a message came whose bytes cannot be read: {error}") from None
    if any(piece.dtype != np.uint8 for piece in pieces):
        raise PeerError("a message came whose bytes are not bytes")
    return b"".join(piece.tobytes() for piece in pieces)


def cut(data: bytes, common: bytes) -> Sequence[Data]:
    """Cut a message around what it has in common with those to others, the model; nothing is changed or lost.

    >>> [bytes(piece) for piece in cut(b"call:MODEL:end", b"MODEL")], cut(b"share", b"MODEL")
    ([b'call:', b'MODEL', b':end'], (b'share',))
    """
    start = data.find(common) if common else -1
    if start < 0:
        return (data,)
    view, end = memoryview(data), start + len(common)
    return [view[:start], view[start:end], view[end:]]
