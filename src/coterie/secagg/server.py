"""The server's side of a round: batches, or users without any, are called to it (§4)."""

from collections.abc import Iterable, Mapping, Sequence

from coterie.errors import UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.batch.founding import BatchRules
from coterie.secagg.protocols import PROTOCOLS
from coterie.secagg.protocols.interface import Group, RoundSetting, ServerRound
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import RoundCall, Terms, UnsealedCall


def sealed_round(charters: Iterable[Charter], round_: int, terms: Terms, *, threads: int = 1) -> ServerRound:
    """Return the server's side of one sealed round over batches that have all rules but T in common."""
    batches = tuple(charters)
    setting = common_setting(batches, round_, terms)
    groups = [
        Group(charter.digest, charter.privacy, charter.identities, encode(round_call(charter, round_, terms)))
        for charter in batches
    ]
    return PROTOCOLS[setting.inner].server_round(groups, setting, threads)


def common_setting(charters: Sequence[Charter], round_: int, terms: Terms) -> RoundSetting:
    """Return what a round is for batches; refuse those that have other rules than the rest."""
    kinds = {(charter.scope, charter.inner, charter.quantiser, charter.parameters) for charter in charters}
    if len(kinds) != 1:
        raise UsageError(
            "a round has batches of one scope, inner protocol, quantiser and parameters; these have "
            f"{len(kinds)} different ones"
        )
    return RoundSetting.sealed(charters[0], round_, terms)


def unsealed_round(
    rules: BatchRules, identities: Mapping[str, bytes], round_: int, terms: Terms, *, threads: int = 1
) -> ServerRound:
    """Return the server's side of one unsealed round among users, given with their identity keys."""
    protocol = PROTOCOLS[rules.inner]
    if not protocol.runs_unsealed:
        raise UsageError(f"the protocol {rules.inner} has no privacy but its seal: it does not run unsealed")
    call = encode(unsealed_call(rules, round_, terms))
    groups = [Group(b"", 1, {user: identity}, call) for user, identity in identities.items()]
    setting = RoundSetting("unsealed", rules.inner, rules.scope, round_, terms, rules.quantiser, rules.parameters)
    return protocol.server_round(groups, setting, threads)


def round_call(charter: Charter, round_: int, terms: Terms) -> RoundCall:
    """Return the message that calls a batch to a round."""
    return RoundCall(
        charter.scope, charter.digest, round_, terms.step, terms.model, terms.dimension, terms.min_included,
        terms.configuration,
    )  # fmt: skip


def unsealed_call(rules: BatchRules, round_: int, terms: Terms) -> UnsealedCall:
    """Return the message that calls users to an unsealed round."""
    quantiser, parameters = rules.quantiser, rules.parameters
    return UnsealedCall(
        rules.scope, rules.inner, quantiser.ring.modulus, quantiser.clip, quantiser.weight_cap, quantiser.cohort,
        parameters.colluders, parameters.losses, rules.recipe, round_, terms.step, terms.model, terms.dimension,
        terms.min_included,
    )  # fmt: skip
