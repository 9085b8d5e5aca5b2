"""Users in this process, reached through real bytes, whose messages can be lost or late at any moment."""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from coterie.coordinator.aggregation import RoundPhase
from coterie.errors import CoterieError, PeerError, UsageError
from coterie.secagg.client import Client
from coterie.secagg.crypto.quantiser import Update
from coterie.secagg.protocols.interface import Outgoing, Task
from coterie.secagg.wire.framing import Data


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
