"""A user's side of sealed rounds, whichever inner protocol its charter names (§3, §4)."""

import numpy as np

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.chain import seal_masks
from coterie.secagg.batch.charter import Charter, check_rules
from coterie.secagg.batch.membership import Membership, Record
from coterie.secagg.crypto.ring import EXTRA_WORDS, Arrays, Ring
from coterie.secagg.protocols.interface import Task
from coterie.secagg.protocols.open import INNER
from coterie.secagg.protocols.pairwise.client import Participant, Party
from coterie.secagg.protocols.pairwise.setting import PAIRWISE, Setting
from coterie.secagg.vectors import Vector
from coterie.secagg.wire.messages import (
    Data,
    Draft,
    Founding,
    Invitation,
    PhaseMessage,
    RoundCall,
    SealedVector,
    UnsealedCall,
    blank,
    decode_from_server,
    encode,
)
from coterie.secagg.wire.states import CLIENT_TAKING, Taking, following, refusal
from coterie.secagg.wire.terms import called_terms, check_terms


class SealedClient:
    """One user's side of sealed rounds.

    Give it the server's bytes with `receive`: it answers with bytes to send, with nothing, or with a `Task`.
    Train, then `seal` the update and send the result.
    """

    def __init__(self, membership: Membership, largest_message: int = 1 << 28) -> None:
        self.membership = membership
        self._largest_message = largest_message
        self._tasks: dict[str, Task] = {}
        self._rounds: dict[str, Participant] = {}

    @property
    def user(self) -> str:
        """The user's id."""
        return self.membership.user

    def receive(self, data: Data) -> bytes | memoryview | Task | None:
        """Take in a message from the server; a violation raises PeerError and changes nothing."""
        message = decode_from_server(data, self._largest_message)
        match message:
            case Invitation():
                return self.membership.invited(message)
            case Draft():
                return self.membership.drafted(message)
            case Founding():
                return self.membership.founded(message)
            case RoundCall():
                return self._called(message)
            case _:
                return self._phase(message)

    def _phase(self, message: PhaseMessage | UnsealedCall) -> bytes | memoryview | None:
        """Answer in a pairwise round; there is no answer to a call without a seal."""
        participant = self._rounds.get(message.scope)
        if participant is None or isinstance(message, UnsealedCall):
            with self.membership.record(message.scope) as record:
                state = self._state(record, message.scope)
            raise refusal(CLIENT_TAKING, state, message, "the server")
        answer = participant.take(message)
        if participant.state is Taking.READY and self._rounds.get(message.scope) is participant:
            del self._rounds[message.scope]
        return answer

    def _called(self, message: RoundCall) -> Task:
        task = Task(message.scope, message.charter, message.round, called_terms(message))
        with self.membership.record(message.scope) as record:
            following(CLIENT_TAKING, self._state(record, message.scope), message, "the server")
            self._check(task, record)
        self._tasks[message.scope] = task
        self._rounds.pop(message.scope, None)
        return task

    def _state(self, record: Record, scope: str) -> Taking:
        if not record.charter:
            return Taking.OUTSIDE
        if scope in self._rounds:
            return self._rounds[scope].state
        return Taking.CALLED if scope in self._tasks else Taking.READY

    def _check(self, task: Task, record: Record) -> Charter:
        """Refuse a round that this device must not seal (§3); return its charter."""
        charter = record.in_force
        if task.charter != charter.digest:
            raise PeerError(
                f"the server asked for a round of charter {task.charter.hex()}; this device is under "
                f"{charter.digest.hex()}"
            )
        check_rules(charter, self.membership.configuration)
        if charter.inner not in {INNER, *PAIRWISE}:
            raise PeerError(f"the server called a round of {charter.inner!r}, which this device does not run")
        others = {member.user for member in charter.members if member.user != self.user}
        mine = (self.user, self.membership.identity.public)
        if record.chain_keys.keys() != others or mine not in {(m.user, m.identity) for m in charter.members}:
            raise UsageError(
                f"the device's record of scope {task.scope!r} is not one of {self.user!r}; use its own"
            )
        record.chain.check_round(task.round)
        # Others can agree to a sum without this batch, and see only how many are in it: so it and T more.
        least = 1 if charter.inner == INNER else len(charter.members) + charter.privacy
        ring = Ring(charter.modulus)
        check_terms(task.terms, len(charter.members), least, ring, self.membership.configuration)
        return charter

    def seal(
        self,
        task: Task,
        update: Arrays,
        *,
        weight: int = 1,
        rng: np.random.Generator | None = None,
        threads: int = 1,
    ) -> memoryview:
        """Return the first answer to a task, after the update was quantised and masked.

        The chain moves past the round durably before anything leaves (§3). A weight above the terms' cap counts
        as the cap. An update that is not finite is refused: `abstain` then. `rng` rounds; it keeps no secret.
        """
        if self._tasks.get(task.scope) != task:
            raise UsageError(f"round {task.round} of scope {task.scope!r} is not the one that was asked for last")
        vector = Vector.of(update, weight, task.terms)
        rounding = np.random.default_rng() if rng is None else rng
        participant = None
        with self.membership.record(task.scope) as record:
            charter = self._check(task, record)
            chain = record.chain.advance(task.round)
            masks = seal_masks(chain, task.round, task.terms.digest, self.user)
            if charter.inner == INNER:
                head = SealedVector(task.scope, task.charter, task.round, self.user, task.terms.digest)
                message, tail = blank(head, 4 * (task.terms.dimension + EXTRA_WORDS))
                vector.mask_into(np.frombuffer(tail, dtype="<u4"), masks, charter.modulus, rounding, threads)
                answer = message.toreadonly()
            else:
                participant = Participant(self._party(task, charter), threads)
                masks.append(participant.self_mask)
                vector.mask_into(participant.words, masks, charter.modulus, rounding, threads)
                answer = memoryview(encode(participant.advertisement))
            record.move_chain(chain.advance(task.round + 1))
            record.sealed_charter = record.charter
            record.sealed_round, record.sealed_message = task.round, answer
        if self._tasks.get(task.scope) == task:
            del self._tasks[task.scope]
            if participant is not None:
                self._rounds[task.scope] = participant
        return answer

    def _party(self, task: Task, charter: Charter) -> Party:
        return Party(
            user=self.user,
            identity=self.membership.identity,
            verify_member=self.membership.verify_member,
            batch={member.user: member.identity for member in charter.members},
            setting=Setting("sealed", charter.inner, task.scope, task.round, task.terms),
        )

    def abstain(self, task: Task) -> memoryview:
        """Seal zeros, which nobody can tell from an update: for a user who cannot or will not give one.

        Staying silent instead would tell the server something of this user's data whenever the reason lies in
        the data: a training that diverged, an update that is not finite (§1).
        """
        return self.seal(task, np.zeros(task.terms.dimension, dtype=np.float32))

    def sealed_again(self, scope: str, round_: int) -> memoryview:
        """Return the stored bytes of the last sealed round, to send them once more after a lost connection."""
        with self.membership.record(scope) as record:
            if record.sealed_round != round_ or not record.sealed_message:
                raise UsageError(f"round {round_} of scope {scope!r} is not the last that this device sealed")
            return record.sealed_message
