"""The files of tests/vectors about pairwise rounds, against Coterie."""

import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg.crypto.keys import IdentityKey, MaskKey, Seed, ShareKey, verify_signature
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32
from coterie.secagg.crypto.shamir import combine, split
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols.pairwise.messages import RosterLine
from coterie.secagg.protocols.pairwise.pairs import locked, pair_mask, seed_digest, unlocked
from coterie.secagg.protocols.pairwise.roster import Roster, check_line, listed
from coterie.secagg.wire.framing import blank
from support.secagg.vectors import cases, words


def roster(case):
    lines = []
    while f"line_{len(lines)}_user" in case:
        prefix = f"line_{len(lines)}_"
        parts = ("user", "identity", "mask_key", "share_key", "signature")
        user, *rest = (bytes.fromhex(case[prefix + part]) for part in parts)
        lines.append(RosterLine(user.decode(), *rest))
    return Roster(case.context, case["inner"], tuple(lines))


@cases("roster", success=True)
def test_roster(case):
    """Digest, threshold, and what every user signed."""
    found = roster(case)
    assert found.digest == case.digest
    assert found.threshold == case["threshold"]
    for line in found.lines:
        check_line(line, case.context)


@cases("roster", success=False)
def test_roster_refused(case):
    """The first line has a key that it did not sign for this round, or one of low order."""
    with pytest.raises(PeerError, match="'ana'"):
        check_line(roster(case).lines[0], case.context)


@cases("graph", success=True)
def test_graph(case):
    """Who holds shares of whom, in a roster of so many lines."""
    line = RosterLine("", b"", b"", b"", b"")
    found = Roster(case.context, case["inner"], (line,) * case["users"])
    object.__setattr__(found, "digest", case.digest)
    assert " ".join(map(str, found.graph.holders(case["place"]))) == case["holders"]


@cases("shamir", success=True)
def test_shamir(case):
    """Shares at some points, and the secret from the last of them."""
    points = [int(point) for point in case["points"].split()]
    shares = split([case.secret], case["threshold"], points, Seed(case.randomness))[:, 0]
    assert shares.astype("<u4").tobytes() == case.shares
    last = slice(-case["threshold"], None)
    assert combine(np.array(points[last]), shares[last]) == case.secret


@cases("shamir", success=False)
def test_shamir_refused(case):
    """Shares whose secret would have more than 256 bits, or a limb of more than 30."""
    points = np.array([int(point) for point in case["points"].split()])
    shares = np.frombuffer(case.shares, dtype="<u4").reshape(len(points), -1)
    assert combine(points, shares) is None


def pair_of(case):
    lines = (
        RosterLine(case.user.decode(), bytes(32), bytes(32), bytes(32), bytes(64)),
        RosterLine(case.peer.decode(), bytes(32), case.public, case.public, bytes(64)),
    )
    found = Roster(case.context, "secagg", lines)
    object.__setattr__(found, "digest", case.roster)
    return found


@cases("pair", success=True)
def test_pair(case):
    """Seed, sign and first words of the mask of a pair, and what tells a seed from another."""
    found = pair_of(case)
    mask = pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])
    assert (mask.seed, mask.sign) == (Seed(case.seed), case["sign"])
    assert words(Keystream(mask.seed, RING_32), len(case.words)) == case.words
    assert seed_digest(case.context, case.user.decode(), case.seed) == case.seed_digest


@cases("pair", success=False)
def test_pair_refused(case):
    """A mask key of low order."""
    found = pair_of(case)
    with pytest.raises(PeerError, match="the mask key of 'bob' has low order"):
        pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])


@cases("box", success=True)
def test_box(case):
    """Shares encrypted for one receiver, and back."""
    found, way = pair_of(case), ShareKey.from_bytes(case.secret).agree(case.public, who="bob")
    sender, receiver = case.user.decode(), case.peer.decode()
    assert locked(found, way, sender, receiver, case.shares) == case.box
    assert unlocked(found, way, sender, receiver, case.box) == case.shares


@cases("box", success=False)
def test_box_refused(case):
    """Boxes that were changed, or made for another sender, receiver, round or roster."""
    found, way = pair_of(case), ShareKey.from_bytes(case.secret).agree(case.public, who="bob")
    with pytest.raises(PeerError, match=r"the shares of '.*' are forged"):
        unlocked(found, way, case.user.decode(), case.peer.decode(), case.box)


def agreed(case):
    lists = [tuple(map(int, case[name].split())) for name in ("sharers", "included", "excluded")]
    return case.context, case.roster, *map(listed, lists)


@cases("agreement", success=True)
def test_agreement(case):
    """Signatures over the lists of an agreement, and over the sharers of an upload."""
    key = IdentityKey.from_bytes(case.secret)
    assert key.sign("agree", *agreed(case)) == case.signature
    assert key.sign("upload", *agreed(case)[:3]) == case.upload


@cases("agreement", success=False)
def test_agreement_refused(case):
    """Signatures over other lists, or for another round, roster or purpose."""
    with pytest.raises(PeerError, match="forged"):
        verify_signature(case.public, case.signature, "agree", *agreed(case), who="eve")


DECODE = {"client": messages_from_client.decode, "server": messages_from_server.decode}


@cases("pairwise_messages", success=True)
def test_a_message_decodes_and_encodes_to_the_same_bytes(case):
    """Every message has the bytes of the specification, both ways."""
    message, tail = DECODE[case["sender"]](case.data)
    assert type(message).__name__ == case["kind"]
    assert bytes(tail) == case.tail
    data, room = blank(message, len(case.tail))
    room[:] = case.tail
    assert bytes(data) == case.data


@cases("pairwise_messages", success=False)
def test_a_bad_message_is_refused(case):
    """Nothing but a PeerError comes out of bytes that are no message."""
    with pytest.raises(PeerError):
        DECODE[case["sender"]](case.data)
