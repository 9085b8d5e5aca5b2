"""Both roles in one process, through real bytes, with scripted losses: for tests, simulation and benchmarks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from coterie.errors import UsageError
from coterie.secagg.charter import Charter, DeviceConfiguration, TrustServerForIdentities, VerifyMember
from coterie.secagg.founding import BatchFounder
from coterie.secagg.keys import IdentityKey
from coterie.secagg.membership import Membership
from coterie.secagg.open import Arrays, OpenClient, OpenResult, OpenRound, Task
from coterie.secagg.seal import Terms

Loses = Callable[[str, str], bool]
"""Whether a message is lost: asked with the user and "to" or "from" the user."""


def nothing_lost(user: str, way: str) -> bool:
    """Lose nothing."""
    del user, way
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
) -> OpenClient:
    """Return a client with a new identity on a device in memory.

    Unless given, the members' identities are trusted: all of them live in this process.
    """
    verify = TrustServerForIdentities() if verify_member is None else verify_member
    return OpenClient(Membership(user, IdentityKey.generate(), configuration, verify, MemoryStore()))


def found_batch(scope: str, privacy: int, clients: Iterable[OpenClient]) -> Charter:
    """Let clients and server form a batch, and return its charter."""
    members = {client.user: client for client in clients}
    founder = BatchFounder(scope, privacy, members)
    outgoing = founder.invitations()
    while outgoing:
        answers = {user: members[user].receive(data) for user, data in outgoing.items()}
        outgoing = {}
        for user, answer in answers.items():
            if isinstance(answer, Task):
                raise UsageError(f"{user} was given a round while its batch was being formed")
            outgoing |= founder.receive(user, answer)
    if founder.charter is None:
        raise UsageError("the batch was not formed: a member did not answer")
    return founder.charter


def run_open_round(
    charters: Iterable[Charter],
    clients: Mapping[str, OpenClient],
    round_: int,
    terms: Terms,
    train: Callable[[str, Task], Arrays],
    *,
    weights: Mapping[str, int] | None = None,
    loses: Loses = nothing_lost,
    least_batches: int = 1,
) -> OpenResult:
    """Run one sealed round among clients in this process; `train` gives each user's update for its task."""
    server = OpenRound(charters, round_, terms, least_batches)
    for user, call in server.calls().items():
        if loses(user, "to"):
            continue
        task = clients[user].receive(call)
        if not isinstance(task, Task):
            raise UsageError(f"{user} answered a call to a round with a message")
        weight = 1 if weights is None else weights[user]
        sealed = clients[user].seal(task, train(user, task), weight=weight)
        if not loses(user, "from"):
            server.receive(user, sealed)
    return server.finish()
