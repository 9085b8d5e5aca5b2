"""Writes the test vectors beside this file, from the written specifications alone: it never imports Coterie.

A vector file is a list of flat objects. Bytes are hex, numbers are numbers; `success` says whether the case must
be accepted, and the name of a refused one which rule it breaks. Published vectors stand in `published.txt`, and
are computed once more before they are written.

    python tests/vectors/make.py [folder]
"""

import hashlib
import hmac
import json
import struct
import sys
from itertools import count, islice
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
RING_32, PRIME_31 = 2**32, 2**31 - 1


def case(name, *, success=True, **fields):
    """One case: bytes become hex."""
    shown = {key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()}
    return {"name": name, **shown, "success": success}


def refused(name, **fields):
    """A case that must not be accepted."""
    return case(name, success=False, **fields)


# --- docs/protocol.md §2 and §3, once more ----------------------------------------------------------------


def word(number):
    return number.to_bytes(8, "little")


def enc(*fields):
    contents = [word(f) if isinstance(f, int) else f.encode() if isinstance(f, str) else f for f in fields]
    return b"".join(word(len(content)) + content for content in contents)


def sha256(data):
    return hashlib.sha256(data).digest()


def expand(key, info, length=32):
    blocks, block = b"", b""
    for number in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + info + bytes([number]), "sha256")
        blocks += block
    return blocks[:length]


def extract(secret, salt):
    return hmac.digest(salt or bytes(32), secret, "sha256")


def x25519(secret, peer):
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(peer))


def sign(secret, message):
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def seal_public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def identity_public(secret):
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def member(user, identity, seal, predecessor=b""):
    return enc(user, identity, seal, predecessor)


RULES = {
    "protocol": "coterie/sealed",
    "version": 1,
    "scope": "keyboard",
    "privacy": 2,
    "modulus": RING_32,
    "inner": "open",
    "first": 0,
}


def charter(members, **changed):
    """The encoding of a charter; `changed` holds rules, or the number of members, that differ."""
    return enc(*({**RULES, "number": len(members)} | changed).values(), *members)


def keystream_words(seed, modulus):
    """AES-256 of the counters 0, 1, 2, …; for the prime, 31 bits of each word, unless they are q itself."""
    encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()  # noqa: S305 - counter mode by hand
    for counter in count():
        for number in struct.unpack("<4I", encryptor.update(counter.to_bytes(16, "big"))):
            if modulus == RING_32:
                yield number
            elif number & PRIME_31 != PRIME_31:
                yield number & PRIME_31


def words(seed, modulus, start=0, number=16):
    """Some words of a keystream, as little-endian bytes."""
    return b"".join(w.to_bytes(4, "little") for w in islice(keystream_words(seed, modulus), start, start + number))


# --- the points of small order --------------------------------------------------------------------------


def square_root(number):
    root = pow(number, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != number:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return root if root * root % PRIME == number else None


def torsion():
    """y of the points of edwards25519 of order 8, which double to y = 0: d·y⁴ + 2·y² - 1 = 0 (with y² = -x²)."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    for root in (square_root((1 + d) % PRIME), -square_root((1 + d) % PRIME)):
        y = square_root((root - 1) * pow(d, -1, PRIME) % PRIME)
        if y is not None:
            return y, PRIME - y
    raise AssertionError


def encodings(coordinates):
    """All 32 bytes that mean one of these coordinates: also those not below p, and with the highest bit set."""
    numbers = [c + multiple for c in coordinates for multiple in (0, PRIME) if c + multiple < 2**255]
    return [(number + high).to_bytes(32, "little") for number in numbers for high in (0, 2**255)]


SMALL_ORDER = encodings([0, 1, PRIME - 1, *torsion()])
# The birational map u = (1 + y)/(1 - y), and u = -1, which is of order 4 on the twist.
LOW_ORDER = encodings([0, 1, PRIME - 1, *((1 + y) * pow(1 - y, -1, PRIME) % PRIME for y in torsion())])


# --- published vectors, and what must be refused beside them --------------------------------------------------


X25519_ITERATED = {
    1: "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    1000: "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
}


def published(title):
    """Name and fields of each vector in one section of the file."""
    sections = (Path(__file__).parent / "published.txt").read_text(encoding="utf-8").split("\n# ")
    section = next(section for section in sections if section.startswith(title))
    for vector in section.strip().split("\n\n")[1:]:
        name, *fields = vector.replace("\n ", "").split("\n")
        yield name, *(bytes.fromhex(field.replace("-", "")) for field in fields)


def hkdf_cases():
    for name, secret, salt, info, prk, okm in published("HKDF"):
        assert extract(secret, salt) == prk
        assert expand(prk, info, len(okm)) == okm
        yield case(name, secret=secret, salt=salt, info=info, prk=prk, okm=okm)


def x25519_cases():
    for name, secret, peer, shared in published("X25519"):
        assert x25519(secret, peer) == shared
        yield case(name, secret=secret, peer=peer, shared=shared, iterations=1)
    start = (9).to_bytes(32, "little")
    for iterations, shared in X25519_ITERATED.items():
        k = u = start
        for _ in range(iterations):
            k, u = x25519(k, u), k
        assert k.hex() == shared
        yield case("RFC 7748 5.2, iterated", secret=start, peer=start, shared=shared, iterations=iterations)
    for peer in LOW_ORDER:
        yield refused("low order", secret=SEAL["ana"], peer=peer, iterations=1)
    for length in (0, 31, 33):
        yield refused("not 32 bytes", secret=SEAL["ana"], peer=bytes([9] * length), iterations=1)


def aes_cases():
    for name, key, counter, plain, cipher in published("AES-256-CTR"):
        assert Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(plain) == cipher
        yield case(name, key=key, counter=counter, plain=plain, cipher=cipher)


def ed25519_cases():
    for name, secret, public, message, signature in published("Ed25519"):
        assert identity_public(secret) == public
        assert sign(secret, message) == signature
        yield case(name, secret=secret, public=public, message=message, signature=signature)


def chacha_cases():
    for name, key, nonce, data, plain, cipher in published("ChaCha20-Poly1305"):
        assert ChaCha20Poly1305(key).encrypt(nonce, plain, data) == cipher
        yield case(name, key=key, nonce=nonce, data=data, plain=plain, cipher=cipher)


def key_cases():
    """What a charter may hold as a public key."""
    yield case("an identity key", kind="identity", public=identity_public(IDENTITY["ana"]))
    yield case("a seal key", kind="seal", public=seal_public(SEAL["ana"]))
    yield case("a mask key", kind="mask", public=seal_public(MASK["ana"]))
    for kind, small in (("identity", SMALL_ORDER), ("seal", LOW_ORDER), ("mask", LOW_ORDER)):
        for public in small:
            yield refused("small order", kind=kind, public=public)
        for length in (0, 31, 33):
            yield refused("not 32 bytes", kind=kind, public=bytes([9] * length))
        for high in (0, 2**255):
            yield refused("not below p", kind=kind, public=(PRIME + 9 + high).to_bytes(32, "little"))
    yield refused("highest bit set", kind="seal", public=(9 + 2**255).to_bytes(32, "little"))


# --- our own ------------------------------------------------------------------------------------------------

USERS = ("ana", "bob", "zoë", "\uff5e", "\U0001f600")  # UTF-16 would put the last before the one before it
SEAL = {user: sha256(f"coterie vector: seal key of {user}".encode()) for user in USERS}
MASK = {user: sha256(f"coterie vector: mask key of {user}".encode()) for user in USERS}
SHARE = {user: sha256(f"coterie vector: share key of {user}".encode()) for user in USERS}
IDENTITY = {user: sha256(f"coterie vector: identity key of {user}".encode()) for user in USERS}
MEMBERS = [(user, identity_public(IDENTITY[user]), seal_public(SEAL[user])) for user in USERS]
LINES = [member(*fields) for fields in MEMBERS]
CHARTER = charter(LINES)
PREDECESSOR = sha256(b"coterie vector: an earlier charter")


def encoding_cases():
    def fields(*contents):
        return {f"field_{number}": content for number, content in enumerate(contents)}

    yield case("no fields", kinds="", limit=64, encoded=b"")
    yield case("empty bytes", kinds="bytes", limit=0, **fields(b""), encoded=word(0))
    yield case("bytes", kinds="bytes", limit=3, **fields(b"\0\1\xff"), encoded=word(3) + b"\0\1\xff")
    yield case("text", kinds="text", limit=64, **fields("zoë".encode()), encoded=word(4) + b"zo\xc3\xab")
    decomposed = "zoe\u0308"
    yield case("text as it came", kinds="text", limit=64, **fields(decomposed.encode()), encoded=enc(decomposed))
    for number in (0, 1, 2**63, 2**64 - 1):
        yield case("an integer", kinds="integer", limit=64, **fields(word(number)), encoded=word(8) + word(number))
    tag = b"coterie/v1/seal"
    three = fields(tag, word(7), b"ana")
    yield case("three fields", kinds="text integer text", limit=64, **three, encoded=enc(tag, 7, "ana"))

    yield refused("nothing left", kinds="bytes", limit=64, encoded=b"")
    yield refused("length cut off", kinds="bytes", limit=64, encoded=word(0)[:-1])
    yield refused("content cut off", kinds="bytes", limit=64, encoded=word(3) + b"ab")
    yield refused("above the limit", kinds="bytes", limit=2, encoded=word(3) + b"abc")
    yield refused("a huge length", kinds="bytes", limit=2**53, encoded=word(2**53) + b"abc")
    yield refused("a negative length", kinds="bytes", limit=2**53, encoded=word(2**64 - 3) + b"abc")
    yield refused("bytes at the end", kinds="bytes", limit=64, encoded=word(1) + b"ab")
    yield refused("a field at the end", kinds="bytes", limit=64, encoded=enc(b"a", b""))
    yield refused("a short integer", kinds="integer", limit=64, encoded=enc(bytes(7)))
    yield refused("a long integer", kinds="integer", limit=64, encoded=enc(bytes(9)))
    yield refused("an overlong form", kinds="text", limit=64, encoded=enc(b"\xc0\xaf"))
    yield refused("half of a pair", kinds="text", limit=64, encoded=enc(b"\xed\xa0\x80"))
    yield refused("not UTF-8", kinds="text", limit=64, encoded=enc(b"\xff"))


def charter_cases():
    def good(name, members, **changed):
        fields = RULES | changed
        for number, (user, identity, seal, *predecessor) in enumerate(members):
            fields[f"member_{number}_user"] = user.encode()
            fields[f"member_{number}_identity"] = identity
            fields[f"member_{number}_seal"] = seal
            fields[f"member_{number}_predecessor"] = b"".join(predecessor)
        encoded = charter([member(*line) for line in members], **changed)
        return case(name, **fields, encoded=encoded, digest=sha256(encoded))

    def bad(name, members=LINES, **changed):
        return refused(name, encoded=charter(members, **changed))

    yield good("five members", MEMBERS)
    yield good("one member", MEMBERS[:1])
    yield good("other rules", MEMBERS, scope="fotos/ñ", privacy=2**52, modulus=PRIME_31, inner="lightsecagg")
    yield good("predecessors", [(*line, PREDECESSOR) for line in MEMBERS[:2]] + MEMBERS[2:])
    normalised = [("zoe\u0308", *MEMBERS[0][1:]), ("zo\u00eb", *MEMBERS[1][1:])]
    yield good("ids that would be one if they were normalised", normalised)
    yield good("a batch founded late", MEMBERS, first=70_000)
    yield good("the last round there is", MEMBERS, first=2**64 - 1)
    yield good("an id of 64 bytes", [("é" * 32, *MEMBERS[0][1:])])

    for length in range(0, len(CHARTER), 61):
        yield refused(f"cut off after {length} bytes", encoded=CHARTER[:length])
    yield refused("cut off by one byte", encoded=CHARTER[:-1])
    yield refused("a byte at the end", encoded=CHARTER + b"\0")
    yield refused("a field at the end", encoded=CHARTER + enc(b""))
    yield refused("a member at the end", encoded=CHARTER + enc(member("\U0001f601", *MEMBERS[0][1:])))
    yield bad("another protocol", protocol="coterie/open")
    for version in (0, 2, 2**32 + 1):
        yield bad("another version", version=version)
    yield bad("an empty scope", scope="")
    yield bad("a scope of 65 bytes", scope="s" * 65)
    yield bad("an inner protocol of 65 bytes", inner="i" * 65)
    yield bad("an empty inner protocol", inner="")
    yield bad("T = 0", privacy=0)
    yield bad("q = 0", modulus=0)
    without = enc(*(value for name, value in RULES.items() if name != "first"), len(LINES), *LINES)
    yield refused("no first round", encoded=without)
    yield bad("a first round of seven bytes", first=bytes(7))
    yield bad("no members", [])
    yield bad("fewer members than it says", number=6)
    yield bad("more members than it says", number=4)
    yield bad("10 001 members", number=10_001)
    yield bad("2^64 - 1 members", number=2**64 - 1)
    yield bad("not sorted", [LINES[1], LINES[0]])
    yield bad("sorted by UTF-16", [*LINES[:3], LINES[4], LINES[3]])
    yield bad("the same member twice", [LINES[0], LINES[0]])
    yield bad("the same id with other keys", [LINES[0], member("ana", *MEMBERS[1][1:])])
    ana, keys = MEMBERS[0][0], MEMBERS[0][1:]
    yield bad("an empty id", [member("", *keys)])
    yield bad("an id of 65 bytes", [member("a" * 65, *keys)])
    yield bad("an id of 66 bytes and 33 characters", [member("é" * 33, *keys)])
    yield bad("an id that is not UTF-8", [member(b"\xc0\xaf", *keys)])
    for length in (0, 31, 33):
        yield bad(f"an identity key of {length} bytes", [member(ana, bytes(length), keys[1])])
        yield bad(f"a seal key of {length} bytes", [member(ana, keys[0], bytes(length))])
    for length in (1, 31, 33):
        yield bad(f"a predecessor of {length} bytes", [member(ana, *keys, bytes(length))])
    yield bad("a fifth field of a member", [enc(ana, *keys, b"", b"")])
    yield bad("no predecessor field", [enc(ana, *keys)])
    yield bad("a byte after a member", [LINES[0] + b"\0"])
    yield bad("an oversized member", [LINES[0] + bytes(200)])


def signature_cases():
    """Signatures over enc("coterie/v1/" + purpose, context)."""
    secret, public = IDENTITY["ana"], MEMBERS[0][1]
    signature = sign(secret, enc("coterie/v1/charter", CHARTER))
    given = {"public": public, "purpose": "charter", "context": CHARTER}
    for user in USERS:
        made = sign(IDENTITY[user], enc("coterie/v1/charter", CHARTER))
        fields = given | {"public": identity_public(IDENTITY[user])}
        yield case("of a charter", secret=IDENTITY[user], **fields, signature=made)
    made = sign(secret, enc("coterie/v1/agree", b""))
    yield case("of nothing", secret=secret, public=public, purpose="agree", context=b"", signature=made)

    for bit in (0, 1, 255, 256, 300, 511):
        flipped = int.from_bytes(signature, "little") ^ 1 << bit
        yield refused(f"bit {bit} flipped", **given, signature=flipped.to_bytes(64, "little"))
    scalar = int.from_bytes(signature[32:], "little")
    for multiple in (1, 2, 8):
        raised = (scalar + multiple * ORDER).to_bytes(32, "little")
        yield refused("S not below the order", **given, signature=signature[:32] + raised)
    yield refused("cut off", **given, signature=signature[:-1])
    yield refused("too long", **given, signature=signature + b"\0")
    yield refused("empty", **given, signature=b"")
    yield refused("all zeros", **given, signature=bytes(64))
    other = sign(IDENTITY["bob"], enc("coterie/v1/charter", CHARTER))
    yield refused("of another member", **given, signature=other)
    yield refused("for another purpose", **given | {"purpose": "agree"}, signature=signature)
    another = charter(LINES[:2])
    yield refused("of another charter", **given | {"context": another}, signature=signature)
    yield refused("of the digest", **given, signature=sign(secret, enc("coterie/v1/charter", sha256(CHARTER))))
    yield refused("without a tag", **given, signature=sign(secret, CHARTER))
    yield refused("without lengths", **given, signature=sign(secret, b"coterie/v1/charter" + CHARTER))
    # Under a key of small order R = S·B - h·A: with S = 0 some point of small order fits R, whatever is signed.
    for small in SMALL_ORDER:
        for point in SMALL_ORDER:
            fields = {"public": small, "purpose": "charter", "context": b"any"}
            yield refused("small order", **fields, signature=point + bytes(32))


def chain_key(own, other, moved, founded=CHARTER):
    """k of a pair, some rounds after the charter's first, with the ids in the order of their bytes."""
    lower, higher = sorted((own, other), key=str.encode)
    shared = x25519(SEAL[own], seal_public(SEAL[other]))
    key = expand(extract(shared, sha256(founded)), enc("coterie/v1/chain", lower, higher))
    for _ in range(moved):
        key = expand(key, b"coterie/v1/ratchet")
    return key


def chain_cases():
    for own in USERS:
        for other in USERS:
            if own != other:
                keys = {f"k_{r}": chain_key(own, other, r) for r in (0, 1, 2, 1000)}
                ids = {"user": own.encode(), "peer": other.encode()}
                yield case("a pair", charter=CHARTER, first=0, secret=SEAL[own], **ids, **keys)
    late = charter(LINES, first=70_000)
    keys = {f"k_{r}": chain_key("ana", "bob", r, late) for r in (0, 1, 2, 1000)}
    ids = {"user": b"ana", "peer": b"bob"}
    yield case("a batch founded late", charter=late, first=70_000, secret=SEAL["ana"], **ids, **keys)
    for peer in LOW_ORDER:
        lines = [LINES[0], member("bob", MEMBERS[1][1], peer)]
        ids = {"user": b"ana", "peer": b"bob"}
        yield refused("low order", charter=charter(lines), secret=SEAL["ana"], **ids)


def terms_cases():
    def terms(name, success=True, **changed):  # noqa: FBT002 - a case's own field
        given = {
            "model": b"weights",
            "configuration": b"{}",
            "dimension": 10,
            "clip": 1.0,
            "cohort": 8,
            "weight_cap": 1,
            "min_included": 1,
        }
        given |= changed
        clip = struct.pack("<d", given["clip"])
        counts = (given["cohort"], given["weight_cap"], given["min_included"])
        parts = (given["configuration"], given["dimension"], clip, *counts)
        digest = {"digest": sha256(enc("coterie/v1/terms", sha256(given["model"]), *parts))} if success else {}
        return case(name, success=success, **given | {"clip": clip}, **digest)

    yield terms("plain")
    yield terms("an empty model", model=b"", configuration=b"")
    yield terms("a long model", model=bytes(range(256)) * 40)
    yield terms("large numbers", dimension=2**32, cohort=2**40, weight_cap=2**52, min_included=2**63)
    yield terms("a clip with a full mantissa", clip=0.1)
    yield terms("the least clip", clip=5e-324)
    for name in ("dimension", "cohort", "weight_cap", "min_included"):
        yield terms(f"no {name}", success=False, **{name: 0})
    for clip in (0.0, -0.0, -1.0, float("inf"), float("nan")):
        yield terms("not a positive clip", success=False, clip=clip)


def seal_cases():
    digest = sha256(b"coterie vector: the digest of some terms")
    for own, other in (("ana", "bob"), ("bob", "ana"), ("\uff5e", "\U0001f600"), ("\U0001f600", "\uff5e")):
        lower, higher = sorted((own, other), key=str.encode)
        for round_ in (0, 1, 2, 300):
            key = chain_key(own, other, round_)
            seed = expand(key, enc("coterie/v1/seal", round_, digest, lower, higher))
            ids = {"user": own.encode(), "peer": other.encode(), "round": round_, "terms": digest}
            mask = {"seed": seed, "sign": 1 if own == lower else -1, "words": words(seed, RING_32)}
            yield case("a pair", charter=CHARTER, secret=SEAL[own], **ids, **mask)


def round_cases():
    for position in (0, 7, 2**40):
        for ahead in (0, 1, 65_535):
            yield case("within reach", position=position, round=position + ahead)
        for ahead in (65_536, 65_537, 2**32):
            yield refused("too far ahead", position=position, round=position + ahead)
    for round_ in (6, 0):
        yield refused("replayed or lower", position=7, round=round_)


# The first number whose keystream has, among its first 256 words, one that must be rejected: word 249.
REJECTING = 812_025


def keystream_cases():
    seed = sha256(b"coterie vector: keystream")
    for modulus in (RING_32, PRIME_31):
        for start in (0, 1, 1000):
            fields = {"seed": seed, "modulus": modulus, "start": start}
            yield case("words", **fields, words=words(seed, modulus, start))
    seed = sha256(f"coterie vector: rejection {REJECTING}".encode())
    raw = words(seed, RING_32, 249, 1)
    assert int.from_bytes(raw, "little") & PRIME_31 == PRIME_31
    for modulus in (RING_32, PRIME_31):
        yield case("word 249 is q", seed=seed, modulus=modulus, start=240, words=words(seed, modulus, 240))


# --- pairwise rounds (docs/protocol.md §5) ------------------------------------------------------------------

TERMS = sha256(b"coterie vector: the digest of some terms")
CONTEXT = sha256(enc("coterie/v1/sealed", "secagg+", "keyboard", 7, TERMS))
OTHER = sha256(b"coterie vector: something else")


def context_cases():
    for kind in ("sealed", "unsealed"):
        for inner in ("secagg", "secagg+"):
            for scope, round_ in (("keyboard", 7), ("fotos/ñ", 2**63 - 1)):
                context = sha256(enc(f"coterie/v1/{kind}", inner, scope, round_, TERMS))
                rules = {"kind": kind, "inner": inner, "scope": scope, "round": round_}
                yield case("a round", **rules, terms=TERMS, context=context)


def line(user, **changed):
    """A user's line of a roster, signed for the context unless told otherwise."""
    keys = {"mask_key": seal_public(MASK[user]), "share_key": seal_public(SHARE[user])} | changed
    context, identity = keys.pop("context", CONTEXT), keys.pop("identity", IDENTITY[user])
    signed = sign(identity, enc("coterie/v1/advertise", context, user, keys["mask_key"], keys["share_key"]))
    public = identity_public(IDENTITY[user])
    return {"user": user.encode(), "identity": public, **keys, "signature": keys.get("signature", signed)}


def roster_digest(lines):
    parts = (enc(*(each[part] for part in ("user", "identity", "mask_key", "share_key"))) for each in lines)
    return sha256(enc("coterie/v1/roster", CONTEXT, len(lines), *parts))


ROSTER = roster_digest([line(user) for user in USERS])


def roster_cases():
    def fields(lines):
        flat = {
            f"line_{number}_{part}": value for number, each in enumerate(lines) for part, value in each.items()
        }
        return {"context": CONTEXT, "inner": "secagg", **flat}

    for number in (2, 3, 5):
        lines = [line(user) for user in USERS[:number]]
        numbers = {"threshold": 2 * number // 3 + 1}
        yield case(f"{number} users", **fields(lines), **numbers, digest=roster_digest(lines))
    for name, changed in (
        ("signed for another round", {"context": OTHER}),
        ("signed by another", {"identity": IDENTITY["bob"]}),
        ("no signature", {"signature": bytes(64)}),
        *((f"a {kind} of low order", {kind: key}) for kind in ("mask_key", "share_key") for key in LOW_ORDER[:4]),
        *(
            (f"a {kind} not below p", {kind: (PRIME + 9).to_bytes(32, "little")})
            for kind in ("mask_key", "share_key")
        ),
    ):
        yield refused(name, **fields([line("ana", **changed), line("bob")]))
    swapped = line("ana")
    swapped["mask_key"], swapped["share_key"] = swapped["share_key"], swapped["mask_key"]
    yield refused("keys swapped", **fields([swapped, line("bob")]))


def half_degree(users):
    half = 0
    while 3**half < users * 2**40:
        half += 1
    return half


def graph_cases():
    for users in (2, 12, 59, 60, 100, 300):
        for inner in ("secagg", "secagg+"):
            place, half = users // 3, half_degree(users)
            holders = range(users)
            if inner == "secagg+" and 2 * half < users - 1:
                stream = words(sha256(CONTEXT + ROSTER), RING_32, 0, 2 * users)
                order = sorted(range(users), key=lambda i: int.from_bytes(stream[8 * i : 8 * i + 8], "little"))
                at = order.index(place)
                holders = sorted(order[(at + step) % users] for step in range(-half, half + 1))
            fields = {"context": CONTEXT, "digest": ROSTER, "inner": inner, "users": users, "place": place}
            yield case(f"{users} users", **fields, holders=" ".join(map(str, holders)))


def share_words(secret, threshold, point, randomness):
    """The nine words of a share: of each limb the polynomial with coefficients from the keystream, by Horner."""
    number = int.from_bytes(secret, "little")
    drawn = list(islice(keystream_words(randomness, PRIME_31), 9 * (threshold - 1)))
    for limb in range(9):
        value = 0
        for degree in range(threshold - 1):
            value = (value + drawn[9 * degree + limb]) * point % PRIME_31
        yield (value + (number >> 30 * limb) % 2**30) % PRIME_31


def shamir_cases():
    randomness = sha256(b"coterie vector: coefficients")
    secret = sha256(b"coterie vector: a secret")
    for threshold, points in ((1, (1,)), (2, (1, 2, 3)), (5, (1, 9, 300, 4000, 65_535)), (7, tuple(range(1, 10)))):
        for shared in (secret, bytes(32), bytes([255]) * 32):
            shares = b"".join(struct.pack("<9I", *share_words(shared, threshold, x, randomness)) for x in points)
            fields = {"secret": shared, "threshold": threshold, "randomness": randomness, "shares": shares}
            yield case(f"{threshold} of {len(points)}", **fields, points=" ".join(map(str, points)))
    limbs = [0] * 9
    for at, limb in ((0, 2**30), (5, 2**31 - 2), (8, 2**16)):
        wrong = struct.pack("<9I", *limbs[:at], limb, *limbs[at + 1 :])
        yield refused(f"limb {at} is {limb}", points="1", shares=wrong)


def pair_cases():
    for own, other in (("ana", "bob"), ("bob", "ana"), ("\uff5e", "\U0001f600"), ("\U0001f600", "\uff5e")):
        lower, higher = sorted((own, other), key=str.encode)
        shared = x25519(MASK[own], seal_public(MASK[other]))
        seed = expand(extract(shared, CONTEXT), enc("coterie/v1/pair", ROSTER, lower, higher))
        ids = {"user": own.encode(), "peer": other.encode(), "context": CONTEXT, "roster": ROSTER}
        mask = {"seed": seed, "sign": 1 if own == lower else -1, "words": words(seed, RING_32)}
        digest = sha256(enc("coterie/v1/seed", CONTEXT, own, seed))
        keys = {"secret": MASK[own], "public": seal_public(MASK[other])}
        yield case("a pair", **ids, **keys, **mask, seed_digest=digest)
    ids = {"user": b"ana", "peer": b"bob", "context": CONTEXT, "roster": ROSTER}
    for peer in LOW_ORDER:
        yield refused("low order", **ids, secret=MASK["ana"], public=peer)


def box_cases():
    def box(sender, receiver, context=CONTEXT, digest=ROSTER):
        info = enc("coterie/v1/share", context, digest, sender, receiver)
        key = expand(extract(x25519(SHARE[sender], seal_public(SHARE[receiver])), context), info)
        return ChaCha20Poly1305(key).encrypt(bytes(12), shares, info)

    shares = bytes(range(72))
    given = {"context": CONTEXT, "roster": ROSTER, "shares": shares}
    ana_to_bob = given | {
        "user": b"ana", "peer": b"bob", "secret": SHARE["ana"], "public": seal_public(SHARE["bob"])
    }  # fmt: skip
    for own, other in (("ana", "bob"), ("bob", "ana"), ("zoë", "ana")):
        ids = {"user": own.encode(), "peer": other.encode()}
        keys = {"secret": SHARE[own], "public": seal_public(SHARE[other])}
        yield case("a box", **given, **ids, **keys, box=box(own, other))
    good = box("ana", "bob")
    for bit in (0, 71 * 8, 72 * 8, 88 * 8 - 1):
        flipped = int.from_bytes(good, "little") ^ 1 << bit
        yield refused(f"bit {bit} flipped", **ana_to_bob, box=flipped.to_bytes(88, "little"))
    yield refused("cut off", **ana_to_bob, box=good[:-1])
    yield refused("too long", **ana_to_bob, box=good + b"\0")
    yield refused("of the other direction", **ana_to_bob, box=box("bob", "ana"))
    yield refused("of another pair", **ana_to_bob, box=box("ana", "zoë"))
    yield refused("of another round", **ana_to_bob, box=box("ana", "bob", context=OTHER))
    yield refused("of another roster", **ana_to_bob, box=box("ana", "bob", digest=OTHER))


def agreement_cases():
    def positions(places):
        return b"".join(place.to_bytes(4, "little") for place in places)

    def signed(purpose, *lists, context=CONTEXT, digest=ROSTER):
        statement = enc(f"coterie/v1/{purpose}", context, digest, *map(positions, lists))
        return sign(IDENTITY["ana"], statement)

    def fields(*lists):
        names = ("sharers", "included", "excluded")
        shown = {name: " ".join(map(str, places)) for name, places in zip(names, lists, strict=True)}
        keys = {"secret": IDENTITY["ana"], "public": identity_public(IDENTITY["ana"])}
        return {"context": CONTEXT, "roster": ROSTER, **keys, **shown}

    lists = ((0, 1, 2, 3, 5, 300), (0, 1, 2, 300), (3, 5))
    for chosen in (lists, ((0, 1), (0, 1), ()), ((0,), (), (0,))):
        signature, upload = signed("agree", *chosen), signed("upload", chosen[0])
        yield case("an agreement", **fields(*chosen), signature=signature, upload=upload)
    sharers, included, excluded = lists
    for name, other in (
        ("one more included", (sharers, (0, 1, 2, 3, 300), (5,))),
        ("lists swapped", (sharers, excluded, included)),
        ("other sharers", (sharers[:-1], included, excluded)),
        ("a boundary moved", (sharers, included[:-1], (300, *excluded))),
    ):
        yield refused(name, **fields(*lists), signature=signed("agree", *other))
    yield refused("another round", **fields(*lists), signature=signed("agree", *lists, context=OTHER))
    yield refused("another roster", **fields(*lists), signature=signed("agree", *lists, digest=OTHER))
    yield refused("another purpose", **fields(*lists), signature=signed("upload", *lists))


# --- messages (docs/protocol.md §6) -------------------------------------------------------------------------


def packed(value):  # noqa: PLR0911 - one kind of value after the other
    """MessagePack, in the shortest form, for the kinds of values that messages have."""
    if isinstance(value, int):
        for limit, head, kind in (
            (0x80, b"", "B"),
            (1 << 8, b"\xcc", "B"),
            (1 << 16, b"\xcd", ">H"),
            (1 << 32, b"\xce", ">I"),
        ):
            if 0 <= value < limit:
                return head + struct.pack(kind, value)
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
    if isinstance(value, bytes):
        size = len(value)
        return (b"\xc4" + bytes([size]) if size < 1 << 8 else b"\xc5" + struct.pack(">H", size)) + value
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(packed(k) + packed(v) for k, v in value.items())
    return bytes([0x90 | len(value)]) + b"".join(map(packed, value))


def framed(body, tail=b"", *, magic=b"COT", version=1, body_size=None, tail_size=None, padding=b"\0"):
    """Header, body and, if there is a tail, padding to a multiple of 64 bytes and the tail."""
    sizes = (len(body) if body_size is None else body_size, len(tail) if tail_size is None else tail_size)
    head = magic + bytes([version]) + struct.pack("<IQ", *sizes)
    gap = padding * (-(len(head) + len(body)) % 64) if tail else b""
    return head + body + gap + tail


A, B, S = bytes(range(32)), bytes(range(32, 64)), bytes(range(64))
MESSAGES = {
    "Invitation": ("server", [1, "keyboard"], b""),
    "Enrolment": ("client", [2, "keyboard", "ana", A, B, b""], b""),
    "Enrolment after sealing": ("client", [2, "keyboard", "ana", A, B, A], b""),
    "Draft": ("server", [3, b"a charter's bytes"], b""),
    "Signed": ("client", [4, "keyboard", "ana", A, S], b""),
    "Founding": ("server", [5, b"a charter's bytes" * 20, {"ana": S, "bob": S}], b""),
    "Accepted": ("client", [6, "keyboard", "é" * 32, A], b""),
    "RoundCall": ("server", [7, "keyboard", A, 70_000, b"model", b"{}", 1_663_370, 1.5, 120, 200, 12], b""),
    "SealedVector": ("client", [8, "keyboard", A, 2**40, "ana", B], bytes(range(20))),
    "UnsealedCall": ("server", [9, "keyboard", "secagg+", 5, b"model", b"{}", 10, 1.5, 120, 200, 12], b""),
    "Advertisement": ("client", [10, "keyboard", A, "ana", B, A, S], b""),
    "RosterCall": ("server", [11, "keyboard", A, [["ana", A, B, A, S], ["bob", B, A, B, S]]], b""),
    "RosterCall without users": ("server", [11, "keyboard", A, []], b""),
    "Sharing": ("client", [12, "keyboard", A, "ana", B, bytes(range(88)) * 3], b""),
    "Delivery": ("server", [13, "keyboard", A, [0, 1, 300, 65_534], bytes(range(88))], b""),
    "MaskedVector": ("client", [14, "keyboard", A, "ana", S], bytes(range(20))),
    "Proposal": ("server", [15, "keyboard", A, [0, 1, 127, 128], []], b""),
    "Agreement": ("client", [16, "keyboard", A, "ana", S], b""),
    "Opening": ("server", [17, "keyboard", A, [0, 2], [S, S]], b""),
    "Unmasking": ("client", [18, "keyboard", A, "ana", bytes(72)], b""),
}


def pairwise_refusals():
    """Every message of a pairwise round with something wrong in each of its fields."""
    roster = MESSAGES["RosterCall"][1][3]
    for name, at, wrong in (
        ("UnsealedCall", 2, ""), ("UnsealedCall", 2, "x" * 65), ("UnsealedCall", 2, "é" * 33),
        ("UnsealedCall", 3, -1), ("UnsealedCall", 10, 0),
        ("Advertisement", 2, A[:31]), ("Advertisement", 3, ""), ("Advertisement", 4, B + b"\0"),
        ("Advertisement", 5, b""), ("Advertisement", 6, S[:63]),
        ("RosterCall", 2, b""), ("RosterCall", 3, b"lines"), ("RosterCall", 3, [roster[0][:4]]),
        ("RosterCall", 3, [[*roster[0], 0]]), ("RosterCall", 3, [["", *roster[0][1:]]]),
        ("RosterCall", 3, [["ana", A[:31], B, A, S]]), ("RosterCall", 3, [["ana", A, B, A, S[:63]]]),
        ("Sharing", 4, B[:31]), ("Sharing", 5, "text"), ("Sharing", 5, [b"share"]),
        ("Delivery", 3, [65_535]), ("Delivery", 3, [-1]), ("Delivery", 3, ["ana"]), ("Delivery", 4, 7),
        ("MaskedVector", 3, "x" * 65), ("MaskedVector", 4, S + b"\0"),
        ("Proposal", 3, 0), ("Proposal", 4, [2**64 - 1]), ("Proposal", 4, [1.5]),
        ("Agreement", 2, A + A), ("Agreement", 4, b""),
        ("Opening", 3, [65_535]), ("Opening", 4, [S[:63]]), ("Opening", 4, S),
        ("Unmasking", 1, ""), ("Unmasking", 4, []),
    ):  # fmt: skip
        sender, fields, tail = MESSAGES[name]
        body = packed([*fields[:at], wrong, *fields[at + 1 :]])
        yield f"{name}, field {at}: {str(wrong)[:20]}", (sender, framed(body, tail))
    for name in ("UnsealedCall", "Advertisement", "RosterCall", "Sharing", "Delivery", "MaskedVector", "Proposal",
                 "Agreement", "Opening", "Unmasking"):  # fmt: skip
        sender, fields, tail = MESSAGES[name]
        yield f"{name}, a field too few", (sender, framed(packed(fields[:-1]), tail))
        yield f"{name}, a field too many", (sender, framed(packed([*fields, b""]), tail))
        yield f"{name}, from the other role", ({"client": "server", "server": "client"}[sender],
                                               framed(packed(fields), tail))  # fmt: skip
        yield f"{name}, a wrong tail", (sender, framed(packed(fields), b"" if tail else bytes(8)))


def message_cases():
    for name, (sender, fields, tail) in MESSAGES.items():
        yield case(name, sender=sender, kind=name.split()[0], data=framed(packed(fields), tail), tail=tail)
    vector, tail = packed(MESSAGES["SealedVector"][1]), MESSAGES["SealedVector"][2]
    plain = packed(MESSAGES["Invitation"][1])
    call = MESSAGES["RoundCall"][1]
    bad = {
        "no bytes": ("server", b""),
        "cut off in the header": ("server", framed(plain)[:15]),
        "cut off in the body": ("server", framed(plain)[:-1]),
        "cut off in the tail": ("client", framed(vector, tail)[:-1]),
        "a byte too many": ("server", framed(plain) + b"\0"),
        "another magic": ("server", framed(plain, magic=b"CAT")),
        "another version": ("server", framed(plain, version=2)),
        "a body that claims too much": ("server", framed(plain, body_size=2**32 - 1)),
        "a tail that claims too much": ("client", framed(vector, tail, tail_size=2**63)),
        "padding that is not zero": ("client", framed(vector, tail, padding=b"\1")),
        "a vector without words": ("client", framed(vector)),
        "a tail where none belongs": ("server", framed(plain, tail)),
        "an unknown tag": ("server", framed(packed([19, "keyboard"]))),
        "the other role's message": ("client", framed(plain)),
        "a field too few": ("client", framed(packed([6, "keyboard", "ana"]))),
        "a field too many": ("client", framed(packed([6, "keyboard", "ana", A, 0]))),
        "a digest of 31 bytes": ("client", framed(packed([6, "keyboard", "ana", A[:31]]))),
        "a nameless user": ("client", framed(packed([6, "keyboard", "", A]))),
        "a user of 65 bytes": ("client", framed(packed([6, "keyboard", "x" * 65, A]))),
        "a user of 66 bytes in 33 characters": ("client", framed(packed([6, "keyboard", "é" * 33, A]))),
        "a number for a name": ("client", framed(packed([6, 7, "ana", A]))),
        "a negative round": ("server", framed(packed([*call[:3], -1, *call[4:]]))),
        "a round of 2^63": ("server", framed(packed([*call[:3], 2**63, *call[4:]]))),
        "a round that is a fraction": ("server", framed(packed([*call[:3], 1.5, *call[4:]]))),
        "no values at all": ("server", framed(packed([*call[:6], 0, *call[7:]]))),
        **dict(pairwise_refusals()),
        "nobody included": ("server", framed(packed([*call[:9], 0]))),
    }
    for name, (sender, data) in bad.items():
        yield refused(name, sender=sender, data=data)


FILES = {
    "hkdf": hkdf_cases,
    "x25519": x25519_cases,
    "aes_256_ctr": aes_cases,
    "ed25519": ed25519_cases,
    "public_keys": key_cases,
    "encoding": encoding_cases,
    "charter": charter_cases,
    "signature": signature_cases,
    "chain": chain_cases,
    "terms": terms_cases,
    "seal": seal_cases,
    "rounds": round_cases,
    "keystream": keystream_cases,
    "chacha20_poly1305": chacha_cases,
    "context": context_cases,
    "roster": roster_cases,
    "graph": graph_cases,
    "shamir": shamir_cases,
    "pair": pair_cases,
    "box": box_cases,
    "agreement": agreement_cases,
    "messages": message_cases,
}


def main(folder):
    """Write all files."""
    for name, cases in FILES.items():
        text = json.dumps(list(cases()), indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
