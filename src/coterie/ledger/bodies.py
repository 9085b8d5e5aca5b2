"""The body of a record: the fields of an event as bytes, in one way only.

A body is a line of JSON. If the event has fields that are integers in number, or bytes, a line feed and these
follow, packed, in the order of the fields. Whatever bytes come, decoding gives an event that encodes to the same
bytes, or raises `Damaged`; what is allocated is bounded by the bytes that are there. (One exception: names are
pressed by zlib, whose output differs between its versions, so only the text inside them has one form.)
"""

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_type_hints

import numpy as np

from coterie.ledger.interface import Damaged
from coterie.ledger.packing import Lists, Reader, packed, packed_lists, unpacked, unpacked_lists
from coterie.values import IntArray

_T = TypeVar("_T")
_NUMBERS = 1 << 53  # integers in JSON stay below, so that every reader reads them exactly
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
_RATIO = 1100  # zlib's bytes never stand for more than about 1030 times as many


@dataclass(frozen=True)
class Inline:
    """A field in the line of JSON; `sound` says whether it can have a value."""

    sound: Callable[[Any], bool]


@dataclass(frozen=True)
class Packed(Generic[_T]):
    """A field after the line."""

    write: Callable[[_T], bytes]
    read: Callable[[Reader], _T]


def encode(event: object) -> bytes:
    """Return the body of an event."""
    line: dict[str, object] = {}
    rest = [b"\n"]
    for name, code in _codes(type(event)).items():
        value = getattr(event, name)
        if isinstance(code, Inline):
            line[name] = value
        else:
            rest.append(code.write(value))
    return _written(line) + (b"".join(rest) if len(rest) > 1 else b"")


def decode(kind: type[_T], body: bytes) -> _T:
    """Return the event of this kind that a body holds."""
    text, feed, rest = body.partition(b"\n")
    codes = _codes(kind)
    inline = {name for name, code in codes.items() if isinstance(code, Inline)}
    line = _read(text)
    if line.keys() != inline or bool(feed) != (len(inline) < len(codes)):
        raise Damaged(f"it has the fields {sorted(line)} where {sorted(inline)} are expected")
    reader = Reader(rest)
    values: dict[str, Any] = {}
    for name, code in codes.items():
        if isinstance(code, Packed):
            values[name] = code.read(reader)
        elif code.sound(line[name]):
            values[name] = line[name]
        else:
            raise Damaged(f"its field {name!r} cannot be {line[name]!r:.40}")
    reader.end()
    return kind(**values)


def _codes(kind: type) -> dict[str, Inline | Packed[Any]]:
    """Return how the fields of an event's type are written, as their own types say."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = {each.name: hints[each.name].__metadata__[0] for each in fields(kind)}
    return _KNOWN[kind]


_KNOWN: dict[type, dict[str, Inline | Packed[Any]]] = {}


def _written(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _read(text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
        canonical = _written(line) == text
    except (ValueError, RecursionError):
        raise Damaged("it does not begin with a line of JSON") from None
    if not (canonical and isinstance(line, dict)):
        raise Damaged("its line of JSON is not written as it must be")
    return line


def _write_rising(values: IntArray) -> bytes:
    return packed(values - np.concatenate(([-1], values[:-1])) - 1)


def _read_rising(reader: Reader) -> IntArray:
    return np.asarray(np.cumsum(unpacked(reader) + 1) - 1)


def _write_names(values: tuple[str, ...]) -> bytes:
    raw = _written(values)
    pressed = zlib.compress(raw, 9)
    return packed(np.array([len(raw), len(pressed)], dtype=np.int64)) + pressed


def _read_names(reader: Reader) -> tuple[str, ...]:
    sizes = unpacked(reader).tolist()
    if len(sizes) != 2 or sizes[0] > sizes[1] * _RATIO:  # noqa: PLR2004 - two sizes
        raise Damaged("its names are not as many bytes as they announce")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(reader.take(sizes[1]), sizes[0] + 1)
        values = json.loads(raw)
        canonical = stream.eof and not stream.unused_data and len(raw) == sizes[0] and _written(values) == raw
    except (zlib.error, ValueError, RecursionError):
        raise Damaged("its names cannot be unpacked") from None
    if not (canonical and isinstance(values, list) and all(isinstance(value, str) for value in values)):
        raise Damaged("its names are not written as they must be")
    return tuple(values)


def _write_keys(values: tuple[bytes | None, ...]) -> bytes:
    lengths = np.array([0 if value is None else len(value) + 1 for value in values], dtype=np.int64)
    return b"".join((packed(lengths), *(value for value in values if value)))


def _read_keys(reader: Reader) -> tuple[bytes | None, ...]:
    return tuple(reader.take(length - 1) if length else None for length in unpacked(reader).tolist())


def _write_charters(values: dict[int, bytes]) -> bytes:
    batches = sorted(values)
    lengths = np.array([len(values[batch]) for batch in batches], dtype=np.int64)
    return b"".join(
        (_write_rising(np.array(batches, dtype=np.int64)), packed(lengths), *(values[b] for b in batches))
    )


def _read_charters(reader: Reader) -> dict[int, bytes]:
    batches, lengths = _read_rising(reader).tolist(), unpacked(reader).tolist()
    if len(batches) != len(lengths):
        raise Damaged(f"{len(batches)} batches come with {len(lengths)} charters")
    return {batch: reader.take(length) for batch, length in zip(batches, lengths, strict=True)}


def _are_labels(value: object) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, str) for each in value)
        and all(low < high for low, high in pairwise(value))
    )


def _are_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(type(each) in {int, float} for each in value.values())


Number: TypeAlias = Annotated[int, Inline(lambda value: type(value) is int and 0 <= value < _NUMBERS)]
"""An integer from 0 up."""
Text: TypeAlias = Annotated[str, Inline(lambda value: isinstance(value, str))]
Flag: TypeAlias = Annotated[bool, Inline(lambda value: isinstance(value, bool))]
Digest: TypeAlias = Annotated[
    str, Inline(lambda value: isinstance(value, str) and _DIGEST.fullmatch(value) is not None)
]
"""A SHA-256 in hexadecimal; an empty text stands for none."""
Labels: TypeAlias = Annotated[list[str], Inline(_are_labels)]
"""Texts, sorted and distinct."""
Metrics: TypeAlias = Annotated[Mapping[str, float], Inline(_are_metrics)]
"""Numbers by name."""
Rising: TypeAlias = Annotated[IntArray, Packed(_write_rising, _read_rising)]
"""Integers that rise."""
RisingLists: TypeAlias = Annotated[Lists, Packed(packed_lists, unpacked_lists)]
Names: TypeAlias = Annotated[tuple[str, ...], Packed(_write_names, _read_names)]
"""Many texts."""
Keys: TypeAlias = Annotated[tuple[bytes | None, ...], Packed(_write_keys, _read_keys)]
Charters: TypeAlias = Annotated[dict[int, bytes], Packed(_write_charters, _read_charters)]
"""Bytes by number."""
