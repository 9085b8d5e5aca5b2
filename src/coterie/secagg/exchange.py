"""Both roles in one process, through real bytes, with scripted losses: for tests, simulation and benchmarks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from coterie.errors import UsageError
from coterie.secagg.batch.charter import Charter, TrustServerForIdentities, VerifyMember
from coterie.secagg.batch.founding import BatchFounder, BatchRules
from coterie.secagg.batch.membership import Membership
from coterie.secagg.batch.rules import DeviceConfiguration
from coterie.secagg.client import Client, SealedClient
from coterie.secagg.crypto.keys import IdentityKey
from coterie.secagg.crypto.quantiser import Update
from coterie.secagg.protocols.interface import RoundResult, ServerRound, Task

Loses = Callable[[str, int, str], bool]
"""Whether a message is lost: asked with the user, the phase (from 0), and "to" or "from" the user."""


def nothing_lost(user: str, phase: int, direction: str) -> bool:
    """Lose nothing."""
    del user, phase, direction
    return False


@dataclass
class _MemorySlot:
    content: bytes | None


@dataclass
class MemoryStore:
    """A device's records in memory: gone with the process, doubled by a fork. For simulated devices only."""

    records: dict[str, bytes] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def transaction(self, scope: str) -> Iterator[_MemorySlot]:
        """Open the record of one data scope; an exception leaves it as it was."""
        with self._lock:
            slot = _MemorySlot(self.records.get(scope))
            yield slot
            if slot.content is not None:
                self.records[scope] = slot.content


def simulated_client(
    user: str,
    configuration: DeviceConfiguration,
    verify_member: VerifyMember | None = None,
) -> SealedClient:
    """Return a client with a new identity on a device in memory.

    Unless given, the members' identities are trusted: all of them live in this process.
    """
    verify = TrustServerForIdentities() if verify_member is None else verify_member
    return SealedClient(Membership(user, IdentityKey.generate(), configuration, verify, MemoryStore()))


def found_batch(rules: BatchRules, clients: Iterable[SealedClient], first: int = 0) -> Charter:
    """Let clients and server form a batch, and return its charter."""
    members = {client.user: client for client in clients}
    founder = BatchFounder(rules, members, first)
    outgoing = founder.invitations()
    while outgoing:
        answers = {user: members[user].receive(data) for user, data in outgoing.items()}
        outgoing = {}
        for user, answer in answers.items():
            if not isinstance(answer, bytes):
                raise UsageError(f"{user} did not answer while its batch was being formed")
            outgoing |= founder.receive(user, answer)
    if founder.charter is None:
        raise UsageError("the batch was not formed: a member did not answer")
    return founder.charter


def run_round(
    server: ServerRound,
    clients: Mapping[str, Client],
    train: Callable[[str, Task], Update],
    *,
    weights: Mapping[str, int] | None = None,
    loses: Loses = nothing_lost,
) -> RoundResult:
    """Run one round among clients in this process; `train` gives each user's update for its task.

    A user who misses a message can follow no more; one whose answer is lost still can.
    """
    outgoing, phase, away = server.start(), 0, set[str]()
    while outgoing:
        for user, data in outgoing.items():
            away |= {user} if loses(user, phase, "to") else set()
            if user in away:
                continue
            answer = clients[user].receive(data)
            if isinstance(answer, Task):
                weight = 1 if weights is None else weights[user]
                answer = clients[user].seal(answer, train(user, answer), weight=weight)
            if answer is not None and not loses(user, phase, "from"):
                server.receive(user, answer)
        outgoing, phase = server.advance(), phase + 1
    return server.finish()
