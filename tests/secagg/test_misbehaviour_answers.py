"""Users who answer wrongly where there is an agreement, and what unsealed clients refuse (§5)."""

import hashlib

import msgspec
import pytest

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.secagg import IdentityKey, Task, UnsealedClient, run_round, sealed_round, unsealed_round
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import MaskKey, verify_signature
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE, Batches, Loners, configuration, quantiser, rules, terms
from support.secagg.midway import (
    ADVERTISE,
    RECEIVE,
    SHARE,
    UNMASK,
    UPLOAD,
    Midway,
    from_client,
    from_server,
    signed_line,
)
from support.secagg.servers import UPDATE, packed

OTHER = "user-1-0"
"""A user of another batch than user-0-0."""


@pytest.mark.parametrize("inner", ["secagg", "lightsecagg"])
@pytest.mark.parametrize("phase", range(6))
def test_an_answer_for_something_else_is_refused(inner, phase):
    """The server takes an answer only for its own scope, round and user, from whom it asked, once."""
    midway = Midway(phase, inner=inner)
    user = "user-0-0"
    midway.answers[user] = good = midway.answer(user)
    for changes, reason in (
        ({"scope": "photos"}, "another scope: 'photos'"),
        ({"context": bytes(32)}, "another round"),
        ({"user": OTHER}, f"another user: '{OTHER}'"),
    ):
        midway.server_refuses(user, midway.changed(user, changes), f"user-0-0 answered for {reason}")
    midway.server_refuses("stranger", good, "'stranger', who was not asked")
    midway.server_refuses(OTHER, good, "another user: 'user-0-0'")
    midway.server.receive(user, good)
    midway.server_refuses(user, good, "user-0-0 out of order")
    midway.ends_well()


@pytest.mark.parametrize("inner", ["secagg", "lightsecagg"])
@pytest.mark.parametrize("phase", range(6))
def test_an_answer_that_comes_late_is_refused(inner, phase):
    """When a phase is over, what belongs to it is refused; the round has gone on without it."""
    midway = Midway(phase, inner=inner)
    late = "user-0-0"
    answer = midway.answer(late)
    midway.deliver(but={late})
    assert midway.server.waiting == {late}
    midway.advance()
    midway.server_refuses(late, answer, "user-0-0 out of order: in the state '(lost|proposed)'")
    assert late not in midway.server.waiting or phase == UPLOAD
    if midway.outgoing:
        users = midway.ends_well()
        assert (late in users) == (phase > UPLOAD)


@pytest.mark.parametrize("phase", range(6))
def test_a_forged_answer_is_refused(phase):
    """Signatures, keys and sizes of each answer are checked before it counts."""
    midway = Midway(phase)
    user = "user-0-0"
    midway.answers[user] = midway.answer(user)
    message, tail = messages_from_client.decode(midway.answers[user])
    if phase == ADVERTISE:
        midway.server_refuses(
            user, midway.changed(user, {"mask_key": (1).to_bytes(32, "little")}), "has low order"
        )
        midway.server_refuses(user, midway.changed(user, {"share_key": MaskKey.generate().public}), "is forged")
        identity = midway.me.membership.identity
        midway.server.receive(OTHER, midway.answer(OTHER))
        theirs = midway.server._lines[OTHER]  # noqa: SLF001 - keys that were advertised
        line = signed_line(identity, message.context, user, theirs.mask_key, message.share_key)
        copied = midway.changed(user, {"mask_key": line.mask_key, "signature": line.signature})
        midway.server_refuses(user, copied, f"user-0-0 advertised a key of {OTHER}")
    elif phase in {SHARE, UNMASK}:
        field = "boxes" if phase == SHARE else "shares"
        good = getattr(message, field)
        for wrong in (b"", good[:-1], good + bytes(36), good + bytes(1)):
            reason = f"sent {len(wrong)} bytes of {field}, not {len(good)}"
            midway.server_refuses(user, midway.changed(user, {field: wrong}), reason)
    elif phase == UPLOAD:
        midway.server_refuses(user, packed(message, bytes(tail)[:-4]), "bytes of words, not")
        midway.server_refuses(user, packed(message, bytes(tail) + bytes(4)), "bytes of words, not")
    if phase not in {RECEIVE, UNMASK}:
        midway.server_refuses(
            user, midway.changed(user, {"signature": bytes(64)}), "signature of 'user-0-0' .* forged"
        )
    midway.server.receive(user, midway.answers[user])
    midway.ends_well()


@pytest.mark.parametrize("inner", ["secagg", "lightsecagg"])
def test_uploads_and_agreements_are_for_one_context_roster_and_lists(inner):
    """What users sign names the round, the roster with all its keys, the sharers, and who is included or not."""
    midway = Midway(UPLOAD, inner=inner, away={"user-2-0"})
    midway.deliver(lost={"user-2-0"})
    upload = from_client(midway.answers["user-1-0"])
    midway.advance()
    agreement = from_client(midway.answer("user-1-0"))
    roster, places = midway.roster, [place.to_bytes(4, "little") for place in range(9)]
    lines = [enc(line.user, line.identity, line.mask_key, line.share_key) for line in roster.lines]
    digest = hashlib.sha256(enc("coterie/v2/roster", roster.context, 9, *lines)).digest()
    everyone, included, excluded = b"".join(places), b"".join(places[:6]), b"".join(places[6:])
    identity = roster.lines[3].identity
    signed = (roster.context, digest, everyone)
    verify_signature(identity, upload.signature, "upload", *signed, who="user-1-0")
    verify_signature(identity, agreement.signature, "agree", *signed, included, excluded, who="user-1-0")


@pytest.mark.parametrize("inner", ["secagg", "lightsecagg"])
def test_a_vector_that_spoils_the_sum_is_noticed(inner):
    """A member that sends other words than it should makes the check words wrong: the sum is discarded."""
    midway = Midway(UPLOAD, inner=inner)
    midway.answers[midway.me.user] = midway.answer(midway.me.user)
    message, tail = messages_from_client.decode(midway.answers[midway.me.user])
    midway.server.receive(midway.me.user, packed(message, bytes(len(tail))))
    with pytest.raises(TooFewUsersError, match="gave no sum: masks did not cancel"):
        midway.ends_well()


# --- unsealed clients --------------------------------------------------------------------------------------


def test_an_unsealed_round_is_taken_once_and_as_configured():
    """Scope, inner protocol, terms and round are checked, and rounds only go forward."""
    loners = Loners(3, protocols={"secagg"})
    client = loners.clients["user-0"]

    def asked(inner="secagg", scope=SCOPE, round_=4, **changes):
        conditions = terms(**{"min_included": 2, **changes})
        common = rules(inner=inner, scope=scope, quantiser=quantiser(cohort=3))
        return unsealed_round(common, loners.identities, round_, conditions).start()["user-0"]

    for data, reason in (
        (asked(inner="secagg+"), "secagg\\+'"),
        (asked(scope="photos"), "'photos'; this device serves keyboard"),
        (asked(dimension=2**27), "dimension to 134217728"),
    ):
        with pytest.raises(PeerError, match=reason):
            client.receive(data)
    good = from_server(asked())
    with pytest.raises(PeerError, match="included users to 1; this device takes 2 to 65535"):
        client.receive(encode(msgspec.structs.replace(good, min_included=1)))
    task = client.receive(asked())
    assert client.seal(task, UPDATE)
    with pytest.raises(UsageError, match="not the one that was asked for last"):
        client.seal(task, UPDATE)
    with pytest.raises(PeerError, match="round 4; this client is past it"):
        client.receive(asked())
    assert isinstance(client.receive(asked(round_=5)), Task)


def test_a_sealed_rounds_messages_fit_no_unsealed_one():
    """Sealed or not is part of a round's context: every signature and key of one is void in the other."""
    loners = Loners(6)
    conditions = terms(min_included=6)
    server = unsealed_round(loners.rules, loners.identities, 0, conditions)
    loner = loners.clients["user-0"]
    message = from_client(loner.seal(loner.receive(server.start()["user-0"]), UPDATE))
    sealed = Batches(2, 3, inner="secagg")
    member = sealed.clients["user-0-0"]
    task = member.receive(sealed_round(sealed.charters, 0, conditions).start()["user-0-0"])
    other = from_client(member.seal(task, UPDATE))
    assert message.scope == other.scope
    assert message.context != other.context


def test_an_unsealed_client_asks_who_the_others_are():
    """Its own verify_member decides about every user of the roster."""
    loners = Loners(3)
    identity = IdentityKey.generate()
    client = UnsealedClient("user-0", identity, configuration(), lambda user, key: user != "user-2")
    loners.clients["user-0"], loners.identities["user-0"] = client, identity.public
    server = unsealed_round(loners.rules, loners.identities, 0, terms(min_included=2))
    with pytest.raises(PeerError, match="verify_member refused 'user-2'"):
        run_round(server, loners.clients, loners.train)
