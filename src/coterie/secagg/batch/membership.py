"""A client's membership in a batch: joining it, its seal, and what its device must remember (§2, §3)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec.structs import astuple

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Charter, VerifyMember, ordered, sign_charter
from coterie.secagg.batch.rules import (
    DeviceConfiguration,
    DeviceHistory,
    check_charter,
    check_members,
    check_signatures,
)
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import IdentityKey, SealKey, Seed, StoredSecrets, hkdf, hkdf_expand
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.protocols.interface import Party, RoundSetting
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import (
    CLIENT_ENROLMENT,
    CharterAcceptance,
    CharterSignature,
    Draft,
    Enrolment,
    EnrolmentState,
    Founding,
    Invitation,
    next_state,
)


@dataclass(frozen=True, eq=False)
class Chain:
    """A member's chain keys k_{j,position}, one for each other member j (§3).

    The keys before `position` are gone: a stolen device opens no past round that it sealed.
    """

    position: int
    keys: tuple[tuple[str, Seed], ...]

    def check_round(self, round_: int, largest_skip: int) -> None:
        """Refuse a round that was passed already, or that lies too far ahead."""
        if round_ < self.position:
            raise PeerError(f"the server asked for round {round_}; this device is past it, at {self.position}")
        if round_ >= self.position + largest_skip:
            raise PeerError(
                f"the server asked for round {round_}, more than {largest_skip} ahead of {self.position}"
            )

    def advance(self, to: int) -> "Chain":
        """Return the chain at a later position."""
        moved = []
        for user, key in self.keys:
            secret = key.reveal()
            for _ in range(to - self.position):
                secret = ratchet(secret)
            moved.append((user, Seed(secret)))
        return Chain(to, tuple(moved))


def ratchet(key: bytes) -> bytes:
    """Return k_{r+1} = HKDF-Expand(k_r, "coterie/v2/ratchet")."""
    return hkdf_expand(key, b"coterie/v2/ratchet")


def start_chain(charter: Charter, user: str, seal_key: SealKey) -> Chain:
    """Return the chain keys of the charter's first round, HKDF(X25519(own, j), charter digest, info) for each j.

    The info is enc("coterie/v2/chain", lower, higher), with the two ids in the order of their bytes.
    """
    keys = []
    for member in charter.members:
        if member.user != user:
            shared = seal_key.agree(member.seal, who=member.user).reveal()
            info = enc("coterie/v2/chain", *ordered(user, member.user))
            keys.append((member.user, Seed(hkdf(shared, charter.digest, info))))
    return Chain(charter.first, tuple(keys))


def seal_masks(chain: Chain, round_: int, terms_digest: bytes, user: str) -> list[Mask]:
    """Return a member's masks of one round; the chain must stand at that round.

    seed = HKDF-Expand(k_{j,r}, enc("coterie/v2/seal", r, terms digest, lower, higher)); the lower id adds the
    mask, the higher subtracts it.
    """
    if chain.position != round_:
        raise UsageError(f"the chain stands at round {chain.position}, not at {round_}")
    masks = []
    for other, key in chain.keys:
        info = enc("coterie/v2/seal", round_, terms_digest, *ordered(user, other))
        sign = 1 if user.encode() < other.encode() else -1
        masks.append(Mask(Seed(hkdf_expand(key.reveal(), info)), sign))
    return masks


class Slot(Protocol):
    """A device's record for one data scope, inside a transaction: read it, assign the next."""

    content: bytes | None


class DeviceStore(Protocol):
    """Where a device keeps its records, durably (§3).

    Leaving the transaction's block normally commits it to disk before control returns; an exception rolls it
    back. The block holds an exclusive lock among all processes that share the store.
    """

    def transaction(self, scope: str) -> AbstractContextManager[Slot]:
        """Open the record of one data scope."""
        ...


class DeviceRecord(StoredSecrets):
    """What a device keeps for one data scope, in one piece: it changes as a whole or not at all.

    No field has a default: a record that lost some would be a device that has forgotten what it sealed.
    """

    version: Literal[2]
    pending_seal_key: bytes
    """The private seal key of a charter that is being formed; deleted on acceptance."""
    signed_draft: bytes
    """Digest of the draft that was signed last, all of whose members were looked up."""
    charter: bytes
    """The charter in force, canonically encoded."""
    position: int
    chain_keys: dict[str, bytes]
    sealed_charter: bytes
    """The last charter that this device sealed under: any later one must contain that whole batch."""
    sealed_round: int
    """The last round that this device sealed in this scope, under whatever charter; -1 if none."""
    sealed_step: int
    """The step of that round's terms; no later round may go back behind it."""
    sealed_message: memoryview
    """What was sent of it under the charter in force: the only bytes that may be sent again."""
    weight: int
    """The user's weight, fixed by its first seal for good; 0 before that (§1)."""
    weight_cap: int
    """The largest weight of the charter of that first seal; no later one may have a smaller one."""
    rounding_secret: bytes
    """What rounding bits are derived from; it outlives every charter (§1)."""
    overrides: int
    """How often the device's owner let go of the charter that it had sealed under."""

    @classmethod
    def new(cls, rounding_secret: Seed) -> "DeviceRecord":
        """Return the record of a device that was never in a batch."""
        return cls(2, b"", b"", b"", 0, {}, b"", -1, 0, memoryview(b""), 0, 0, rounding_secret.reveal(), 0)

    @property
    def enrolment(self) -> EnrolmentState:
        """Where the client stands on its way into a batch."""
        if not self.pending_seal_key:
            return EnrolmentState.IDLE
        return EnrolmentState.SIGNED if self.signed_draft else EnrolmentState.ENROLLED

    @property
    def in_force(self) -> Charter:
        """The charter in force."""
        return _stored_charter(self.charter)

    @property
    def sealed_under(self) -> Charter | None:
        """The charter that this device last sealed under, if it ever did."""
        return _stored_charter(self.sealed_charter) if self.sealed_charter else None

    @property
    def past(self) -> DeviceHistory:
        """What binds the charters to come."""
        return DeviceHistory(self.sealed_under, self.sealed_round, self.weight_cap)

    @property
    def chain(self) -> Chain:
        """The chain keys at their position."""
        return Chain(self.position, tuple((user, Seed(key)) for user, key in self.chain_keys.items()))

    def pin_weight(self, weight: int, weight_cap: int) -> None:
        """Fix the user's weight for good, at most the charter's largest, unless an earlier seal did (§1)."""
        if not self.weight:
            self.weight, self.weight_cap = min(weight, weight_cap), weight_cap

    def move_chain(self, chain: Chain) -> None:
        """Take over the chain keys of a later position."""
        self.position = chain.position
        self.chain_keys = {user: key.reveal() for user, key in chain.keys}


def _stored_charter(charter: bytes) -> Charter:
    """Return a charter of the device's own record: if it does not decode, that is not the server's doing."""
    try:
        return Charter.decode(charter)
    except PeerError as error:
        raise UsageError(f"the device's record is damaged ({error}); its batch must be retired") from None


@dataclass(frozen=True)
class DeviceOwner:
    """Whose device it is, and what its owner allows.

    `verify_member` says whether an identity key belongs to a real user; it has no default on purpose (§0).
    """

    user: str
    identity: IdentityKey
    configuration: DeviceConfiguration
    verify_member: VerifyMember

    def party(self, setting: RoundSetting, charter: bytes, batch: Mapping[str, bytes]) -> Party:
        """Return who takes part in a round, with a batch under the charter of this digest."""
        most = self.configuration.largest_roster
        return Party(self.user, self.identity, self.verify_member, batch, charter, setting, most)


@dataclass(frozen=True)
class Membership(DeviceOwner):
    """One user's side of forming batches, and the door to its device's record."""

    store: DeviceStore
    new_secret: Callable[[], Seed] = Seed.generate
    """Where the rounding secret of a new record comes from; a simulation may make it repeatable."""

    @contextmanager
    def record(self, scope: str) -> Iterator[DeviceRecord]:
        """Open the record of a scope; what was changed in it is durable when the block has ended."""
        self.configuration.check_scope(scope)
        with self.store.transaction(scope) as slot:
            if slot.content is None:
                record = DeviceRecord.new(self.new_secret())
            else:
                damaged = f"the device's record of scope {scope!r} is damaged; its batch must be retired"
                record = DeviceRecord.decode(slot.content, damaged)
            before = astuple(record)
            yield record
            # By identity: a record that was only read is not written again with its last message.
            if any(new is not old for new, old in zip(astuple(record), before, strict=True)):
                slot.content = record.encode()

    def answer_invitation(self, message: Invitation) -> bytes:
        """Answer an invitation with a fresh seal key (§2)."""
        seal_key = SealKey.generate()
        with self.record(message.scope) as record:
            next_state(CLIENT_ENROLMENT, record.enrolment, message, "the server")
            record.pending_seal_key = seal_key.to_bytes()
            record.signed_draft = b""
            predecessor = record.sealed_under.digest if record.sealed_under else b""
        return encode(Enrolment(message.scope, self.user, self.identity.public, seal_key.public, predecessor))

    def sign_draft(self, message: Draft) -> bytes:
        """Sign a draft charter that keeps all rules but for the signatures still missing (§2).

        Members are looked up last, each once, and while the record is free, since that may take its time: a
        server cannot make the device work for a charter that it would not sign.
        """
        charter = Charter.decode(message.charter)
        with self.record(charter.scope) as record:
            self._check(charter, message, record)
        check_members(charter, self.verify_member)
        with self.record(charter.scope) as record:
            self._check(charter, message, record)
            record.signed_draft = charter.digest
        signature = sign_charter(charter, self.identity)
        return encode(CharterSignature(charter.scope, self.user, charter.digest, signature))

    def accept_founding(self, message: Founding) -> bytes:
        """Accept the charter that this device and all other members have signed (§3).

        The chain is derived, then the seal key deleted. Members were looked up before the draft was signed.
        """
        charter = Charter.decode(message.charter)
        with self.record(charter.scope) as record:
            self._check(charter, message, record)
            if charter.digest != record.signed_draft:
                raise PeerError(
                    f"the server founds the charter {charter.digest.hex()}; this device signed "
                    f"{record.signed_draft.hex()} last"
                )
            check_signatures(charter, message.signatures)
            chain = start_chain(charter, self.user, SealKey.from_bytes(record.pending_seal_key))
            record.charter = message.charter
            record.pending_seal_key = record.signed_draft = b""
            record.sealed_message = memoryview(b"")
            record.move_chain(chain)
        return encode(CharterAcceptance(charter.scope, self.user, charter.digest))

    def override(self, scope: str) -> None:
        """Let go of the charter that this device sealed under: the next one may split its batch (§2).

        Only the device's owner may do this; no message can. Weight, rounding secret and the last round stay. From
        then on the level is that of the common refinement of the old batches and the new ones, and can be 1.
        """
        with self.record(scope) as record:
            if not record.sealed_charter:
                raise UsageError(
                    f"this device has sealed under no charter in the scope {scope!r}; nothing binds it"
                )
            record.sealed_charter = b""
            record.overrides += 1

    def _check(self, charter: Charter, message: Draft | Founding, record: DeviceRecord) -> None:
        next_state(CLIENT_ENROLMENT, record.enrolment, message, "the server")
        check_charter(
            charter,
            user=self.user,
            identity=self.identity.public,
            seal=SealKey.from_bytes(record.pending_seal_key).public,
            configuration=self.configuration,
            past=record.past,
        )
