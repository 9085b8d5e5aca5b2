"""The files of tests/vectors about pairwise rounds, against Coterie."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg import IdentityKey, Parameters, Seed
from coterie.secagg.crypto.keys import BoxKey, MaskKey, ShareKey, verify_signature
from coterie.secagg.crypto.masking import Keystream
from coterie.secagg.crypto.ring import RING_32
from coterie.secagg.crypto.shamir import combine_all, split
from coterie.secagg.protocols.agreement.boxes import MerkleTree, Route, leaf, leaves_of, path_root
from coterie.secagg.protocols.agreement.messages import RosterLine
from coterie.secagg.protocols.agreement.roster import (
    Graph,
    check_line,
    complete_neighbourhood,
    encode_positions,
    sparse_neighbourhood,
)
from coterie.secagg.protocols.pairwise import PAIRS, PairRoster, pair_mask, seed_digest
from support.secagg.vectors import DECODE, cases, check_message, words


@dataclass(frozen=True)
class Setting:
    """A round of which only the context and the parameters are known."""

    context: bytes
    parameters: Parameters = field(default_factory=Parameters)


def roster(case):
    """The roster of a case."""
    lines = []
    while f"line_{len(lines)}_user" in case:
        prefix = f"line_{len(lines)}_"
        parts = ("user", "identity", "mask_key", "share_key", "signature")
        user, *rest = (bytes.fromhex(case[prefix + part]) for part in parts)
        lines.append(RosterLine(user.decode(), *rest))
    return PairRoster(Setting(case.context), tuple(lines))


@cases("roster", success=True)
def test_roster(case):
    """Digest, threshold, and what every user signed."""
    found = roster(case)
    assert found.digest == case.digest
    assert found.users_needed == case["threshold"]
    for line in found.lines:
        check_line(line, case.context)


@cases("roster", success=False)
def test_roster_refused(case):
    """The first line has a key that it did not sign for this round, or one of low order."""
    with pytest.raises(PeerError, match="'ana'"):
        check_line(roster(case).lines[0], case.context)


@cases("graph", success=True)
def test_graph(case):
    """How many neighbours there are, how many shares open a secret, and who holds shares of whom."""
    rule = complete_neighbourhood if case["inner"] == "secagg" else sparse_neighbourhood
    found = rule(case["users"], Parameters(case["colluders"], case["losses"]))
    assert (found.degree, found.shares_needed) == (case["degree"], case["threshold"])
    graph = Graph(case["users"], found, Seed(case.seed))
    assert " ".join(map(str, graph.holders(case["place"]))) == case["holders"]


@cases("shamir", success=True)
def test_shamir(case):
    """Shares at some points, and the secret from the last of them."""
    points = [int(point) for point in case["points"].split()]
    shares = split([case.secret], case["threshold"], points, Seed(case.randomness))[:, 0]
    assert shares.astype("<u4").tobytes() == case.shares
    last = slice(-case["threshold"], None)
    assert combine_all(np.array([points[last]]), shares[np.newaxis, last]) == [case.secret]


@cases("shamir", success=False)
def test_shamir_refused(case):
    """Shares whose secret would have more than 256 bits, or a limb of more than 30."""
    points = np.array([int(point) for point in case["points"].split()])
    shares = np.frombuffer(case.shares, dtype="<u4").reshape(len(points), -1)
    assert combine_all(points[np.newaxis], shares[np.newaxis]) == [None]


def two(case, user, peer, public):
    """A roster of two, whose digest is the case's."""
    lines = (
        RosterLine(user.decode(), bytes(32), bytes(32), bytes(32), bytes(64)),
        RosterLine(peer.decode(), bytes(32), public, public, bytes(64)),
    )
    found = PairRoster(Setting(case.context), lines)
    object.__setattr__(found, "digest", case.roster)
    return found


@cases("pair", success=True)
def test_pair(case):
    """Seed, sign and first words of the mask of a pair, and what tells a seed from another."""
    found = two(case, case.user, case.peer, case.public)
    mask = pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])
    assert (mask.seed, mask.sign) == (Seed(case.seed), case["sign"])
    assert words(Keystream(mask.seed, RING_32), len(case.words)) == case.words
    assert seed_digest(case.context, case.user.decode(), case.seed) == case.seed_digest


@cases("pair", success=False)
def test_pair_refused(case):
    """A mask key of low order."""
    found = two(case, case.user, case.peer, case.public)
    with pytest.raises(PeerError, match="the mask key of 'bob' has low order"):
        pair_mask(found, case.user.decode(), MaskKey.from_bytes(case.secret), found.lines[1])


@cases("box", success=True)
def test_box(case):
    """Shares encrypted for one holder, and back: by the holder, and by whoever is given the box's key."""
    route = Route(two(case, case.sender, case.holder, case.public), 0, 1)
    assert route.encrypt_shares(BoxKey.from_bytes(case.key), case.pair) == case.box
    assert len(case.box) == PAIRS.box_bytes
    assert route.decrypt_shares(ShareKey.from_bytes(case.secret), case.box) == case.pair
    assert route.revealed_shares(case.key, case.box) == case.pair


@cases("box", success=False)
def test_box_that_does_not_open(case):
    """Changed boxes, and those of another sender, holder, round or roster, open for nobody."""
    route = Route(two(case, case.sender, case.holder, case.public), 0, 1)
    assert route.decrypt_shares(ShareKey.from_bytes(case.secret), case.box) is None
    assert route.revealed_shares(case.key, case.box) is None


@cases("sharing", success=True)
def test_sharing(case):
    """One signature for all boxes, and the path by which a holder checks it with its own box alone."""
    size = len(case.boxes) // case["number"]
    boxes = [case.boxes[size * at : size * (at + 1)] for at in range(case["number"])]
    tree = MerkleTree(leaf(case.seed_digest + case.own) + leaves_of(memoryview(case.boxes), size))
    assert tree.root == case.root
    found = two(case, case.user, b"bob", bytes(32))
    assert IdentityKey.from_bytes(case.secret).sign(*found.boxes_to_sign(0, tree.root)) == case.signature
    for at, box in enumerate(boxes):
        assert tree.path(1 + at) == bytes.fromhex(case[f"path_{at}"])
        assert path_root(leaf(box), 1 + at, tree.path(1 + at)) == case.root


@cases("complaint", success=True)
def test_complaint(case):
    """What a holder signs about a box."""
    found = two(case, case.sender, case.holder, bytes(32))
    signed = IdentityKey.from_bytes(case.secret).sign(*found.complaint_to_sign(0, 1, case.box_digest))
    assert signed == case.signature


@cases("complaint", success=False)
def test_complaint_refused(case):
    """Complaints by others, about others, or about another box."""
    found = two(case, case.sender, case.holder, bytes(32))
    with pytest.raises(PeerError, match="forged"):
        verify_signature(case.public, case.signature, *found.complaint_to_sign(0, 1, case.box_digest), who="eve")


def agreed(case):
    lists = [tuple(map(int, case[name].split())) for name in ("sharers", "included", "excluded")]
    return case.context, case.roster, *map(encode_positions, lists)


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


@cases("pairwise_messages", success=True)
def test_a_message_decodes_and_encodes_to_the_same_bytes(case):
    """Every message has the bytes of the specification, both ways."""
    check_message(case)


@cases("pairwise_messages", success=False)
def test_a_bad_message_is_refused(case):
    """Nothing but a PeerError comes out of bytes that are no message."""
    with pytest.raises(PeerError):
        DECODE[case["sender"]](case.data)
