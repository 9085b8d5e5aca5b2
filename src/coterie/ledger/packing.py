"""Integers in few bytes, in one way only: what decodes, encodes to the same bytes again.

A set of users is its gaps, Rice-coded: each gap in about two bits more than its logarithm, near the least that
a random set needs, and a bitmap where the set is dense. Every integer takes at least one bit, so that no bytes
can claim more integers than eight each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coterie.ledger.interface import Damaged
from coterie.values import IntArray

_LARGEST = (1 << 32) - 1  # a difference of two users, with its sign
_VARINT_BYTES = 5


class Reader:
    """Takes fields off the front of some bytes; every way in which they cannot be a field raises `Damaged`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        """Return how many bytes are left."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """Take this many bytes."""
        if count > self.left():
            raise Damaged(f"{count} bytes are announced where {self.left()} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        """Take an integer, seven bits to a byte, the lowest first."""
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:  # noqa: PLR2004 - the eighth bit says that more follow
                if byte == 0 and index:
                    break
                return value
        raise Damaged("an integer is longer than it need be")

    def end(self) -> None:
        """Refuse bytes that nothing asked for."""
        if self.left():
            raise Damaged(f"{self.left()} bytes are left over")


def packed_number(value: int) -> bytes:
    r"""Return an integer from 0 up, seven bits to a byte.

    >>> packed_number(5), packed_number(300)
    (b'\x05', b'\xac\x02')
    """
    data = bytearray()
    while value >= 0x80:  # noqa: PLR2004
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def packed(values: IntArray) -> bytes:
    """Return integers from 0 up in Rice's code: the quotients by 2^w in unary, then all remainders.

    >>> len(packed(np.zeros(1000, dtype=np.int64))), len(packed(np.full(1000, 1000)))
    (129, 1380)
    """
    count = len(values)
    if count == 0:
        return packed_number(0)
    width = _width(values)
    ends = np.cumsum((values >> width) + 1)
    unary = np.zeros(int(ends[-1]), dtype=np.uint8)
    unary[ends - 1] = 1
    bits = np.empty((count, width), dtype=np.uint8)
    for bit in range(width):
        bits[:, bit] = values >> bit & 1
    quotients = np.packbits(unary, bitorder="little").tobytes()
    remainders = np.packbits(bits.ravel(), bitorder="little").tobytes()
    return b"".join(
        (packed_number(count), packed_number(width), packed_number(len(quotients)), quotients, remainders)
    )


def unpacked(reader: Reader) -> IntArray:
    """Take the integers of `packed`.

    >>> unpacked(Reader(packed(np.array([3, 0, 1000])))).tolist()
    [3, 0, 1000]
    """
    count = reader.number()
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    width, size = reader.number(), reader.number()
    unary = np.unpackbits(np.frombuffer(reader.take(size), dtype=np.uint8), bitorder="little")
    ends: IntArray = np.flatnonzero(unary)
    if len(ends) != count or width >= _LARGEST.bit_length() or int(ends[-1]) // 8 + 1 != size:
        raise Damaged("a list of integers is not what it announces")
    values = ends.copy()
    values[1:] -= ends[:-1] + 1
    if width:
        values <<= width
        data = np.frombuffer(reader.take((count * width + 7) // 8), dtype=np.uint8)
        bits = np.unpackbits(data, bitorder="little")
        if bits[count * width :].any():
            raise Damaged("a list of integers ends in bits that mean nothing")
        columns = bits[: count * width].reshape(count, width)
        for bit in range(width):
            values |= columns[:, bit].astype(np.int64) << bit
    if int(values.max()) > _LARGEST or width != _width(values):
        raise Damaged("a list of integers is not written as it must be")
    return values


def _width(values: IntArray) -> int:
    """Return w with 2^w ≤ mean < 2^(w + 1), or 0."""
    return max(0, (int(values.sum(dtype=np.int64)) // len(values)).bit_length() - 1)


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


def packed_lists(lists: Lists) -> bytes:
    """Return rising lists: how long they are, how their first members differ, then the gaps inside them.

    >>> data = packed_lists(Lists.of([np.array([4, 7]), np.array([1])]))
    >>> [members.tolist() for members in unpacked_lists(Reader(data))]
    [[4, 7], [1]]
    """
    begins, members = lists.starts[:-1], lists.members.astype(np.int64)
    steps = np.diff(members[begins], prepend=0)
    gaps = np.delete(np.diff(members, prepend=0), begins) - 1
    # The sign of a step goes into its lowest bit.
    return packed(np.diff(lists.starts) - 1) + packed(steps << 1 ^ steps >> 63) + packed(gaps)


def unpacked_lists(reader: Reader) -> Lists:
    """Take the lists of `packed_lists`."""
    sizes = unpacked(reader) + 1
    signed, gaps = unpacked(reader), unpacked(reader)
    if len(signed) != len(sizes) or len(gaps) + len(signed) != int(sizes.sum()):
        raise Damaged("lists of integers do not have the lengths that they announce")
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    begins: IntArray = starts[:-1]
    firsts: IntArray = np.cumsum(signed >> 1 ^ -(signed & 1))
    if firsts.min(initial=0) < 0:
        raise Damaged("an integer is negative")
    inside = np.ones(int(starts[-1]), dtype=np.bool_)
    inside[begins] = False
    climbed = np.zeros(len(inside), dtype=np.int64)
    climbed[inside] = gaps + 1
    np.cumsum(climbed, out=climbed)
    members: IntArray = climbed + np.repeat(firsts - climbed[begins], sizes)
    return Lists(starts, members)
