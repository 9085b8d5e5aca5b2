"""A server that holds the keys of all members but one: what the tests of refusals begin with."""

import dataclasses
import struct

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg import (
    Charter,
    IdentityKey,
    Member,
    Membership,
    MemoryStore,
    SealedClient,
    SealKey,
    TrustServerForIdentities,
)
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import MaskKey, ShareKey
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.server import round_call
from coterie.secagg.wire.framing import blank, encode
from coterie.secagg.wire.messages import Draft, Founding, Invitation
from support.secagg.batches import DIMENSION, SCOPE, configuration, quantiser, terms

UPDATE = np.full(DIMENSION, 0.25, dtype=np.float32)


def frozen(value):
    """A value that compares with a later one, whatever it is."""
    match value:
        case np.ndarray():
            return value.tobytes()
        case memoryview():
            return bytes(value)
        case dict():
            return {key: frozen(held) for key, held in value.items()}
        case set():
            return frozenset(value)
        case SealKey() | MaskKey() | ShareKey():
            return value.to_bytes()
    return value


def state(client):
    """All that a client remembers: its device's records, and the calls and rounds that are open in memory."""
    rounds = {scope: frozen(vars(participant)) for scope, participant in client._rounds.items()}  # noqa: SLF001
    return dict(client.membership.store.records), dict(client._tasks), rounds  # noqa: SLF001


def refused(client, data, reason):
    """The message is refused with this reason, and the client is as it was, byte for byte."""
    before = state(client)
    with pytest.raises(PeerError, match=reason):
        client.receive(data)
    assert state(client) == before


def packed(message, tail=b""):
    """A message's bytes with any tail, also where none belongs."""
    data, room = blank(message, len(tail))
    room[:] = tail
    return bytes(data)


def call(charter, round_=0, changes=None, **conditions):
    """A call to a round of a charter, as bytes; `changes` go into its fields unchecked, as a server's would."""
    return encode(msgspec.structs.replace(round_call(charter, round_, terms(**conditions)), **(changes or {})))


def changed(charter, user, **fields):
    """The charter with other fields in one member's line."""
    members = (dataclasses.replace(m, **fields) if m.user == user else m for m in charter.members)
    return dataclasses.replace(charter, members=tuple(members))


def raw_charter(charter, members=None, **fields):
    """A charter's encoding with other fields, also some that no `Charter` can hold.

    The lines of `members` come in the order given. The names of the fields are those of the list below.
    """
    members = charter.members if members is None else members
    lines = [enc(member.user, member.identity, member.seal, member.predecessor) for member in members]
    options = {
        "protocol": "coterie/sealed",
        "version": 2,
        "scope": charter.scope,
        "privacy": charter.privacy,
        "modulus": charter.quantiser.ring.modulus,
        "clip": struct.pack("<d", charter.quantiser.clip),
        "weight_cap": charter.quantiser.weight_cap,
        "cohort": charter.quantiser.cohort,
        "levels": charter.quantiser.levels,
        "inner": charter.inner,
        "colluders": charter.parameters.colluders,
        "losses": charter.parameters.losses,
        "recipe": charter.recipe,
        "first": charter.first,
        "count": len(lines),
    }
    assert fields.keys() <= options.keys()
    return enc(*{**options, **fields}.values(), *lines)


class Enrolling:
    """One honest device, "me", that has enrolled in a batch whose other members are the server's own."""

    def __init__(self, others=3, verify_member=None, **changes):
        self.identities = {f"fake-{i}": IdentityKey.generate() for i in range(others)}
        self.guests = {}
        self.identity = IdentityKey.generate()
        verify = verify_member or TrustServerForIdentities()
        self.client = SealedClient(
            Membership("me", self.identity, configuration(**changes), verify, MemoryStore())
        )
        self.sealed_under, self.sealed_round = b"", -1
        self.enrol()

    def enrol(self):
        """Invite the device, and take fresh seal keys for the others."""
        self.mine, _ = messages_from_client.decode(self.client.receive(encode(Invitation(SCOPE))))
        self.seals = {user: SealKey.generate().public for user in self.identities}

    def newcomers(self, count, predecessor=b""):
        """Lines of further members, who come from nowhere or from another batch."""
        self.guests = {f"new-{i}": IdentityKey.generate() for i in range(count)}
        return tuple(
            Member(user, identity.public, SealKey.generate().public, predecessor)
            for user, identity in self.guests.items()
        )

    def charter(self, newcomers=(), **changes):
        """A charter that keeps all rules, with changes."""
        mine = Member("me", self.mine.identity, self.mine.seal, self.mine.predecessor)
        others = [
            Member(user, identity.public, self.seals[user], self.sealed_under)
            for user, identity in self.identities.items()
        ]
        options = {
            "scope": SCOPE,
            "privacy": len(others) + 1,
            "quantiser": quantiser(),
            "inner": "open",
            "members": (mine, *others, *newcomers),
            "first": self.sealed_round + 1,
        }
        return Charter(**{**options, **changes})

    def signatures(self, encoded):
        """Everybody's signatures, the device's own too, which a server could not make."""
        signers = {"me": self.identity, **self.identities, **self.guests}
        return {user: key.sign("charter", encoded) for user, key in signers.items()}

    def sign(self, charter):
        """Have the device sign a draft; return everybody's signatures, its own from its answer."""
        answer, _ = messages_from_client.decode(self.client.receive(encode(Draft(charter.encode()))))
        return {**self.signatures(charter.encode()), "me": answer.signature}

    def found(self, charter):
        """Let the device accept a charter."""
        signatures = self.sign(charter)
        self.client.receive(encode(Founding(charter.encode(), signatures)))
        return charter

    def seal(self, charter, round_=0, update=UPDATE, **options):
        """Let the device seal a round; from then on everybody names this charter as predecessor."""
        sent = self.client.seal(self.client.receive(call(charter, round_)), update, **options)
        self.sealed_under, self.sealed_round = charter.digest, round_
        return sent

    def refuses(self, charter, reason):
        """The device neither signs this charter, nor accepts it, not even with the signatures of all."""
        encoded = charter if isinstance(charter, bytes) else charter.encode()
        refused(self.client, encode(Draft(encoded)), reason)
        self.sign(self.charter())
        refused(self.client, encode(Draft(encoded)), reason)
        self.refuses_founding(encoded, self.signatures(encoded), reason)

    def refuses_founding(self, encoded, signatures, reason):
        """The device does not accept a charter with these signatures."""
        refused(self.client, encode(Founding(encoded, signatures)), reason)
