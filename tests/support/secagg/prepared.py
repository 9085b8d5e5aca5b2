"""Devices that share their masks before a round is called: what the tests of preparations begin with."""

import msgspec
import pytest

from coterie.errors import PeerError
from coterie.secagg import (
    IdentityKey,
    Membership,
    MemoryStore,
    PreparingClient,
    TrustServerForIdentities,
    exchange_messages,
    found_batch,
    prepare_round,
)
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.protocols.lightsecagg import PreparationCall
from coterie.secagg.wire.framing import encode
from support.secagg.batches import DIMENSION, SCOPE, configuration, quantiser, rules, updates

LEAST = 6
SETTINGS = {"quantiser": quantiser(ring=PRIME_31)}


class Devices:
    """Batches of three users whose devices store shares of rounds to come."""

    def __init__(self, batches=3, inner="lightsecagg", **options):
        names = [[f"user-{batch}-{member}" for member in range(3)] for batch in range(batches)]
        self._options = options
        self.stores = {name: (MemoryStore(), MemoryStore()) for batch in names for name in batch}
        self.memberships = {
            name: Membership(name, IdentityKey.generate(), configuration(), TrustServerForIdentities(), store)
            for name, (store, _) in self.stores.items()
        }
        self.clients = {name: self.restarted(name) for name in self.stores}
        common = SETTINGS if inner == "lightsecagg" else {}
        self.rules = rules(inner=inner, privacy=3, **common)
        self.charters = [found_batch(self.rules, [self.clients[name] for name in batch]) for batch in names]
        self.updates = updates(self.clients)

    def restarted(self, name):
        """A user's client, of whose memory nothing is left."""
        return PreparingClient(self.memberships[name], self.stores[name][1], **self._options)

    def restart(self):
        """Restart all devices."""
        self.clients = {name: self.restarted(name) for name in self.clients}

    def train(self, user, task):
        """A user's update, whatever the task."""
        del task
        return self.updates[user]

    def prepare(self, round_=0, charters=None, **options):
        """Share the masks of a round."""
        server = prepare_round(charters or self.charters, round_, DIMENSION, LEAST)
        exchange_messages(server, self.clients, self.train, **options)
        return server

    def answered(self, server, phases):
        """Let all answer in the first phases of a preparation; return what the server sends next."""
        messages = server.start()
        for _ in range(phases):
            for user, data in messages.items():
                server.receive(user, self.clients[user].receive(data))
            messages = server.advance()
        return messages

    def stored(self, name):
        """The mask that a device stores, if any."""
        content = self.stores[name][1].records.get(SCOPE)
        return msgspec.msgpack.decode(content)[4] if content else b""

    def check(self, result):
        """The sum is right; return whose it is."""
        (learned,) = result.learned
        expected = sum(self.updates[user].astype(float) for user in learned.users)
        assert learned.sum.values == pytest.approx(expected, abs=1e-5)
        return set(learned.users)


def call(charter, round_=0, dimension=DIMENSION, least=LEAST):
    """A call to share a mask."""
    return encode(PreparationCall(SCOPE, charter.digest, round_, dimension, least))


def refused(client, data, reason):
    """The message is refused, and what the device stores is as it was."""
    stores = (client.membership.store, client._store)  # noqa: SLF001 - what it stores
    before = [dict(store.records) for store in stores]
    with pytest.raises(PeerError, match=reason):
        client.receive(data)
    assert [dict(store.records) for store in stores] == before
