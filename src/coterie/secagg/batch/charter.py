"""The charter of a batch: its rules and its members, signed by all of them (docs/protocol.md §2)."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.encoding import LARGEST_INTEGER, Reader, enc
from coterie.secagg.crypto.keys import (
    KEY_BYTES,
    IdentityKey,
    check_exchange_key,
    check_identity_key,
    verify_signature,
)

PROTOCOL = "coterie/sealed"
VERSION = 1
LARGEST_BATCH = 10_000
LARGEST_NAME = 64
"""The most bytes of UTF-8 in a user's id, a data scope or the name of an inner protocol."""
LARGEST_MEMBER = len(enc(bytes(LARGEST_NAME), *[bytes(KEY_BYTES)] * 3))
DIGEST_BYTES = 32

_T = TypeVar("_T")

MODULUS = {"open": 2**32, "secagg": 2**32, "secagg+": 2**32, "lightsecagg": 2**31 - 1}
"""The inner protocols, and the modulus q of each (§1, §4)."""


@dataclass(frozen=True)
class Member:
    """One line of a charter: a user, its keys, and the charter that it sealed under before in this data scope.

    Ids are compared and sorted as bytes of UTF-8, never normalised: "é" as one code point and as two are two
    users, and it is for `verify_member` to know them apart. `predecessor` is a charter's digest, or empty.
    """

    user: str
    identity: bytes
    seal: bytes
    predecessor: bytes = b""

    def __post_init__(self) -> None:
        _check_name(self.user, "a user's id")
        for what, key in (("identity", self.identity), ("seal", self.seal)):
            if len(key) != KEY_BYTES:
                raise UsageError(f"the {what} key of {self.user!r} has {len(key)} bytes, not {KEY_BYTES}")
        if len(self.predecessor) not in {0, DIGEST_BYTES}:
            raise UsageError(
                f"the predecessor of {self.user!r} has {len(self.predecessor)} bytes; "
                f"give a charter's digest of {DIGEST_BYTES}, or none"
            )


@dataclass(frozen=True)
class Charter:
    """The rules of one batch and its members, who come sorted by id whatever order they are given in.

    A charter has one encoding, and only that one decodes: what members sign, compare and hash are its bytes.

    >>> ana, bob = (Member(user, identity=bytes(32), seal=bytes(32)) for user in ("ana", "bob"))
    >>> charter = Charter("keyboard", privacy=2, modulus=2**32, inner="open", members=(bob, ana))
    >>> [member.user for member in charter.members]
    ['ana', 'bob']
    >>> Charter.decode(charter.encode()) == charter
    True
    """

    scope: str
    """The data that rounds under this charter may read."""
    privacy: int
    """T, the least number of members."""
    modulus: int
    """q, of the ring that vectors are added in."""
    inner: str
    """The inner protocol (§4)."""
    members: tuple[Member, ...]
    first: int = 0
    """The first round that can be sealed under this charter: a batch founded late need not begin at zero (§3)."""

    def __post_init__(self) -> None:
        _check_name(self.scope, "a data scope")
        _check_name(self.inner, "an inner protocol's name")
        _check_count(self.privacy, "a charter's privacy level T")
        _check_count(self.modulus, "a charter's modulus q")
        _check_count(self.first, "a charter's first round", least=0)
        members = tuple(sorted(self.members, key=_order))
        object.__setattr__(self, "members", members)
        if not 1 <= len(members) <= LARGEST_BATCH:
            raise UsageError(f"a charter has {len(members)} members; it can have 1 to {LARGEST_BATCH}")
        twice = _repeated(member.user for member in members)
        if twice is not None:
            raise UsageError(f"the charter has the member {twice!r} twice")

    def encode(self) -> bytes:
        """Return enc(protocol, version, scope, T, q, inner, first round, number of members, each member's enc)."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        members = (enc(m.user, m.identity, m.seal, m.predecessor) for m in self.members)
        rules = (self.scope, self.privacy, self.modulus, self.inner, self.first, len(self.members))
        return enc(PROTOCOL, VERSION, *rules, *members)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the encoding: how everything else names this charter."""
        return hashlib.sha256(self._encoded).digest()

    @classmethod
    def decode(cls, data: bytes) -> "Charter":
        """Return the charter that these bytes are the encoding of; refuse all others with a PeerError."""
        reader = Reader(data, "the charter")
        protocol = reader.text(LARGEST_NAME)
        if protocol != PROTOCOL:
            raise PeerError(f"the charter is for the protocol {protocol!r}, not {PROTOCOL!r}")
        version = reader.integer()
        if version != VERSION:
            raise PeerError(f"the charter has the version {version}; this is version {VERSION}")
        scope, privacy, modulus = reader.text(LARGEST_NAME), reader.integer(), reader.integer()
        inner, first, count = reader.text(LARGEST_NAME), reader.integer(), reader.integer()
        if count > LARGEST_BATCH:
            raise PeerError(f"the charter has {count} members; at most {LARGEST_BATCH} are allowed")
        try:
            members = tuple(_decoded_member(reader.bytes(LARGEST_MEMBER), number) for number in range(count))
            reader.end()
            charter = cls(scope, privacy, modulus, inner, members, first)
        except UsageError as error:
            raise PeerError(f"the charter is not valid: {error}") from error
        if charter.members != members:
            raise PeerError("the charter's members are not sorted by the bytes of their ids")
        return charter


def sign_charter(charter: Charter, identity: IdentityKey) -> bytes:
    """Return a member's signature. Signing is harmless: what is dangerous is accepting a charter, and sealing."""
    return identity.sign("charter", charter.encode())


@dataclass(frozen=True)
class DeviceConfiguration:
    """What a device's owner allows; no message can change it (§0).

    >>> DeviceConfiguration(scopes={"keyboard"}, least_privacy=1)
    Traceback (most recent call last):
    coterie.errors.UsageError: least_privacy is 1; a batch hides nobody with fewer than 2 members
    """

    scopes: frozenset[str]
    """The data that rounds may read, by name: a device is in one batch per scope."""
    least_privacy: int = 8
    """The least T of a charter."""
    inner: frozenset[str] = frozenset({"secagg+"})
    """The inner protocols that are permitted."""
    largest_dimension: int = 2**26
    clip_range: tuple[float, float] = (1e-6, 1e6)
    largest_weight_cap: int = 2**16
    largest_cohort: int = 2**20

    def __post_init__(self) -> None:
        if any(isinstance(names, str) for names in (self.scopes, self.inner)):
            raise UsageError("scopes and inner are sets of names; a single name is given as {'name'}")
        object.__setattr__(self, "scopes", frozenset(self.scopes))
        object.__setattr__(self, "inner", frozenset(self.inner))
        if not self.scopes:
            raise UsageError("the device has no scopes; name the data that rounds may read")
        for scope in self.scopes:
            _check_name(scope, "a data scope")
        if not self.inner or not self.inner <= MODULUS.keys():
            raise UsageError(f"inner is {sorted(self.inner)}; give some of {', '.join(MODULUS)}")
        for name in ("least_privacy", "largest_dimension", "largest_weight_cap", "largest_cohort"):
            _check_count(getattr(self, name), name)
        if self.least_privacy < 2:  # noqa: PLR2004 - a sum of one is that one
            raise UsageError(
                f"least_privacy is {self.least_privacy}; a batch hides nobody with fewer than 2 members"
            )
        low, high = self.clip_range
        if not 0 < low <= high < math.inf:
            raise UsageError(f"clip_range is {self.clip_range}; give two positive numbers, the lower one first")


VerifyMember: TypeAlias = Callable[[str, bytes], bool]
"""Says whether an identity key belongs to the real user of that id; anything but True refuses the member."""


class TrustServerForIdentities:
    """Takes every member that the server names for a real user (§0).

    What it costs: a server that invents users fills a batch with them, and the sum of that batch is the one
    real member's update. The seal's claims then hold only if the server was honest while batches were founded, and
    what `secagg` and `secagg+` add within a round only if it is honest in that round.
    """

    def __call__(self, user: str, identity: bytes) -> bool:
        """Accept everybody."""
        del user, identity
        return True


def check_charter(
    charter: Charter,
    signatures: Mapping[str, bytes] | None,
    *,
    user: str,
    identity: bytes,
    seal: bytes,
    configuration: DeviceConfiguration,
    verify_member: VerifyMember,
    sealed_under: Charter | None,
    sealed_round: int = -1,
) -> None:
    """Refuse a charter that breaks a rule of §2, with a PeerError that names it.

    `user`, `identity` and `seal` are the device's own id and public keys. `signatures` is None when the device
    is only about to sign. `sealed_under` is the charter that this device sealed under last in this scope, also
    if it accepted others since: dropping it is the owner's override, after which batches may have been split.
    `sealed_round` is the last round that it sealed in this scope.
    """
    if sealed_under is not None and sealed_under.scope != charter.scope:
        raise UsageError(f"sealed_under has the scope {sealed_under.scope!r}, the charter {charter.scope!r}")
    check_rules(charter, configuration)
    _check_own(charter, user, identity, seal, sealed_under)
    _check_members(charter, verify_member)
    if sealed_under is not None:
        _check_succession(charter, sealed_under)
    if charter.first <= sealed_round:
        raise PeerError(
            f"the charter begins with round {charter.first}; this device has sealed round {sealed_round} already"
        )
    _check_groups(charter)
    if signatures is not None:
        _check_signatures(charter, signatures)


def check_rules(charter: Charter, configuration: DeviceConfiguration) -> None:
    """Refuse a charter that the device's owner does not allow; asked again for every round (§0)."""
    if charter.scope not in configuration.scopes:
        raise PeerError(
            f"the charter is for the scope {charter.scope!r}; this device serves {sorted(configuration.scopes)}"
        )
    if charter.privacy < configuration.least_privacy:
        raise PeerError(
            f"the charter has T = {charter.privacy}; this device accepts {configuration.least_privacy} or more"
        )
    if len(charter.members) < charter.privacy:
        raise PeerError(f"the charter has {len(charter.members)} members, fewer than its T = {charter.privacy}")
    if charter.inner not in configuration.inner:
        raise PeerError(
            f"the charter has the inner protocol {charter.inner!r}; "
            f"this device permits {sorted(configuration.inner)}"
        )
    if charter.modulus != MODULUS[charter.inner]:
        raise PeerError(f"the charter has q = {charter.modulus}; {charter.inner!r} needs {MODULUS[charter.inner]}")


def _check_own(charter: Charter, user: str, identity: bytes, seal: bytes, sealed_under: Charter | None) -> None:
    """Find this device in the charter, with its own keys and its own past."""
    own = next((member for member in charter.members if member.user == user), None)
    if own is None:
        raise PeerError(f"the charter does not have {user!r}, this device's user, among its members")
    if own.identity != identity:
        raise PeerError(f"the charter has {user!r}, this device's user, with another identity key")
    if own.seal != seal:
        raise PeerError(f"the charter has {user!r}, this device's user, with another seal key")
    # Otherwise one new user, said to come from an old batch, would escape the rule for users without predecessor.
    past = b"" if sealed_under is None else sealed_under.digest
    if own.predecessor != past:
        raise PeerError(
            f"the charter has {user!r}, this device's user, with the predecessor "
            f"{_shown(own.predecessor)}; this device sealed under {_shown(past)}"
        )


def _check_members(charter: Charter, verify_member: VerifyMember) -> None:
    """Refuse members that are not distinct real users with sound keys."""
    for member in charter.members:
        check_identity_key(member.identity, member.user)
        check_exchange_key(member.seal, "seal", member.user)
    twice = _repeated(member.identity for member in charter.members)
    if twice is not None:
        raise PeerError(f"two members of the charter have the same identity key, {twice.hex()}")
    twice = _repeated(member.seal for member in charter.members)
    if twice is not None:
        raise PeerError(f"two members of the charter have the same seal key, {twice.hex()}")
    for member in charter.members:
        # Not just truth: a coroutine that nobody awaited would be true.
        if verify_member(member.user, member.identity) is not True:
            raise PeerError(f"verify_member refused {member.user!r} with the identity {member.identity.hex()}")


def _check_groups(charter: Charter) -> None:
    """Let a batch grow by whole groups only: users that join alone would be told apart from the others (§2)."""
    for predecessor, size in Counter(member.predecessor for member in charter.members).items():
        if size < charter.privacy:
            group = f"come from the charter {predecessor.hex()}" if predecessor else "have no predecessor"
            raise PeerError(f"{size} members of the charter {group}, fewer than its T = {charter.privacy}")


def _check_succession(charter: Charter, old: Charter) -> None:
    """Let batches merge, never split: after sealing, the same members stay together for good (§2)."""
    members = {member.user: member for member in charter.members}
    for before in old.members:
        now = members.get(before.user)
        if now is None:
            raise PeerError(f"the charter splits the batch that this device sealed in: it lacks {before.user!r}")
        if now.identity != before.identity:
            raise PeerError(f"the charter has {now.user!r} with another identity key than the one before it")
        if now.predecessor != old.digest:
            raise PeerError(f"the charter has {now.user!r} with another predecessor than {old.digest.hex()}")
    known = {member.user for member in old.members}
    used = {member.seal for member in old.members}
    for member in charter.members:
        if member.predecessor == old.digest and member.user not in known:
            raise PeerError(f"the charter has {member.user!r} with a predecessor that it was not a member of")
        if member.seal in used:
            raise PeerError(f"the seal key of {member.user!r} was used in the charter before; it must be fresh")


def _check_signatures(charter: Charter, signatures: Mapping[str, bytes]) -> None:
    """Demand one valid signature of every member, and no others."""
    strangers = signatures.keys() - {member.user for member in charter.members}
    if strangers:
        raise PeerError(f"the charter is signed by {min(strangers)!r}, who is not a member")
    for member in charter.members:
        if member.user not in signatures:
            raise PeerError(f"the charter is not signed by {member.user!r}")
        verify_signature(member.identity, signatures[member.user], "charter", charter.encode(), who=member.user)


def _decoded_member(data: bytes, number: int) -> Member:
    reader = Reader(data, f"member {number} of the charter")
    member = Member(
        reader.text(LARGEST_NAME), reader.exactly(KEY_BYTES), reader.exactly(KEY_BYTES), reader.bytes(DIGEST_BYTES)
    )
    reader.end()
    return member


def _order(member: Member) -> bytes:
    return member.user.encode()


def _repeated(values: Iterable[_T]) -> _T | None:
    """Return a value that comes more than once, if there is one."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _shown(digest: bytes) -> str:
    return digest.hex() or "none"


def _check_name(name: str, what: str) -> None:
    size = len(enc(name)) - len(enc(""))  # enc refuses what is not text
    if not 1 <= size <= LARGEST_NAME:
        raise UsageError(f"{what} is {name!r}, {size} bytes of UTF-8; give 1 to {LARGEST_NAME}")


def _check_count(value: int, what: str, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        raise UsageError(f"{what} is {value!r}; give an integer from {least} to 2^64 - 1")
