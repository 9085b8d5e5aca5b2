"""Charters among users whose keys are functions of their names, and what a device says to them."""

from functools import cache
from hashlib import sha256

import pytest

from coterie.errors import PeerError
from coterie.secagg import Charter, IdentityKey, Member, SealKey, TrustServerForIdentities
from coterie.secagg.batch.charter import sign_charter
from coterie.secagg.batch.rules import DeviceHistory, check_charter, check_members, check_signatures
from support.secagg.batches import configuration, quantiser

OLD, NEW = ("ana", "bob", "cem"), ("dia", "eva", "fin")
DEVICE = configuration(scopes={"keyboard", "photos"}, least_privacy=3)


@cache
def identity(user):
    """A user's identity key."""
    return IdentityKey.from_bytes(sha256(f"identity key of {user}".encode()).digest())


@cache
def seal(user, number):
    """A user's seal key for its first, second, … charter."""
    return SealKey.from_bytes(sha256(f"seal key {number} of {user}".encode()).digest())


def member(user, number=1, predecessor=b""):
    """A member of the first charter, or of a later one: its seal key is fresh for each."""
    return Member(user, identity(user).public, seal(user, number).public, predecessor)


def members(*users):
    """Members of a first charter."""
    return tuple(member(user) for user in users)


def charter(*given, **changes):
    """A charter that keeps all rules, but for what is given."""
    options = {"scope": "keyboard", "privacy": 3, "quantiser": quantiser(), "inner": "open", **changes}
    return Charter(**options, members=given or members(*OLD))


def signatures(signed):
    """The signatures of all members."""
    return {m.user: sign_charter(signed, identity(m.user)) for m in signed.members}


def ask(asked, signed, number=1, *, verify_member=None, **changes):
    """Let ana's device check a charter; `signed` is None before anybody has signed."""
    own = {"user": "ana", "identity": identity("ana").public, "seal": seal("ana", number).public}
    check_charter(asked, **{**own, "configuration": DEVICE, "past": DeviceHistory(), **changes})
    check_members(asked, verify_member or TrustServerForIdentities())
    if signed is not None:
        check_signatures(asked, signed)


def accepts(asked, **changes):
    """The device signs a charter, and accepts it once all have signed."""
    ask(asked, None, **changes)
    ask(asked, signatures(asked), **changes)


def refuses(rule, asked, **changes):
    """The device refuses a charter for this reason, to sign and to accept, though all have signed it."""
    for signed in (None, signatures(asked)):
        with pytest.raises(PeerError, match=rule):
            ask(asked, signed, **changes)
