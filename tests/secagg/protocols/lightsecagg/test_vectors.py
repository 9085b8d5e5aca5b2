"""Codes, shares, boxes and messages are those that a script makes from the written protocol (tests/vectors)."""

import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg import IdentityKey, Parameters, Seed
from coterie.secagg.crypto.keys import BoxKey, ShareKey
from coterie.secagg.protocols.agreement.boxes import MerkleTree, Route, leaf, path_root, stated_leaves
from coterie.secagg.protocols.agreement.messages import RosterLine
from coterie.secagg.protocols.lightsecagg import CodedRoster, code_for
from support.secagg.batches import quantiser, terms
from support.secagg.vectors import DECODE, cases, check_message


class Setting:
    """A round of which the context is known, with shares of five words."""

    parameters = Parameters()
    terms = terms(dimension=2)
    quantiser = quantiser()

    def __init__(self, context):
        self.context = context


def two(case, user, peer, public):
    """A roster of two, whose digest is the case's; of two users each holds a whole mask."""
    lines = tuple(RosterLine(name.decode(), bytes(32), b"", public, bytes(64)) for name in (user, peer))
    found = CodedRoster(Setting(case.context), lines)
    object.__setattr__(found, "digest", case.roster)
    return found


@cases("coded", success=True)
def test_coded_shares_are_those_of_the_vectors(case):
    """The code follows from roster and parameters, and the shares from mask and noise."""
    code = code_for(case["users"], Parameters(case["colluders"], case["losses"]))
    assert (code.privacy, code.needed) == (case["privacy"], case["needed"])
    shares = code.encode(np.frombuffer(case.mask, dtype="<u4"), Seed(case.noise))
    assert shares.astype("<u4").tobytes() == case.shares


@cases("coded_box", success=True)
def test_box(case):
    """A share encrypted for one holder, and back: by the holder, and by whoever is given the box's key."""
    route = Route(two(case, case.sender, case.holder, case.public), 0, 1)
    assert route.encrypt_shares(BoxKey.from_bytes(case.key), case.share) == case.box
    assert route.decrypt_shares(ShareKey.from_bytes(case.secret), case.box) == case.share
    assert route.revealed_shares(case.key, case.box) == case.share


@cases("coded_box", success=False)
def test_box_that_does_not_open(case):
    """Changed boxes, and those of another sender, round or roster, open for nobody."""
    route = Route(two(case, case.sender, case.holder, case.public), 0, 1)
    assert route.decrypt_shares(ShareKey.from_bytes(case.secret), case.box) is None
    assert route.revealed_shares(case.key, case.box) is None


@cases("coded_sharing", success=True)
def test_sharing(case):
    """One signature for all boxes, whose leaves are the digests that they end with."""
    size = len(case.boxes) // case["number"]
    leaves = stated_leaves(memoryview(case.boxes), size)
    tree = MerkleTree(leaf(b"") + leaves)
    assert tree.root == case.root
    found = two(case, case.user, b"bob", bytes(32))
    assert IdentityKey.from_bytes(case.secret).sign(*found.boxes_to_sign(0, tree.root)) == case.signature
    for at in range(case["number"]):
        assert tree.path(1 + at) == bytes.fromhex(case[f"path_{at}"])
        assert path_root(leaves[32 * at : 32 * (at + 1)], 1 + at, tree.path(1 + at)) == case.root


@cases("coded_messages", success=True)
def test_a_message_decodes_and_encodes_to_the_same_bytes(case):
    """Every message has the bytes of the specification, both ways."""
    check_message(case)


@cases("coded_messages", success=False)
def test_a_bad_message_is_refused(case):
    """Nothing but a PeerError comes out of bytes that are no message."""
    with pytest.raises(PeerError):
        DECODE[case["sender"]](case.data)
