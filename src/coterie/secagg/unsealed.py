"""Users in rounds of SecAgg and SecAgg+ without a seal: for baselines, with no promise over many rounds (§4)."""

import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import DeviceConfiguration, VerifyMember
from coterie.secagg.crypto.keys import IdentityKey
from coterie.secagg.crypto.ring import RING_32, Arrays
from coterie.secagg.protocols.interface import Task
from coterie.secagg.protocols.pairwise.client import Participant, Party
from coterie.secagg.protocols.pairwise.setting import PAIRWISE, Setting
from coterie.secagg.vectors import Vector
from coterie.secagg.wire.messages import Data, PhaseMessage, UnsealedCall, decode_from_server, encode
from coterie.secagg.wire.states import CLIENT_UNSEALED, Taking, following, refusal
from coterie.secagg.wire.terms import called_terms, check_terms

LEAST_INCLUDED = 2
"""Users that an unsealed client wants in a sum: itself, and one more."""


class UnsealedClient:
    """One user's side of unsealed rounds, with the shape of a `SealedClient`; it remembers nothing durably.

    It is in no batch. Every round that completes shows the sum of those who were in it, and many rounds show more
    (docs/guarantee.md).
    """

    def __init__(
        self,
        user: str,
        identity: IdentityKey,
        configuration: DeviceConfiguration,
        verify_member: VerifyMember,
        largest_message: int = 1 << 28,
    ) -> None:
        self.user, self._identity = user, identity
        self._configuration, self._verify_member = configuration, verify_member
        self._largest_message = largest_message
        self._tasks: dict[str, tuple[Task, str]] = {}
        self._rounds: dict[str, Participant] = {}
        self._next: dict[str, int] = {}

    def receive(self, data: Data) -> bytes | memoryview | Task | None:
        """Take in a message from the server; a violation raises PeerError and changes nothing."""
        message = decode_from_server(data, self._largest_message)
        if isinstance(message, UnsealedCall):
            return self._called(message)
        scope = getattr(message, "scope", "")
        participant = self._rounds.get(scope)
        if participant is None or not isinstance(message, PhaseMessage):
            raise refusal(CLIENT_UNSEALED, self._state(scope), message, "the server")
        answer = participant.take(message)
        if participant.state is Taking.READY and self._rounds.get(scope) is participant:
            del self._rounds[scope]
        return answer

    def _state(self, scope: str) -> Taking:
        if scope in self._rounds:
            return self._rounds[scope].state
        return Taking.CALLED if scope in self._tasks else Taking.READY

    def _called(self, message: UnsealedCall) -> Task:
        following(CLIENT_UNSEALED, self._state(message.scope), message, "the server")
        if message.scope not in self._configuration.scopes:
            raise PeerError(
                f"the server named the scope {message.scope!r}; this device serves "
                f"{', '.join(sorted(self._configuration.scopes))}"
            )
        if message.inner not in self._configuration.inner.intersection(PAIRWISE):
            raise PeerError(
                f"the server called an unsealed round of {message.inner!r}; this device permits "
                f"{sorted(self._configuration.inner.intersection(PAIRWISE))}"
            )
        if message.round < self._next.get(message.scope, 0):
            raise PeerError(f"the server asked for round {message.round}; this client is past it")
        terms = called_terms(message)
        check_terms(terms, 1, LEAST_INCLUDED, RING_32, self._configuration)
        task = Task(message.scope, b"", message.round, terms)
        self._tasks[message.scope] = task, message.inner
        self._rounds.pop(message.scope, None)
        return task

    def seal(
        self,
        task: Task,
        update: Arrays,
        *,
        weight: int = 1,
        rng: np.random.Generator | None = None,
        threads: int = 1,
    ) -> bytes:
        """Return the first answer to a task; the vector, quantised and masked, waits for its phase."""
        asked, inner = self._tasks.get(task.scope, (None, ""))
        if asked != task:
            raise UsageError(f"round {task.round} of scope {task.scope!r} is not the one that was asked for last")
        vector = Vector.of(update, weight, task.terms)
        party = Party(
            user=self.user,
            identity=self._identity,
            verify_member=self._verify_member,
            batch={self.user: self._identity.public},
            setting=Setting("unsealed", inner, task.scope, task.round, task.terms),
        )
        participant = Participant(party, threads)
        rounding = np.random.default_rng() if rng is None else rng
        vector.mask_into(participant.words, [participant.self_mask], RING_32.modulus, rounding, threads)
        del self._tasks[task.scope]
        self._rounds[task.scope] = participant
        self._next[task.scope] = task.round + 1
        return encode(participant.advertisement)
