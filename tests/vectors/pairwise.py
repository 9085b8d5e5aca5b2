"""Rounds of SecAgg and SecAgg+ (docs/protocol.md §5)."""

import struct
from itertools import islice

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from primitives import (
    IDENTITY,
    LOW_ORDER,
    MASK,
    PRIME,
    PRIME_31,
    RING_32,
    SHARE,
    USERS,
    case,
    enc,
    expand,
    extract,
    identity_public,
    keystream_words,
    refused,
    seal_public,
    sha256,
    sign,
    words,
    x25519,
)
from rounds import CONTEXT
from wire import A, B, S, framed, packed

OTHER = sha256(b"coterie vector: something else")


def line(user, **changed):
    """A user's line of a roster, signed for the context unless told otherwise."""
    keys = {"mask_key": seal_public(MASK[user]), "share_key": seal_public(SHARE[user])} | changed
    context, identity = keys.pop("context", CONTEXT), keys.pop("identity", IDENTITY[user])
    signed = sign(identity, enc("coterie/v2/advertise", context, user, keys["mask_key"], keys["share_key"]))
    public = identity_public(IDENTITY[user])
    return {"user": user.encode(), "identity": public, **keys, "signature": keys.get("signature", signed)}


def roster_digest(lines):
    parts = (enc(*(each[part] for part in ("user", "identity", "mask_key", "share_key"))) for each in lines)
    return sha256(enc("coterie/v2/roster", CONTEXT, len(lines), *parts))


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
        seed = expand(extract(shared, CONTEXT), enc("coterie/v2/pair", ROSTER, lower, higher))
        ids = {"user": own.encode(), "peer": other.encode(), "context": CONTEXT, "roster": ROSTER}
        mask = {"seed": seed, "sign": 1 if own == lower else -1, "words": words(seed, RING_32)}
        digest = sha256(enc("coterie/v2/seed", CONTEXT, own, seed))
        keys = {"secret": MASK[own], "public": seal_public(MASK[other])}
        yield case("a pair", **ids, **keys, **mask, seed_digest=digest)
    ids = {"user": b"ana", "peer": b"bob", "context": CONTEXT, "roster": ROSTER}
    for peer in LOW_ORDER:
        yield refused("low order", **ids, secret=MASK["ana"], public=peer)


def box_cases():
    def box(sender, receiver, context=CONTEXT, digest=ROSTER):
        info = enc("coterie/v2/share", context, digest, sender, receiver)
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
        statement = enc(f"coterie/v2/{purpose}", context, digest, *map(positions, lists))
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


MESSAGES = {
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


def message_cases():
    """Every message of a pairwise round, and with something wrong in each of its fields."""
    for name, (sender, fields, tail) in MESSAGES.items():
        yield case(name, sender=sender, kind=name.split()[0], data=framed(packed(fields), tail), tail=tail)
    roster = MESSAGES["RosterCall"][1][3]
    for name, at, wrong in (
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
        yield refused(f"{name}, field {at}: {str(wrong)[:20]}", sender=sender, data=framed(body, tail))
    for name in ("Advertisement", "RosterCall", "Sharing", "Delivery", "MaskedVector", "Proposal",
                 "Agreement", "Opening", "Unmasking"):  # fmt: skip
        sender, fields, tail = MESSAGES[name]
        other = {"client": "server", "server": "client"}[sender]
        yield refused(f"{name}, a field too few", sender=sender, data=framed(packed(fields[:-1]), tail))
        yield refused(f"{name}, a field too many", sender=sender, data=framed(packed([*fields, b""]), tail))
        yield refused(f"{name}, from the other role", sender=other, data=framed(packed(fields), tail))
        wrong = framed(packed(fields), b"" if tail else bytes(8))
        yield refused(f"{name}, a wrong tail", sender=sender, data=wrong)


FILES = {
    "roster": roster_cases,
    "graph": graph_cases,
    "shamir": shamir_cases,
    "pair": pair_cases,
    "box": box_cases,
    "agreement": agreement_cases,
    "pairwise_messages": message_cases,
}
