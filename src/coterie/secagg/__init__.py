"""HOW the sum is taken: batches sealed by their members' own keys (docs/protocol.md)."""

from coterie.secagg.charter import Charter, DeviceConfiguration, Member, TrustServerForIdentities, VerifyMember
from coterie.secagg.exchange import MemoryStore, found_batch, run_open_round, simulated_client
from coterie.secagg.founding import BatchFounder
from coterie.secagg.keys import IdentityKey, SealKey, Seed
from coterie.secagg.membership import Membership
from coterie.secagg.open import BatchSum, OpenClient, OpenResult, OpenRound, Task
from coterie.secagg.ring import Sum
from coterie.secagg.seal import DeviceStore, Terms

__all__ = [
    "BatchFounder",
    "BatchSum",
    "Charter",
    "DeviceConfiguration",
    "DeviceStore",
    "IdentityKey",
    "Member",
    "Membership",
    "MemoryStore",
    "OpenClient",
    "OpenResult",
    "OpenRound",
    "SealKey",
    "Seed",
    "Sum",
    "Task",
    "Terms",
    "TrustServerForIdentities",
    "VerifyMember",
    "found_batch",
    "run_open_round",
    "simulated_client",
]
