"""Encodings, charters and the chain of a batch (docs/protocol.md §2 and §3)."""

import struct

from primitives import (
    IDENTITY,
    LOW_ORDER,
    MEMBERS,
    PRIME_31,
    RING_16,
    RING_32,
    SEAL,
    SMALL_ORDER,
    USERS,
    case,
    enc,
    expand,
    extract,
    identity_public,
    refused,
    seal_public,
    sha256,
    sign,
    word,
    words,
    x25519,
)

ORDER = 2**252 + 27742317777372353535851937790883648493


def double(number):
    """A float64, little-endian."""
    return struct.pack("<d", number)


def member(user, identity, seal, predecessor=b""):
    return enc(user, identity, seal, predecessor)


RULES = {
    "protocol": "coterie/sealed",
    "version": 2,
    "scope": "keyboard",
    "privacy": 2,
    "modulus": RING_32,
    "clip": double(1.5),
    "weight_cap": 1,
    "cohort": 60,
    "levels": 0,
    "inner": "open",
    "colluders": 200,
    "losses": 300,
    "recipe": b"{}",
    "first": 0,
}
VERSION_1 = ("coterie/sealed", 1, "keyboard", 2, RING_32, "open", 0)
BAD_RECIPES = (
    b"", b"{", b"{ }", b"[]", b"null", b"1", b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a": 1}', b'{"a":1.0e0}',
    b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b'{"\\u0061":1}', b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b"{}\n",
    b"{" * 3000,
)  # fmt: skip


def rules(**changed):
    """The fields of a charter before its members; the levels are the most that cannot wrap, unless given."""
    fields = RULES | changed
    if "levels" not in changed:
        fields["levels"] = (fields["modulus"] - 1) // (fields["cohort"] * fields["weight_cap"]) + 1
    return fields


def charter(members, number=None, **changed):
    """The encoding of a charter; `changed` holds rules, `number` another number of members."""
    return enc(*rules(**changed).values(), len(members) if number is None else number, *members)


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
    tag = b"coterie/v2/seal"
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
        fields = rules(**changed)
        for number, (user, identity, seal, *predecessor) in enumerate(members):
            fields[f"member_{number}_user"] = user.encode()
            fields[f"member_{number}_identity"] = identity
            fields[f"member_{number}_seal"] = seal
            fields[f"member_{number}_predecessor"] = b"".join(predecessor)
        encoded = charter([member(*line) for line in members], **changed)
        return case(name, **fields, encoded=encoded, digest=sha256(encoded))

    yield good("five members", MEMBERS)
    yield good("one member", MEMBERS[:1])
    yield good("other rules", MEMBERS, scope="fotos/ñ", privacy=2**52, modulus=PRIME_31, inner="lightsecagg")
    yield good("words of 16 bits", MEMBERS, modulus=RING_16, cohort=12, weight_cap=5)
    yield good("two levels", MEMBERS, modulus=RING_16, cohort=65_535)
    yield good("a clip with a full mantissa", MEMBERS, clip=double(0.1))
    yield good("a recipe", MEMBERS, recipe='{"epochs":2,"learning_rate":0.1,"loss":"é"}'.encode())
    yield good("nobody colludes, hardly anybody is lost", MEMBERS, colluders=0, losses=1)
    yield good("as many as can be lost", MEMBERS, colluders=1, losses=499)
    yield good("predecessors", [(*line, PREDECESSOR) for line in MEMBERS[:2]] + MEMBERS[2:])
    normalised = [("zoe\u0308", *MEMBERS[0][1:]), ("zo\u00eb", *MEMBERS[1][1:])]
    yield good("ids that would be one if they were normalised", normalised)
    yield good("a batch founded late", MEMBERS, first=70_000)
    yield good("the last round there is", MEMBERS, first=2**64 - 1)
    yield good("an id of 64 bytes", [("é" * 32, *MEMBERS[0][1:])])

    yield from cut_charters()
    yield from bad_rules()
    yield from bad_quantisers()
    yield from bad_members()


def bad(name, members=LINES, **changed):
    return refused(name, encoded=charter(members, **changed))


def cut_charters():
    for length in range(0, len(CHARTER), 61):
        yield refused(f"cut off after {length} bytes", encoded=CHARTER[:length])
    yield refused("cut off by one byte", encoded=CHARTER[:-1])
    yield refused("a byte at the end", encoded=CHARTER + b"\0")
    yield refused("a field at the end", encoded=CHARTER + enc(b""))
    yield refused("a member at the end", encoded=CHARTER + enc(member("\U0001f601", *MEMBERS[0][1:])))


def bad_rules():
    yield bad("another protocol", protocol="coterie/open")
    for version in (0, 1, 3, 2**32 + 2):
        yield bad("another version", version=version)
    yield refused("all of version 1", encoded=enc(*VERSION_1, len(LINES), *LINES))
    yield bad("an empty scope", scope="")
    yield bad("a scope of 65 bytes", scope="s" * 65)
    yield bad("an inner protocol of 65 bytes", inner="i" * 65)
    yield bad("an empty inner protocol", inner="")
    yield bad("T = 0", privacy=0)
    given = rules()
    without = enc(*(value for name, value in given.items() if name != "first"), len(LINES), *LINES)
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


def bad_quantisers():
    """Quantiser, parameters and recipe that no charter can have."""
    for modulus in (0, 1, 2**31, 2**16 - 1, 2**64 - 1):
        yield bad(f"q = {modulus}", modulus=modulus, levels=2)
    derived = rules()["levels"]
    for levels in (0, 1, derived - 1, derived + 1, 2**64 - 1):
        yield bad(f"{levels} levels", levels=levels)
    yield bad("levels of a smaller cohort", cohort=61, levels=derived)
    yield bad("levels of a smaller largest weight", weight_cap=2, levels=derived)
    yield bad("a cohort of 0", cohort=0, levels=2)
    yield bad("a largest weight of 0", weight_cap=0, levels=2)
    yield bad("a cohort that leaves one level", modulus=RING_16, cohort=65_536, levels=1)
    for clip in (0.0, -0.0, -1.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7e308):
        yield bad(f"a clip of {clip}", clip=double(clip))
    yield bad("a clip of four bytes", clip=struct.pack("<f", 1.0))
    for colluders, losses in ((400, 300), (200, 400), (1000, 0), (0, 500), (2**64 - 1, 0), (0, 2**63)):
        yield bad(f"γ = {colluders}, δ = {losses} thousandths", colluders=colluders, losses=losses)
    for recipe in BAD_RECIPES:
        yield bad(f"the recipe {recipe[:20]!r}", recipe=recipe)


def bad_members():
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
    """Signatures over enc("coterie/v2/" + purpose, context)."""
    secret, public = IDENTITY["ana"], MEMBERS[0][1]
    signature = sign(secret, enc("coterie/v2/charter", CHARTER))
    given = {"public": public, "purpose": "charter", "context": CHARTER}
    for user in USERS:
        made = sign(IDENTITY[user], enc("coterie/v2/charter", CHARTER))
        fields = given | {"public": identity_public(IDENTITY[user])}
        yield case("of a charter", secret=IDENTITY[user], **fields, signature=made)
    made = sign(secret, enc("coterie/v2/agree", b""))
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
    other = sign(IDENTITY["bob"], enc("coterie/v2/charter", CHARTER))
    yield refused("of another member", **given, signature=other)
    yield refused("for another purpose", **given | {"purpose": "agree"}, signature=signature)
    another = charter(LINES[:2])
    yield refused("of another charter", **given | {"context": another}, signature=signature)
    yield refused("of the digest", **given, signature=sign(secret, enc("coterie/v2/charter", sha256(CHARTER))))
    yield refused("without a tag", **given, signature=sign(secret, CHARTER))
    yield refused("without lengths", **given, signature=sign(secret, b"coterie/v2/charter" + CHARTER))
    # Under a key of small order R = S·B - h·A: with S = 0 some point of small order fits R, whatever is signed.
    for small in SMALL_ORDER:
        for point in SMALL_ORDER:
            fields = {"public": small, "purpose": "charter", "context": b"any"}
            yield refused("small order", **fields, signature=point + bytes(32))


def chain_key(own, other, moved, founded=CHARTER):
    """k of a pair, some rounds after the charter's first, with the ids in the order of their bytes."""
    lower, higher = sorted((own, other), key=str.encode)
    shared = x25519(SEAL[own], seal_public(SEAL[other]))
    key = expand(extract(shared, sha256(founded)), enc("coterie/v2/chain", lower, higher))
    for _ in range(moved):
        key = expand(key, b"coterie/v2/ratchet")
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


def seal_cases():
    digest = sha256(b"coterie vector: the digest of some terms")
    for own, other in (("ana", "bob"), ("bob", "ana"), ("\uff5e", "\U0001f600"), ("\U0001f600", "\uff5e")):
        lower, higher = sorted((own, other), key=str.encode)
        for round_ in (0, 1, 2, 300):
            key = chain_key(own, other, round_)
            seed = expand(key, enc("coterie/v2/seal", round_, digest, lower, higher))
            ids = {"user": own.encode(), "peer": other.encode(), "round": round_, "terms": digest}
            mask = {"seed": seed, "sign": 1 if own == lower else -1}
            drawn = {"words_16": words(seed, RING_16), "words_32": words(seed, RING_32)}
            yield case("a pair", charter=CHARTER, secret=SEAL[own], **ids, **mask, **drawn)


def round_cases():
    for skip in (1, 100, 65_536):
        for position in (0, 7, 2**40):
            fields = {"position": position, "skip": skip}
            for ahead in {0, skip // 2, skip - 1}:
                yield case("within reach", **fields, round=position + ahead)
            for ahead in (skip, skip + 1, 2**32):
                yield refused("too far ahead", **fields, round=position + ahead)
    for round_ in (6, 0):
        yield refused("replayed or lower", position=7, skip=65_536, round=round_)


FILES = {
    "encoding": encoding_cases,
    "charter": charter_cases,
    "signature": signature_cases,
    "chain": chain_cases,
    "seal": seal_cases,
    "rounds": round_cases,
}
