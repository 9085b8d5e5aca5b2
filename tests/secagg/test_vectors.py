"""The files in tests/vectors, which know nothing of Coterie, against Coterie."""

import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import PeerError, UsageError
from coterie.secagg import Charter, IdentityKey, Member, Parameters, Quantiser, Ring, SealKey, Seed, Terms
from coterie.secagg.batch.charter import sign_charter
from coterie.secagg.batch.membership import (
    Chain,
    ratchet,
    seal_masks,
    start_chain,
)
from coterie.secagg.client import rounding_key
from coterie.secagg.crypto.encoding import Reader, enc
from coterie.secagg.crypto.keys import (
    check_exchange_key,
    check_identity_key,
    hkdf,
    hkdf_expand,
    verify_signature,
)
from coterie.secagg.crypto.masking import Keystream, quantise_into
from coterie.secagg.crypto.ring import RING_16, RING_32
from coterie.secagg.protocols.interface import RoundSetting
from support.secagg.vectors import DECODE, FILES, FOLDER, cases, check_message, load, words


class Digested:
    """Terms of which only the digest is known."""

    def __init__(self, digest):
        self.digest = digest


def quantiser(case):
    """The quantiser of a case."""
    (clip,) = struct.unpack("<d", case.clip)
    return Quantiser(Ring(case["modulus"]), clip, case["weight_cap"], case["cohort"])


def test_the_vectors_can_be_made_again(tmp_path):
    """The script writes the same files, byte for byte, and there are no others."""
    subprocess.run([sys.executable, "-I", FOLDER / "make.py", tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in FOLDER.glob("*.json")}


def test_the_script_does_not_use_coterie():
    """Expected values come from elsewhere."""
    for script in FOLDER.glob("*.py"):
        lines = script.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if "import" in line.split() and "coterie" in line]


@pytest.mark.parametrize("name", FILES)
def test_a_case_is_flat(name):
    """Every case is an object of texts and numbers with a name and a verdict."""
    for case in load(name):
        assert {"name", "success"} <= case.keys()
        assert all(type(value) in {str, int, bool} for value in case.values())


def test_every_file_is_checked():
    """A file of vectors that no test reads is noticed."""
    folder = Path(__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("test_vectors.py"))
    assert [name for name in FILES if f'cases("{name}"' not in source] == []


# --- published ------------------------------------------------------------------------------------------


@cases("hkdf", success=True)
def test_hkdf(case):
    """Ours are the first 32 bytes of what RFC 5869 has, as HKDF-Expand's output does not depend on its length."""
    assert hkdf(case.secret, case.salt, case.info) == case.okm[:32]
    assert hkdf_expand(case.prk, case.info) == case.okm[:32]


@cases("x25519", success=True)
def test_x25519(case):
    """X25519 as in RFC 7748, also iterated."""
    scalar, u = case.secret, case.peer
    for _ in range(case["iterations"]):
        scalar, u = SealKey.from_bytes(scalar).agree(u, who="eve").reveal(), scalar
    assert scalar == case.shared
    if case.peer == (9).to_bytes(32, "little") and case["iterations"] == 1:
        assert SealKey.from_bytes(case.secret).public == case.shared


@cases("x25519", success=False)
def test_x25519_refused(case):
    """Points of low order, and what is no point."""
    with pytest.raises(PeerError, match="'eve'"):
        SealKey.from_bytes(case.secret).agree(case.peer, who="eve")


@cases("aes_256_ctr", success=True)
def test_aes_256_ctr(case):
    """The library's counter mode is NIST's; ours begins at block zero, which the file keystream.json checks."""
    assert Cipher(algorithms.AES(case.key), modes.CTR(case.counter)).encryptor().update(case.plain) == case.cipher


@cases("ed25519", success=True)
def test_ed25519(case):
    """Keys are RFC 8032's. A bare message is signed by the library only: ours never signs without a purpose."""
    assert IdentityKey.from_bytes(case.secret).public == case.public
    check_identity_key(case.public, "ana")
    Ed25519PublicKey.from_public_bytes(case.public).verify(case.signature, case.message)
    with pytest.raises(PeerError, match="forged"):
        verify_signature(case.public, case.signature, "charter", case.message, who="ana")


@cases("chacha20_poly1305", success=True)
def test_chacha20_poly1305(case):
    """The library's cipher is RFC 8439's."""
    assert ChaCha20Poly1305(case.key).encrypt(case.nonce, case.plain, case.data) == case.cipher


# --- keys, encoding, charter -------------------------------------------------------------------------------

CHECKS = {
    "identity": check_identity_key,
    "seal": lambda public, who: check_exchange_key(public, "seal", who),
    "mask": lambda public, who: check_exchange_key(public, "mask", who),
}


@cases("public_keys", success=True)
def test_public_keys(case):
    """Keys as they are made."""
    CHECKS[case["kind"]](case.public, "ana")


@cases("public_keys", success=False)
def test_public_keys_refused(case):
    """Every encoding of a point of small order, second encodings, other lengths."""
    with pytest.raises(PeerError, match=f"the {case['kind']} key of 'eve'"):
        CHECKS[case["kind"]](case.public, "eve")


def read(case):
    reader = Reader(case.encoded)
    ways = {
        "bytes": lambda: reader.bytes(case["limit"]),
        "text": lambda: reader.text(case["limit"]),
        "integer": reader.integer,
    }
    fields = [ways[kind]() for kind in case["kinds"].split()]
    reader.end()
    return fields


@cases("encoding", success=True)
def test_encoding(case):
    """Contents to bytes and back."""
    given = [bytes.fromhex(case[f"field_{number}"]) for number in range(len(case["kinds"].split()))]
    fields = read(case)
    assert [enc(field)[8:] for field in fields] == given
    assert enc(*fields) == enc(*given) == case.encoded


@cases("encoding", success=False)
def test_encoding_refused(case):
    """Bytes that are no encoding of such fields."""
    with pytest.raises(PeerError, match="the message"):
        read(case)


@cases("charter", success=True)
def test_charter(case):
    """A charter to its bytes and back, and its digest."""
    members = []
    while f"member_{len(members)}_user" in case:
        prefix = f"member_{len(members)}_"
        user, *rest = (bytes.fromhex(case[prefix + part]) for part in ("user", "identity", "seal", "predecessor"))
        members.append(Member(user.decode(), *rest))
    charter = Charter(
        case["scope"],
        case["privacy"],
        quantiser(case),
        case["inner"],
        tuple(reversed(members)),
        Parameters(case["colluders"], case["losses"]),
        case.recipe,
        case["first"],
    )
    assert charter.quantiser.levels == case["levels"]
    assert charter.encode() == case.encoded
    assert charter.digest == case.digest
    assert Charter.decode(case.encoded) == charter
    assert Charter.decode(case.encoded).members == tuple(members)


@cases("charter", success=False)
def test_charter_refused(case):
    """Bytes that are not the one encoding of a charter."""
    with pytest.raises(PeerError, match="charter"):
        Charter.decode(case.encoded)


@cases("signature", success=True)
def test_signature(case):
    """Ed25519 is deterministic: the signature itself is the same."""
    key = IdentityKey.from_bytes(case.secret)
    assert key.public == case.public
    assert key.sign(case["purpose"], case.context) == case.signature
    verify_signature(case.public, case.signature, case["purpose"], case.context, who="ana")
    if case["purpose"] == "charter":
        assert sign_charter(Charter.decode(case.context), key) == case.signature


@cases("signature", success=False)
def test_signature_refused(case):
    """Changed, malleated, of another, for another, and under keys that sign everything."""
    with pytest.raises(PeerError, match="'eve'"):
        verify_signature(case.public, case.signature, case["purpose"], case.context, who="eve")


# --- the seal -------------------------------------------------------------------------------------------


def chain(case):
    return start_chain(Charter.decode(case.charter), case.user.decode(), SealKey.from_bytes(case.secret))


@cases("chain", success=True)
def test_chain(case):
    """Chain keys at the start, after one and two rounds, and after a thousand."""
    peer = case.peer.decode()
    started = chain(case)
    for moved in (0, 1, 2, 1000):
        chain_key = dict(started.advance(case["first"] + moved).keys)[peer]
        assert chain_key.reveal() == bytes.fromhex(case[f"k_{moved}"])
    assert ratchet(case.k_1) == case.k_2


@cases("chain", success=False)
def test_chain_refused(case):
    """A member whose seal key has low order."""
    with pytest.raises(PeerError, match="the seal key of 'bob' has low order"):
        chain(case)


@cases("terms", success=True)
def test_terms(case):
    """The digest of a round's terms."""
    assert terms(case).digest == case.digest


@cases("terms", success=False)
def test_terms_refused(case):
    """Terms that no round can have."""
    with pytest.raises(UsageError, match="the terms'"):
        terms(case)


def terms(case):
    """The terms of a case."""
    return Terms(case.model, case["dimension"], case["min_included"], case["step"], case.configuration)


@cases("quantiser", success=True)
def test_quantiser(case):
    """Values to words, at a weight, rounded by the bits of a device's secret and some terms."""
    found = quantiser(case)
    assert found.levels == case["levels"]
    values = np.frombuffer(case.floats, dtype="<f8")
    out = np.empty(len(values) + found.extra_words, dtype=found.ring.dtype)
    quantise_into(out, values, case["weight"], found, rounding_key(case.secret, Digested(case.terms)))
    assert out.tobytes() == case.words
    assert case["name"].startswith("not finite") or all(map(math.isfinite, values))


@cases("quantiser", success=False)
def test_quantiser_refused(case):
    """Weights and quantisers that cannot be."""
    values = np.frombuffer(case.floats, dtype="<f8")
    with pytest.raises(UsageError):
        quantise_into(
            np.empty(len(values) + quantiser(case).extra_words, dtype=Ring(case["modulus"]).dtype),
            values,
            case["weight"],
            quantiser(case),
            Seed(bytes(32)),
        )


@cases("rounding", success=True)
def test_rounding(case):
    """The key of rounding bits, from a device's secret and the digest of terms."""
    assert rounding_key(case.secret, Digested(case.terms)) == Seed(case.key)


@cases("parameters", success=True)
def test_parameters(case):
    """How many may collude and be lost, and how many must sign."""
    found, users = Parameters(case["colluders"], case["losses"]), case["users"]
    counts = (found.most_colluding(users), found.most_lost(users), found.threshold(users))
    assert counts == (case["colluding"], case["lost"], case["threshold"])


@cases("parameters", success=False)
def test_parameters_refused(case):
    """Shares that leave no room for a threshold."""
    with pytest.raises(UsageError):
        Parameters(case["colluders"], case["losses"])


@cases("context", success=True)
def test_context(case):
    """The digest that ties everything to its round."""
    rules = (case[rule] for rule in ("mode", "inner", "scope", "round"))
    parameters = Parameters(case["colluders"], case["losses"])
    setting = RoundSetting(*rules, Digested(case.terms), quantiser(case), parameters)
    assert setting.context == case.context


@cases("seal", success=True)
def test_seal(case):
    """Seed, sign and first words of a mask."""
    moved = chain(case).advance(case["round"])
    masks = seal_masks(moved, case["round"], case.terms, case.user.decode())
    others = [user for user, _ in moved.keys]
    mask = masks[others.index(case.peer.decode())]
    assert (mask.seed, mask.sign) == (Seed(case.seed), case["sign"])
    assert words(Keystream(mask.seed, RING_32), len(case.words_32)) == case.words_32
    assert words(Keystream(mask.seed, RING_16), len(case.words_16), RING_16.dtype) == case.words_16


@cases("rounds", success=True)
def test_rounds(case):
    """Rounds that a chain may move to."""
    Chain(case["position"], ()).check_round(case["round"], case["skip"])


@cases("rounds", success=False)
def test_rounds_refused(case):
    """Rounds that are over, or too far ahead."""
    with pytest.raises(PeerError, match=f"the server asked for round {case['round']}"):
        Chain(case["position"], ()).check_round(case["round"], case["skip"])


@cases("keystream", success=True)
def test_keystream(case):
    """Words from block zero on; modulo the prime, of 31 bits, and without the one that is q."""
    ring = Ring(case["modulus"])
    keystream = Keystream(Seed(case.seed), ring)
    words(keystream, ring.dtype.itemsize * case["start"], ring.dtype)
    assert words(keystream, len(case.words), ring.dtype) == case.words


@cases("messages", success=True)
def test_a_message_decodes_and_encodes_to_the_same_bytes(case):
    """Every message has the bytes of the specification, both ways."""
    check_message(case)


@cases("messages", success=False)
def test_a_bad_message_is_refused(case):
    """Nothing but a PeerError comes out of bytes that are no message."""
    with pytest.raises(PeerError):
        DECODE[case["sender"]](case.data)
