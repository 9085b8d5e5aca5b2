"""Bodies of records: every kind comes back, and no bytes do harm."""

import random
import zlib

import numpy as np
import pytest

from coterie.ledger import events
from coterie.ledger.bodies import decode, encode
from coterie.ledger.interface import Damaged
from coterie.ledger.packing import packed
from support.ledgers import bodies

BODIES = bodies()


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=[kind.__name__ for kind, _ in BODIES])
def test_every_kind_comes_back(kind, body):
    """Decoding and encoding a body gives the same bytes; every kind of event is among the examples."""
    assert encode(decode(kind, body)) == body
    assert {each for each, _ in BODIES} == set(events._KINDS.values())  # noqa: SLF001 - none may be missing here


def test_the_form_is_written_down():
    """A body is a line of JSON, sorted, without spaces; then what is packed. This form is for good."""
    assert dict(BODIES)[events.Skipped] == b'{"reason":"nobody","round":4}'
    opened = dict(BODIES)[events.Opened]
    line, packed_ = opened.split(b"\n", 1)
    assert line == (
        b'{"coordinator":"me","plan":1,"protocol":"open","round":3,"sealed":true,"terms":"' + b"ab" * 32 + b'"}'
    )
    # Two integers, 1 and 3 (the gaps of 1 and 5), one bit of remainder each: quotients 0 and 1, remainders 1, 1.
    assert packed_ == bytes([2, 1, 1, 0b101, 0b11])


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


def test_whatever_bytes_come_they_are_an_event_or_refused(request):
    """Noise and changed bodies raise `Damaged` and nothing else, or are bodies of one form; some of both occur.

    Names are the exception to one form: zlib has many ways to write them.
    """
    tries = request.config.getoption("--fuzz") // 10
    rng = random.Random(request.config.getoption("--fuzz-seed"))
    sound = refused = 0
    for _ in range(tries):
        kind, body = rng.choice(BODIES)
        data = rng.randbytes(rng.randint(0, 60)) if rng.random() < 0.1 else _mutated(body, rng)
        try:
            event = decode(kind, data)
        except Damaged:
            refused += 1
            continue
        sound += 1
        if kind is events.Enrolled:
            assert decode(kind, encode(event)) == event
        else:
            assert encode(event) == data
    assert min(sound, refused) > 20


def test_names_do_not_unpack_to_more_than_they_announce():
    """A megabyte of text in a kilobyte is refused by what is announced, and cut off where it is not."""
    raw = b'["' + b"a" * 5_000_000 + b'"]'
    small = zlib.compress(raw, 9)
    for announced in (len(raw), 4):
        body = (
            b"{}\n" + packed(np.array([announced, len(small) // 8])) + small + packed(np.zeros(1, dtype=np.int64))
        )
        with pytest.raises(Damaged):
            decode(events.Enrolled, body)
