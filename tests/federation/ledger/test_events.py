"""Bodies of records: every kind comes back, and no bytes do harm."""

import random
import zlib

import pytest

from coterie import UsageError
from coterie.federation.ledger import events
from coterie.federation.ledger.events import decode, encode
from coterie.federation.ledger.store import LARGEST, DamagedError
from support.ledgers import bodies

BODIES = bodies()


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=[kind.__name__ for kind, _ in BODIES])
def test_every_kind_comes_back(kind, body):
    """Decoding and encoding a body gives the same bytes; every kind of event is among the examples."""
    assert encode(decode(kind, body)) == body
    assert {each for each, _ in BODIES} == set(events.KINDS.values())


def test_the_form_is_written_down():
    """A body is zlib of a line of JSON, sorted, without spaces, then of the arrays. This form is for good."""
    assert zlib.decompress(dict(BODIES)[events.Skipped]) == b'{"reason":"nobody","round":4}\n'
    line, arrays = zlib.decompress(dict(BODIES)[events.Exposed]).split(b"\n", 1)
    assert line == b'{"alone":[[2,2]],"learned":[[1,1],[2,4]],"round":3}'
    # 1 and 300 as 1 and a step of 299, in two bytes each; one list of two; 0 and a step of 70 000 in four each.
    assert arrays == bytes.fromhex("0100 2b010200000000 70110100")


def _mutated(body, rng):
    """Return a body with a few bytes changed, cut, doubled or put in."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 3:
                data[at:at] = data[at : at + 8]
            case 4:
                data[at:at] = rng.choice([b"0", b"{", b'"', b"[" * 2000, b"NaN", b"1e999", b"9" * 5000, b"\n"])
    return bytes(data)


def test_whatever_bytes_come_they_are_an_event_or_refused(request, record_property):
    """Noise and changed bodies raise `DamagedError` and nothing else, or are bodies of one form; both occur."""
    tries = request.config.getoption("--fuzz") // 10
    record_property("faults", tries)
    rng = random.Random(request.config.getoption("--fuzz-seed"))
    sound = refused = 0
    for _ in range(tries):
        kind, body = rng.choice(BODIES)
        if rng.random() < 0.2:
            data = rng.randbytes(rng.randint(0, 60)) if rng.random() < 0.5 else _mutated(body, rng)
        else:
            data = zlib.compress(_mutated(zlib.decompress(body), rng))
        try:
            event = decode(kind, data)
        except DamagedError:
            refused += 1
            continue
        sound += 1
        assert zlib.decompress(encode(event)) == zlib.decompress(data)
    assert min(sound, refused) > 20


def test_nothing_unpacks_to_more_than_a_record_may_have():
    """A body that unpacks to more than the limit is refused there; what it announces is not believed."""
    bomb = zlib.compress(b" " * (LARGEST + 1), 9)
    assert len(bomb) < 200_000
    with pytest.raises(DamagedError, match="more than the 134217728 bytes"):
        decode(events.Skipped, bomb)
    line = b'{"alone":[[9007199254740991,8]],"learned":[[0,1],[0,1]],"round":3}\n'
    with pytest.raises(DamagedError, match="values are announced where 0 bytes are left"):
        decode(events.Exposed, zlib.compress(line))


def test_an_event_that_is_too_large_is_refused_before_it_is_stored():
    """The message says what to do."""
    with pytest.raises(UsageError, match="enrol or charter fewer at a time"):
        encode(events.Skipped(0, "x" * LARGEST))
