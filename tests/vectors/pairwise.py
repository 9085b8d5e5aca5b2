"""Rounds of SecAgg and SecAgg+ (docs/protocol.md §5)."""

import struct
from fractions import Fraction
from itertools import islice
from math import comb

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
        return {"context": CONTEXT, **flat}

    for number in (2, 3, 5):
        lines = [line(user) for user in USERS[:number]]
        numbers = {"threshold": threshold_of(number)}
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


def threshold_of(users, colluders=200):
    return (users + users * colluders // 1000) // 2 + 1


def tail_from(least, population, marked, drawn):
    """Pr[Hyp ≥ least]: so many marked ones among some that are drawn without putting them back."""
    ways = sum(comb(marked, k) * comb(population - marked, drawn - k) for k in range(least, drawn + 1))
    return Fraction(ways, comb(population, drawn))


def neighbourhood(users, colluders, losses):
    """Degree and threshold of SecAgg+, by the three conditions as they are written."""
    colluding, lost = users * colluders // 1000, users * losses // 1000
    for degree in range(2, users - 1, 2):
        least = next(
            t
            for t in range(2, degree + 2)
            if users * tail_from(t, users - 1, colluding, degree) <= Fraction(1, 2**41)
        )
        left = users - 1 - max(lost - 1, 0)
        short = 1 - tail_from(least, users - 1, left, degree)
        gone = Fraction(1)
        for place in range(degree):
            gone *= Fraction(max(colluding + lost - place, 0), users - place)
        apart = users * (users - 1) // 2 * gone
        if least <= degree and users * short <= Fraction(1, 2**20) and apart <= Fraction(1, 2**41):
            return degree, least
    return users - 1, threshold_of(users, colluders)


def graph_cases():
    for users in (2, 5, 12, 59, 100, 150):
        for colluders, losses in ((200, 300), (100, 100)):
            place, stream = users // 3, words(sha256(CONTEXT + ROSTER), RING_32, 0, 2 * users)
            for inner in ("secagg", "secagg+"):
                complete = (users - 1, threshold_of(users, colluders))
                degree, least = complete if inner == "secagg" else neighbourhood(users, colluders, losses)
                holders = range(users)
                if degree < users - 1:
                    order = sorted(range(users), key=lambda i: int.from_bytes(stream[8 * i : 8 * i + 8], "little"))
                    steps = range(-degree // 2, degree // 2 + 1)
                    holders = sorted(order[(order.index(place) + step) % users] for step in steps)
                fields = {"seed": sha256(CONTEXT + ROSTER), "inner": inner, "users": users, "place": place}
                shares = {"colluders": colluders, "losses": losses, "degree": degree, "threshold": least}
                yield case(f"{users} users", **fields, **shares, holders=" ".join(map(str, holders)))


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


def commitments(pair):
    tagged = (enc("coterie/v2/commitment", what) for what in ("seed", "key"))
    return b"".join(sha256(tag + share) for tag, share in zip(tagged, (pair[:36], pair[36:]), strict=True))


BOX_KEY = sha256(b"coterie vector: the key of a box")
PAIR = struct.pack("<18I", *range(18))


def box(sender, holder, key=BOX_KEY, pair=PAIR, **changed):
    """The key's public half, the encrypted pair, and the commitments to both shares."""
    public = seal_public(key)
    places = {"context": CONTEXT, "digest": ROSTER, "sender": sender, "holder": holder} | changed
    info = enc("coterie/v2/box", *places.values(), public)
    cipher = expand(extract(x25519(key, seal_public(SHARE[holder])), places["context"]), info)
    return public + ChaCha20Poly1305(cipher).encrypt(bytes(12), pair, info) + commitments(pair)


def box_cases():
    def fields(sender, holder, made):
        ids = {"context": CONTEXT, "roster": ROSTER, "sender": sender.encode(), "holder": holder.encode()}
        keys = {"secret": SHARE[holder], "public": seal_public(SHARE[holder]), "key": BOX_KEY}
        return {**ids, **keys, "pair": PAIR, "box": made}

    for sender, holder in (("ana", "bob"), ("bob", "ana"), ("zoë", "ana")):
        yield case("a box", **fields(sender, holder, box(sender, holder)))
    good = box("ana", "bob")
    for bit in (0, 31 * 8, 32 * 8, 104 * 8, 119 * 8, 120 * 8, 151 * 8, 152 * 8, 184 * 8 - 1):
        flipped = int.from_bytes(good, "little") ^ 1 << bit
        yield refused(f"bit {bit} flipped", **fields("ana", "bob", flipped.to_bytes(184, "little")))
    for name, other in (
        ("of the other direction", box("bob", "ana")),
        ("of another pair", box("ana", "zoë")),
        ("for another sender", box("zoë", "bob")),
        ("of another round", box("ana", "bob", context=OTHER)),
        ("of another roster", box("ana", "bob", digest=OTHER)),
        ("commitments to something else", good[:-64] + commitments(bytes(72))),
        ("commitments swapped", good[:-64] + good[-32:] + good[-64:-32]),
        ("words that are not below p", box("ana", "bob", pair=PAIR[:-4] + struct.pack("<I", PRIME_31))),
        ("a key of low order", LOW_ORDER[0] + good[32:]),
    ):
        yield refused(name, **fields("ana", "bob", other))


def merkle_of(leaves):
    """The root over digests that are filled up with zeros to a power of two."""
    row = leaves + [bytes(32)] * ((1 << (len(leaves) - 1).bit_length()) - len(leaves))
    while len(row) > 1:
        row = [sha256(b"\1" + row[at] + row[at + 1]) for at in range(0, len(row), 2)]
    return row[0]


def merkle_path_of(leaves, place):
    """The siblings of a leaf, from below: roots of the other halves."""
    row = leaves + [bytes(32)] * ((1 << (len(leaves) - 1).bit_length()) - len(leaves))
    path = b""
    while len(row) > 1:
        path += row[place ^ 1]
        row, place = [sha256(b"\1" + row[at] + row[at + 1]) for at in range(0, len(row), 2)], place // 2
    return path


def sharing_cases():
    """What a user signs for all its boxes, and the path of each of them."""
    for number in (1, 2, 3, 5, 8):
        boxes = [sha256(b"coterie vector: box %d" % at) * 5 for at in range(number)]
        digest, own = sha256(b"coterie vector: a seed's digest"), commitments(PAIR)
        leaves = [sha256(b"\0" + content) for content in (digest + own, *boxes)]
        root = merkle_of(leaves)
        signature = sign(IDENTITY["ana"], enc("coterie/v2/share", CONTEXT, ROSTER, "ana", root))
        given = {"context": CONTEXT, "roster": ROSTER, "user": b"ana", "secret": IDENTITY["ana"]}
        made = {"seed_digest": digest, "own": own, "boxes": b"".join(boxes), "root": root, "signature": signature}
        paths = {f"path_{at}": merkle_path_of(leaves, at + 1) for at in range(number)}
        yield case(
            f"{number} boxes", **given, public=identity_public(IDENTITY["ana"]), number=number, **made, **paths
        )


def complaint_cases():
    def fields(signature, **changed):
        ids = {"sender": b"ana", "holder": b"bob", "box_digest": sha256(b"\0" + box("ana", "bob"))}
        public = identity_public(IDENTITY["bob"])
        return {"context": CONTEXT, "roster": ROSTER, **ids, "public": public, "signature": signature} | changed

    def signed(*statement, by="bob", purpose="complaint"):
        return sign(IDENTITY[by], enc(f"coterie/v2/{purpose}", *statement))

    digest = sha256(b"\0" + box("ana", "bob"))
    good = (CONTEXT, ROSTER, "ana", "bob", digest)
    yield case("a complaint", **fields(signed(*good), secret=IDENTITY["bob"]))
    for name, signature in (
        ("by another holder", signed(*good, by="zoë")),
        ("about another sender", signed(CONTEXT, ROSTER, "zoë", "bob", digest)),
        ("about another box", signed(CONTEXT, ROSTER, "ana", "bob", OTHER)),
        ("of another round", signed(OTHER, ROSTER, "ana", "bob", digest)),
        ("of another roster", signed(CONTEXT, OTHER, "ana", "bob", digest)),
        ("for another purpose", signed(*good, purpose="share")),
        ("unsigned", bytes(64)),
    ):
        yield refused(name, **fields(signature))


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
    "Sharing": ("client", [12, "keyboard", A, "ana", B, S, bytes(range(184)) * 3, S], b""),
    "Delivery": ("server", [13, "keyboard", A, [0, 1, 300, 65_534], bytes(range(248))], b""),
    "Receipt": ("client", [19, "keyboard", A, "ana", [[0, B, S], [300, A, S]]], b""),
    "Receipt without complaints": ("client", [19, "keyboard", A, "ana", []], b""),
    "RevealCall": ("server", [20, "keyboard", A, [[7, B, S]]], b""),
    "Reveal": ("client", [21, "keyboard", A, "ana", A + B], b""),
    "SharersCall": ("server", [22, "keyboard", A, [0, 1, 127, 128]], b""),
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
        ("Sharing", 4, B[:31]), ("Sharing", 5, S[:63]), ("Sharing", 5, S + b"\0"), ("Sharing", 6, "text"),
        ("Sharing", 6, [b"box"]), ("Sharing", 7, S[:63]),
        ("Receipt", 3, ""), ("Receipt", 4, b""), ("Receipt", 4, [[0, B]]), ("Receipt", 4, [[65_535, B, S]]),
        ("Receipt", 4, [[0, B[:31], S]]), ("Receipt", 4, [[0, B, S[:63]]]), ("Receipt", 4, [[0, B, S, 0]]),
        ("RevealCall", 2, A[:31]), ("RevealCall", 3, [[-1, B, S]]), ("Reveal", 4, "key"), ("Reveal", 3, ""),
        ("SharersCall", 3, [65_535]), ("SharersCall", 3, [-1]), ("SharersCall", 3, b""),
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
    for name in ("Advertisement", "RosterCall", "Sharing", "Delivery", "MaskedVector", "Proposal", "Receipt",
                 "RevealCall", "Reveal", "SharersCall",
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
    "sharing": sharing_cases,
    "complaint": complaint_cases,
    "agreement": agreement_cases,
    "pairwise_messages": message_cases,
}
