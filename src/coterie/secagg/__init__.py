"""HOW the sum is taken: batches sealed by their members' own keys (docs/protocol.md).

Every inner protocol has one shape for a transport: a `ServerRound` at the server, a `Client` at each user, and
bytes between them (`exchange.run_round` is the shortest driver). A call gives a `Task`; train, `seal`, and pass on
what `receive` answers until the server's `advance` has nothing more to send.
"""

from coterie.secagg.batch.chain import DeviceStore
from coterie.secagg.batch.charter import (
    Charter,
    DeviceConfiguration,
    Member,
    TrustServerForIdentities,
    VerifyMember,
)
from coterie.secagg.batch.founding import BatchFounder
from coterie.secagg.batch.membership import Membership
from coterie.secagg.client import SealedClient
from coterie.secagg.crypto.keys import IdentityKey, SealKey, Seed
from coterie.secagg.crypto.ring import Sum
from coterie.secagg.exchange import MemoryStore, found_batch, run_round, simulated_client
from coterie.secagg.protocols.interface import Client, LearnedSum, Outgoing, RoundResult, ServerRound, Task
from coterie.secagg.protocols.open import OpenRound
from coterie.secagg.server import sealed_round, unsealed_round
from coterie.secagg.unsealed import UnsealedClient
from coterie.secagg.wire.terms import Terms

__all__ = [
    "BatchFounder",
    "Charter",
    "Client",
    "DeviceConfiguration",
    "DeviceStore",
    "IdentityKey",
    "LearnedSum",
    "Member",
    "Membership",
    "MemoryStore",
    "OpenRound",
    "Outgoing",
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
    "run_round",
    "sealed_round",
    "simulated_client",
    "unsealed_round",
]
