"""The messages that every round begins with: forming a batch, and the call to a round (§2, §3).

What follows a call is the inner protocol's, and stands in its own package.
"""

from typing import Annotated

import msgspec

from coterie.secagg.batch.charter import LARGEST_BATCH, LARGEST_NAME, LARGEST_RECIPE
from coterie.secagg.wire.framing import Count, Digest, Message, PublicKey, RoundNumber, Scope, Signature, UserId


class Invitation(Message, frozen=True, tag=1):
    """Server to client: a batch is to be formed for this scope (§2)."""

    scope: Scope


class Enrolment(Message, frozen=True, tag=2):
    """Client to server: my keys for a charter to come; the seal key is fresh (§2)."""

    scope: Scope
    user: UserId
    identity: PublicKey
    seal: PublicKey
    predecessor: Annotated[bytes, msgspec.Meta(max_length=32)]


class Draft(Message, frozen=True, tag=3):
    """Server to client: the charter that you are asked to sign (§2)."""

    charter: bytes


class Signed(Message, frozen=True, tag=4):
    """Client to server: my signature over the charter of this digest (§2)."""

    scope: Scope
    user: UserId
    charter: Digest
    signature: Signature


class Founding(Message, frozen=True, tag=5):
    """Server to client: the charter with the signatures of all its members (§2)."""

    charter: bytes
    signatures: Annotated[dict[UserId, Signature], msgspec.Meta(max_length=LARGEST_BATCH)]


class Accepted(Message, frozen=True, tag=6):
    """Client to server: I accepted the charter and am ready for its rounds (§3)."""

    scope: Scope
    user: UserId
    charter: Digest


class RoundCall(Message, frozen=True, tag=7):
    """Server to client: take part in a sealed round under these terms (§3)."""

    scope: Scope
    charter: Digest
    round: RoundNumber
    step: RoundNumber
    model: bytes
    dimension: Count
    min_included: Count
    configuration: Annotated[bytes, msgspec.Meta(max_length=LARGEST_RECIPE)]


class UnsealedCall(Message, frozen=True, tag=9):
    """Server to client: take part in a round without a seal; only clients made for that take it (§4).

    No charter stands behind it: the server says here what a charter would have fixed.
    """

    scope: Scope
    inner: Annotated[str, msgspec.Meta(min_length=1, max_length=LARGEST_NAME)]
    modulus: Count
    clip: float
    weight_cap: Count
    cohort: Count
    colluders: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    losses: Annotated[int, msgspec.Meta(ge=0, lt=1000)]
    recipe: Annotated[bytes, msgspec.Meta(max_length=LARGEST_RECIPE)]
    round: RoundNumber
    step: RoundNumber
    model: bytes
    dimension: Count
    min_included: Count


FROM_CLIENT = (Enrolment, Signed, Accepted)
FROM_SERVER = (Invitation, Draft, Founding, RoundCall, UnsealedCall)
