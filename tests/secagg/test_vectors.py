"""The files in tests/vectors, which know nothing of Coterie, against Coterie."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from coterie.secagg.protocols.pairwise.setting import Setting
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.chain import Chain, ratchet, seal_masks, start_chain
from coterie.secagg.batch.charter import Charter, Member, sign_charter
from coterie.secagg.crypto.encoding import Reader, enc
from coterie.secagg.crypto.keys import (
    IdentityKey,
    MaskKey,
    SealKey,
    Seed,
    ShareKey,
    check_exchange_key,
    check_identity_key,
    hkdf,
    hkdf_expand,
    verify_signature,
)
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32, Ring
from coterie.secagg.crypto.shamir import combine, split
from coterie.secagg.protocols.pairwise.pairs import locked, pair_mask, seed_digest, unlocked
from coterie.secagg.protocols.pairwise.roster import Roster, check_line, listed
from coterie.secagg.wire.messages import RosterLine, blank, decode_from_client, decode_from_server
from coterie.secagg.wire.terms import Terms

FOLDER = Path(__file__).parents[1] / "vectors"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))


class Case(dict):
    """One case; attributes give its bytes."""

    def __getattr__(self, name):
        return bytes.fromhex(self[name])


def load(name):
    return [Case(case) for case in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))]


def cases(name, *, success):
    """All cases of a file that must be accepted, or all that must be refused."""
    chosen = [case for case in load(name) if case["success"] is success]
    ids = [f"{number}: {case['name']}".encode("ascii", "replace").decode() for number, case in enumerate(chosen)]
    return pytest.mark.parametrize("case", chosen, ids=ids)


def test_the_vectors_can_be_made_again(tmp_path):
    """The script writes the same files, byte for byte, and there are no others."""
    subprocess.run([sys.executable, "-I", FOLDER / "make.py", tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in FOLDER.glob("*.json")}


def test_the_script_does_not_use_coterie():
    """Expected values come from elsewhere."""
    script = (FOLDER / "make.py").read_text(encoding="utf-8")
    assert not [line for line in script.splitlines() if "import" in line.split() and "coterie" in line]


@pytest.mark.parametrize("name", FILES)
def test_a_case_is_flat(name):
    """Every case is an object of texts and numbers with a name and a verdict."""
    for case in load(name):
        assert {"name", "success"} <= case.keys()
        assert all(type(value) in {str, int, bool} for value in case.values())


def test_every_file_is_checked():
    """A file of vectors that no test reads is noticed."""
    source = Path(__file__).read_text(encoding="utf-8")
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
    rules = (case[rule] for rule in ("scope", "privacy", "modulus", "inner"))
    charter = Charter(*rules, tuple(reversed(members)), case["first"])
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
    (clip,) = struct.unpack("<d", case.clip)
    numbers = (case[name] for name in ("cohort", "weight_cap", "min_included"))
    return Terms(case.model, case.configuration, case["dimension"], clip, *numbers)


@cases("seal", success=True)
def test_seal(case):
    """Seed, sign and first words of a mask."""
    moved = chain(case).advance(case["round"])
    masks = seal_masks(moved, case["round"], case.terms, case.user.decode())
    others = [user for user, _ in moved.keys]
    mask = masks[others.index(case.peer.decode())]
    assert (mask.seed, mask.sign) == (Seed(case.seed), case["sign"])
    assert words(Keystream(mask.seed, RING_32), len(case.words)) == case.words


@cases("rounds", success=True)
def test_rounds(case):
    """Rounds that a chain may move to."""
    Chain(case["position"], ()).check_round(case["round"])


@cases("rounds", success=False)
def test_rounds_refused(case):
    """Rounds that are over, or too far ahead."""
    with pytest.raises(PeerError, match=f"the server asked for round {case['round']}"):
        Chain(case["position"], ()).check_round(case["round"])


def words(keystream, size):
    """The next bytes of a keystream."""
    buffer = np.empty(size // 4, dtype=np.uint32)
    keystream.words_into(buffer)
    return buffer.astype("<u4").tobytes()


@cases("keystream", success=True)
def test_keystream(case):
    """Words from block zero on; modulo the prime, of 31 bits, and without the one that is q."""
    keystream = Keystream(Seed(case.seed), Ring(case["modulus"]))
    words(keystream, 4 * case["start"])
    assert words(keystream, len(case.words)) == case.words


# --- pairwise rounds -----------------------------------------------------------------------------------------


@cases("chacha20_poly1305", success=True)
def test_chacha20_poly1305(case):
    """The library's cipher is RFC 8439's."""
    assert ChaCha20Poly1305(case.key).encrypt(case.nonce, case.plain, case.data) == case.cipher


@cases("context", success=True)
def test_context(case):
    """The digest that ties everything to its round."""

    class Digested:
        digest = case.terms

    rules = (case[rule] for rule in ("kind", "inner", "scope", "round"))
    assert Setting(*rules, Digested()).context == case.context


def roster(case):
    lines = []
    while f"line_{len(lines)}_user" in case:
        prefix = f"line_{len(lines)}_"
        parts = ("user", "identity", "mask_key", "share_key", "signature")
        user, *rest = (bytes.fromhex(case[prefix + part]) for part in parts)
        lines.append(RosterLine(user.decode(), *rest))
    return Roster(case.context, case["inner"], tuple(lines))


@cases("roster", success=True)
def test_roster(case):
    """Digest, threshold, and what every user signed."""
    found = roster(case)
    assert found.digest == case.digest
    assert found.threshold == case["threshold"]
    for line in found.lines:
        check_line(line, case.context)


@cases("roster", success=False)
def test_roster_refused(case):
    """The first line has a key that it did not sign for this round, or one of low order."""
    with pytest.raises(PeerError, match="'ana'"):
        check_line(roster(case).lines[0], case.context)


@cases("graph", success=True)
def test_graph(case):
    """Who holds shares of whom, in a roster of so many lines."""
    line = RosterLine("", b"", b"", b"", b"")
    found = Roster(case.context, case["inner"], (line,) * case["users"])
    object.__setattr__(found, "digest", case.digest)
    assert " ".join(map(str, found.graph.holders(case["place"]))) == case["holders"]


@cases("shamir", success=True)
def test_shamir(case):
    """Shares at some points, and the secret from the last of them."""
    points = [int(point) for point in case["points"].split()]
    shares = split([case.secret], case["threshold"], points, Seed(case.randomness))[:, 0]
    assert shares.astype("<u4").tobytes() == case.shares
    last = slice(-case["threshold"], None)
    assert combine(np.array(points[last]), shares[last]) == case.secret


@cases("shamir", success=False)
def test_shamir_refused(case):
    """Shares whose secret would have more than 256 bits, or a limb of more than 30."""
    points = np.array([int(point) for point in case["points"].split()])
    shares = np.frombuffer(case.shares, dtype="<u4").reshape(len(points), -1)
    assert combine(points, shares) is None


def pair_of(case):
    lines = (
        RosterLine(case.user.decode(), bytes(32), bytes(32), bytes(32), bytes(64)),
        RosterLine(case.peer.decode(), bytes(32), case.public, case.public, bytes(64)),
    )
    found = Roster(case.context, "secagg", lines)
    object.__setattr__(found, "digest", case.roster)
    return found


@cases("pair", success=True)
def test_pair(case):
    """Seed, sign and first words of the mask of a pair, and what tells a seed from another."""
    found = pair_of(case)
    mask = pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])
    assert (mask.seed, mask.sign) == (Seed(case.seed), case["sign"])
    assert words(Keystream(mask.seed, RING_32), len(case.words)) == case.words
    assert seed_digest(case.context, case.user.decode(), case.seed) == case.seed_digest


@cases("pair", success=False)
def test_pair_refused(case):
    """A mask key of low order."""
    found = pair_of(case)
    with pytest.raises(PeerError, match="the mask key of 'bob' has low order"):
        pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])


@cases("box", success=True)
def test_box(case):
    """Shares encrypted for one receiver, and back."""
    found, way = pair_of(case), ShareKey.from_bytes(case.secret).agree(case.public, who="bob")
    sender, receiver = case.user.decode(), case.peer.decode()
    assert locked(found, way, sender, receiver, case.shares) == case.box
    assert unlocked(found, way, sender, receiver, case.box) == case.shares


@cases("box", success=False)
def test_box_refused(case):
    """Boxes that were changed, or made for another sender, receiver, round or roster."""
    found, way = pair_of(case), ShareKey.from_bytes(case.secret).agree(case.public, who="bob")
    with pytest.raises(PeerError, match=r"the shares of '.*' are forged"):
        unlocked(found, way, case.user.decode(), case.peer.decode(), case.box)


def agreed(case):
    lists = [tuple(map(int, case[name].split())) for name in ("sharers", "included", "excluded")]
    return case.context, case.roster, *map(listed, lists)


@cases("agreement", success=True)
def test_agreement(case):
    """Signatures over the lists of an agreement, and over the sharers of an upload."""
    key = IdentityKey.from_bytes(case.secret)
    assert key.sign("agree", *agreed(case)) == case.signature
    assert key.sign("upload", *agreed(case)[:3]) == case.upload


@cases("agreement", success=False)
def test_agreement_refused(case):
    """Signatures over other lists, or for another round, roster or purpose."""
    with pytest.raises(PeerError, match="forged"):
        verify_signature(case.public, case.signature, "agree", *agreed(case), who="eve")


DECODE = {"client": decode_from_client, "server": lambda data: (decode_from_server(data), memoryview(b""))}


@cases("messages", success=True)
def test_a_message_decodes_and_encodes_to_the_same_bytes(case):
    """Every message has the bytes of the specification, both ways."""
    message, tail = DECODE[case["sender"]](case.data)
    assert type(message).__name__ == case["kind"]
    assert bytes(tail) == case.tail
    data, room = blank(message, len(case.tail))
    room[:] = case.tail
    assert bytes(data) == case.data


@cases("messages", success=False)
def test_a_bad_message_is_refused(case):
    """Nothing but a PeerError comes out of bytes that are no message."""
    with pytest.raises(PeerError):
        DECODE[case["sender"]](case.data)
