"""A process that races with another for one round of a device, in a module that loads nothing else."""

from coterie.errors import CoterieError
from coterie.federation.device_file import DeviceFile
from coterie.secagg import IdentityKey, Membership, SealedClient, TrustServerForIdentities
from support.secagg.batches import configuration


def race(path, asked, update, gate, answers):
    """Seal one round from a process of its own; report the answer, or the refusal."""
    with DeviceFile.open(path) as store:
        client = SealedClient(
            Membership(
                "ana", IdentityKey.from_bytes(store.identity), configuration(), TrustServerForIdentities(), store
            )
        )
        gate.wait(timeout=30)
        try:
            answers.put(bytes(client.seal(client.receive(asked), update)))
        except CoterieError as error:
            answers.put(str(error))
