"""The two messages of LightSecAgg that pairwise rounds do not have (§5)."""

from coterie.secagg.wire.framing import Digest, Scope, Signature, UserId, VectorMessage


class CodedSharing(VectorMessage, frozen=True, tag=23):
    """Client to server: boxes with shares of my mask for all others, in the roster's order, one signature (§5).

    The tail is the boxes, one after the other.
    """

    scope: Scope
    context: Digest
    user: UserId
    signature: Signature


class ShareSum(VectorMessage, frozen=True, tag=24):
    """Client to server: the sum of the shares that I hold of the included users' masks; its words are the tail."""

    scope: Scope
    context: Digest
    user: UserId
