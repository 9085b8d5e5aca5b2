"""HOW the sum is taken: batches sealed by their members' own keys (docs/protocol.md).

Every inner protocol has one shape for a transport: a `ServerRound` at the server, a `Client` at each user, and
bytes between them (`loopback.run_round` is the shortest driver). A call gives a `Task`; train, `seal`, and pass on
what `receive` answers until the server's `advance` has nothing more to send.

In: charters, the round's terms, each user's vector.
Out: bytes between client and server; a sum over whole batches; an account of all that could be opened.
"""

from coterie.secagg.batch.charter import (
    Charter,
    Member,
    Parameters,
    TrustServerForIdentities,
    VerifyMember,
    read_recipe,
    write_recipe,
)
from coterie.secagg.batch.founding import BatchFounder, BatchRules
from coterie.secagg.batch.membership import DeviceStore, Membership
from coterie.secagg.batch.rules import DeviceConfiguration
from coterie.secagg.client import Client, SealedClient, UnsealedClient
from coterie.secagg.crypto.keys import IdentityKey, SealKey, Seed
from coterie.secagg.crypto.quantiser import Quantiser, Sum
from coterie.secagg.crypto.ring import PRIME_31, RING_16, RING_32, Ring
from coterie.secagg.durable import DurableClient
from coterie.secagg.loopback import MemoryStore, found_batch, run_round, simulated_client
from coterie.secagg.protocols import DEFAULT_PROTOCOL, PROTOCOLS, InnerProtocol
from coterie.secagg.protocols.interface import Exposure, LearnedSum, Outgoing, RoundResult, ServerRound, Task
from coterie.secagg.server import sealed_round, unsealed_round
from coterie.secagg.wire.messages import Terms

__all__ = [
    "DEFAULT_PROTOCOL",
    "PRIME_31",
    "PROTOCOLS",
    "RING_16",
    "RING_32",
    "BatchFounder",
    "BatchRules",
    "Charter",
    "Client",
    "DeviceConfiguration",
    "DeviceStore",
    "DurableClient",
    "Exposure",
    "IdentityKey",
    "InnerProtocol",
    "LearnedSum",
    "Member",
    "Membership",
    "MemoryStore",
    "Outgoing",
    "Parameters",
    "Quantiser",
    "Ring",
    "RoundResult",
    "SealKey",
    "SealedClient",
    "Seed",
    "ServerRound",
    "Sum",
    "Task",
    "Terms",
    "TrustServerForIdentities",
    "UnsealedClient",
    "VerifyMember",
    "found_batch",
    "read_recipe",
    "run_round",
    "sealed_round",
    "simulated_client",
    "unsealed_round",
    "write_recipe",
]
