"""The server's side of a round, by the inner protocol that its batches were founded for (§4)."""

from collections.abc import Iterable, Mapping

from coterie.errors import UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.protocols.interface import ServerRound
from coterie.secagg.protocols.open import INNER, OpenRound
from coterie.secagg.protocols.pairwise.grouping import Group
from coterie.secagg.protocols.pairwise.server import PairwiseRound
from coterie.secagg.protocols.pairwise.setting import PAIRWISE, Setting
from coterie.secagg.wire.messages import encode
from coterie.secagg.wire.terms import Terms, round_call, unsealed_call


def sealed_round(charters: Iterable[Charter], round_: int, terms: Terms, *, threads: int = 1) -> ServerRound:
    """Return the server's side of one sealed round over batches of one scope and one inner protocol."""
    batches = tuple(charters)
    kinds = {(charter.scope, charter.inner) for charter in batches}
    if len(kinds) != 1:
        raise UsageError(f"a round has batches of one scope and one inner protocol, not of {sorted(kinds)}")
    ((scope, inner),) = kinds
    if inner == INNER:
        return OpenRound(batches, round_, terms)
    _check_inner(inner)
    groups = [
        Group(
            charter.digest,
            charter.privacy,
            {member.user: member.identity for member in charter.members},
            encode(round_call(charter, round_, terms)),
        )
        for charter in batches
    ]
    return PairwiseRound(groups, Setting("sealed", inner, scope, round_, terms), threads=threads)


def unsealed_round(
    inner: str, scope: str, identities: Mapping[str, bytes], round_: int, terms: Terms, *, threads: int = 1
) -> ServerRound:
    """Return the server's side of one unsealed round among users, given with their identity keys."""
    _check_inner(inner)
    call = encode(unsealed_call(inner, scope, round_, terms))
    groups = [Group(b"", 1, {user: identity}, call) for user, identity in identities.items()]
    return PairwiseRound(groups, Setting("unsealed", inner, scope, round_, terms), threads=threads)


def _check_inner(inner: str) -> None:
    if inner not in PAIRWISE:
        raise UsageError(f"rounds of {inner!r} do not run; give {' or '.join((INNER, *PAIRWISE))}")
