import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.encoding import LARGEST_INTEGER, Reader, enc

FIELDS = st.one_of(st.binary(max_size=40), st.text(max_size=20), st.integers(0, LARGEST_INTEGER))


def content(field):
    """What stands in a field, by definition."""
    if isinstance(field, int):
        return bytes(field >> 8 * place & 0xFF for place in range(8))
    return field.encode() if isinstance(field, str) else field


def read_back(reader, field, limit):
    """Read a field as what it is."""
    if isinstance(field, int):
        return reader.integer()
    return reader.text(limit) if isinstance(field, str) else reader.bytes(limit)


@given(st.lists(FIELDS, max_size=6))
def test_fields_come_back(fields):
    """Reading an encoding gives the fields that went in, at the least limit that allows them."""
    reader = Reader(enc(*fields))
    assert [read_back(reader, field, len(content(field))) for field in fields] == fields
    reader.end()


@given(st.lists(FIELDS, max_size=4), st.lists(FIELDS, max_size=4))
def test_an_encoding_is_of_one_list(one, other):
    """Two lists of contents have one encoding only if they are one, wherever bytes move between fields."""
    assert (enc(*one) == enc(*other)) == (list(map(content, one)) == list(map(content, other)))


def test_every_field_follows_its_length():
    """A length is a u64, little-endian, and so is an integer."""
    assert enc() == b""
    assert enc("é") == bytes([2, 0, 0, 0, 0, 0, 0, 0]) + b"\xc3\xa9"
    assert enc(b"") == bytes(8)
    assert enc(0x0102) == bytes([8, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0])
    assert enc(LARGEST_INTEGER)[8:] == b"\xff" * 8
    assert enc("a", "b") == enc("a") + enc("b") != enc("ab")


def test_text_is_never_normalised():
    """Two texts that look the same stay two: the bytes are what counts."""
    composed, decomposed = "zo\u00eb", "zoe\u0308"
    assert unicodedata.normalize("NFC", decomposed) == composed
    assert enc(composed) != enc(decomposed)
    assert Reader(enc(decomposed)).text(64) == decomposed


@pytest.mark.parametrize("number", [-1, 2**64, -(2**64)])
def test_an_integer_that_does_not_fit_is_refused(number):
    """An integer has exactly eight bytes, and is not cut to fit them."""
    with pytest.raises(UsageError, match="between 0 and 2\\^64"):
        enc(number)


@pytest.mark.parametrize("field", [True, 1.0, None, bytearray(b"a"), ("a",)])
def test_other_kinds_are_refused(field):
    """Only bytes, text and integers are fields; a flag is none, though Python calls it an integer."""
    with pytest.raises(UsageError, match=f"a field is a {type(field).__name__}"):
        enc(field)


def test_half_a_character_is_refused():
    """A lone surrogate is no text."""
    with pytest.raises(UsageError, match="cannot be encoded"):
        enc("a\ud800")


@pytest.mark.parametrize("length", range(8))
def test_a_length_that_is_cut_off_is_refused(length):
    """A field begins with eight bytes of length."""
    with pytest.raises(PeerError, match="the message is cut off: it ends before or in the length of field 1"):
        Reader(bytes(length)).bytes(64)


@pytest.mark.parametrize("length", [3, 64, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_beyond_the_end_is_refused(length):
    """A length is compared with what is left before anything is cut, however large the limit."""
    with pytest.raises(PeerError, match=f"field 1 has {length} bytes, 2 are left"):
        Reader(length.to_bytes(8, "little") + b"ab").bytes(2**64)


@pytest.mark.parametrize("read", [Reader.bytes, Reader.text])
def test_a_length_above_the_limit_is_refused(read):
    """The limit counts bytes, and it holds although the field is there."""
    assert read(Reader(enc("é")), 2) in {"é", "é".encode()}
    with pytest.raises(PeerError, match="the message: field 1 has 2 bytes; at most 1 are allowed"):
        read(Reader(enc("é")), 1)


@pytest.mark.parametrize("length", [0, 7, 9, 16])
def test_an_integer_has_eight_bytes(length):
    """An integer has one form: no shorter and no longer one."""
    with pytest.raises(PeerError, match=f"field 1 has {length} bytes; 8 are expected"):
        Reader(enc(bytes(length))).integer()


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_field_of_known_length_has_it(length):
    """`exactly` takes neither fewer nor more bytes."""
    assert Reader(enc(bytes(32))).exactly(32) == bytes(32)
    with pytest.raises(PeerError, match=f"field 1 has {length} bytes; 32 are expected"):
        Reader(enc(bytes(length))).exactly(32)


@pytest.mark.parametrize(
    "content_", [b"\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"]
)
def test_what_is_not_utf_8_is_refused(content_):
    """Text has one form: overlong ones, surrogates and numbers beyond Unicode are refused."""
    with pytest.raises(PeerError, match="field 1 is not UTF-8"):
        Reader(enc(content_)).text(64)


def test_bytes_after_the_last_field_are_refused():
    """`end` is where the bytes end."""
    reader = Reader(enc("a") + b"\0", "the charter")
    reader.text(64)
    with pytest.raises(PeerError, match="the charter: 1 bytes follow field 1"):
        reader.end()


@given(st.binary(max_size=80), st.lists(st.sampled_from(["bytes", "text", "integer", "exactly"]), max_size=5))
def test_random_bytes_raise_nothing_else(data, kinds):
    """Whatever comes, it is read or refused with a PeerError; and what is read encodes to the same bytes."""
    reader = Reader(data)
    try:
        read = [reader.integer() if kind == "integer" else getattr(reader, kind)(8) for kind in kinds]
        reader.end()
    except PeerError:
        return
    assert enc(*read) == data


@given(st.lists(st.integers(0, 12), max_size=4), st.binary(max_size=16), st.sampled_from(["bytes", "text"]))
def test_random_lengths_raise_nothing_else(lengths, rest, kind):
    """The same for bytes that look like fields."""
    data = b"".join(length.to_bytes(8, "little") + bytes(length) for length in lengths) + rest
    reader = Reader(data)
    try:
        read = [getattr(reader, kind)(10) for _ in lengths]
        reader.end()
    except PeerError:
        return
    assert enc(*read) == data
