"""Packed integers: small, exact, and in one form only."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.ledger.interface import Damaged
from coterie.ledger.packing import Lists, Reader, packed, packed_lists, packed_number, unpacked, unpacked_lists

INTEGERS = st.integers(0, 2**32 - 1) | st.integers(0, 9)
RISING = st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 30), min_size=1).map(sorted)


def rice_by_hand(values):
    """The code of the definition, bit by bit, as a string of digits for quotients and for remainders."""
    width = max(0, (sum(values) // len(values)).bit_length() - 1)
    unary = "".join("0" * (value >> width) + "1" for value in values)
    rest = "".join(format(value & (1 << width) - 1, f"0{width}b")[::-1] if width else "" for value in values)
    return width, unary, rest


def bits(data, count):
    """The first bits of some bytes, the lowest of each byte first."""
    return "".join(format(byte, "08b")[::-1] for byte in data)[:count]


@given(st.lists(INTEGERS, min_size=1, max_size=50))
@example([0])
@example([2**32 - 1])
@example([0] * 300 + [2**32 - 1])
def test_integers_are_written_as_defined_and_come_back(values):
    """The bytes are those of the definition, bit for bit, and decode to the same integers, nothing left over."""
    data = packed(np.array(values))
    width, unary, rest = rice_by_hand(values)
    reader = Reader(data)
    assert (reader.number(), reader.number(), reader.number()) == (len(values), width, (len(unary) + 7) // 8)
    assert bits(reader.take((len(unary) + 7) // 8), len(unary)) == unary
    assert bits(reader.take(reader.left()), len(rest)) == rest
    again = Reader(data + b"more")
    found = unpacked(again)
    assert (found.tolist(), found.dtype, again.left()) == (values, np.int64, 4)


@given(st.lists(RISING, max_size=6))
def test_lists_come_back(lists):
    """Rising lists of any lengths, in any order, come back as they were."""
    reader = Reader(packed_lists(Lists.of([np.array(each) for each in lists])))
    assert [each.tolist() for each in unpacked_lists(reader)] == lists
    reader.end()


@given(st.binary(max_size=40))
@example(packed(np.arange(5)))
def test_what_decodes_encodes_to_the_same_bytes(data):
    """Of any bytes, either the integers in front re-encode to exactly the bytes they took, or all is refused."""
    reader = Reader(data)
    try:
        values = unpacked(reader)
    except Damaged:
        return
    assert packed(values) == data[: len(data) - reader.left()]


@given(st.binary(max_size=60), st.lists(RISING, min_size=1, max_size=3), st.data())
def test_lists_that_decode_encode_to_the_same_bytes(noise, lists, data):
    """The same for lists, from noise and from sound bytes with a few of them changed."""
    sound = bytearray(packed_lists(Lists.of([np.array(each) for each in lists])))
    for _ in range(data.draw(st.integers(0, 2))):
        sound[data.draw(st.integers(0, len(sound) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for given_ in (noise, bytes(sound)):
        reader = Reader(given_)
        try:
            found = unpacked_lists(reader)
        except Damaged:
            continue
        assert packed_lists(found) == given_[: len(given_) - reader.left()]


@given(st.integers(0, 2**35 - 1))
def test_numbers_come_back(value):
    """Integers of up to 35 bits come back."""
    assert Reader(packed_number(value)).number() == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x00", b"\xff\xff\xff\xff\xff\x01"])
def test_a_number_has_one_form(data):
    """Cut off, padded and too long numbers are refused."""
    with pytest.raises(Damaged):
        Reader(data).number()


def test_a_random_cohort_takes_little_more_than_it_must():
    """A thousand of a million users: within 4 % of the entropy, log2 C(10^6, 10^3) = 11 401 bits = 1 425 bytes."""
    users = np.sort(np.random.default_rng(0).choice(10**6, 1000, replace=False))
    assert 1425 < len(packed(np.diff(users, prepend=-1) - 1)) < 1482


def test_a_claim_of_many_integers_needs_the_bytes_for_them():
    """Few bytes cannot announce more integers than eight for each of them."""
    with pytest.raises(Damaged):
        unpacked(Reader(packed_number(2**34) + packed_number(0) + packed_number(1) + b"\xff"))
