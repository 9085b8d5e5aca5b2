"""Clients in this process, reached through real bytes: for tests, simulations and benchmarks.

`run_round` drives both roles with scripted losses. `SimulatedUsers` is a transport whose messages can be lost or
late at any moment, as a coordinator meets them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import NamedTuple, TypeAlias

from coterie.errors import CoterieError, PeerError, UsageError
from coterie.secagg.batch.charter import Charter, TrustServerForIdentities, VerifyMember
from coterie.secagg.batch.founding import BatchFounder, BatchRules
from coterie.secagg.batch.membership import Membership
from coterie.secagg.batch.rules import DeviceConfiguration
from coterie.secagg.client import Client, SealedClient
from coterie.secagg.crypto.keys import IdentityKey
from coterie.secagg.crypto.quantiser import Update
from coterie.secagg.protocols.interface import Outgoing, RoundPhase, RoundResult, ServerRound, Task
from coterie.secagg.wire.framing import Data

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


# --- a transport to users in this process


class Arrival(Enum):
    """What happens to a message."""

    IN_TIME = "in time"
    LATE = "late"
    """An answer that comes when the server is already in the next phase; a late message to a user is lost."""
    LOST = "lost"


Network: TypeAlias = Callable[[str, RoundPhase, str], Arrival]
"""Decides how a message is delivered, from its user, its moment, and "to" or "from" the user."""


def perfect_network(user: str, moment: RoundPhase, direction: str) -> Arrival:
    """Lose nothing."""
    del user, moment, direction
    return Arrival.IN_TIME


class DeviceFailed(CoterieError):  # noqa: N818 - the disk's error: it names what happened to the round
    """A user's device could not keep its record, for example because the disk is full.

    The round ends in the middle, and what was learned by then is not known: it must stay open in the ledger.
    """


class Contribution(NamedTuple):
    """What a user's training gave."""

    update: Update
    weight: int = 1


Train: TypeAlias = Callable[[Mapping[str, Task]], Mapping[str, Contribution]]
"""Trains the users that were given a task, all of them together."""


class SimulatedUsers:
    """A transport to users in this process."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        train: Train,
        network: Network = perfect_network,
    ) -> None:
        self._clients, self._train, self._network = clients, train, network
        self._late: list[tuple[str, Data]] = []
        self.refusals: dict[str, str] = {}
        """Users whose device refused a message of the server, and why it did last."""

    def exchange(self, outgoing: Outgoing, moment: RoundPhase) -> Iterator[tuple[str, Data]]:
        """Deliver the messages, let users train, and yield their answers."""
        late, self._late = self._late, []
        yield from late
        tasks: dict[str, Task] = {}
        for user, data in outgoing.items():
            if self._network(user, moment, "to") is not Arrival.IN_TIME:
                continue
            try:
                answer = self._clients[user].receive(data)
            except PeerError as error:
                self.refusals[user] = str(error)
                continue
            except UsageError as error:
                raise DeviceFailed(str(error)) from error
            if isinstance(answer, Task):
                tasks[user] = answer
            elif answer is not None:
                yield from self._arrivals(user, answer, moment)
        contributions = self._train(tasks) if tasks else {}
        for user, task in tasks.items():
            update, weight = contributions[user]
            try:
                answer = self._clients[user].seal(task, update, weight=weight)
            except UsageError as error:
                raise DeviceFailed(str(error)) from error
            yield from self._arrivals(user, answer, moment)

    def _arrivals(self, user: str, answer: Data, moment: RoundPhase) -> Iterator[tuple[str, Data]]:
        arrival = self._network(user, moment, "from")
        if arrival is Arrival.IN_TIME:
            yield user, answer
        elif arrival is Arrival.LATE:
            self._late.append((user, answer))
