"""A sealed client that may end after every message: what it needs for the next one is stored durably (§3, §5)."""

from typing import Literal

import msgspec

from coterie.errors import UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.batch.membership import DeviceStore, Membership, decode_stored
from coterie.secagg.client import SealedClient
from coterie.secagg.crypto.quantiser import Update
from coterie.secagg.protocols import PROTOCOLS
from coterie.secagg.protocols.interface import StorableParticipant, StorableProtocol, Task
from coterie.secagg.wire.framing import Data, Message
from coterie.secagg.wire.messages import CLIENT_SEALED, ClientState, RoundCall, Terms, UnsealedCall, refusal


class _StoredRound(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The round that a device is in the middle of."""

    charter: bytes
    round: int
    dimension: int
    min_included: int
    step: int
    context: bytes
    participant: bytes
    version: Literal[1] = 1

    def __repr__(self) -> str:
        return "_StoredRound(…)"


_decoder = msgspec.msgpack.Decoder(_StoredRound)


class DurableClient(SealedClient):
    """One user's side of sealed rounds, in as many processes as there are messages, also at the same time.

    `rounds` is a store of its own beside the membership's, with the same promises. A participant moves on in one
    durable transaction of it before its answer leaves, so that of two processes that are given two proposals one
    refuses. A device that dies in between has answered nothing, and is lost to the round. Like the device's
    record, the store is never copied or put back: an older state would sign or open a second time.

    The protocols are those that are `storable`.
    """

    def __init__(self, membership: Membership, rounds: DeviceStore, largest_message: int = 1 << 28) -> None:
        super().__init__(membership, largest_message)
        unfit = [name for name in membership.configuration.protocols if not PROTOCOLS[name].storable]
        if unfit:
            raise UsageError(f"a device that ends after every message takes no part in {', '.join(unfit)}")
        self._store = rounds

    def _answer_call(self, message: RoundCall) -> Task:
        task = super()._answer_call(message)
        with self._store.transaction(message.scope) as slot:
            if slot.content:
                slot.content = b""  # a new call ends the round before it
        return task

    def seal(self, task: Task, update: Update, *, weight: int = 1, threads: int = 1) -> memoryview:
        """Return the first answer to a task; the round's secrets are stored before."""
        answer = super().seal(task, update, weight=weight, threads=threads)
        participant = self._rounds.pop(task.scope, None)
        if participant is not None:
            assert isinstance(participant, StorableParticipant)  # noqa: S101 - the protocol is storable
            # Not the task's: a thread that was called meanwhile may have put a later round in its place.
            charter, setting = participant.party.charter, participant.party.setting
            stored = _StoredRound(
                charter, setting.round, setting.terms.dimension, setting.terms.min_included, setting.terms.step,
                setting.context, participant.store(),
            )  # fmt: skip
            with self._store.transaction(task.scope) as slot:
                slot.content = msgspec.msgpack.encode(stored)
        return answer

    def _phase(self, message: Message) -> Data | None:
        scope = getattr(message, "scope", "")
        with self.membership.record(scope) as record:
            charter = record.in_force if record.charter else None
        with self._store.transaction(scope) as slot:
            stored = decode_stored(_decoder, slot.content) if slot.content else None
            if charter is not None and stored is not None and stored.charter == charter.digest:
                participant = self._restored(charter, stored)
                if isinstance(message, UnsealedCall):
                    raise refusal(CLIENT_SEALED, ClientState.ANSWERING, message, "the server")
                answer = participant.take(message)
                stored.participant = b"" if participant.finished else participant.store()
                slot.content = msgspec.msgpack.encode(stored) if stored.participant else b""
                return answer
        state = ClientState.OUTSIDE if charter is None else ClientState.READY
        raise refusal(CLIENT_SEALED, state, message, "the server")

    def _restored(self, charter: Charter, stored: _StoredRound) -> StorableParticipant:
        protocol = PROTOCOLS[charter.inner]
        assert isinstance(protocol, StorableProtocol)  # noqa: S101 - it left something to store
        terms = Terms(b"", stored.dimension, stored.min_included, stored.step)
        task = Task(charter.scope, charter.digest, stored.round, terms, charter.recipe)
        party = self._party(task, charter)
        vars(party.setting)["context"] = stored.context  # of the model that was called with, not of none
        return protocol.restored(party, stored.participant)
