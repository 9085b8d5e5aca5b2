"""The body of a record: an event as bytes, in one way only.

A body is zlib's compression of a text and the arrays after it: one line of JSON (keys sorted, no spaces), a line
feed, then the arrays' bytes. The line has every field of the event; where a field is made of arrays it has their
lengths. Integers are signed and little-endian, as many bytes each as the largest of the array needs (1, 2, 4 or
8); what rises is written as its first member and the steps between. docs/ledger.md has the whole form.

Whatever bytes come, decoding gives an event that encodes to the same text and arrays, or raises `Damaged`. At most
`LARGEST` bytes are ever uncompressed, and an array is made only of bytes that are there.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_type_hints

import numpy as np

from coterie.errors import UsageError
from coterie.ledger.interface import Damaged
from coterie.values import IntArray

LARGEST = 1 << 27
"""Bytes that a body has at most, uncompressed."""

_T = TypeVar("_T")
_NUMBERS = 1 << 53  # integers in JSON stay below, so that every reader reads them exactly
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WIDTHS = (1, 2, 4, 8)

Part: TypeAlias = IntArray | bytes
"""What a field consists of after the line: integers, or bytes as they are."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of integers, end to end: list s is `members[starts[s]:starts[s + 1]]`; it rises and is not empty."""

    starts: IntArray
    members: IntArray

    @classmethod
    def of(cls, lists: Sequence[IntArray]) -> "Lists":
        """Put lists end to end."""
        starts = np.concatenate(([0], np.cumsum([len(each) for each in lists], dtype=np.int64)))
        return cls(starts, np.concatenate(lists) if lists else np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[IntArray]:
        return (self.members[start:stop] for start, stop in pairwise(self.starts.tolist()))


@dataclass(frozen=True)
class Inline:
    """A field in the line of JSON; `sound` says whether it can have a value."""

    sound: Callable[[Any], bool]


@dataclass(frozen=True)
class Arrays(Generic[_T]):
    """A field after the line, of a fixed number of parts."""

    parts: int
    write: Callable[[_T], tuple[Part, ...]]
    read: Callable[..., _T]


def encode(event: object) -> bytes:
    """Return the body of an event."""
    raw = _raw(event)
    if len(raw) > LARGEST:
        raise UsageError(
            f"a record of {len(raw)} bytes is more than the {LARGEST} that one may have; enrol or charter fewer "
            f"at a time"
        )
    return zlib.compress(raw)


def decode(kind: type[_T], body: bytes) -> _T:
    """Return the event of this kind that a body holds."""
    raw = _uncompressed(body)
    text, _, rest = raw.partition(b"\n")
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged("it does not begin with a line of JSON") from None
    codes = _codes(kind)
    if not isinstance(line, dict) or line.keys() != codes.keys():
        raise Damaged(f"its fields are not {', '.join(sorted(codes))}")
    values: dict[str, Any] = {}
    at = 0
    for name, code in sorted(codes.items()):
        if isinstance(code, Inline):
            if not code.sound(line[name]):
                raise Damaged(f"its field {name!r} cannot be {line[name]!r:.40}")
            values[name] = line[name]
        else:
            parts, at = _parts(line[name], code.parts, rest, at)
            values[name] = code.read(*parts)
    event = kind(**values)
    try:
        canonical = _raw(event) == raw
    except UnicodeEncodeError:
        canonical = False
    if not canonical:
        raise Damaged("it is not written in the one form that its content has")
    return event


def _raw(event: object) -> bytes:
    line: dict[str, object] = {}
    rest: list[bytes] = []
    for name, code in sorted(_codes(type(event)).items()):
        value = getattr(event, name)
        if isinstance(code, Inline):
            line[name] = value
            continue
        sizes: list[object] = []
        for part in code.write(value):
            if isinstance(part, bytes):
                sizes.append(len(part))
                rest.append(part)
            else:
                width = _width(part)
                sizes.append([len(part), width])
                rest.append(part.astype(f"<i{width}").tobytes())
        line[name] = sizes
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"".join((text.encode(), b"\n", *rest))


def _uncompressed(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(body, LARGEST + 1)
    except zlib.error as error:
        raise Damaged(f"it cannot be uncompressed: {error}") from None
    if len(raw) > LARGEST:
        raise Damaged(f"it has more than the {LARGEST} bytes that a record may have")
    if not stream.eof or stream.unused_data:
        raise Damaged("it is cut off, or goes on after its end")
    return raw


def _parts(sizes: object, count: int, rest: bytes, at: int) -> tuple[list[Part], int]:
    """Return so many parts from a place on, and the place after them."""
    if not isinstance(sizes, list) or len(sizes) != count:
        raise Damaged(f"a field of {count} parts announces {sizes!r:.40}")
    parts: list[Part] = []
    for size in sizes:
        length, width = size if isinstance(size, list) and len(size) == 2 else (size, 0)  # noqa: PLR2004 - a pair
        if type(length) is not int or type(width) is not int or not (width in _WIDTHS or width == 0):
            raise Damaged(f"a part announces {size!r:.40}")
        end = at + length * max(width, 1)
        if not at <= end <= len(rest):
            raise Damaged(f"{length} values are announced where {len(rest) - at} bytes are left")
        data = rest[at:end]
        parts.append(np.frombuffer(data, dtype=f"<i{width}").astype(np.int64) if width else data)
        at = end
    return parts, at


def _width(values: IntArray) -> int:
    """Return the bytes that each of some integers needs."""
    if len(values) == 0:
        return 1
    low, high = int(values.min()), int(values.max())
    return next(width for width in _WIDTHS if -(1 << 8 * width - 1) <= low and high < 1 << 8 * width - 1)


def _codes(kind: type) -> dict[str, Inline | Arrays[Any]]:
    """Return how the fields of an event's type are written, as their own types say."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = {each.name: hints[each.name].__metadata__[0] for each in fields(kind)}
    return _KNOWN[kind]


_KNOWN: dict[type, dict[str, Inline | Arrays[Any]]] = {}


def _write_rising(values: IntArray) -> tuple[Part]:
    return (np.diff(values, prepend=0),)


def _read_rising(steps: Part) -> IntArray:
    values: IntArray = np.cumsum(_integers(steps))
    if len(values) and (values[0] < 0 or np.any(values[1:] <= values[:-1])):
        raise Damaged("integers do not rise")
    return values


def _write_lists(lists: Lists) -> tuple[Part, Part]:
    sizes: IntArray = np.diff(lists.starts)
    (steps,) = _write_rising(lists.members.astype(np.int64))
    return sizes, steps


def _read_lists(sizes: Part, steps: Part) -> Lists:
    lengths, members = _integers(sizes), np.cumsum(_integers(steps))
    if len(lengths) > len(members) or (len(lengths) and not 1 <= lengths.min() <= lengths.max() <= len(members)):
        raise Damaged("lists of integers do not have the lengths that they announce")
    starts = np.concatenate(([0], np.cumsum(lengths)))
    if starts[-1] != len(members):
        raise Damaged("lists of integers do not have the lengths that they announce")
    rising = members[1:] > members[:-1]
    rising[starts[1:-1] - 1] = True
    if len(members) and (members.min() < 0 or not rising.all()):
        raise Damaged("integers of a list do not rise")
    return Lists(starts, members)


def _write_blobs(values: Sequence[bytes | None]) -> tuple[Part, Part]:
    lengths = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    return lengths, b"".join(value for value in values if value)


def _read_blobs(lengths: Part, data: Part) -> tuple[bytes | None, ...]:
    sizes, content = _integers(lengths), _bytes(data)
    if len(sizes) and not -1 <= sizes.min() <= sizes.max() <= len(content):
        raise Damaged("bytes do not have the lengths that they announce")
    ends = np.cumsum(np.maximum(sizes, 0)).tolist()
    if (ends[-1] if ends else 0) != len(content):
        raise Damaged("bytes do not have the lengths that they announce")
    return tuple(
        None if size < 0 else content[end - size : end] for size, end in zip(sizes.tolist(), ends, strict=True)
    )


def _integers(part: Part) -> IntArray:
    if isinstance(part, bytes):
        raise Damaged("bytes stand where integers belong")
    return part


def _bytes(part: Part) -> bytes:
    if not isinstance(part, bytes):
        raise Damaged("integers stand where bytes belong")
    return part


def _are_texts(value: Any) -> bool:  # noqa: ANN401 - JSON can hold anything
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _are_labels(value: Any) -> bool:  # noqa: ANN401 - JSON can hold anything
    return _are_texts(value) and all(low < high for low, high in pairwise(value))


def _are_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(type(each) in {int, float} for each in value.values())


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _are_digests(value: object) -> bool:
    return isinstance(value, dict) and all(name and _is_digest(each) for name, each in value.items())


Number: TypeAlias = Annotated[int, Inline(lambda value: type(value) is int and 0 <= value < _NUMBERS)]
"""An integer from 0 up."""
Text: TypeAlias = Annotated[str, Inline(lambda value: isinstance(value, str))]
Flag: TypeAlias = Annotated[bool, Inline(lambda value: isinstance(value, bool))]
Digest: TypeAlias = Annotated[str, Inline(lambda value: value == "" or _is_digest(value))]
"""A SHA-256 in hexadecimal; an empty text stands for none."""
Texts: TypeAlias = Annotated[Sequence[str], Inline(_are_texts)]
Labels: TypeAlias = Annotated[Sequence[str], Inline(_are_labels)]
"""Texts, sorted and distinct."""
Metrics: TypeAlias = Annotated[Mapping[str, float], Inline(_are_metrics)]
"""Numbers by name."""
Digests: TypeAlias = Annotated[Mapping[str, str], Inline(_are_digests)]
"""SHA-256 in hexadecimal, by the name of what it is of."""
Rising: TypeAlias = Annotated[IntArray, Arrays(1, _write_rising, _read_rising)]
"""Integers that rise."""
RisingLists: TypeAlias = Annotated[Lists, Arrays(2, _write_lists, _read_lists)]
Blobs: TypeAlias = Annotated[Sequence[bytes | None], Arrays(2, _write_blobs, _read_blobs)]
"""Pieces of bytes, some of which can be missing."""
