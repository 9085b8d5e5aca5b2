"""A charter's value and its bytes: one encoding, and only that one decodes."""

import math
import struct
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import PeerError, UsageError
from coterie.secagg import PRIME_31, RING_16, RING_32, Charter, Member, Parameters, Quantiser
from coterie.secagg.batch.charter import LARGEST_BATCH, read_recipe, write_recipe
from coterie.secagg.crypto.encoding import enc
from support.secagg.charters import OLD, accepts, charter, member, members, refuses
from support.secagg.servers import raw_charter

NAMES = st.text(min_size=1, max_size=64).filter(lambda name: len(name.encode()) <= 64)
KEYS = st.binary(min_size=32, max_size=32)
MEMBERS = st.builds(Member, NAMES, KEYS, KEYS, st.just(b"") | KEYS)
COUNTS = st.integers(1, 2**64 - 1)
QUANTISERS = st.builds(
    Quantiser,
    st.sampled_from([RING_16, RING_32, PRIME_31]),
    st.floats(1e-100, 1e100),
    st.integers(1, 255),
    st.integers(1, 255),
)
PARAMETERS = st.integers(0, 499).flatmap(
    lambda losses: st.builds(Parameters, st.integers(0, 999 - 2 * losses), st.just(losses))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
RECIPES = st.dictionaries(st.text(max_size=9), JSON, max_size=4)
CHARTERS = st.builds(
    Charter,
    NAMES,
    COUNTS,
    QUANTISERS,
    NAMES,
    st.lists(MEMBERS, min_size=1, max_size=5, unique_by=lambda m: m.user).map(tuple),
    PARAMETERS,
    RECIPES.map(write_recipe),
    st.integers(0, 2**64 - 1),
)


@given(CHARTERS)
def test_a_charter_comes_back_from_its_bytes(written):
    """decode(encode(c)) = c."""
    assert Charter.decode(written.encode()) == written
    assert Charter.decode(written.encode()).digest == written.digest


@given(CHARTERS, CHARTERS)
def test_two_charters_have_two_digests(one, other):
    """Charters are the same exactly if their bytes and their digests are."""
    assert (one == other) == (one.encode() == other.encode()) == (one.digest == other.digest)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    """Random bytes are no charter, and nothing but a PeerError says so."""
    with pytest.raises(PeerError):
        Charter.decode(data)


@given(CHARTERS, st.data())
def test_changed_bytes_are_refused_or_are_another_charter(written, data):
    """Bytes changed, lost or added anywhere are refused, or are the only encoding of another charter."""
    encoded = written.encode()
    start = data.draw(st.integers(0, len(encoded)))
    stop = data.draw(st.integers(start, min(len(encoded), start + 40)))
    changed = encoded[:start] + data.draw(st.binary(max_size=40)) + encoded[stop:]
    try:
        read = Charter.decode(changed)
    except PeerError:
        return
    assert read.encode() == changed
    assert (read == written) == (changed == encoded)


@given(CHARTERS, st.data())
def test_a_charter_that_is_cut_off_is_refused(written, data):
    """No beginning of a charter is a charter."""
    encoded = written.encode()
    with pytest.raises(PeerError, match="cut off"):
        Charter.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_the_encoding_is_the_one_written_down():
    """protocol, version, scope, T, q, clip, w_max, cohort, levels, inner, γ, δ, recipe, first, number, members."""
    fields = [enc(m.user, m.identity, m.seal, m.predecessor) for m in members(*OLD)]
    words = (2**32, struct.pack("<d", 1.0), 1, 60, 71582789)
    rules = ("keyboard", 3, *words, "open", 200, 300, b"{}")
    assert charter().encode() == enc("coterie/sealed", 2, *rules, 0, 3, *fields)
    assert charter(first=70_000).encode() == enc("coterie/sealed", 2, *rules, 70_000, 3, *fields)
    words = (2**16, struct.pack("<d", 0.25), 5, 12, 1093)
    rules = ("keyboard", 3, *words, "secagg", 100, 400, b'{"epochs":2}')
    other = charter(
        quantiser=Quantiser(RING_16, 0.25, 5, 12), inner="secagg", parameters=Parameters(100, 400),
        recipe=write_recipe({"epochs": 2}),
    )  # fmt: skip
    assert other.encode() == enc("coterie/sealed", 2, *rules, 0, 3, *fields)


def test_the_order_of_members_means_nothing():
    """However members are given, the charter and its digest are the same."""
    one, other = charter(*members("ana", "bob", "cem")), charter(*members("cem", "ana", "bob"))
    assert one == other
    assert one.digest == other.digest


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True))
def test_members_are_sorted_by_the_bytes_of_their_ids(users):
    """The order is that of UTF-8, in which Python's own order of text agrees."""
    sorted_ = charter(*(Member(user, bytes(32), bytes(32)) for user in users)).members
    encoded = [m.user.encode() for m in sorted_]
    assert encoded == sorted(user.encode() for user in users) == [user.encode() for user in sorted(users)]


def raw(*lines, **fields):
    """An encoding as a careless or hostile server writes it."""
    return raw_charter(charter(privacy=2), lines, **fields)


def refuses_bytes(rule, data):
    with pytest.raises(PeerError, match=rule):
        Charter.decode(data)


def test_members_that_are_not_sorted_are_refused():
    """A charter has one order of members on the wire."""
    assert Charter.decode(raw(member("ana"), member("bob"))).members == members("ana", "bob")
    refuses_bytes("not sorted by the bytes of their ids", raw(member("bob"), member("ana")))


def test_the_order_of_utf_16_is_refused():
    """A server that sorts as Java and JavaScript do puts U+1F600 before U+FF5E; its charter is refused."""
    tilde, smile = member("\uff5e"), member("\U0001f600")
    assert smile.user.encode("utf-16-be") < tilde.user.encode("utf-16-be")
    assert Charter.decode(raw(tilde, smile)).members == (tilde, smile)
    refuses_bytes("not sorted", raw(smile, tilde))


def test_a_member_that_comes_twice_is_refused():
    """A user is in a charter once, with the same keys or with others; also this device's own user."""
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana"), member("ana"), member("bob")))
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana", 1), member("ana", 2), member("bob")))
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana"), member("bob"), member("ana")))
    with pytest.raises(UsageError, match="the charter has the member 'ana' twice"):
        charter(member("ana", 1), member("bob"), member("ana", 2))


def test_ids_are_not_normalised():
    """Ids that look the same are two users with two keys: `verify_member` has to know them apart."""
    composed, decomposed = member("zo\u00eb"), member("zoe\u0308")
    read = Charter.decode(raw(decomposed, composed))
    assert [m.user for m in read.members] == ["zoe\u0308", "zo\u00eb"]
    own = {"user": "zo\u00eb", "identity": composed.identity, "seal": composed.seal}
    accepts(charter(composed, decomposed, member("bob")), **own)
    refuses("does not have 'zoë', this device's user", charter(decomposed, *members("bob", "cem")), **own)


def test_other_protocols_and_versions_are_refused():
    """A charter says what it is a charter of."""
    refuses_bytes(
        "for the protocol 'coterie/open', not 'coterie/sealed'", raw(member("ana"), protocol="coterie/open")
    )
    for version in (0, 1, 3, 2**64 - 1):
        refuses_bytes(f"has the version {version}; this is version 2", raw(member("ana"), version=version))


def test_bytes_after_the_members_are_refused():
    """Nothing hides behind the last member, nor inside one."""
    refuses_bytes("bytes follow field 16, which must be the last", raw(member("ana")) + b"\0")
    refuses_bytes("bytes follow field 16, which must be the last", raw(*members("ana", "bob"), count=1))
    padded = enc("ana", bytes(32), bytes(32), b"", b"")
    refuses_bytes("member 0 of the charter: 8 bytes follow field 4", raw(count=1) + enc(padded))


def test_the_number_of_members_is_bounded():
    """A number of members is refused before any of them is read, and so is a charter of nobody."""
    for number in (LARGEST_BATCH + 1, 2**64 - 1):
        refuses_bytes(f"has {number} members; at most 10000 are allowed", raw(count=number))
    refuses_bytes("the charter is cut off", raw(count=LARGEST_BATCH))
    refuses_bytes("has 0 members; it can have 1 to 10000", raw())
    many = [Member(f"{number:05}", bytes(32), bytes(32)) for number in range(LARGEST_BATCH + 1)]
    assert len(Charter.decode(charter(*many[:-1]).encode()).members) == LARGEST_BATCH
    with pytest.raises(UsageError, match="has 10001 members"):
        charter(*many)


def test_fields_are_bounded():
    """Ids, scopes and names have 1 to 64 bytes, keys 32, a predecessor 32 or none."""
    charter(Member("é" * 32, bytes(32), bytes(32), bytes(32)), scope="s" * 64)
    for user in ("", "a" * 65, "é" * 33, "\ud800"):
        with pytest.raises(UsageError):
            Member(user, bytes(32), bytes(32))
    for size in (0, 31, 33):
        with pytest.raises(UsageError, match=f"identity key of 'ana' has {size} bytes"):
            Member("ana", bytes(size), bytes(32))
        with pytest.raises(UsageError, match=f"seal key of 'ana' has {size} bytes"):
            Member("ana", bytes(32), bytes(size))
    for size in (1, 31, 33):
        with pytest.raises(UsageError, match=f"predecessor of 'ana' has {size} bytes"):
            Member("ana", bytes(32), bytes(32), bytes(size))
    for bad in ({"scope": ""}, {"scope": "é" * 33}, {"inner": ""}, {"inner": "i" * 65}):
        with pytest.raises(UsageError, match="give 1 to 64"):
            charter(**bad)
    for bad in ({"privacy": 0}, {"privacy": True}, {"privacy": 2.0}, {"privacy": 2**64}):
        with pytest.raises(UsageError, match="give an integer from 1 to"):
            charter(**bad)
    for bad in ({"first": -1}, {"first": True}, {"first": 2**64}):
        with pytest.raises(UsageError, match="give an integer from 0 to"):
            charter(**bad)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"levels": 71582788}, "it states 71582788 levels; ring, cohort and largest weight give 71582789"),
        ({"levels": 71582790}, "it states 71582790 levels"),
        ({"levels": 0}, "it states 0 levels"),
        ({"cohort": 61}, "it states 71582789 levels; ring"),
        ({"weight_cap": 2}, "it states 71582789 levels; ring"),
        ({"modulus": 2**31}, "the modulus is 2147483648"),
        ({"modulus": 0}, "the modulus is 0"),
        ({"cohort": 0}, "the quantiser's cohort is 0"),
        ({"weight_cap": 0}, "the quantiser's weight_cap is 0"),
        ({"cohort": 2**40}, "leave no level"),
        ({"clip": struct.pack("<d", 0.0)}, "the clip is 0.0"),
        ({"clip": struct.pack("<d", -1.0)}, "the clip is -1.0"),
        ({"clip": struct.pack("<d", math.nan)}, "the clip is not a number"),
        ({"clip": struct.pack("<d", math.inf)}, "the clip is inf"),
        ({"clip": struct.pack("<f", 1.0)}, "has 4 bytes; 8 are expected"),
        ({"colluders": 400}, "γ = 0.4 .* δ = 0.3 .* must stay below 1"),
        ({"losses": 400}, "γ = 0.2 .* δ = 0.4 .* must stay below 1"),
        ({"colluders": 2**63}, "must stay below 1"),
        ({"recipe": b""}, "not a JSON object in canonical form"),
        ({"recipe": b'{"epochs": 2}'}, "not a JSON object in canonical form"),
        ({"recipe": b"[]"}, "not a JSON object in canonical form"),
        ({"recipe": b"{" * 60_000}, "not a JSON object in canonical form"),
        ({"recipe": bytes(2**16 + 1)}, "has 65537 bytes; at most 65536"),
    ],
)
def test_rules_that_cannot_be_are_refused(fields, rule):
    """What no charter can say is refused as the bytes are read: levels are derived, γ + 2δ < 1, one recipe."""
    refuses_bytes(rule, raw(*members(*OLD), **fields))


@given(RECIPES)
def test_a_recipe_comes_back_and_has_one_form(settings):
    """Settings become bytes and settings again; another spelling of the same settings is no recipe."""
    recipe = write_recipe(settings)
    assert write_recipe(read_recipe(recipe)) == recipe
    if settings:
        with pytest.raises(UsageError, match="canonical form"):
            read_recipe(recipe.replace(b"{", b"{ ", 1))


@pytest.mark.parametrize(
    "recipe",
    [
        b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a":1.0e0}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}',
        b'{"\\u0061":1}', b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":"\\ud800"}', "{}".encode("utf-16"), b"1",
        b"null", b"{}\n", b'{"a":01}', b'{"a":-0}', b'{"a":1}x',
    ],
)  # fmt: skip
def test_other_bytes_are_no_recipe(recipe):
    """Keys out of order or twice, other spellings, what is not finite, not UTF-8 or not an object: all refused."""
    with pytest.raises(UsageError, match="not a JSON object in canonical form"):
        read_recipe(recipe)


@pytest.mark.parametrize(
    "settings", [{"a": math.nan}, {"a": math.inf}, {"a": b""}, {1: {2: {3}}}, {"a": "\ud800"}]
)
def test_settings_that_are_no_json_make_no_recipe(settings):
    """What JSON cannot say is refused with the settings."""
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        write_recipe(settings)


def test_a_charter_is_frozen():
    """What was signed does not change."""
    with pytest.raises(FrozenInstanceError):
        charter().privacy = 1
    with pytest.raises(FrozenInstanceError):
        member("ana").seal = bytes(32)
