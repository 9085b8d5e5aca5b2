"""Messages: MessagePack in a frame (docs/protocol.md §6)."""

import struct

from primitives import case, refused


def packed(value):  # noqa: PLR0911 - one kind of value after the other
    """MessagePack, in the shortest form, for the kinds of values that messages have."""
    if value is None:
        return b"\xc0"
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
    head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
    return head + b"".join(map(packed, value))


def framed(body, tail=b"", *, magic=b"COT", version=2, body_size=None, tail_size=None, padding=b"\0"):
    """Header, body and, if there is a tail, padding to a multiple of 64 bytes and the tail."""
    sizes = (len(body) if body_size is None else body_size, len(tail) if tail_size is None else tail_size)
    head = magic + bytes([version]) + struct.pack("<IQ", *sizes)
    gap = padding * (-(len(head) + len(body)) % 64) if tail else b""
    return head + body + gap + tail


A, B, S = bytes(range(32)), bytes(range(32, 64)), bytes(range(64))
CALL = [7, "keyboard", A, 70_000, 69_000, b"model", 1_663_370, 12, b""]
UNSEALED = [
    9, "keyboard", "secagg+", 2**32, 1.5, 200, 120, 200, 300, b"{}", 5, 4, b"model", 10, 12,
]  # fmt: skip
MESSAGES = {
    "Invitation": ("server", [1, "keyboard"], b""),
    "Enrolment": ("client", [2, "keyboard", "ana", A, B, b""], b""),
    "Enrolment after sealing": ("client", [2, "keyboard", "ana", A, B, A], b""),
    "Draft": ("server", [3, b"a charter's bytes"], b""),
    "CharterSignature": ("client", [4, "keyboard", "ana", A, S], b""),
    "Founding": ("server", [5, b"a charter's bytes" * 20, {"ana": S, "bob": S}], b""),
    "CharterAcceptance": ("client", [6, "keyboard", "é" * 32, A], b""),
    "RoundCall": ("server", CALL, b""),
    "RoundCall with a configuration": ("server", [*CALL[:8], b'{"epochs":2}'], b""),
    "SealedVector": ("client", [8, "keyboard", A, B, "ana"], bytes(range(20))),
    "UnsealedCall": ("server", UNSEALED, b""),
}


def changed(fields, at, value):
    """A body with another value in one place."""
    return framed(packed([*fields[:at], value, *fields[at + 1 :]]))


def message_cases():
    for name, (sender, fields, tail) in MESSAGES.items():
        yield case(name, sender=sender, kind=name.split()[0], data=framed(packed(fields), tail), tail=tail)
    vector, tail = packed(MESSAGES["SealedVector"][1]), MESSAGES["SealedVector"][2]
    plain = packed(MESSAGES["Invitation"][1])
    bad = {
        "no bytes": ("server", b""),
        "cut off in the header": ("server", framed(plain)[:15]),
        "cut off in the body": ("server", framed(plain)[:-1]),
        "cut off in the tail": ("client", framed(vector, tail)[:-1]),
        "a byte too many": ("server", framed(plain) + b"\0"),
        "another magic": ("server", framed(plain, magic=b"CAT")),
        "version 1": ("server", framed(plain, version=1)),
        "version 3": ("server", framed(plain, version=3)),
        "a body that claims too much": ("server", framed(plain, body_size=2**32 - 1)),
        "a tail that claims too much": ("client", framed(vector, tail, tail_size=2**63)),
        "padding that is not zero": ("client", framed(vector, tail, padding=b"\1")),
        "a vector without words": ("client", framed(vector)),
        "a tail where none belongs": ("server", framed(plain, tail)),
        "an unknown tag": ("server", framed(packed([99, "keyboard"]))),
        "the other role's message": ("client", framed(plain)),
        "a field too few": ("client", framed(packed([6, "keyboard", "ana"]))),
        "a field too many": ("client", framed(packed([6, "keyboard", "ana", A, 0]))),
        "a digest of 31 bytes": ("client", framed(packed([6, "keyboard", "ana", A[:31]]))),
        "a nameless user": ("client", framed(packed([6, "keyboard", "", A]))),
        "a user of 65 bytes": ("client", framed(packed([6, "keyboard", "x" * 65, A]))),
        "a user of 66 bytes in 33 characters": ("client", framed(packed([6, "keyboard", "é" * 33, A]))),
        "a number for a name": ("client", framed(packed([6, 7, "ana", A]))),
        "a call of version 1": (
            "server", framed(packed([7, "keyboard", A, 70_000, b"model", b"{}", 10, 1.5, 120, 200, 12]))
        ),
        "a vector of version 1": ("client", framed(packed([8, "keyboard", A, 2**40, "ana", B]), tail)),
    }  # fmt: skip
    wrong = {
        3: (-1, 2**63, 1.5), 4: (-1, 2**63, "1"), 5: ("model", 7), 6: (0, -1, 2**63), 7: (0, 2**63),
        8: ("{}", None),
    }  # fmt: skip
    for at, values in wrong.items():
        for value in values:
            bad[f"RoundCall, field {at}: {str(value)[:20]}"] = ("server", changed(CALL, at, value))
    wrong = {
        2: ("", "x" * 65, "é" * 33), 3: (0, -1), 4: ("1.0", None), 5: (0,), 6: (0,), 7: (-1, 1000), 8: (-1, 1000),
        9: ("{}", None), 10: (-1,), 11: (-1,), 12: ("model",), 13: (0,), 14: (0,),
    }  # fmt: skip
    for at, values in wrong.items():
        for value in values:
            bad[f"UnsealedCall, field {at}: {str(value)[:20]}"] = ("server", changed(UNSEALED, at, value))
    for name, fields in (("RoundCall", CALL), ("UnsealedCall", UNSEALED)):
        bad[f"{name}, a field too few"] = ("server", framed(packed(fields[:-1])))
        bad[f"{name}, a field too many"] = ("server", framed(packed([*fields, b""])))
        bad[f"{name}, from the other role"] = ("client", framed(packed(fields)))
        bad[f"{name}, a tail"] = ("server", framed(packed(fields), bytes(8)))
    for name, (sender, data) in bad.items():
        yield refused(name, sender=sender, data=data)


FILES = {"messages": message_cases}
