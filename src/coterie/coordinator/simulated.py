"""Users in this process, reached through real bytes, whose messages can be lost or late at any moment."""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from coterie.coordinator.secure import Moment
from coterie.errors import CoterieError, PeerError, UsageError
from coterie.secagg.crypto.layout import Arrays
from coterie.secagg.protocols.interface import Client, Outgoing, Task
from coterie.secagg.wire.framing import Data


class Fate(Enum):
    """What happens to a message."""

    ARRIVES = "arrives"
    LATE = "late"
    """An answer that comes when the server is already in the next phase; a late message to a user is lost."""
    LOST = "lost"


Fates: TypeAlias = Callable[[str, Moment, str], Fate]
"""Decides a message's fate from its user, its moment, and "to" or "from" the user."""


def everything_arrives(user: str, moment: Moment, way: str) -> Fate:
    """Lose nothing."""
    del user, moment, way
    return Fate.ARRIVES


class DeviceFailed(CoterieError):  # noqa: N818 - the disk's error: it names what happened to the round
    """A user's device could not keep its record, for example because the disk is full.

    The round ends in the middle, and what was learned by then is not known: it must stay open in the ledger.
    """


class Contribution(NamedTuple):
    """What a user's training gave."""

    update: Arrays
    weight: int = 1


Train: TypeAlias = Callable[[Mapping[str, Task]], Mapping[str, Contribution]]
"""Trains the users that were given a task, all of them together."""


class SimulatedUsers:
    """A transport to users in this process."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        train: Train,
        fates: Fates = everything_arrives,
    ) -> None:
        self._clients, self._train, self._fates = clients, train, fates
        self._late: list[tuple[str, Data]] = []
        self.refusals: dict[str, str] = {}
        """Users whose device refused a message of the server, and why it did last."""

    def exchange(self, outgoing: Outgoing, moment: Moment) -> Iterator[tuple[str, Data]]:
        """Deliver the messages, let users train, and yield their answers."""
        late, self._late = self._late, []
        yield from late
        tasks: dict[str, Task] = {}
        for user, data in outgoing.items():
            if self._fates(user, moment, "to") is not Fate.ARRIVES:
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
                yield from self._sent(user, answer, moment)
        contributions = self._train(tasks) if tasks else {}
        for user, task in tasks.items():
            update, weight = contributions[user]
            try:
                answer = self._clients[user].seal(task, update, weight=weight)
            except UsageError as error:
                raise DeviceFailed(str(error)) from error
            yield from self._sent(user, answer, moment)

    def _sent(self, user: str, answer: Data, moment: Moment) -> Iterator[tuple[str, Data]]:
        fate = self._fates(user, moment, "from")
        if fate is Fate.ARRIVES:
            yield user, answer
        elif fate is Fate.LATE:
            self._late.append((user, answer))
