"""The terms of a round: every byte that the server sends with it and that can influence an update (§3)."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from coterie.errors import PeerError, UsageError
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.wire.messages import RoundCall, UnsealedCall


@dataclass(frozen=True)
class Terms:
    """Every byte that the server sends with a round and that can influence an update.

    Members that were shown different terms produce masks that do not cancel. What turns an update into a vector,
    and how an update is trained, is not here: the charter fixes both for a batch's whole life.
    """

    model: bytes
    dimension: int
    min_included: int = 1
    """The fewest users whose sums the round may give; in most inner protocols devices insist on it (§5)."""
    step: int = 0
    """How many rounds were trained before: what schedules of the recipe depend on. It never goes back."""
    configuration: bytes = b""
    """A training configuration in place of the charter's recipe; devices refuse it unless owners permit it."""

    def __post_init__(self) -> None:
        for name, least in (("dimension", 1), ("min_included", 1), ("step", 0)):
            value = getattr(self, name)
            if not least <= value < 2**63:
                raise UsageError(f"the terms' {name} is {value}; give a whole number from {least} up")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all fields; the model enters by its own digest, so it is hashed once."""
        model = hashlib.sha256(self.model).digest()
        fields = (model, self.dimension, self.min_included, self.step, self.configuration)
        return hashlib.sha256(enc("coterie/v2/terms", *fields)).digest()


def called_terms(call: RoundCall | UnsealedCall) -> Terms:
    """Return the terms in a call; refuse what cannot be terms."""
    configuration = call.configuration if isinstance(call, RoundCall) else b""
    try:
        return Terms(call.model, call.dimension, call.min_included, call.step, configuration)
    except UsageError as error:
        raise PeerError(f"the server's terms are impossible: {error}") from None
