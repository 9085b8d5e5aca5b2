import copy
import hashlib
import hmac
import pickle

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.membership import DeviceRecord
from coterie.secagg.crypto import keys
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import (
    BoxKey,
    IdentityKey,
    SealKey,
    Seed,
    StoredSecrets,
    check_exchange_key,
    check_identity_key,
    hkdf,
    hkdf_expand,
    verify_signature,
)
from coterie.secagg.protocols.agreement.boxes import SentBoxes

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SECRET = bytes(range(32))
SECRETS = [Seed(SECRET), IdentityKey.from_bytes(SECRET), SealKey.from_bytes(SECRET)]


# --- an oracle: the curve by its equation --------------------------------------------------------------


def edwards_add(one, other):
    """Add two points of -x² + y² = 1 + d·x²·y²."""
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def multiplied(point, factor):
    result = (0, 1)
    for bit in f"{factor:b}":
        result = edwards_add(result, result)
        if bit == "1":
            result = edwards_add(result, point)
    return result


def edwards_point(y):
    """A point with this y, or None if the curve has none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (x, y) if x * x % P == square else None


def small_order_points():
    """The order times a point is of small order; one of order 8 gives all the others."""
    point = next(
        t for y in range(2, 100) if (p := edwards_point(y)) and multiplied(t := multiplied(p, ORDER), 4) != (0, 1)
    )
    return {multiplied(point, factor) for factor in range(8)}


def encodings(coordinates):
    """All 32 bytes that stand for a coordinate, if the highest bit is another matter."""
    numbers = {c + multiple for c in coordinates for multiple in (0, P) if c + multiple < 2**255}
    return sorted((number + high).to_bytes(32, "little") for number in numbers for high in (0, 2**255))


SMALL_ORDER = encodings({y for _, y in small_order_points()})
# u = (1 + y)/(1 - y); the twist has u = -1 besides.
LOW_ORDER = encodings({(1 + y) * pow(1 - y, -1, P) % P for _, y in small_order_points() if y != 1} | {P - 1})


# --- secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", SECRETS, ids=repr)
def test_a_secret_prints_as_nothing(secret):
    """No printed form shows a secret, nor a part of it."""
    shown = f"{type(secret).__name__}(…)"
    assert [repr(secret), str(secret), f"{secret}", f"{[secret]}"] == [shown, shown, shown, f"[{shown}]"]
    assert not hasattr(secret, "__dict__")


def test_what_a_device_stores_prints_as_nothing():
    """Neither `repr` nor rich, which asks a structure for its fields by itself, shows a part of a record."""
    record = DeviceRecord.new(Seed(SECRET))
    assert [repr(record), pretty_repr(record)] == ["DeviceRecord(…)", "DeviceRecord()"]
    kinds = {kind.__name__ for kind in StoredSecrets.__subclasses__()}
    assert {"DeviceRecord", "StoredParticipant", "_StoredRound"} <= kinds
    for kind in StoredSecrets.__subclasses__():
        assert (kind.__repr__, kind.__rich_repr__) == (StoredSecrets.__repr__, StoredSecrets.__rich_repr__)


def test_the_keys_of_boxes_are_secrets_until_they_are_asked_for():
    """Boxes that wait for complaints are neither pickled nor copied: their keys open everybody's shares."""
    sent = SentBoxes(None, 0, {1: BoxKey.generate()}, {1: b"box"})
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="is secret"):
            take(sent)


@pytest.mark.parametrize("secret", SECRETS, ids=repr)
@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda take: take.__name__)
def test_a_secret_is_neither_pickled_nor_copied(secret, take):
    """A secret leaves only by the method that is named for it."""
    with pytest.raises(TypeError, match="is secret"):
        take(secret)


@pytest.mark.parametrize("build", [Seed, IdentityKey.from_bytes, SealKey.from_bytes])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_of_another_length_is_refused(build, size):
    """A secret has 32 bytes; the error does not show them."""
    with pytest.raises(UsageError, match=f"is made of 32 bytes, not of {size}$"):
        build(b"\xaa" * size)


@pytest.mark.parametrize("build", [Seed, IdentityKey.from_bytes, SealKey.from_bytes])
@pytest.mark.parametrize("value", [32, "a" * 32, None])
def test_a_secret_is_made_of_bytes(build, value):
    """The number 32 is not taken for 32 bytes of zeros, nor text for its characters."""
    with pytest.raises(TypeError):
        build(value)


def test_seeds_are_equal_by_content_and_never_hashed():
    """Seeds compare by their bytes, and only with seeds; they are no keys of a dictionary."""
    assert Seed(SECRET) == Seed(SECRET)
    assert Seed(SECRET) != Seed(bytes(32))
    assert Seed(SECRET) != SECRET
    with pytest.raises(TypeError, match="unhashable"):
        hash(Seed(SECRET))


def test_a_seed_is_what_it_was_made_of():
    """A seed reveals its bytes, and does not change with what it was made from."""
    changing = bytearray(SECRET)
    seed = Seed(changing)
    changing[0] = 255
    assert seed.reveal() == SECRET
    assert type(seed.reveal()) is bytes


@pytest.mark.parametrize("kind", [IdentityKey, SealKey])
def test_keys_are_fresh_and_come_back_from_the_store(kind):
    """Every key generated is another one; its bytes bring it back."""
    one, other = kind.generate(), kind.generate()
    assert one.to_bytes() != other.to_bytes()
    assert kind.from_bytes(one.to_bytes()).public == one.public != other.public
    assert len(one.public) == 32


# --- HKDF ----------------------------------------------------------------------------------------------


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
def test_hkdf_is_extract_and_expand(secret, salt, info):
    """HKDF = HMAC(PRK, info ‖ 1) with PRK = HMAC(salt, secret); without a salt, 32 zeros (RFC 5869)."""
    prk = hmac.digest(salt or bytes(32), secret, hashlib.sha256)
    assert hkdf(secret, salt, info) == hkdf_expand(prk, info) == hmac.digest(prk, info + b"\1", hashlib.sha256)


# --- signatures -----------------------------------------------------------------------------------------


def test_a_signature_is_for_one_purpose_and_context():
    """A signature holds for its purpose and context, and for no others, also where the bytes move over."""
    key = IdentityKey.from_bytes(SECRET)
    signature = key.sign("agree", "ab", b"c", 1)
    verify_signature(key.public, signature, "agree", "ab", b"c", 1, who="ana")
    others = [
        ("charter", "ab", b"c", 1),
        ("agree", "a", b"bc", 1),
        ("agree", "ab", b"c", 2),
        ("agree", "ab", b"c"),
        ("agree", "ab", b"c", 1, b""),
        ("agree", "abc", 1),
        ("agreeab", b"c", 1),
        ("", "ab", b"c", 1),
    ]
    for purpose, *context in others:
        with pytest.raises(
            PeerError, match=r"the signature of 'ana' for .* is forged, or made for something else"
        ):
            verify_signature(key.public, signature, purpose, *context, who="ana")


def test_what_is_signed_begins_with_the_protocol():
    """The tag has the protocol and its version, so that no other use of a key can be turned against it."""
    key = IdentityKey.from_bytes(SECRET)
    signed = enc("coterie/v2/charter", b"x")
    Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign("charter", b"x"), signed)


@given(st.integers(0, 511))
def test_no_bit_of_a_signature_may_change(bit):
    """A signature with any one bit flipped is refused."""
    key = IdentityKey.from_bytes(SECRET)
    flipped = int.from_bytes(key.sign("charter", b"x"), "little") ^ 1 << bit
    with pytest.raises(PeerError, match="forged"):
        verify_signature(key.public, flipped.to_bytes(64, "little"), "charter", b"x", who="ana")


@pytest.mark.parametrize("multiple", range(1, 16))
def test_signatures_are_not_malleable(multiple):
    """S + k·L, which fits the same equation, is not accepted in place of S."""
    key = IdentityKey.from_bytes(SECRET)
    signature = key.sign("charter", b"x")
    scalar = int.from_bytes(signature[32:], "little") + multiple * ORDER
    with pytest.raises(PeerError, match="forged"):
        verify_signature(key.public, signature[:32] + scalar.to_bytes(32, "little"), "charter", b"x", who="ana")


@pytest.mark.parametrize("size", [0, 32, 63, 65, 128])
def test_a_signature_has_64_bytes(size):
    """A signature of another length is refused as such."""
    with pytest.raises(PeerError, match=f"the signature of 'ana' for 'charter' has {size} bytes, not 64"):
        verify_signature(SECRETS[1].public, bytes(size), "charter", who="ana")


def test_eight_points_of_small_order_have_fourteen_encodings():
    """The oracle finds 8 points; their 5 y have 7 numbers below 2^255, each with and without the sign of x."""
    assert len(small_order_points()) == 8
    assert len(SMALL_ORDER) == 14
    assert all(multiplied(point, 8) == (0, 1) for point in small_order_points())


@pytest.mark.parametrize("public", SMALL_ORDER, ids=bytes.hex)
def test_an_identity_key_of_small_order_is_refused(public):
    """All encodings of points of small order are refused, before any signature is looked at."""
    with pytest.raises(PeerError, match="the identity key of 'eve' has small order"):
        check_identity_key(public, "eve")
    with pytest.raises(PeerError, match="the identity key of 'eve' has small order"):
        verify_signature(public, (1).to_bytes(64, "little"), "charter", b"x", who="eve")


def test_the_library_takes_a_signature_on_everything_under_a_key_of_small_order():
    """Why they are refused: under the key 1, one signature holds for every message."""
    for public in (
        (1).to_bytes(32, "little"),
        (P + 1).to_bytes(32, "little"),
        (1 + 2**255).to_bytes(32, "little"),
    ):
        for message in (b"one", b"other"):
            Ed25519PublicKey.from_public_bytes(public).verify((1).to_bytes(64, "little"), message)
        with pytest.raises(PeerError):
            verify_signature(public, (1).to_bytes(64, "little"), "charter", who="eve")


@pytest.mark.parametrize("y", range(P + 2, 2**255))
def test_an_identity_key_has_one_encoding(y):
    """A y not below p is refused, whichever sign x has."""
    for high in (0, 2**255):
        with pytest.raises(PeerError, match="the identity key of 'eve' is not canonical"):
            check_identity_key((y + high).to_bytes(32, "little"), "eve")


def test_a_key_off_the_curve_verifies_nothing():
    """Bytes that are no point of the curve are refused with the signature."""
    off = next(y for y in range(2, 100) if edwards_point(y) is None).to_bytes(32, "little")
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(off).verify(bytes(64), b"x")
    with pytest.raises(PeerError, match="forged"):
        verify_signature(off, bytes(64), "charter", who="eve")


@given(st.binary(max_size=40), st.binary(max_size=70))
def test_random_keys_and_signatures_raise_nothing_else(public, signature):
    """Whatever comes as key and signature, only a PeerError comes out."""
    with pytest.raises(PeerError, match="'eve'"):
        verify_signature(public, signature, "charter", b"x", who="eve")


# --- agreement ------------------------------------------------------------------------------------------


def test_two_keys_agree():
    """Both sides get the same secret, and a third key another one."""
    ana, bob, eve = (SealKey.generate() for _ in range(3))
    assert ana.agree(bob.public, who="bob") == bob.agree(ana.public, who="ana")
    assert ana.agree(bob.public, who="bob") != eve.agree(bob.public, who="bob")


@pytest.mark.parametrize("public", LOW_ORDER, ids=bytes.hex)
def test_a_seal_key_of_low_order_is_refused(public, monkeypatch):
    """All encodings of points of low order are refused, and would be by the library if they were forgotten."""
    assert len(LOW_ORDER) == 14
    with pytest.raises(PeerError, match="the seal key of 'eve' has low order"):
        SealKey.generate().agree(public, who="eve")
    with pytest.raises(PeerError, match="the seal key of 'eve' has low order"):
        check_exchange_key(public, "seal", "eve")
    monkeypatch.setattr(keys, "_LOW_ORDER_U", frozenset())
    with pytest.raises(PeerError, match="the seal key of 'eve' gives no secret"):
        SealKey.generate().agree(public, who="eve")


@pytest.mark.parametrize("u", [*range(P + 2, 2**255), 2**255 + 9, 2**256 - 1])
def test_a_seal_key_has_one_encoding_in_a_charter(u):
    """RFC 7748 takes a second encoding for the same key; `agree` does, a charter does not."""
    second, first = u.to_bytes(32, "little"), (u % 2**255 % P).to_bytes(32, "little")
    ana = SealKey.generate()
    assert ana.agree(second, who="eve") == ana.agree(first, who="eve")
    check_exchange_key(first, "seal", "eve")
    with pytest.raises(PeerError, match="the seal key of 'eve' is not canonical"):
        check_exchange_key(second, "seal", "eve")


def check_seal(public, who):
    check_exchange_key(public, "seal", who)


@pytest.mark.parametrize("size", [0, 31, 33])
@pytest.mark.parametrize("check", [check_identity_key, check_seal, SealKey.from_bytes(SECRET).agree])
def test_a_public_key_has_32_bytes(check, size):
    """A public key of another length is refused as such."""
    with pytest.raises(PeerError, match=f"key of 'eve' has {size} bytes, not 32"):
        check(b"\x09" * size, "eve")


@given(st.binary(min_size=32, max_size=32))
def test_any_32_bytes_agree_or_are_refused(public):
    """For any bytes, the secret is the library's, or a PeerError comes."""
    key = SealKey.from_bytes(SECRET)
    try:
        shared = key.agree(public, who="eve")
    except PeerError:
        return
    library = X25519PrivateKey.from_private_bytes(SECRET).exchange(X25519PublicKey.from_public_bytes(public))
    assert shared.reveal() == library != bytes(32)
