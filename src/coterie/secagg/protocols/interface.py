"""One round of any inner protocol: what whoever drives it gives and gets, at both ends (§4)."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coterie.secagg.crypto.ring import Arrays, Sum
from coterie.secagg.wire.messages import Data
from coterie.secagg.wire.terms import Terms

Outgoing = dict[str, bytes]
"""Messages to send, by user."""


@dataclass(frozen=True)
class Task:
    """What the server asks of a device in one round: train on these terms, then seal the update."""

    scope: str
    charter: bytes
    """The charter's digest; empty in an unsealed round."""
    round: int
    terms: Terms


@dataclass(frozen=True)
class LearnedSum:
    """A learned set, and its sum."""

    users: tuple[str, ...]
    sum: Sum


@dataclass(frozen=True)
class RoundResult:
    """What a round gave: the sums that the server learned, and why some batches are in none of them.

    `open` gives one sum for every complete batch, the other inner protocols one for all included users.
    """

    round: int
    learned: tuple[LearnedSum, ...]
    lost: dict[bytes, str]
    """Charter digest of a batch without a result, and the reason."""

    @property
    def sum(self) -> Sum:
        """The weighted sum over all learned sets."""
        values = np.sum([part.sum.values for part in self.learned], axis=0)
        return Sum(values, sum(part.sum.weight for part in self.learned))


@dataclass(frozen=True)
class Exposure:
    """All that the server could open from the bytes that it has received so far, whether or not it did (§8)."""

    learned: tuple[tuple[str, ...], ...]
    """Sets of users whose sum is, or could be, known."""
    unknown: tuple[str, ...] = ()
    """Users of an unsealed round about whom any sum may be known."""


class ServerRound(Protocol):
    """The server's side of one round, without I/O.

    Send what `start` returns. Give each answer to `receive`. When nobody is `waiting` any more, or the time is
    over, `advance`, and send what it returns; until that is nothing. Then `finish`.
    """

    @property
    def round(self) -> int:
        """The round's number."""
        ...

    @property
    def waiting(self) -> frozenset[str]:
        """The users whose answer to this phase is still missing."""
        ...

    def start(self) -> Outgoing:
        """Return the first messages."""
        ...

    def receive(self, user: str, data: Data) -> None:
        """Take in a user's answer; a violation raises PeerError and changes nothing."""
        ...

    def advance(self) -> Outgoing:
        """End the phase and return the next one's messages; none if there is no further phase.

        Who has not answered is lost to the round from here on. TooFewUsers ends it.
        """
        ...

    def finish(self) -> RoundResult:
        """Return what the round gave; TooFewUsers if that is less than the terms ask for."""
        ...

    def exposure(self) -> Exposure:
        """Return all that the server could open so far; messages that come late add to it, also after the end."""
        ...


class Client(Protocol):
    """A user's side, without I/O: bytes in, bytes or a task out."""

    @property
    def user(self) -> str:
        """The user's id."""
        ...

    def receive(self, data: Data) -> bytes | memoryview | Task | None:
        """Take in a message; return the answer to send, a task to train for and then `seal`, or nothing."""
        ...

    def seal(
        self,
        task: Task,
        update: Arrays,
        *,
        weight: int = 1,
        rng: np.random.Generator | None = None,
        threads: int = 1,
    ) -> bytes | memoryview:
        """Return the first answer of the round."""
        ...
