"""Kill -9 at random instants, with real processes: a device never seals one round twice."""

import random
import time

import numpy as np

from coterie.federation.device_file import DeviceFile
from coterie.secagg import (
    IdentityKey,
    Membership,
    SealedClient,
    TrustServerForIdentities,
    found_batch,
    simulated_client,
)
from support.forked import CONTEXT
from support.secagg.batches import DIMENSION, SCOPE, configuration, rules
from support.secagg.servers import call


def _device(store):
    identity = IdentityKey.from_bytes(store.identity)
    return SealedClient(Membership("ana", identity, configuration(), TrustServerForIdentities(), store))


def _seal_for_ever(path, charter, seed, pipe):
    """Seal round after round, each with another update, and send what was sealed; until killed."""
    rng = np.random.default_rng(seed)
    with DeviceFile.open(path) as store:
        client = _device(store)
        while True:
            with client.membership.record(SCOPE) as record:
                round_ = record.position
            update = rng.uniform(-1, 1, DIMENSION)
            pipe.send((round_, bytes(client.seal(client.receive(call(charter, round_)), update))))


def test_a_device_that_is_killed_never_seals_a_round_twice(tmp_path):
    """Over many kills, no round ever leaves the device with two different vectors, and none goes backwards."""
    path = tmp_path / "ana.device"
    identity = IdentityKey.generate()
    with DeviceFile.create(path, identity.to_bytes()) as store:
        others = [simulated_client(name, configuration()) for name in ("bob", "cas")]
        charter = found_batch(rules(), [_device(store), *others])
    chance = random.Random(0)
    sent = {}
    for life in range(20):
        here, there = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_seal_for_ever, args=(path, charter, life, there))
        process.start()
        there.close()
        if here.poll(20):
            time.sleep(chance.random() * 0.15)
        process.kill()
        process.join()
        try:
            while True:
                round_, message = here.recv()
                assert sent.setdefault(round_, message) == message, f"round {round_} was sealed twice"
        except (EOFError, ConnectionResetError):
            here.close()
    assert len(sent) > 20
    with DeviceFile.open(path) as store, _device(store).membership.record(SCOPE) as record:
        assert record.position > max(sent)
