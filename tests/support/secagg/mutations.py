"""Messages that are almost right: bits flipped, pieces cut, put in or spliced, lengths and types changed."""

import random
import struct

import msgspec

HEADER = struct.Struct("<3sBIQ")
SIZES = (0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**28, 2**30, 2**31, 2**32 - 1)
LARGE = (*SIZES, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
FORMS = bytes([0x00, 0x01, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x91, 0x92, 0x9F, 0xA0, 0xA1, 0xBF, *range(0xC0, 0x100)])
"""The first byte of every MessagePack form, of few and of many elements."""
LONG_FORMS = bytes([0xC4, 0xC5, 0xC6, 0xC7, 0xC9, *range(0xD9, 0xE0)])
"""Those after which a size follows: of bytes, extensions, texts, arrays and maps."""
VALUES = (
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 1.0, 1e-300,
    1e300, float("nan"), float("inf"), "", "a", "me", "ana", "bob", "keyboard", "é" * 32, "x" * 64, "x" * 65, "\0",
    b"", b"\0", bytes(31), bytes(32), bytes(33), bytes(64), bytes([255]) * 32, [], [1], [[[]]], {},
    {"ana": bytes(64)}, {"": b""}, msgspec.msgpack.Ext(1, b""), msgspec.msgpack.Ext(-1, bytes(12)),
)  # fmt: skip


def with_body(body, tail=b""):
    """A message with a right header around any body and tail."""
    padding = bytes(-(HEADER.size + len(body)) % 64) if tail else b""
    return HEADER.pack(b"COT", 2, len(body), len(tail)) + body + padding + tail


def parts(data):
    """The body of a good message, its bytes, and its tail."""
    _, _, body, tail = HEADER.unpack_from(data)
    encoded = data[HEADER.size : HEADER.size + body]
    return msgspec.msgpack.decode(encoded), encoded, data[len(data) - tail :] if tail else b""


class Mutations:
    """An endless supply of mutated messages, which the seed and the good messages decide about.

    With `signers`, the users' identity keys, there are also foundings of changed charters that all have signed.
    """

    def __init__(self, good, seed, signers):
        self._signers = signers
        self._random = random.Random(seed).random
        self._good = list(good)
        self._parts = {data: parts(data) for data in good}
        self._on_bytes = (
            self._flip, self._flip, self._write, self._truncate, self._insert, self._delete, self._double,
            self._splice, self._form, self._long_form, self._length,
        )  # fmt: skip
        self._on_message = (
            self._keep, self._header, self._anywhere, self._body, self._body, self._body, self._fields,
            self._fields, self._charter, self._charter, self._signed, self._tail,
        )  # fmt: skip

    def below(self, limit):
        """A number below a limit."""
        return int(self._random() * limit)

    def of(self, values):
        """One of the values."""
        return values[int(self._random() * len(values))]

    def bytes(self, count):
        """Random bytes."""
        return bytes(int(self._random() * 256) for _ in range(count))

    def mutated(self, data):
        """Return a good message, changed in one of many ways, at times in several, at times in none."""
        return self.of(self._on_message)(data)

    # --- where a message is changed

    def _keep(self, data):
        return data

    def _anywhere(self, data):
        return self.changed(data)

    def _header(self, data):
        magic, version, body, tail = HEADER.unpack_from(data)
        match self.below(6):
            case 0:
                magic = self.bytes(3)
            case 1:
                version = self.below(256)
            case 2:
                body = self.of(SIZES)
            case 3:
                tail = self.of(LARGE)
            case 4:
                body = max(0, body + self.below(9) - 4)
            case _:
                tail = max(0, tail + self.below(9) - 4)
        return HEADER.pack(magic, version, body, tail) + data[HEADER.size :]

    def _body(self, data):
        _, encoded, tail = self._parts[data]
        return with_body(self.changed(encoded), tail)

    def _tail(self, data):
        _, encoded, tail = self._parts[data]
        return with_body(encoded, self.changed(tail) if tail else self.bytes(self.below(80)))

    def _fields(self, data):
        fields, _, tail = self._parts[data]
        fields = list(fields)
        at = self.below(len(fields))
        match self.below(6):
            case 0:
                del fields[at]
            case 1:
                fields.insert(at, self.of(VALUES))
            case 2:
                other = self._parts[self.of(self._good)][0]
                fields[at] = self.of(other)
            case 3:
                fields[at] = _close(fields[at], self)
            case 4:
                other = self.below(len(fields))
                fields[at], fields[other] = fields[other], fields[at]
            case _:
                fields[at] = self.of(VALUES)
        return with_body(msgspec.msgpack.encode(fields), tail)

    def _charter(self, data):
        fields, _, tail = self._parts[data]
        if fields[0] not in {3, 5}:
            return self._fields(data)
        charter = fields[1]
        charter = self._length(charter) if self.below(3) == 0 else self.changed(charter)
        return with_body(msgspec.msgpack.encode([fields[0], charter, *fields[2:]]), tail)

    def _signed(self, data):
        fields, _, _ = self._parts[data]
        if fields[0] != 5:
            return self._charter(data)
        charter = self._flip(fields[1]) if self.below(2) else self.changed(fields[1])
        signatures = {user: key.sign("charter", charter) for user, key in self._signers.items()}
        return with_body(msgspec.msgpack.encode([5, charter, signatures]))

    # --- how bytes are changed

    def changed(self, data):
        """Return bytes with one change or several."""
        data = self.of(self._on_bytes)(data)
        while self._random() < 0.2:
            data = self.of(self._on_bytes)(data)
        return data

    def _flip(self, data):
        if not data:
            return data
        at = self.below(len(data))
        return data[:at] + bytes((data[at] ^ (1 << self.below(8)),)) + data[at + 1 :]

    def _write(self, data):
        at = self.below(len(data) + 1)
        new = self.bytes(1 + self.below(4))
        return data[:at] + new + data[at + len(new) :]

    def _truncate(self, data):
        return data[: self.below(len(data) + 1)]

    def _insert(self, data):
        at = self.below(len(data) + 1)
        return data[:at] + self.bytes(1 + self.below(9)) + data[at:]

    def _delete(self, data):
        at = self.below(len(data) + 1)
        return data[:at] + data[at + 1 + self.below(40) :]

    def _double(self, data):
        at = self.below(len(data) + 1)
        return data[: at + self.below(40)] + data[at:]

    def _splice(self, data):
        other = self.of(self._good)
        return data[: self.below(len(data) + 1)] + other[self.below(len(other)) :]

    def _form(self, data):
        at = self.below(len(data) + 1)
        return data[:at] + bytes((self.of(FORMS),)) + data[at + 1 :]

    def _long_form(self, data):
        """Claim a long text, array or map somewhere."""
        at = self.below(min(len(data), 40) + 1)
        return data[:at] + bytes((self.of(LONG_FORMS),)) + self.of(SIZES).to_bytes(4, "big") + data[at + 1 :]

    def _length(self, data):
        """Write a length of eight bytes somewhere, as `enc` does: where some zeros are is where one may stand."""
        at = data.find(bytes(6), self.below(len(data) + 1))
        if at < 2:
            return self._flip(data)
        return data[: at - 2] + self.of(LARGE).to_bytes(8, "little") + data[at + 6 :]


def _close(value, mutations):
    """A value of the same kind, and close to the one given."""
    match value:
        case int():
            near = value + mutations.of((-1, 1, 65_535, 65_536, 2**20, 2**32))
            value = min(max(near, -(2**63)), 2**64 - 1)
        case float():
            value *= mutations.of((-1.0, 0.5, 2.0, 1e-9, 1e9))
        case str():
            value = value[mutations.below(2) :] + mutations.of(("", "x", "é"))
        case bytes():
            value = mutations.changed(value)
        case dict():
            value = {key: held for key, held in value.items() if mutations.below(4)}
            if mutations.below(2):
                value[mutations.of(("ana", "bob", "eve"))] = bytes(64)
    return value
