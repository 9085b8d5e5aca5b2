"""`enc`, the one way in which fields become bytes (docs/protocol.md §3), and `Reader`, its inverse."""

import builtins

from coterie.errors import PeerError, UsageError

LARGEST_INTEGER = 2**64 - 1
_WORD = 8  # bytes of a length, and of an integer


def enc(*fields: bytes | str | int) -> bytes:
    """Return every field after its length, which is a u64, little-endian like every integer.

    Two lists of contents never have one encoding. The kind of a field is not written: 1 and its eight bytes
    encode alike, so what reads an encoding must know its kinds, as every purpose tag fixes them. Text is UTF-8
    and is never normalised: "é" as one code point and as two are different texts here, as everywhere.

    >>> enc("ab", 1).hex()
    '0200000000000000616208000000000000000100000000000000'
    """
    parts: list[bytes] = []
    for field in fields:
        content = field if type(field) is bytes else _content(field)
        parts += (len(content).to_bytes(_WORD, "little"), content)
    return b"".join(parts)


def _content(field: bytes | str | int) -> bytes:
    if isinstance(field, bytes):
        return field
    if isinstance(field, str):
        try:
            return field.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text {field!r} cannot be encoded: {error.reason}; give valid text") from error
    # True would pass for 1: no field of the protocol is a flag.
    if isinstance(field, bool) or not isinstance(field, int):
        raise UsageError(f"a field is a {type(field).__name__}; give bytes, text or an integer")
    if not 0 <= field <= LARGEST_INTEGER:
        raise UsageError(f"the integer {field} does not fit a field; give one between 0 and 2^64 - 1")
    return field.to_bytes(_WORD, "little")


class Reader:
    """Reads the fields of an encoding in order; `end` must come last.

    Nothing that the other side sent is believed: a length is compared with the caller's limit and with what is
    left before anything is cut or allocated. `what` names the encoding in the errors.

    >>> reader = Reader(enc("ab", 1))
    >>> reader.text(limit=64), reader.integer()
    ('ab', 1)
    >>> reader.end()
    >>> Reader(enc("too long"), "a user id").text(limit=4)
    Traceback (most recent call last):
    coterie.errors.PeerError: a user id: field 1 has 8 bytes; at most 4 are allowed
    """

    def __init__(self, data: bytes, what: str = "the message") -> None:
        self._data = data
        self._what = what
        self._next = 0
        self._fields = 0

    def bytes(self, limit: int) -> builtins.bytes:
        """Return the next field, of at most `limit` bytes."""
        return self._take(0, limit)

    def exactly(self, length: int) -> builtins.bytes:
        """Return the next field, of `length` bytes."""
        return self._take(length, length)

    def text(self, limit: int) -> str:
        """Return the next field as text of at most `limit` bytes of UTF-8."""
        content = self._take(0, limit)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise PeerError(f"{self._what}: field {self._fields} is not UTF-8: {error.reason}") from error

    def integer(self) -> int:
        """Return the next field as an integer from 0 to 2^64 - 1."""
        return int.from_bytes(self._take(_WORD, _WORD), "little")

    def end(self) -> None:
        """Refuse bytes after the last field."""
        left = len(self._data) - self._next
        if left:
            raise PeerError(f"{self._what}: {left} bytes follow field {self._fields}, which must be the last")

    def _take(self, least: int, limit: int) -> builtins.bytes:
        self._fields += 1
        start = self._next + _WORD
        left = len(self._data) - start
        if left < 0:
            raise PeerError(f"{self._what} is cut off: it ends before or in the length of field {self._fields}")
        length = int.from_bytes(self._data[self._next : start], "little")
        if not least <= length <= limit:
            allowed = f"{least} are expected" if least == limit else f"at most {limit} are allowed"
            raise PeerError(f"{self._what}: field {self._fields} has {length} bytes; {allowed}")
        if length > left:
            raise PeerError(f"{self._what} is cut off: field {self._fields} has {length} bytes, {left} are left")
        self._next = start + length
        return self._data[start : self._next]
