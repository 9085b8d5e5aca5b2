"""A user's side of rounds, sealed or not, whichever inner protocol they have (§3, §4)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Charter, Parameters, VerifyMember
from coterie.secagg.batch.membership import DeviceOwner, DeviceRecord, Membership, seal_masks
from coterie.secagg.batch.rules import DeviceConfiguration, check_protocol, check_recipe, check_rules, check_terms
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import IdentityKey, Seed, hkdf_expand
from coterie.secagg.crypto.masking import mask_into
from coterie.secagg.crypto.quantiser import Floats, Layout, Quantiser, Update
from coterie.secagg.crypto.ring import Ring
from coterie.secagg.protocols import PROTOCOLS, InnerProtocol, messages_from_server
from coterie.secagg.protocols.interface import Participant, Party, RoundSetting, Task
from coterie.secagg.wire.framing import Data, Message
from coterie.secagg.wire.messages import (
    CLIENT_SEALED,
    CLIENT_UNSEALED,
    ClientState,
    Draft,
    Founding,
    Invitation,
    RoundCall,
    Terms,
    UnsealedCall,
    called_terms,
    next_state,
    refusal,
)
from coterie.values.checks import check_count


class Client(ABC):
    """A user's side of rounds, without I/O: bytes in, bytes or a task out.

    Give it the server's bytes with `receive`: it answers with bytes to send, with nothing, or with a `Task`.
    Train by the task's recipe, then `seal` the update and send the result.
    """

    _table: ClassVar[Mapping[tuple[ClientState, type[Message]], ClientState]]

    def __init__(self, owner: DeviceOwner, largest_message: int) -> None:
        self.user, self._owner, self._largest_message = owner.user, owner, largest_message
        self._tasks: dict[str, Task] = {}
        self._rounds: dict[str, Participant] = {}

    def receive(self, data: Data) -> bytes | memoryview | Task | None:
        """Take in a message; return the answer to send, a task to train for and then `seal`, or nothing.

        A violation raises PeerError and changes nothing.
        """
        message, _ = messages_from_server.decode(data, self._largest_message)
        return self._answer(message)

    @abstractmethod
    def _answer(self, message: Message) -> bytes | memoryview | Task | None:
        """Return the answer to a message of any kind."""

    @abstractmethod
    def seal(self, task: Task, update: Update, *, weight: int = 1, threads: int = 1) -> bytes | memoryview:
        """Return the first answer of the round."""

    def _state(self, scope: str) -> ClientState:
        if scope in self._rounds:
            return ClientState.ANSWERING
        return ClientState.CALLED if scope in self._tasks else ClientState.READY

    # --- from the task to the first answer

    def _checked(self, task: Task, update: Update, weight: int) -> tuple[Floats, int]:
        """Return an update as one row of values, and its weight; refuse a task that is not the last one."""
        if self._tasks.get(task.scope) != task:
            raise UsageError(f"round {task.round} of scope {task.scope!r} is not the one that was asked for last")
        return flat_update(update, task.terms), check_count(weight, "the weight")

    # --- the phases of the inner protocol

    @contextmanager
    def _round(self, scope: str) -> Iterator[Participant | None]:
        """Give this user's side of the round that it is in; once that is finished, it is let go of."""
        participant = self._rounds.get(scope)
        yield participant
        if participant is not None and participant.finished and self._rounds.get(scope) is participant:
            del self._rounds[scope]

    def _phase(self, message: Message) -> Data | None:
        """Answer in the phases of an inner protocol; there is no answer to a call without a seal."""
        scope = getattr(message, "scope", "")
        with self._round(scope) as participant:
            if participant is not None:
                return participant.take(message)
        raise self._refusal(scope, message)

    def _refusal(self, scope: str, message: Message) -> PeerError:
        return refusal(self._table, self._state(scope), message, "the server")


class SealedClient(Client):
    """One user's side of sealed rounds, and of forming the batches that they are sealed in."""

    _table = CLIENT_SEALED

    def __init__(self, membership: Membership, largest_message: int = 1 << 28) -> None:
        super().__init__(membership, largest_message)
        self.membership = membership

    def _answer(self, message: Message) -> bytes | memoryview | Task | None:
        match message:
            case Invitation():
                return self.membership.answer_invitation(message)
            case Draft():
                return self.membership.sign_draft(message)
            case Founding():
                return self.membership.accept_founding(message)
            case RoundCall():
                return self._answer_call(message)
            case _:
                return self._phase(message)

    def _refusal(self, scope: str, message: Message) -> PeerError:
        with self.membership.record(scope) as record:
            return refusal(self._table, self._state_in(record, scope), message, "the server")

    def _state_in(self, record: DeviceRecord, scope: str) -> ClientState:
        return self._state(scope) if record.charter else ClientState.OUTSIDE

    # --- a call: is it for a round that this device may seal?

    def _answer_call(self, message: RoundCall) -> Task:
        terms = called_terms(message)
        with self.membership.record(message.scope) as record:
            next_state(self._table, self._state_in(record, message.scope), message, "the server")
            recipe = terms.configuration or record.in_force.recipe
            task = Task(message.scope, message.charter, message.round, terms, recipe)
            self._check(task, record)
        self._tasks[task.scope] = task
        self._rounds.pop(task.scope, None)
        return task

    def _check(self, task: Task, record: DeviceRecord) -> tuple[Charter, InnerProtocol]:
        """Refuse a round that this device must not seal (§3); return its charter and inner protocol."""
        charter, configuration = record.in_force, self.membership.configuration
        if task.charter != charter.digest:
            raise PeerError(
                f"the server asked for a round of charter {task.charter.hex()}; this device is under "
                f"{charter.digest.hex()}"
            )
        protocol = check_rules(charter, configuration)
        if record.chain_keys.keys() != charter.identities.keys() - {self.user} or (
            charter.identities.get(self.user) != self.membership.identity.public
        ):
            raise UsageError(
                f"the device's record of scope {task.scope!r} is not one of {self.user!r}; use its own"
            )
        record.chain.check_round(task.round, configuration.largest_skip)
        if not record.sealed_step <= task.terms.step <= task.round:
            raise PeerError(
                f"the server asked for step {task.terms.step} in round {task.round}; this device takes "
                f"{record.sealed_step}, its last, to {task.round}"
            )
        least = protocol.least_included([len(charter.members)], charter.privacy)
        check_terms(task.terms, least, configuration)
        return charter, protocol

    # --- the seal, once the update is there

    def seal(self, task: Task, update: Update, *, weight: int = 1, threads: int = 1) -> memoryview:
        """Return the first answer to a task, after the update was quantised and masked.

        In a protocol of several phases that answer has no vector yet: it waits in `participant.words`. The chain
        moves past the round durably before anything leaves (§3). The weight of the first seal in a scope, at most
        the charter's largest, is the user's weight for good: later ones are not looked at, since a weight that
        moves by one while updates repeat would show the update (§1). An update that is not finite counts as the
        zero update.
        """
        values, weight = self._checked(task, update, weight)
        with self.membership.record(task.scope) as record:
            charter, protocol = self._check(task, record)
            chain = record.chain.advance(task.round)
            masks = seal_masks(chain, task.round, task.terms.digest, self.user)
            record.pin_weight(weight, charter.quantiser.weight_cap)
            party = self._member(charter, task.round, task.terms)
            participant = protocol.participant(party, threads)
            masks += participant.masks
            rounding = rounding_key(record.rounding_secret, task.terms)
            weighted = (values, record.weight, charter.quantiser)
            mask_into(participant.words, *weighted, masks, rounding, threads=threads)
            answer = memoryview(participant.start())
            record.move_chain(chain.advance(task.round + 1))
            record.sealed_charter = record.charter
            record.sealed_round, record.sealed_step, record.sealed_message = task.round, task.terms.step, answer
        if self._tasks.get(task.scope) == task:
            del self._tasks[task.scope]
            if not participant.finished:
                self._enter(party, participant)
        return answer

    def _member(self, charter: Charter, round_: int, terms: Terms) -> Party:
        setting = RoundSetting.sealed(charter, round_, terms)
        return self._owner.party(setting, charter.digest, charter.identities)

    def _enter(self, party: Party, participant: Participant) -> None:
        """Go on in the phases of the inner protocol."""
        self._rounds[party.setting.scope] = participant

    def resend_sealed(self, scope: str, round_: int) -> memoryview:
        """Return the stored bytes of the last sealed round, to send them once more after a lost connection."""
        with self.membership.record(scope) as record:
            if record.sealed_round != round_ or not record.sealed_message:
                raise UsageError(f"round {round_} of scope {scope!r} is not the last that this device sealed")
            return record.sealed_message


class UnsealedClient(Client):
    """One user's side of unsealed rounds; it remembers nothing durably.

    It is in no batch. Every round that completes shows the sum of those who were in it, and many rounds show more
    (docs/guarantee.md).
    """

    _table = CLIENT_UNSEALED

    def __init__(
        self,
        user: str,
        identity: IdentityKey,
        configuration: DeviceConfiguration,
        verify_member: VerifyMember,
        *,
        largest_message: int = 1 << 28,
        rounding_secret: Seed | None = None,
    ) -> None:
        super().__init__(DeviceOwner(user, identity, configuration, verify_member), largest_message)
        self._rounding = (Seed.generate() if rounding_secret is None else rounding_secret).reveal()
        self._settings: dict[str, RoundSetting] = {}
        """Of the rounds whose tasks were given."""
        self._next: dict[str, int] = {}

    def _answer(self, message: Message) -> bytes | memoryview | Task | None:
        return self._answer_call(message) if isinstance(message, UnsealedCall) else self._phase(message)

    def _answer_call(self, message: UnsealedCall) -> Task:
        next_state(self._table, self._state(message.scope), message, "the server")
        configuration = self._owner.configuration
        configuration.check_scope(message.scope)
        try:
            quantiser = Quantiser(Ring(message.modulus), message.clip, message.weight_cap, message.cohort)
            parameters = Parameters(message.colluders, message.losses)
        except UsageError as error:
            raise PeerError(f"the server's quantiser or parameters are not valid: {error}") from None
        protocol = check_protocol(message.inner, quantiser, parameters, configuration)
        if not protocol.runs_unsealed:
            raise PeerError(f"the server called an unsealed round of {message.inner!r}, which runs sealed only")
        check_recipe(message.recipe, configuration)
        if message.round < self._next.get(message.scope, 0):
            raise PeerError(f"the server asked for round {message.round}; this client is past it")
        terms = called_terms(message)
        check_terms(terms, protocol.least_included([1], 1), configuration)
        task = Task(message.scope, b"", message.round, terms, message.recipe)
        self._tasks[message.scope] = task  # before the setting, which `seal` reads before the task
        self._settings[message.scope] = RoundSetting(
            "unsealed", message.inner, message.scope, message.round, terms, quantiser, parameters
        )
        self._rounds.pop(message.scope, None)
        return task

    def seal(self, task: Task, update: Update, *, weight: int = 1, threads: int = 1) -> bytes | memoryview:
        """Return the first answer to a task; the vector, quantised and masked, waits for its phase."""
        # Read before the task: if a call comes meanwhile, `_checked` refuses this one.
        setting = self._settings.get(task.scope)
        values, weight = self._checked(task, update, weight)
        assert setting is not None  # noqa: S101 - a task that is there has one
        party = self._owner.party(setting, b"", {self.user: self._owner.identity.public})
        participant = PROTOCOLS[setting.inner].participant(party, threads)
        rounding = rounding_key(self._rounding, task.terms)
        weighted = (values, min(weight, setting.quantiser.weight_cap), setting.quantiser)
        mask_into(participant.words, *weighted, participant.masks, rounding, threads=threads)
        if self._tasks.get(task.scope) == task:
            del self._tasks[task.scope], self._settings[task.scope]
        self._rounds[task.scope] = participant
        self._next[task.scope] = task.round + 1
        return participant.start()


def flat_update(update: Update, terms: Terms) -> Floats:
    """Return an update as one row of values; refuse one that has not as many as the terms ask for."""
    values = Layout.of(update).flatten(update)
    if values.size != terms.dimension:
        raise UsageError(f"the update has {values.size} values; the terms ask for {terms.dimension}")
    return values


def rounding_key(secret: bytes, terms: Terms) -> Seed:
    """Return the key of the rounding bits: a function of the device's secret and the terms, and of nothing else.

    The same update under the same terms gives the same words, so that repeating a round shows nothing new (§1).
    """
    return Seed(hkdf_expand(secret, enc("coterie/v2/rounding", terms.digest)))
