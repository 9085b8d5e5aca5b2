"""What the golden files hold, and how those of devices in the middle of a round are made."""

import numpy as np

from coterie import BatchPlan, LogBuilder
from coterie.device import DeviceFile
from coterie.secagg import (
    DurableClient,
    IdentityKey,
    Membership,
    MemoryStore,
    PreparingClient,
    SealedClient,
    TrustServerForIdentities,
    exchange_messages,
    found_batch,
    prepare_round,
    prepared_round,
    sealed_round,
)
from coterie.secagg.crypto.ring import PRIME_31
from coterie.training.data.partition import Partition
from support.secagg.batches import DIMENSION, configuration, quantiser, rules, terms, updates

NAMES = ("ana", "bob, the 2nd", "Zoë", "d", "e")
PLAN = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 2], [1, 3, 4]], names=NAMES)
PARTITION = Partition.from_users(examples=5, users=[[0, 2], [4]])


def _log():
    builder = LogBuilder(5, NAMES, first=3)
    builder.append([0, 2], [1, 3, 4])
    builder.append()
    builder.append([0, 1, 2, 3, 4])
    return builder.build()


LOG = _log()
"""Two learned sets in round 3, none in round 4, everybody in round 5."""

ME = "user-0-0"
BATCHES = [[f"user-{batch}-{member}" for member in range(3)] for batch in range(3)]
LEAST = 6
INNER = {"secagg+", "lightsecagg"}


def stored_client(kind, folder):
    """A user's client of this kind, over the files of its device."""
    device, rounds = (DeviceFile.open(folder / f"{name}.sqlite") for name in ("device", "rounds"))
    inner = "secagg+" if kind is DurableClient else "lightsecagg"
    identity = IdentityKey.from_bytes(device.identity)
    return kind(Membership(ME, identity, configuration(inner={inner}), TrustServerForIdentities(), device), rounds)


def write_devices(folder):
    """Write two devices between two messages, each with the message that comes next."""
    _write_device(folder / "durable", DurableClient, rules(inner="secagg+", privacy=3))
    _write_device(
        folder / "prepared",
        PreparingClient,
        rules(inner="lightsecagg", privacy=3, quantiser=quantiser(ring=PRIME_31)),
    )


def _write_device(folder, kind, common):
    folder.mkdir(parents=True, exist_ok=True)
    identities = {name: IdentityKey.generate() for batch in BATCHES for name in batch}
    for name in ("device", "rounds"):
        (folder / f"{name}.sqlite").unlink(missing_ok=True)
        DeviceFile.create(folder / f"{name}.sqlite", identity=identities[ME].to_bytes()).close()
    clients = {}
    for name, identity in identities.items():
        member = Membership(name, identity, configuration(inner=INNER), TrustServerForIdentities(), MemoryStore())
        clients[name] = PreparingClient(member, MemoryStore()) if kind is PreparingClient else SealedClient(member)
    clients[ME] = stored_client(kind, folder)
    charters = [found_batch(common, [clients[name] for name in batch]) for batch in BATCHES]
    if kind is PreparingClient:
        preparation = prepare_round(charters, 0, DIMENSION, LEAST)
        exchange_messages(preparation, clients, lambda user, task: None)
        outgoing = prepared_round(charters, terms(min_included=LEAST), preparation).start()
    else:
        server, given = sealed_round(charters, 0, terms(min_included=LEAST)), updates(clients)
        for user, data in server.start().items():
            server.receive(user, clients[user].seal(clients[user].receive(data), given[user]))
        outgoing = server.advance()
    (folder / "next.bin").write_bytes(bytes(outgoing[ME]))
    for lease in folder.glob("*-lease"):
        lease.unlink()


def write_flower_checkpoint(folder):
    """Write the checkpoint of a federation whose strategy remembers a list of arrays."""
    from flwr.app import Array, ArrayRecord

    from coterie.flower.checkpoint import CheckpointFolder, FlowerCheckpoint

    arrays = ArrayRecord({"layer.weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3))})
    momentum = [np.array([0.5, -0.25])]
    CheckpointFolder(folder).write(FlowerCheckpoint(3, arrays, {"momentum": momentum}), "")
