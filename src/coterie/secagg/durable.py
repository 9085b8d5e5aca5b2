"""A sealed client that may end after every message: what it needs for the next one is stored durably (§3, §5)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from coterie.errors import UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.batch.membership import DeviceStore, Membership
from coterie.secagg.client import SealedClient
from coterie.secagg.crypto.keys import StoredSecrets
from coterie.secagg.protocols import PROTOCOLS
from coterie.secagg.protocols.interface import Participant, Party, StorableParticipant, StorableProtocol, Task
from coterie.secagg.wire.messages import RoundCall, Terms


class _StoredRound(StoredSecrets):
    """The round that a device is in the middle of."""

    charter: bytes
    round: int
    dimension: int
    min_included: int
    step: int
    context: bytes
    participant: bytes
    version: Literal[1] = 1


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
            raise UsageError(
                f"a DurableClient cannot run {', '.join(unfit)}, whose state is not stored between messages"
            )
        self._store = rounds

    def _answer_call(self, message: RoundCall) -> Task:
        task = super()._answer_call(message)
        with self._store.transaction(message.scope) as slot:
            if slot.content:
                slot.content = b""  # a new call ends the round before it
        return task

    def _enter(self, party: Party, participant: Participant) -> None:
        """Store what the next phase needs before the first answer leaves."""
        assert isinstance(participant, StorableParticipant)  # noqa: S101 - the protocol is storable
        setting = party.setting
        stored = _StoredRound(
            party.charter, setting.round, setting.terms.dimension, setting.terms.min_included, setting.terms.step,
            setting.context, participant.store(),
        )  # fmt: skip
        with self._store.transaction(setting.scope) as slot:
            slot.content = stored.encode()

    @contextmanager
    def _round(self, scope: str) -> Iterator[Participant | None]:
        """Give the round that is stored, and store it as it is then."""
        with self.membership.record(scope) as record:
            charter = record.in_force if record.charter else None
        with self._store.transaction(scope) as slot:
            stored = _StoredRound.decode(slot.content) if slot.content else None
            if charter is None or stored is None or stored.charter != charter.digest:
                yield None
                return
            participant = self._restored(charter, stored)
            yield participant
            stored.participant = b"" if participant.finished else participant.store()
            slot.content = stored.encode() if stored.participant else b""

    def _restored(self, charter: Charter, stored: _StoredRound) -> StorableParticipant:
        protocol = PROTOCOLS[charter.inner]
        assert isinstance(protocol, StorableProtocol)  # noqa: S101 - it left something to store
        party = self._member(charter, stored.round, Terms(b"", stored.dimension, stored.min_included, stored.step))
        vars(party.setting)["context"] = stored.context  # of the model that was called with, not of none
        return protocol.restored(party, stored.participant)
