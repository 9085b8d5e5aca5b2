"""What a device accepts: charters by the rules of §2, rounds by its owner's configuration (§0, §3)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import (
    THOUSANDTHS,
    Charter,
    Parameters,
    VerifyMember,
    check_name,
    check_user,
    read_recipe,
    repeated,
)
from coterie.secagg.crypto.keys import check_exchange_key, check_identity_key, verify_signature
from coterie.secagg.crypto.quantiser import Quantiser
from coterie.secagg.protocols import DEFAULT_PROTOCOL, PROTOCOLS, InnerProtocol
from coterie.secagg.wire.messages import Terms
from coterie.values.checks import check_count

LARGEST_SKIP = 65_536
"""How many rounds a device's chain can move on at once, at most (§3): each costs one hash per member."""
RECIPE_KEYS = frozenset({
    "dropout", "epochs", "learning_rate", "loss", "minibatch", "model", "momentum", "optimiser", "schedule",
    "seed", "shuffled", "weight_decay", "weighting",
})  # fmt: skip
"""What a recipe may fix unless the owner says otherwise: no choice of examples, no time budget, no one user."""


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
    protocols: frozenset[str] = frozenset({DEFAULT_PROTOCOL})
    """The inner protocols that are permitted."""
    least_colluders: int = 200
    """The least share γ of colluding users that a charter must stand, in thousandths."""
    clip_range: tuple[float, float] = (1e-6, 1e6)
    largest_weight_cap: int = 2**16
    largest_cohort: int = 2**20
    largest_dimension: int = 2**26
    largest_roster: int = 2**16 - 1
    """The most users in one round."""
    largest_batch: int = 1024
    """The most members of a charter: all sign all of it, so what verifying costs grows with their square."""
    largest_skip: int = LARGEST_SKIP
    """How many rounds the server may skip at once."""
    largest_first: int = 2**32
    """The first round of a device's first charter, at most; that of a later one is bound by `largest_skip`."""
    recipe_keys: frozenset[str] = RECIPE_KEYS
    """What the training configuration may fix."""
    configuration_in_terms: bool = False
    """Whether the training configuration may come with every round; the claim is weaker then (§3, §9)."""

    def __post_init__(self) -> None:
        for name in ("scopes", "protocols", "recipe_keys"):
            if isinstance(getattr(self, name), str):
                raise UsageError(f"{name} is a set of names; a single name is given as {{'name'}}")
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        if not self.scopes:
            raise UsageError("the device has no scopes; name the data that rounds may read")
        for scope in self.scopes:
            check_name(scope, "a data scope")
        if not self.protocols or not self.protocols <= PROTOCOLS.keys():
            raise UsageError(f"protocols is {sorted(self.protocols)}; give some of {', '.join(PROTOCOLS)}")
        for name in _LIMITS:
            check_count(getattr(self, name), name)
        check_count(self.least_colluders, "least_colluders", least=0)
        if self.least_privacy < 2:  # noqa: PLR2004 - a sum of one is that one
            raise UsageError(
                f"least_privacy is {self.least_privacy}; a batch hides nobody with fewer than 2 members"
            )
        if self.largest_skip > LARGEST_SKIP:
            raise UsageError(f"largest_skip is {self.largest_skip}; give at most {LARGEST_SKIP}")
        low, high = self.clip_range
        if not 0 < low <= high < math.inf:
            raise UsageError(f"clip_range is {self.clip_range}; give two positive numbers, the lower one first")

    def check_scope(self, scope: str) -> None:
        """Refuse data that the owner did not name."""
        if scope not in self.scopes:
            serves = ", ".join(sorted(self.scopes))
            raise PeerError(f"the server named the scope {scope!r}; this device serves {serves}")


_LIMITS = (
    "least_privacy", "largest_weight_cap", "largest_cohort", "largest_dimension", "largest_roster",
    "largest_batch", "largest_skip", "largest_first",
)  # fmt: skip


@dataclass(frozen=True)
class DeviceHistory:
    """What a device has done before in a data scope, as far as it binds the device's future (§2)."""

    sealed_under: Charter | None = None
    """The charter that it sealed under last, also if it accepted others since; dropped by the owner's override."""
    sealed_round: int = -1
    weight_cap: int = 0
    """The largest weight of the charter under which its own was fixed; 0 if it never sealed.

    What it refuses depends on this and not on its own weight, which is data: charters with ever smaller largest
    weights would otherwise find that out by what is refused.
    """


def check_charter(
    charter: Charter,
    *,
    user: str,
    identity: bytes,
    seal: bytes,
    configuration: DeviceConfiguration,
    past: DeviceHistory,
) -> None:
    """Refuse a charter that breaks a rule of §2 that its bytes alone can show, with a PeerError that names it.

    `user`, `identity` and `seal` are the device's own id and public keys. What costs more comes apart:
    `check_members` asks who the members are, and `check_signatures` what they signed.
    """
    if past.sealed_under is not None and past.sealed_under.scope != charter.scope:
        raise UsageError(
            f"the device sealed in the scope {past.sealed_under.scope!r}, the charter is for {charter.scope!r}"
        )
    check_rules(charter, configuration)
    _check_own(charter, user, identity, seal, past.sealed_under)
    _check_start(charter, configuration, past)
    if past.sealed_under is not None:
        _check_succession(charter, past.sealed_under)
    elif charter.quantiser.weight_cap < past.weight_cap:
        raise PeerError(
            f"the charter's largest weight is {charter.quantiser.weight_cap}; this device's weight was fixed for "
            f"good under one of {past.weight_cap}"
        )
    _check_groups(charter)
    _check_keys(charter)


def check_rules(charter: Charter, configuration: DeviceConfiguration) -> InnerProtocol:
    """Refuse a charter that the device's owner does not allow; asked again for every round (§0)."""
    configuration.check_scope(charter.scope)
    if charter.privacy < configuration.least_privacy:
        raise PeerError(
            f"the charter has T = {charter.privacy}; this device accepts {configuration.least_privacy} or more"
        )
    if len(charter.members) < charter.privacy:
        raise PeerError(f"the charter has {len(charter.members)} members, fewer than its T = {charter.privacy}")
    if len(charter.members) > charter.quantiser.cohort:
        raise PeerError(
            f"the charter has {len(charter.members)} members; its cohort bound is {charter.quantiser.cohort}"
        )
    if len(charter.members) > configuration.largest_batch:
        raise PeerError(
            f"the charter has {len(charter.members)} members; this device takes {configuration.largest_batch} at "
            "most"
        )
    protocol = check_protocol(charter.inner, charter.quantiser, charter.parameters, configuration)
    check_recipe(charter.recipe, configuration)
    return protocol


def check_protocol(
    inner: str, quantiser: Quantiser, parameters: Parameters, configuration: DeviceConfiguration
) -> InnerProtocol:
    """Return the inner protocol; refuse it, its quantiser or its parameters if the owner does not allow them."""
    if inner not in configuration.protocols:
        raise PeerError(
            f"the server named the inner protocol {inner!r}; this device permits {sorted(configuration.protocols)}"
        )
    protocol = PROTOCOLS[inner]
    if quantiser.ring not in protocol.rings:
        moduli = " or ".join(str(ring.modulus) for ring in protocol.rings)
        raise PeerError(f"the server named the modulus {quantiser.ring.modulus}; {inner!r} needs {moduli}")
    low, high = configuration.clip_range
    check_bounds(
        ("clip", quantiser.clip, low, high),
        ("largest weight", quantiser.weight_cap, 1, configuration.largest_weight_cap),
        ("cohort bound", quantiser.cohort, 1, configuration.largest_cohort),
    )
    if parameters.colluders < configuration.least_colluders:
        raise PeerError(
            f"the server named γ = {parameters.colluders / THOUSANDTHS:g}; this device wants "
            f"{configuration.least_colluders / THOUSANDTHS:g} or more"
        )
    return protocol


def check_recipe(recipe: bytes, configuration: DeviceConfiguration) -> None:
    """Refuse a training configuration that fixes what the owner does not let the server choose (§3)."""
    try:
        settings = read_recipe(recipe)
    except UsageError as error:
        raise PeerError(f"the server's training configuration cannot be used: {error}") from None
    unknown = set(_keys(settings)) - configuration.recipe_keys
    if unknown:
        raise PeerError(
            f"the server's training configuration sets {min(unknown)!r}; this device takes "
            f"{', '.join(sorted(configuration.recipe_keys))}"
        )


def _keys(value: object) -> Iterator[str]:
    """Yield the keys of all objects in a JSON value: what one setting holds could be settings by user, too."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _keys(entry)


def check_terms(terms: Terms, least_included: int, configuration: DeviceConfiguration) -> None:
    """Refuse terms outside the bounds that the device's own configuration and its batch set (§0, §3, §5).

    The included users of a round are bounded by its roster and not by the cohort bound, which is about the
    vectors of one sum: `open` gives a sum for each batch.
    """
    check_bounds(
        ("dimension", terms.dimension, 1, configuration.largest_dimension),
        ("least number of included users", terms.min_included, least_included, configuration.largest_roster),
    )
    if not terms.configuration:
        return
    if not configuration.configuration_in_terms:
        raise PeerError("the server sent a training configuration with the round; this device takes the charter's")
    check_recipe(terms.configuration, configuration)


def check_bounds(*bounds: tuple[str, float, float, float]) -> None:
    """Refuse a value outside its bounds, given as (name, value, least, most)."""
    for name, value, least, most in bounds:
        if not least <= value <= most:
            raise PeerError(f"the server set the {name} to {value}; this device takes {least} to {most}")


def check_members(charter: Charter, verify_member: VerifyMember) -> None:
    """Refuse a charter with a member who is not a real user; each is looked up once."""
    for member in charter.members:
        check_user(member.user, member.identity, verify_member)


def check_signatures(charter: Charter, signatures: Mapping[str, bytes]) -> None:
    """Demand one valid signature of every member, and no others."""
    strangers = signatures.keys() - charter.identities.keys()
    if strangers:
        raise PeerError(f"the charter is signed by {min(strangers)!r}, who is not a member")
    missing = charter.identities.keys() - signatures.keys()
    if missing:
        raise PeerError(f"the charter is not signed by {min(missing)!r}")
    for member in charter.members:
        verify_signature(member.identity, signatures[member.user], "charter", charter.encode(), who=member.user)


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
            f"{own.predecessor.hex() or 'none'}; this device sealed under {past.hex() or 'none'}"
        )


def _check_start(charter: Charter, configuration: DeviceConfiguration, past: DeviceHistory) -> None:
    """Refuse a first round that lies in the past or too far ahead."""
    if charter.first <= past.sealed_round:
        raise PeerError(
            f"the charter begins with round {charter.first}; this device has sealed round {past.sealed_round} "
            "already"
        )
    sealed = past.sealed_round
    most = configuration.largest_first if sealed < 0 else sealed + configuration.largest_skip
    if charter.first > most:
        raise PeerError(f"the charter begins with round {charter.first}; this device takes {most} at most")


def _check_keys(charter: Charter) -> None:
    """Refuse members whose keys are unsound, or not distinct."""
    for member in charter.members:
        check_identity_key(member.identity, member.user)
        check_exchange_key(member.seal, "seal", member.user)
    for kind in ("identity", "seal"):
        twice = repeated(getattr(member, kind) for member in charter.members)
        if twice is not None:
            raise PeerError(f"two members of the charter have the same {kind} key, {twice.hex()}")


def _check_groups(charter: Charter) -> None:
    """Let a batch grow by whole groups only: users that join alone would be told apart from the others (§2)."""
    for predecessor, size in Counter(member.predecessor for member in charter.members).items():
        if size < charter.privacy:
            group = f"come from the charter {predecessor.hex()}" if predecessor else "have no predecessor"
            raise PeerError(f"{size} members of the charter {group}, fewer than its T = {charter.privacy}")


def _check_succession(charter: Charter, old: Charter) -> None:
    """Let batches merge, never split: after sealing, the same members stay together for good (§2)."""
    changes = list(old.quantiser.differences(charter.quantiser))
    if changes:
        raise PeerError(f"the charter changes the quantiser that this device sealed under: {'; '.join(changes)}")
    if charter.recipe != old.recipe:
        raise PeerError(
            f"the charter changes the recipe that this device sealed under: {charter.recipe[:200]!r} in place of "
            f"{old.recipe[:200]!r}"
        )
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
