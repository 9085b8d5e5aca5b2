"""The terms of a round: every byte from the server that can influence a vector, and a device's bounds on them."""

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cached_property

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Charter, DeviceConfiguration
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.ring import Quantisation, Ring
from coterie.secagg.wire.messages import RoundCall, UnsealedCall


@dataclass(frozen=True)
class Terms:
    """Every byte from the server that can influence a vector in one round (§3).

    Members that were shown different terms produce masks that do not cancel.
    """

    model: bytes
    configuration: bytes
    dimension: int
    clip: float
    cohort: int
    """The most users whose vectors are ever added in this round."""
    weight_cap: int = 1
    min_included: int = 1
    """The fewest users whose sums the round may give; in the pairwise protocols devices insist on it (§5)."""

    def __post_init__(self) -> None:
        for name in ("dimension", "cohort", "weight_cap", "min_included"):
            value = getattr(self, name)
            if not 1 <= value < 2**64:
                raise UsageError(f"the terms' {name} is {value}; give a positive number")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise UsageError(f"the terms' clip is {self.clip}; give a positive number")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all fields; the model enters by its own digest, so it is hashed once."""
        return hashlib.sha256(
            enc(
                "coterie/v1/terms",
                hashlib.sha256(self.model).digest(),
                self.configuration,
                self.dimension,
                struct.pack("<d", self.clip),
                self.cohort,
                self.weight_cap,
                self.min_included,
            )
        ).digest()

    def quantisation(self, ring: Ring) -> Quantisation:
        """Return the quantisation that these terms fix; refuse terms whose sum could wrap around."""
        return Quantisation.fitting(ring, self.clip, self.cohort, self.weight_cap)

    @property
    def fields(self) -> tuple[bytes, bytes, int, float, int, int, int]:
        """All fields, in the order of the digest and of the calls."""
        return (
            self.model, self.configuration, self.dimension, self.clip, self.cohort, self.weight_cap,
            self.min_included,
        )  # fmt: skip


def round_call(charter: Charter, round_: int, terms: Terms) -> RoundCall:
    """Return the message that calls a batch to a round."""
    return RoundCall(charter.scope, charter.digest, round_, *terms.fields)


def unsealed_call(inner: str, scope: str, round_: int, terms: Terms) -> UnsealedCall:
    """Return the message that calls users to an unsealed round."""
    return UnsealedCall(scope, inner, round_, *terms.fields)


def called_terms(call: RoundCall | UnsealedCall) -> Terms:
    """Return the terms in a call; refuse what cannot be terms."""
    try:
        return Terms(
            call.model, call.configuration, call.dimension, call.clip, call.cohort, call.weight_cap,
            call.min_included,
        )  # fmt: skip
    except UsageError as error:
        raise PeerError(f"the server's terms are impossible: {error}") from None


def check_terms(
    terms: Terms, batch: int, least_included: int, ring: Ring, configuration: DeviceConfiguration
) -> None:
    """Refuse terms outside the bounds that the device's own configuration and batch set (§0, §5)."""
    low, high = configuration.clip_range
    bounds = (
        ("dimension", terms.dimension, 1, configuration.largest_dimension),
        ("clip", terms.clip, low, high),
        ("weight cap", terms.weight_cap, 1, configuration.largest_weight_cap),
        ("cohort", terms.cohort, batch, configuration.largest_cohort),
        ("least number of included users", terms.min_included, least_included, terms.cohort),
    )
    for name, value, least, most in bounds:
        if not least <= value <= most:
            raise PeerError(f"the server's terms have the {name} {value}; this device takes {least} to {most}")
    try:
        terms.quantisation(ring)
    except UsageError as error:
        raise PeerError(f"the server's terms could wrap around: {error}") from None
