"""LightSecAgg (docs/protocol.md §5): codes and coded shares by Lagrange's formula, boxes, and messages."""

import struct
from itertools import islice

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from pairwise import BOX_KEY, OTHER, ROSTER, merkle_of, merkle_path_of
from primitives import (
    IDENTITY,
    LOW_ORDER,
    SHARE,
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
    x25519,
)
from primitives import PRIME_31 as P
from rounds import CONTEXT
from wire import A, S, framed, packed


def keystream(seed, count):
    """The first words of a seed's keystream, modulo p."""
    return list(islice(keystream_words(seed, P), count))


def value_at(point, values):
    """The value at a point of the polynomial with these values at 1, 2, …"""
    total = 0
    for j, value in enumerate(values, 1):
        term = value
        for k in range(1, len(values) + 1):
            if k != j:
                term = term * (point - k) * pow(j - k, -1, P) % P
        total += term
    return total % P


def coded():
    """Cases of codes and shares."""
    for users, colluders, losses, size in (
        (2, 200, 300, 5),
        (3, 200, 300, 5),
        (4, 200, 300, 7),
        (12, 200, 300, 17),
        (20, 100, 400, 9),
        (9, 0, 0, 4),
    ):
        t, left = max(1, users * colluders // 1000), users - users * losses // 1000
        needed = left - 2 * min(max(1, users // 20), max(0, (left - t - 1) // 2))
        mask, noise = keystream(bytes([users]) * 32, size), bytes([users + 1]) * 32
        length = -(-size // (needed - t))
        flat = mask + [0] * (length * (needed - t) - size) + keystream(noise, t * length)
        pieces = [flat[length * row : length * (row + 1)] for row in range(needed)]
        shares = [
            value_at(needed + 1 + user, [piece[at] for piece in pieces])
            for user in range(users)
            for at in range(length)
        ]
        yield {
            "name": f"{users} users", "success": True, "users": users, "colluders": colluders, "losses": losses,
            "privacy": t, "needed": needed, "noise": noise.hex(),
            "mask": struct.pack(f"<{size}I", *mask).hex(),
            "shares": struct.pack(f"<{len(shares)}I", *shares).hex(),
        }  # fmt: skip


SHARE_OF_MASK = struct.pack("<5I", 0, 1, 7, 2**30, P - 1)


def coded_box(sender, holder, share=SHARE_OF_MASK, **changed):
    """A box with one share, which ends with the digest of all that is before it: its leaf."""
    context, digest = changed.get("context", CONTEXT), changed.get("digest", ROSTER)
    public = seal_public(BOX_KEY)
    info = enc("coterie/v2/box", context, digest, sender, holder, public)
    key = expand(extract(x25519(BOX_KEY, seal_public(SHARE[holder])), context), info)
    sealed = public + ChaCha20Poly1305(key).encrypt(bytes(12), share, info)
    return sealed + sha256(b"\0" + sealed)


def box_cases():
    """Boxes that open, and boxes that do not, to their holder and to whoever is given the box's key."""
    size = 32 + len(SHARE_OF_MASK) + 16 + 32

    def fields(sender, holder, made):
        ids = {"context": CONTEXT, "roster": ROSTER, "sender": sender.encode(), "holder": holder.encode()}
        keys = {"secret": SHARE[holder], "public": seal_public(SHARE[holder]), "key": BOX_KEY}
        return {**ids, **keys, "share": SHARE_OF_MASK, "box": made}

    for sender, holder in (("ana", "bob"), ("bob", "ana"), ("zoë", "ana")):
        yield case("a box", **fields(sender, holder, coded_box(sender, holder)))
    good = coded_box("ana", "bob")
    for bit in (0, 32 * 8, 51 * 8, 52 * 8, 67 * 8, 68 * 8, size * 8 - 1):
        flipped = int.from_bytes(good, "little") ^ 1 << bit
        yield refused(f"bit {bit} flipped", **fields("ana", "bob", flipped.to_bytes(size, "little")))
    for name, other in (
        ("of the other direction", coded_box("bob", "ana")),
        ("for another sender", coded_box("zoë", "bob")),
        ("of another round", coded_box("ana", "bob", context=OTHER)),
        ("of another roster", coded_box("ana", "bob", digest=OTHER)),
        ("a leaf without its first byte", good[:-32] + sha256(good[:-32])),
        ("a word that is not below p", coded_box("ana", "bob", SHARE_OF_MASK[:-4] + struct.pack("<I", P))),
        ("a key of low order", LOW_ORDER[0] + good[32:-32] + sha256(b"\0" + LOW_ORDER[0] + good[32:-32])),
    ):
        yield refused(name, **fields("ana", "bob", other))


def sharing_cases():
    """What a user signs for all its boxes: the root over no statement and the leaves with which boxes end."""
    for number in (1, 2, 5, 8):
        sealed = [sha256(b"coterie vector: coded box %d" % at) * 2 for at in range(number)]
        leaves = [sha256(b"\0"), *(sha256(b"\0" + part) for part in sealed)]
        root = merkle_of(leaves)
        given = {"context": CONTEXT, "roster": ROSTER, "user": b"ana", "secret": IDENTITY["ana"]}
        boxes = b"".join(part + leaf for part, leaf in zip(sealed, leaves[1:], strict=True))
        yield case(
            f"{number} boxes", **given, public=identity_public(IDENTITY["ana"]), number=number, boxes=boxes,
            root=root, signature=sign(IDENTITY["ana"], enc("coterie/v2/share", CONTEXT, ROSTER, "ana", root)),
            **{f"path_{at}": merkle_path_of(leaves, at + 1) for at in range(number)},
        )  # fmt: skip


MESSAGES = {
    "CodedSharing": ("client", [23, "keyboard", A, "ana", S], bytes(range(132))),
    "ShareSum": ("client", [24, "keyboard", A, "ana"], bytes(range(20))),
}


def message_cases():
    """All messages, and with something wrong in each of their fields."""
    for name, (sender, fields, tail) in MESSAGES.items():
        yield case(name, sender=sender, kind=name, data=framed(packed(fields), tail), tail=tail)
        for at, wrong in ((1, ""), (1, "x" * 65), (2, A[:31]), (2, "text"), (3, ""), (3, -1)):
            body = packed([*fields[:at], wrong, *fields[at + 1 :]])
            yield refused(f"{name}, field {at}: {str(wrong)[:20]}", sender=sender, data=framed(body, tail))
        other = {"client": "server", "server": "client"}[sender]
        yield refused(f"{name}, a field too few", sender=sender, data=framed(packed(fields[:-1]), tail))
        yield refused(f"{name}, a field too many", sender=sender, data=framed(packed([*fields, b""]), tail))
        yield refused(f"{name}, from the other role", sender=other, data=framed(packed(fields), tail))
        yield refused(
            f"{name}, a wrong tail", sender=sender, data=framed(packed(fields), b"" if tail else bytes(8))
        )
    sender, fields, tail = MESSAGES["CodedSharing"]
    yield refused("a short signature", sender=sender, data=framed(packed([*fields[:-1], S[:63]]), tail))


FILES = {
    "coded": coded,
    "coded_box": box_cases,
    "coded_sharing": sharing_cases,
    "coded_messages": message_cases,
}
