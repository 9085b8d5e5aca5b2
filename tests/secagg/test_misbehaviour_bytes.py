"""Bytes that are no message of the protocol are refused by both roles, and change nothing (§6)."""

import random

import msgspec
import pytest

from coterie.errors import PeerError
from coterie.federation.device_file import DeviceFile
from coterie.secagg import (
    IdentityKey,
    Membership,
    SealedClient,
    TrustServerForIdentities,
    found_batch,
    sealed_round,
    simulated_client,
)
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import LARGEST_ROSTER
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import Draft, Enrolment, Invitation
from support.secagg.batches import DIMENSION, SCOPE, configuration, quantiser, rules, terms
from support.secagg.mutations import HEADER, parts, with_body
from support.secagg.servers import UPDATE, Enrolling, call, packed, raw_charter, refused
from support.secagg.stages import CLIENT_KINDS, SERVER_KINDS, Life


@pytest.fixture(scope="module")
def life():
    """Both machines at every stage."""
    return Life()


def receivers(life):
    """One stage of every machine for every kind of message, at which it is expected, and that message."""
    found = {}
    for stage in life.stages:
        kinds = SERVER_KINDS if stage.sender is None else CLIENT_KINDS
        for kind in kinds:
            key = type(stage.machine), kind
            if key not in found and accepted(stage, stage.good[kind]):
                found[key] = stage
    assert {kind for _, kind in found} == {*SERVER_KINDS, *CLIENT_KINDS}
    return [(stage, stage.good[kind]) for (_, kind), stage in found.items()]


def accepted(stage, data):
    """Whether the machine takes a message; if not, it refuses with a PeerError, and is as it was."""
    stage.restore()
    before = stage.remembered()
    try:
        stage.feed(data)
    except PeerError:
        assert stage.remembered() == before
        return False
    return True


def refuses(stage, data, reason):
    """The machine refuses a message with this reason, and is as it was."""
    stage.restore()
    before = stage.remembered()
    with pytest.raises(PeerError, match=reason):
        stage.feed(data)
    assert stage.remembered() == before


def test_an_oversized_message_is_refused(life):
    """More bytes than are read are refused before anything in them is looked at; what just fits is read."""
    device = simulated_client("me", configuration()).membership
    good = encode(Invitation(SCOPE))
    small = SealedClient(device, largest_message=len(good) - 1)
    for data in (good, bytes(len(good)), good + bytes(1000)):
        with pytest.raises(PeerError, match=f"a message of {len(data)} bytes .* at most {len(good) - 1} are read"):
            small.receive(data)
    assert device.store.records == {}
    assert SealedClient(device, largest_message=len(good)).receive(good)
    refuses(life.devices[0], bytes(2**28 + 1), "at most 268435456 are read")
    refuses(life.founders[0], bytes(4097), "at most 4096 are read")
    vector = quantiser().vector_bytes(DIMENSION)
    refuses(life.rounds[1], bytes(vector + 4097), f"at most {vector + 4096} are read")
    with pytest.raises(PeerError, match="at most 1073741824 are read"):
        messages_from_client.decode(bytes(2**30 + 1))


def test_a_truncated_message_is_refused(life):
    """Every message cut off anywhere is refused, and says so."""
    for stage, data in receivers(life):
        for size in range(len(data)):
            refuses(stage, data[:size], f"{size} bytes")


def test_random_bytes_are_refused(life):
    """Random bytes, bare or in a right header, are refused; with a changed byte a message is refused or judged."""
    rng = random.Random(0)
    for stage, data in receivers(life):
        for size in range(200):
            refuses(stage, rng.randbytes(size), "not a message|bytes came from")
            refuses(stage, with_body(rng.randbytes(size)), "malformed message|with a tail")
        for at in range(len(data)):
            other = bytes([data[at] ^ rng.randrange(1, 256)])
            accepted(stage, data[:at] + other + data[at + 1 :])


def test_hidden_bytes_are_refused(life):
    """Bytes after the end, within the body, between body and tail or after the tail are refused."""
    for stage, data in receivers(life):
        _, body, tail = parts(data)
        assert with_body(body, tail) == data
        refuses(stage, data + b"\0", f"is {len(data) + 1} bytes long but says {len(data)}")
        refuses(stage, with_body(body + b"\0", tail), "malformed message")
        padding = range(HEADER.size + len(body), len(data) - len(tail))
        for at in padding:
            refuses(stage, data[:at] + b"\1" + data[at + 1 :], "has bytes in its padding")
        assert len(padding) > 0 or not tail


def test_another_version_is_refused(life):
    """A message of any other version is refused, and so is what does not begin like a message."""
    for stage, data in receivers(life):
        for version in {*range(256)} - {2}:
            refuses(stage, data[:3] + bytes([version]) + data[4:], f"version {version} .* this is version 2")
        for magic in (b"CoT", b"\0\0\0", b"GET"):
            refuses(stage, magic + data[3:], "is not a message")


def test_a_field_out_of_bounds_is_refused(life):
    """Every field of every message that is missing, extra, of another kind or out of its bounds is refused."""
    kinds = [None, True, -1, 1.5, "text", b"bytes", [1], {"a": b"b"}, msgspec.msgpack.Ext(5, b"1")]
    wrong = {
        str: ["", "x" * 65, "é" * 33, "字" * 22],
        int: [-1, 2**63, 2**64 - 1],
        float: [],
        dict: [{"": bytes(64)}, {"x" * 65: bytes(64)}, {"a": bytes(63)}, {"a": bytes(65)}, {1: bytes(64)}],
    }
    for stage, data in receivers(life):
        body, _, tail = parts(data)
        for fields in (body[:-1], [*body, b""], [*body, None], body[:1], [], body[1:], dict(enumerate(body))):
            refuses(stage, with_body(msgspec.msgpack.encode(fields), tail), "malformed message")
        for at, value in enumerate(body[1:], 1):
            others = [other for other in kinds if not isinstance(other, type(value)) or type(other) is bool]
            if isinstance(value, float):
                others.remove(-1)  # a clip may come as an integer; the bounds of terms refuse this one
            bounds = wrong.get(type(value), [])
            if isinstance(value, bytes) and len(value) in {32, 64}:
                bounds = [value[:-1], value + b"\0", b""]
            for other in (*others, *bounds):
                changed = msgspec.msgpack.encode([*body[:at], other, *body[at + 1 :]])
                reasons = "malformed message|a name of|bytes of keys|the mask key of"
                refuses(stage, with_body(changed, tail), reasons)
    stage = life.founders[0]
    *body, predecessor = parts(stage.good[Enrolment])[0]
    assert predecessor == b""
    for size in (1, 31, 33):
        wrong_size = with_body(msgspec.msgpack.encode([*body, bytes(size)]))
        refuses(stage, wrong_size, "malformed message|no charter can hold")


def test_a_list_longer_than_any_roster_is_refused_before_it_is_read(life):
    """A list has one entry for each user at most, signatures two; a longer one is refused by its length alone."""
    refused_lists = set()
    for stage, data in receivers(life):
        body, _, tail = parts(data)
        for at in (at for at, value in enumerate(body) if isinstance(value, list)):
            most = LARGEST_ROSTER * (2 if (body[0], at) == (17, 4) else 1)
            longer = msgspec.msgpack.encode([*body[:at], [None] * (most + 1), *body[at + 1 :]])
            reason = f"Expected `array` of length <= {most} |bytes came from the client; at most"
            refuses(stage, with_body(longer, tail), reason)
            refused_lists.add((body[0], at))
    kinds = [msgspec.inspect.type_info(kind) for kind in (*SERVER_KINDS, *CLIENT_KINDS)]
    lists = {
        (kind.tag, at)
        for kind in kinds
        for at, field in enumerate(kind.fields, 1)
        if isinstance(field.type, msgspec.inspect.VarTupleType)
    }
    assert refused_lists == lists


def test_a_field_that_claims_more_than_is_there_is_refused(life):
    """Lengths up to 2³² - 1 of texts, bytes, arrays and maps are compared with what is there."""
    for stage, _ in receivers(life):
        for tag, form in ((t, f) for t in range(1, 27) for f in (b"\xdb", b"\xc6", b"\xdd", b"\xdf")):
            refuses(stage, with_body(bytes([0x92, tag]) + form + b"\xff" * 4), "malformed message")
        refuses(stage, with_body(b"\xdd\xff\xff\xff\xff\x01"), "malformed message")


def test_a_tail_in_the_wrong_place_is_refused(life):
    """Only a sealed and a masked vector have a tail, and they always have one."""
    for stage, data in receivers(life):
        _, body, tail = parts(data)
        other = b"" if tail else bytes(64)
        refuses(stage, with_body(body, other), f"with a tail of {len(other)} bytes")


def test_a_charter_that_is_not_canonical_is_refused():
    """A charter has one encoding: other orders, other counts and anything after a last field are refused."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    good, members = charter.encode(), charter.members
    line = enc(members[0].user, members[0].identity, members[0].seal, members[0].predecessor)
    assert raw_charter(charter) == good
    for encoded, reason in (
        (raw_charter(charter, members[::-1]), "not sorted"),
        (good + b"\0", "1 bytes follow"),
        (good + enc(line), "bytes follow"),
        (raw_charter(charter, count=len(members) - 1), "bytes follow"),
        (raw_charter(charter, count=len(members) + 1), "cut off"),
        (raw_charter(charter, count=2**64 - 1), "at most 10000"),
        (raw_charter(charter, protocol="coterie/unsealed"), "protocol 'coterie/unsealed'"),
        (raw_charter(charter, version=1), "version 1; this is version 2"),
        (raw_charter(charter, clip=bytes(7)), "7 bytes"),
        (raw_charter(charter, recipe=bytes(2**16 + 1)), "65537 bytes; at most 65536"),
        (b"", "cut off"),
    ):
        enrolling.refuses(encoded, reason)
    for size in range(len(good)):
        refused(enrolling.client, encode(Draft(good[:size])), "cut off")


def test_a_message_out_of_order_is_refused(life):
    """Messages of one's own role are refused at all times, those of the peer when they are not expected."""
    for stage in life.stages:
        own = CLIENT_KINDS if stage.sender is None else SERVER_KINDS
        for kind in own:
            refuses(stage, stage.good[kind], "malformed message")
    idle, ready = life.devices[0], life.devices[3]
    for kind in SERVER_KINDS[1:]:
        refuses(idle, idle.good[kind], f"{kind.__name__} came from the server out of order")
    for kind in SERVER_KINDS[1:3]:
        refuses(ready, ready.good[kind], f"{kind.__name__} came from the server out of order: in the state 'idle'")
    invited, collecting = life.founders[0], life.rounds[-1]
    for kind in CLIENT_KINDS[1:]:
        refuses(invited, invited.good[kind], f"{kind.__name__} came from bob out of order: in the state 'invited'")
    for kind in CLIENT_KINDS:
        refuses(collecting, collecting.good[kind], "SealedVector came from bob out of order|malformed message")


def test_a_refusal_changes_nothing(life, tmp_path):
    """Between any two good steps a device takes any number of bad messages, and its file stays byte for byte."""
    path, identity = tmp_path / "ana.device", IdentityKey.generate()
    bad = [life.devices[0].good[kind] for kind in CLIENT_KINDS]
    bad += [data[:-1] for data in life.messages()] + [data + b"\0" for data in life.messages()]
    bad += [life.devices[0].good[kind] for kind in SERVER_KINDS[1:]]  # another batch's
    bad += [encode(Invitation("photos")), packed(Invitation(SCOPE), bytes(8)), b"", bytes(100)]
    steps = 0

    class Harassed(SealedClient):
        """A client to which every good message comes among bad ones."""

        def receive(self, data):
            nonlocal steps
            steps += 1
            before, tasks = path.read_bytes(), dict(self._tasks)
            for wrong in bad:
                with pytest.raises(PeerError):
                    super().receive(wrong)
            assert path.read_bytes() == before
            assert self._tasks == tasks
            return super().receive(data)

    with DeviceFile.create(path, identity.to_bytes()) as store:
        ana = Harassed(Membership("ana", identity, configuration(), TrustServerForIdentities(), store))
        clients = {"ana": ana, **{user: simulated_client(user, configuration()) for user in ("bob", "cas")}}
        charter = found_batch(rules(privacy=3), clients.values())
        server = sealed_round([charter], 0, terms())
        for user, client in clients.items():
            server.receive(user, client.seal(client.receive(call(charter)), UPDATE))
    assert server.finish().sum.values == pytest.approx([0.75] * DIMENSION, abs=1e-6)
    assert steps == 4
