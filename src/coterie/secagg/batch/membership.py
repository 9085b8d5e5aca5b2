"""A client's membership in one batch: joining it, and what its device must remember from then on (§2, §3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.chain import Chain, DeviceStore, start_chain
from coterie.secagg.batch.charter import (
    Charter,
    DeviceConfiguration,
    TrustServerForIdentities,
    VerifyMember,
    check_charter,
    sign_charter,
)
from coterie.secagg.crypto.keys import IdentityKey, SealKey, Seed
from coterie.secagg.wire.messages import Accepted, Draft, Enrolment, Founding, Invitation, Signed, encode
from coterie.secagg.wire.states import CLIENT_JOINING, Joining, following


class Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a device keeps for one data scope, in one piece: it changes as a whole or not at all.

    No field has a default: a record that lost some would be a device that has forgotten what it sealed.
    """

    version: Literal[1]
    pending_seal_key: bytes
    """The private seal key of a charter that is being formed; deleted on acceptance."""
    signed_draft: bytes
    """Digest of the draft that was signed last."""
    charter: bytes
    """The charter in force, canonically encoded."""
    position: int
    chain_keys: dict[str, bytes]
    sealed_charter: bytes
    """The last charter that this device sealed under: any later one must contain that whole batch."""
    sealed_round: int
    """The last round that this device sealed in this scope, under whatever charter; -1 if none."""
    sealed_message: memoryview
    """What was sent of it under the charter in force: the only bytes that may be sent again."""

    def __repr__(self) -> str:
        return "Record(…)"

    @classmethod
    def new(cls) -> "Record":
        """Return the record of a device that was never in a batch."""
        return cls(1, b"", b"", b"", 0, {}, b"", -1, memoryview(b""))

    @property
    def joining(self) -> Joining:
        """Where the client stands on its way into a batch."""
        if not self.pending_seal_key:
            return Joining.IDLE
        return Joining.SIGNED if self.signed_draft else Joining.ENROLLED

    @property
    def in_force(self) -> Charter:
        """The charter in force."""
        return _kept(self.charter)

    @property
    def sealed_under(self) -> Charter | None:
        """The charter that this device last sealed under, if it ever did."""
        return _kept(self.sealed_charter) if self.sealed_charter else None

    @property
    def chain(self) -> Chain:
        """The chain keys at their position."""
        return Chain(self.position, tuple((user, Seed(key)) for user, key in self.chain_keys.items()))

    def move_chain(self, chain: Chain) -> None:
        """Take over the chain keys of a later position."""
        self.position = chain.position
        self.chain_keys = {user: key.reveal() for user, key in chain.keys}


def _kept(charter: bytes) -> Charter:
    """Return a charter of the device's own record: if it does not decode, that is not the server's doing."""
    try:
        return Charter.decode(charter)
    except PeerError as error:
        raise UsageError(f"the device's record is damaged ({error}); its batch must be retired") from None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


@dataclass(frozen=True)
class Membership:
    """One user's side of forming batches, and the door to its device's record.

    `verify_member` says whether an identity key belongs to a real user; it has no default on purpose (§0).
    """

    user: str
    identity: IdentityKey
    configuration: DeviceConfiguration
    verify_member: VerifyMember
    store: DeviceStore

    @contextmanager
    def record(self, scope: str) -> Iterator[Record]:
        """Open the record of a scope; what was changed in it is durable when the block has ended."""
        if scope not in self.configuration.scopes:
            raise PeerError(f"the server named the scope {scope!r}; this device serves {self._scopes()}")
        with self.store.transaction(scope) as slot:
            before = slot.content
            try:
                record = Record.new() if before is None else _decoder.decode(before)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UsageError(
                    f"the device's record of scope {scope!r} is damaged ({error}); its batch must be retired"
                ) from None
            fields = [getattr(record, name) for name in record.__struct_fields__]
            yield record
            # By identity: a record that was only read is not written again with its last message.
            if any(
                getattr(record, name) is not old
                for name, old in zip(record.__struct_fields__, fields, strict=True)
            ):
                slot.content = _encoder.encode(record)

    def _scopes(self) -> str:
        return ", ".join(sorted(self.configuration.scopes))

    def invited(self, message: Invitation) -> bytes:
        """Answer an invitation with a fresh seal key (§2)."""
        seal_key = SealKey.generate()
        with self.record(message.scope) as record:
            following(CLIENT_JOINING, record.joining, message, "the server")
            record.pending_seal_key = seal_key.to_bytes()
            record.signed_draft = b""
            predecessor = record.sealed_under.digest if record.sealed_under else b""
        return encode(Enrolment(message.scope, self.user, self.identity.public, seal_key.public, predecessor))

    def drafted(self, message: Draft) -> bytes:
        """Sign a draft charter that keeps all rules but for the signatures still missing (§2)."""
        charter = Charter.decode(message.charter)
        verified = self._verified(charter, message, None)
        with self.record(charter.scope) as record:
            following(CLIENT_JOINING, record.joining, message, "the server")
            self._check(charter, None, record, verified)
            record.signed_draft = charter.digest
        signature = sign_charter(charter, self.identity)
        return encode(Signed(charter.scope, self.user, charter.digest, signature))

    def founded(self, message: Founding) -> bytes:
        """Accept a charter that all members have signed: derive the chain, then delete the seal key (§3)."""
        charter = Charter.decode(message.charter)
        verified = self._verified(charter, message, message.signatures)
        with self.record(charter.scope) as record:
            following(CLIENT_JOINING, record.joining, message, "the server")
            self._check(charter, message.signatures, record, verified)
            chain = start_chain(charter, self.user, SealKey.from_bytes(record.pending_seal_key))
            record.charter = message.charter
            record.pending_seal_key = record.signed_draft = b""
            record.sealed_message = memoryview(b"")
            record.move_chain(chain)
        return encode(Accepted(charter.scope, self.user, charter.digest))

    def _verified(
        self, charter: Charter, message: Draft | Founding, signatures: dict[str, bytes] | None
    ) -> VerifyMember:
        """Ask `verify_member` about everyone while the record is free, since it may take its time.

        It is asked only about a charter that keeps all other rules: a server cannot make it work for nothing.
        """
        with self.record(charter.scope) as record:
            following(CLIENT_JOINING, record.joining, message, "the server")
            self._check(charter, signatures, record, TrustServerForIdentities())
        answers = {(m.user, m.identity): self.verify_member(m.user, m.identity) for m in charter.members}
        return lambda user, identity: answers[user, identity]

    def _check(
        self, charter: Charter, signatures: dict[str, bytes] | None, record: Record, verified: VerifyMember
    ) -> None:
        check_charter(
            charter,
            signatures,
            user=self.user,
            identity=self.identity.public,
            seal=SealKey.from_bytes(record.pending_seal_key).public,
            configuration=self.configuration,
            verify_member=verified,
            sealed_under=record.sealed_under,
            sealed_round=record.sealed_round,
        )
