"""What can happen to a federation: one frozen type per kind of record, and its bytes, which have one form only.

The body of a record is zlib's compression of a text and the arrays after it: one line of JSON (keys sorted, no
spaces), a line feed, then the arrays' bytes. The line has every field of the event; where a field is made of
arrays it has their lengths. Integers are signed and little-endian, as many bytes each as the largest of the array
needs (1, 2, 4 or 8); what rises is written as its first member and the steps between. docs/ledger.md has the
whole form.

Whatever bytes come, decoding gives an event that encodes to the same text and arrays, or raises `DamagedError`.
At most `LARGEST` bytes are ever uncompressed, and an array is made only of bytes that are there.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_type_hints

import numpy as np

from coterie.errors import UsageError
from coterie.federation.ledger.store import LARGEST, DamagedError, Record
from coterie.values import IntArray
from coterie.values.checks import starts_of

VERSION = 2
"""Of the records' form; `Created` says it."""

EXACT = 1 << 53
"""Integers in JSON stay below, so that every reader reads them exactly, also as a float."""

_T = TypeVar("_T")
_E = TypeVar("_E", bound="Event")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WIDTHS = (1, 2, 4, 8)

BodyPart: TypeAlias = IntArray | bytes
"""What a field consists of after the line: integers, or bytes as they are."""


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of integers, end to end: list s is `members[starts[s]:starts[s + 1]]`; it rises and is not empty."""

    starts: IntArray
    members: IntArray

    @classmethod
    def of(cls, lists: Sequence[IntArray]) -> "Lists":
        """Put lists end to end."""
        return cls(starts_of([*map(len, lists)]), np.concatenate([np.zeros(0, dtype=np.int64), *lists]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[IntArray]:
        return (self.members[start:stop] for start, stop in pairwise(self.starts.tolist()))


@dataclass(frozen=True)
class Inline:
    """A field in the line of JSON; `sound` says whether it can have a value."""

    sound: Callable[[Any], bool]


@dataclass(frozen=True)
class ArrayField(Generic[_T]):
    """A field after the line; its parts are arrays of integers (`np.ndarray`) or `bytes`."""

    parts: Sequence[type]
    write: Callable[[_T], tuple[BodyPart, ...]]
    read: Callable[..., _T]


class Event:
    """Something that happened."""

    @classmethod
    def kind(cls) -> str:
        """Return the word for such an event.

        >>> Skipped(round=3, reason="nobody is there").kind()
        'skipped'
        """
        return cls.__name__.lower()


def encode(event: Event) -> bytes:
    """Return the body of an event."""
    raw = _raw(event)
    if len(raw) > LARGEST:
        raise UsageError(
            f"a record of {len(raw)} bytes is more than the {LARGEST} that one may have; enrol or charter fewer "
            f"at a time"
        )
    return zlib.compress(raw)


def decode(kind: type[_E], body: bytes) -> _E:
    """Return the event of this kind that a body holds."""
    raw = _uncompress(body)
    text, _, rest = raw.partition(b"\n")
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedError("it does not begin with a line of JSON") from None
    forms = _FORMS[kind]
    if not isinstance(line, dict) or line.keys() != forms.keys():
        raise DamagedError(f"its fields are not {', '.join(forms)}")
    values: dict[str, Any] = {}
    at = 0
    for name, form in forms.items():
        if isinstance(form, Inline):
            if not form.sound(line[name]):
                raise DamagedError(f"its field {name!r} cannot be {line[name]!r:.40}")
            values[name] = line[name]
        else:
            parts, at = _parts(line[name], form.parts, rest, at)
            values[name] = form.read(*parts)
    event = kind(**values)
    try:
        canonical = _raw(event) == raw
    except UnicodeEncodeError:
        canonical = False
    if not canonical:
        raise DamagedError("it is not written in the one form that its content has")
    return event


def event_of(record: Record) -> Event:
    """Return what a record says."""
    if record.kind not in KINDS:
        raise DamagedError(f"there is no kind of record {record.kind!r:.40}")
    return decode(KINDS[record.kind], record.body)


def _raw(event: Event) -> bytes:
    line: dict[str, object] = {}
    rest: list[bytes] = []
    for name, form in _FORMS[type(event)].items():
        line[name] = getattr(event, name)
        if isinstance(form, ArrayField):
            sizes: list[object] = []
            for part in form.write(line[name]):
                width = 0 if isinstance(part, bytes) else _width(part)
                sizes.append([len(part), width] if width else len(part))
                rest.append(part if isinstance(part, bytes) else part.astype(f"<i{width}").tobytes())
            line[name] = sizes
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"".join((text.encode(), b"\n", *rest))


def _uncompress(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(body, LARGEST + 1)
    except zlib.error as error:
        raise DamagedError(f"it cannot be uncompressed: {error}") from None
    if len(raw) > LARGEST:
        raise DamagedError(f"it has more than the {LARGEST} bytes that a record may have")
    if not stream.eof or stream.unused_data:
        raise DamagedError("it is cut off, or goes on after its end")
    return raw


def _parts(sizes: object, kinds: Sequence[type], rest: bytes, at: int) -> tuple[list[BodyPart], int]:
    """Return parts of these kinds from a place on, and the place after them."""
    if not isinstance(sizes, list) or len(sizes) != len(kinds):
        raise DamagedError(f"a field of {len(kinds)} parts announces {sizes!r:.40}")
    parts: list[BodyPart] = []
    for size, kind in zip(sizes, kinds, strict=True):
        pair = [size, 1] if kind is bytes else size
        length, width = pair if isinstance(pair, list) and len(pair) == 2 else (0, 0)  # noqa: PLR2004 - a pair
        if type(length) is not int or type(width) is not int or width not in _WIDTHS:
            raise DamagedError(f"a part announces {size!r:.40}")
        end = at + length * width
        if not at <= end <= len(rest):
            raise DamagedError(f"{length} values are announced where {len(rest) - at} bytes are left")
        data = rest[at:end]
        parts.append(data if kind is bytes else np.frombuffer(data, dtype=f"<i{width}").astype(np.int64))
        at = end
    return parts, at


def _width(values: IntArray) -> int:
    """Return the bytes that each of some integers needs."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return next(width for width in _WIDTHS if -(1 << 8 * width - 1) <= low and high < 1 << 8 * width - 1)


def _steps(values: IntArray) -> IntArray:
    return np.diff(values, prepend=0)


def _read_rising(steps: IntArray) -> IntArray:
    values: IntArray = np.cumsum(steps)
    if len(values) and (values[0] < 0 or np.any(values[1:] <= values[:-1])):
        raise DamagedError("integers do not rise")
    return values


def _write_lists(lists: Lists) -> tuple[BodyPart, BodyPart]:
    sizes: IntArray = np.diff(lists.starts)
    return sizes, _steps(lists.members.astype(np.int64))


def _read_lists(sizes: IntArray, steps: IntArray) -> Lists:
    members: IntArray = np.cumsum(steps)
    starts = _starts(sizes, least=1, total=len(members))
    rising = members[1:] > members[:-1]
    rising[starts[1:-1] - 1] = True
    if len(members) and (members.min() < 0 or not rising.all()):
        raise DamagedError("integers of a list do not rise")
    return Lists(starts, members)


def _write_blobs(values: Sequence[bytes | None]) -> tuple[BodyPart, BodyPart]:
    lengths = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
    return lengths, b"".join(value for value in values if value)


def _read_blobs(lengths: IntArray, data: bytes) -> tuple[bytes | None, ...]:
    ends = _starts(lengths, least=-1, total=len(data))[1:].tolist()
    return tuple(
        None if size < 0 else data[end - size : end] for size, end in zip(lengths.tolist(), ends, strict=True)
    )


def _starts(lengths: IntArray, least: int, total: int) -> IntArray:
    """Return where pieces of these lengths start, and the last ends; a negative length stands for no piece."""
    sound = np.all((lengths >= least) & (lengths <= total))  # or their sum could overflow
    starts = starts_of(np.maximum(lengths, 0))
    if not sound or starts[-1] != total:
        raise DamagedError("pieces do not have the lengths that they announce")
    return starts


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


Number: TypeAlias = Annotated[int, Inline(lambda value: type(value) is int and 0 <= value < EXACT)]
"""An integer from 0 up."""
TextField: TypeAlias = Annotated[str, Inline(lambda value: isinstance(value, str))]
Flag: TypeAlias = Annotated[bool, Inline(lambda value: isinstance(value, bool))]
DigestField: TypeAlias = Annotated[str, Inline(lambda value: value == "" or _is_digest(value))]
"""A SHA-256 in hexadecimal; an empty text stands for none."""
Texts: TypeAlias = Annotated[Sequence[str], Inline(_are_texts)]
Labels: TypeAlias = Annotated[Sequence[str], Inline(_are_labels)]
"""Texts, sorted and distinct."""
MetricsField: TypeAlias = Annotated[Mapping[str, float], Inline(_are_metrics)]
"""Numbers by name."""
Digests: TypeAlias = Annotated[Mapping[str, str], Inline(_are_digests)]
"""SHA-256 in hexadecimal, by the name of what it is of."""
Rising: TypeAlias = Annotated[IntArray, ArrayField([np.ndarray], lambda values: (_steps(values),), _read_rising)]
"""Integers that rise."""
RisingLists: TypeAlias = Annotated[Lists, ArrayField([np.ndarray, np.ndarray], _write_lists, _read_lists)]
Blobs: TypeAlias = Annotated[Sequence[bytes | None], ArrayField([np.ndarray, bytes], _write_blobs, _read_blobs)]
"""Pieces of bytes, some of which can be missing."""


@dataclass(frozen=True)
class Created(Event):
    """The ledger begins; `ledger` is a name that no other ledger has."""

    version: Number
    ledger: TextField


@dataclass(frozen=True)
class Bound(Event):
    """Files that the ledger belongs to, by name, each once and for good: a run's spec, data and first model."""

    files: Digests


@dataclass(frozen=True)
class Enrolled(Event):
    """Users join; their numbers follow those of the users before. `keys` are their identity keys, if known."""

    names: Texts
    keys: Blobs


@dataclass(frozen=True, eq=False)
class Planned(Event):
    """A plan comes into force."""

    users: Number
    privacy: Number
    batches: RisingLists


@dataclass(frozen=True, eq=False)
class Chartered(Event):
    """Batches of the plan in force have their charters, which are only bytes here."""

    plan: Number
    batches: Rising
    charters: Blobs


@dataclass(frozen=True, eq=False)
class Retired(Event):
    """Batches of the plan in force are asked no more, for good."""

    plan: Number
    batches: Rising
    reason: TextField


@dataclass(frozen=True, eq=False)
class Overridden(Event):
    """All owners in these batches let their devices leave them: a later plan may split them."""

    plan: Number
    batches: Rising
    reason: TextField


@dataclass(frozen=True, eq=False)
class Opened(Event):
    """A round begins; `asked` are batches of the plan in force, or users where `plan` is 0."""

    round: Number
    plan: Number
    sealed: Flag
    protocol: TextField
    terms: DigestField
    coordinator: TextField
    asked: Rising


@dataclass(frozen=True, eq=False)
class Closed(Event):
    """A round ends, with a result (`committed`) or given up for a reason: what was learned is learned either way.

    `learned` are places among what was asked, if `whole`, else among the cohort's users, sorted: a cohort that
    answered in full takes next to no bytes. `alone` are places among the users, of those whose update by itself
    must be taken as known. `lost` are places among what was asked, a list per reason. `files` are digests of what
    was written before the round was closed.
    """

    round: Number
    committed: Flag
    reason: TextField
    whole: Flag
    learned: RisingLists
    alone: Rising
    reasons: Labels
    lost: RisingLists
    metrics: MetricsField
    files: Digests


@dataclass(frozen=True, eq=False)
class Exposed(Event):
    """Messages of a closed round came late: the server could open these sets too. All are users' numbers."""

    round: Number
    learned: RisingLists
    alone: Rising


@dataclass(frozen=True)
class Unfinished(Event):
    """A later coordinator found the round open and its own coordinator gone: nobody knows what was learned."""

    round: Number
    coordinator: TextField


@dataclass(frozen=True)
class Skipped(Event):
    """A round has no cohort."""

    round: Number
    reason: TextField


@dataclass(frozen=True)
class Noted(Event):
    """Numbers about a round that came to be known after it, and digests of files that were made of it."""

    round: Number
    metrics: MetricsField
    files: Digests


KINDS: dict[str, type[Event]] = {kind.kind(): kind for kind in Event.__subclasses__()}

# How the fields of each kind are written, in their order there, as their own types say.
_FORMS: dict[type[Event], dict[str, Inline | ArrayField[Any]]] = {
    kind: {name: hint.__metadata__[0] for name, hint in sorted(get_type_hints(kind, include_extras=True).items())}
    for kind in KINDS.values()
}
