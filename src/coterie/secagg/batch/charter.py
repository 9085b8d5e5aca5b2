"""The charter of a batch: its rules and its members, signed by all of them (docs/protocol.md §0, §2)."""

import hashlib
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.encoding import LARGEST_INTEGER, Reader, enc
from coterie.secagg.crypto.keys import KEY_BYTES, IdentityKey
from coterie.secagg.crypto.quantiser import Quantiser
from coterie.secagg.crypto.ring import Ring
from coterie.values.checks import check_count

VerifyMember: TypeAlias = Callable[[str, bytes], bool]
"""Says whether an identity key belongs to the real user of that id; anything but True refuses the member."""


def check_user(user: str, identity: bytes, verify_member: VerifyMember) -> None:
    """Refuse a user who is not real."""
    # Not just truth: a coroutine that nobody awaited would be true.
    if verify_member(user, identity) is not True:
        raise PeerError(f"verify_member refused {user!r} with the identity {identity.hex()}")


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


THOUSANDTHS = 1000
"""γ and δ are written in thousandths, so that every device rounds them alike."""


@dataclass(frozen=True)
class Parameters:
    """γ and δ of a charter: the shares of a round's users that may collude, and that may be lost, in thousandths.

    A server that collects signatures under two different lists needs t users under each, so t is over half of all
    users and half of the colluders: t = ⌊(n + ⌊γn⌋)/2⌋ + 1. A sum needs t users to the end, so γ + 2δ < 1.

    >>> [Parameters().threshold(users) for users in (12, 100, 1000)]
    [8, 61, 601]
    >>> Parameters(colluders=500, losses=300)
    Traceback (most recent call last):
    coterie.errors.UsageError: γ = 0.5 of the users may collude and δ = 0.3 may be lost; γ + 2δ must stay below 1: lower one of them
    """  # noqa: E501 - the message is one line

    colluders: int = 200
    """γ, in thousandths."""
    losses: int = 300
    """δ, in thousandths."""

    def __post_init__(self) -> None:
        for name in ("colluders", "losses"):
            check_count(getattr(self, name), f"the share of {name} in thousandths", least=0)
        if self.colluders + 2 * self.losses >= THOUSANDTHS:
            raise UsageError(
                f"γ = {self.colluders / THOUSANDTHS:g} of the users may collude and δ = "
                f"{self.losses / THOUSANDTHS:g} may be lost; γ + 2δ must stay below 1: lower one of them"
            )

    def most_colluding(self, users: int) -> int:
        """Return ⌊γn⌋, how many of n users may collude."""
        return users * self.colluders // THOUSANDTHS

    def most_lost(self, users: int) -> int:
        """Return ⌊δn⌋, how many of n users may be lost."""
        return users * self.losses // THOUSANDTHS

    def threshold(self, users: int) -> int:
        """Return t, how many of n users must sign an agreement: two such groups share an honest user."""
        return (users + self.most_colluding(users)) // 2 + 1


DEFAULT_PARAMETERS = Parameters()
"""A fifth of the users may collude, three tenths may be lost."""


PROTOCOL = "coterie/sealed"
VERSION = 2
LARGEST_BATCH = 10_000
LARGEST_NAME = 64
"""The most bytes of UTF-8 in a user's id, a data scope or the name of an inner protocol."""
LARGEST_RECIPE = 1 << 16
"""The most bytes of a recipe."""
LARGEST_MEMBER = len(enc(bytes(LARGEST_NAME), *[bytes(KEY_BYTES)] * 3))
DIGEST_BYTES = 32

_T = TypeVar("_T")


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
        check_name(self.user, "a user's id")
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

    >>> from coterie.secagg.crypto.ring import RING_16
    >>> ana, bob = (Member(user, identity=bytes(32), seal=bytes(32)) for user in ("ana", "bob"))
    >>> quantiser = Quantiser(RING_16, clip=1.0, weight_cap=1, cohort=8)
    >>> charter = Charter("keyboard", privacy=2, quantiser=quantiser, inner="open", members=(bob, ana))
    >>> [member.user for member in charter.members]
    ['ana', 'bob']
    >>> Charter.decode(charter.encode()) == charter
    True
    """

    scope: str
    """The data that rounds under this charter may read."""
    privacy: int
    """T, the least number of members."""
    quantiser: Quantiser
    """What turns an update into a vector (§1)."""
    inner: str
    """The inner protocol (§4)."""
    members: tuple[Member, ...]
    parameters: Parameters = DEFAULT_PARAMETERS
    """γ and δ (§5)."""
    recipe: bytes = b"{}"
    """The training configuration, a canonical JSON object (§3)."""
    first: int = 0
    """The first round that can be sealed under this charter: a batch founded late need not begin at zero (§3)."""

    def __post_init__(self) -> None:
        check_name(self.scope, "a data scope")
        check_name(self.inner, "an inner protocol's name")
        _check_integer(self.privacy, "a charter's privacy level T")
        _check_integer(self.first, "a charter's first round", least=0)
        read_recipe(self.recipe)
        members = tuple(sorted(self.members, key=_order))
        object.__setattr__(self, "members", members)
        if not 1 <= len(members) <= LARGEST_BATCH:
            raise UsageError(f"a charter has {len(members)} members; it can have 1 to {LARGEST_BATCH}")
        twice = repeated(member.user for member in members)
        if twice is not None:
            raise UsageError(f"the charter has the member {twice!r} twice")

    def encode(self) -> bytes:
        """Return the canonical encoding (§2): protocol, version, all rules, the number of members, each member."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        members = (enc(m.user, m.identity, m.seal, m.predecessor) for m in self.members)
        parameters = (self.parameters.colluders, self.parameters.losses)
        rules = (self.scope, self.privacy, *self.quantiser.encoded_fields, self.inner, *parameters, self.recipe)
        return enc(PROTOCOL, VERSION, *rules, self.first, len(self.members), *members)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the encoding: how everything else names this charter."""
        return hashlib.sha256(self._encoded).digest()

    @cached_property
    def identities(self) -> dict[str, bytes]:
        """The members' identity keys by user."""
        return {member.user: member.identity for member in self.members}

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
        scope, privacy = reader.text(LARGEST_NAME), reader.integer()
        try:
            quantiser = _decoded_quantiser(reader)
            inner = reader.text(LARGEST_NAME)
            parameters, recipe = Parameters(reader.integer(), reader.integer()), reader.bytes(LARGEST_RECIPE)
            first, count = reader.integer(), reader.integer()
            if count > LARGEST_BATCH:
                raise PeerError(f"the charter has {count} members; at most {LARGEST_BATCH} are allowed")
            members = tuple(_decoded_member(reader.bytes(LARGEST_MEMBER), number) for number in range(count))
            reader.end()
            charter = cls(scope, privacy, quantiser, inner, members, parameters, recipe, first)
        except UsageError as error:
            raise PeerError(f"the charter is not valid: {error}") from error
        if charter.members != members:
            raise PeerError("the charter's members are not sorted by the bytes of their ids")
        return charter


def sign_charter(charter: Charter, identity: IdentityKey) -> bytes:
    """Return a member's signature. Signing is harmless: what is dangerous is accepting a charter, and sealing."""
    return identity.sign("charter", charter.encode())


def write_recipe(settings: dict[str, object]) -> bytes:
    """Return a training configuration as a recipe: JSON in its one canonical form.

    >>> write_recipe({"learning_rate": 0.1, "epochs": 2})
    b'{"epochs":2,"learning_rate":0.1}'
    """
    try:
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the recipe {settings!r} cannot be written as JSON: {error}") from None


def read_recipe(recipe: bytes) -> dict[str, object]:
    """Return a recipe's settings; refuse bytes that are not the canonical form of a JSON object."""
    if len(recipe) > LARGEST_RECIPE:
        raise UsageError(f"the recipe has {len(recipe)} bytes; at most {LARGEST_RECIPE} are allowed")
    try:
        settings = json.loads(recipe)
        canonical = isinstance(settings, dict) and write_recipe(settings) == recipe
    except (ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise UsageError(f"the recipe {recipe[:60]!r} is not a JSON object in canonical form; use write_recipe")
    return settings  # type: ignore[no-any-return]


def _decoded_quantiser(reader: Reader) -> Quantiser:
    modulus, clip = reader.integer(), struct.unpack("<d", reader.exactly(8))[0]
    weight_cap, cohort, levels = reader.integer(), reader.integer(), reader.integer()
    if math.isnan(clip):
        raise UsageError("the clip is not a number")
    quantiser = Quantiser(Ring(modulus), clip, weight_cap, cohort)
    if levels != quantiser.levels:
        raise UsageError(f"it states {levels} levels; ring, cohort and largest weight give {quantiser.levels}")
    return quantiser


def _decoded_member(data: bytes, number: int) -> Member:
    reader = Reader(data, f"member {number} of the charter")
    member = Member(
        reader.text(LARGEST_NAME), reader.exactly(KEY_BYTES), reader.exactly(KEY_BYTES), reader.bytes(DIGEST_BYTES)
    )
    reader.end()
    return member


def _order(member: Member) -> bytes:
    return member.user.encode()


def ordered(one: str, other: str) -> tuple[str, str]:
    """Return two ids in the order of their bytes."""
    return (one, other) if one.encode() < other.encode() else (other, one)


def repeated(values: Iterable[_T]) -> _T | None:
    """Return a value that comes more than once, if there is one."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def check_name(name: str, what: str) -> None:
    """Refuse a name that is empty, too long or not text."""
    size = len(enc(name)) - len(enc(""))  # enc refuses what is not text
    if not 1 <= size <= LARGEST_NAME:
        raise UsageError(f"{what} is {name!r}, {size} bytes of UTF-8; give 1 to {LARGEST_NAME}")


def _check_integer(value: int, what: str, least: int = 1) -> None:
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        raise UsageError(f"{what} is {value!r}; give an integer from {least} to 2^64 - 1")
