"""Rounds that end in an agreement, in which a rule is broken: refused by name at both ends (§5)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError, UsageError
from coterie.secagg import (
    IdentityKey,
    SealedClient,
    Task,
    sealed_round,
    unsealed_round,
)
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.keys import MaskKey, ShareKey
from coterie.secagg.crypto.ring import PRIME_31, RING_16, RING_32
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import (
    Advertisement,
    Delivery,
    Opening,
    Proposal,
    RevealCall,
    RosterCall,
    SharersCall,
)
from coterie.secagg.wire.framing import encode
from support.secagg.batches import DIMENSION, SCOPE, Batches, Loners, quantiser, terms
from support.secagg.midway import (
    ADVERTISE,
    AGREE,
    RECEIVE,
    SHARE,
    UNMASK,
    UPLOAD,
    Midway,
    from_client,
    from_server,
    signed_line,
)
from support.secagg.servers import UPDATE, call, refused

OTHER = "user-1-0"
"""A user of another batch than "me", user-0-0."""
NO_PAIRS = "has a mask key, and this round has no pairwise masks"
"""What is said in LightSecAgg of a key that nobody should have."""


@pytest.fixture(params=["secagg", "lightsecagg"])
def inner(request):
    """The protocols that share these phases; secagg+ differs from secagg in its graph alone."""
    return request.param


@pytest.fixture
def before(inner):
    """A round of the protocol, before a phase."""
    return partial(Midway, inner=inner)


# --- which round -------------------------------------------------------------------------------------------


def test_a_call_for_an_unsealed_round_is_refused(before):
    """A device that seals takes no call without a seal, in no state; an unsealed client takes no sealed one."""
    for phase in range(6):
        midway = before(phase)
        loners = Loners(3)
        asked = unsealed_round(loners.rules, loners.identities, 7, terms(min_included=2)).start()["user-0"]
        refused(midway.me, asked, "UnsealedCall came from the server out of order")
    loner = loners.clients["user-0"]
    with pytest.raises(PeerError, match=r"RoundCall came from the server out of order: .* only UnsealedCall"):
        loner.receive(call(midway.batches.charters[0], round_=3))


def test_a_pairwise_batch_never_shows_its_sealed_vector():
    """Founded for secagg+, a device answers with keys; the vector leaves only with masks that hide its batch."""
    midway = Midway(ADVERTISE, inner="secagg+")
    task = midway.me.receive(midway.outgoing[midway.me.user])
    message = from_client(midway.me.seal(task, UPDATE))
    assert isinstance(message, Advertisement)
    with midway.me.membership.record(SCOPE) as record:
        assert bytes(record.sealed_message) == encode(message)
    midway = Midway(AGREE, inner="secagg+")
    total = np.zeros(DIMENSION + quantiser().extra_words, dtype=np.uint32)
    for user in ("user-0-0", "user-0-1", "user-0-2"):
        _, tail = messages_from_client.decode(midway.answers[user])
        RING_32.add_into(total, np.frombuffer(tail, dtype="<u4"))
    assert total[-2:].tolist() != [3, 3]


def test_a_lower_least_number_of_included_users_is_refused(before):
    """The terms' min_included is the own batch and T more at least, and no more than a roster may have."""
    midway = before(ADVERTISE)
    good = from_server(midway.outgoing[midway.me.user])
    for least in (1, 3, 5, 2**16):
        bad = encode(msgspec.structs.replace(good, min_included=least))
        refused(midway.me, bad, f"included users to {least}; this device takes 6 to 65535")
    assert len(midway.ends_well()) == 9


@pytest.mark.parametrize("phase", [SHARE, RECEIVE, UPLOAD, AGREE, UNMASK])
def test_a_message_of_another_round_or_scope_is_refused(before, phase):
    """Every message names its round by all that makes it that round; those of another are refused."""
    midway, twin = before(phase), before(phase, conditions=terms(min_included=6, model=b"crafted"))
    refused(midway.me, twin.outgoing[twin.me.user], "speaks of the round")
    midway.refuses("speaks of the round", context=bytes(32))
    midway.refuses("'photos'; this device serves keyboard", scope="photos")
    midway.ends_well()


@cache
def example(inner, phase):
    """A good message of a phase, from a round of its own; the context of another is put into it."""
    return Midway(phase, inner=inner).good


@pytest.mark.parametrize("phase", [SHARE, RECEIVE, UPLOAD, AGREE, UNMASK])
def test_a_phase_comes_once_and_in_order(before, inner, phase):
    """Every message comes once: a second one, or one before its time, is refused."""
    midway = before(phase)
    kinds = {SHARE: RosterCall, RECEIVE: Delivery, UPLOAD: SharersCall, AGREE: Proposal, UNMASK: Opening}
    for at, kind in kinds.items():
        if at != phase:
            message = msgspec.structs.replace(example(inner, at), context=midway.good.context)
            refused(midway.me, encode(message), f"{kind.__name__} came from the server out of order")
    again = midway.outgoing[midway.me.user]
    midway.server.receive(midway.me.user, midway.answer(midway.me.user))
    refused(midway.me, again, f"{kinds[phase].__name__} came from the server out of order")
    midway.ends_well()


def test_a_restarted_client_does_not_rejoin(before):
    """What a device needs for the phases is in memory only; its round is burned, its keys can be sent again."""
    midway = before(SHARE)
    before = midway.answers[midway.me.user]
    restarted = SealedClient(midway.me.membership)
    refused(restarted, midway.outgoing[midway.me.user], "RosterCall .* out of order: in the state 'ready'")
    refused(restarted, call(midway.batches.charters[0]), "round 0; this device is past it, at 1")
    assert restarted.resend_sealed(SCOPE, 0) == before


def test_a_new_call_ends_the_round_before_it(before):
    """A device called to a later round answers nothing more in the one before."""
    midway = before(UPLOAD)
    later = sealed_round(midway.batches.charters, 1, midway.terms).start()[midway.me.user]
    assert isinstance(midway.me.receive(later), Task)
    refused(midway.me, midway.outgoing[midway.me.user], "SharersCall .* out of order: in the state 'called'")


# --- the roster --------------------------------------------------------------------------------------------


def test_a_roster_without_the_devices_own_user_is_refused(before):
    """A device shares nothing in a round that it is not listed in."""
    midway = before(SHARE)
    midway.refuses("does not have 'user-0-0'", lines=midway.good.lines[1:])
    midway.ends_well()


def test_a_roster_with_other_keys_for_the_device_is_refused(before):
    """Somebody else's keys under the device's own name are refused, also if its identity key is another."""
    midway = before(SHARE)
    me, stranger = midway.me.user, IdentityKey.generate()
    for key in ("mask_key", "share_key"):
        other = MaskKey.generate().public
        midway.refuses("'user-0-0', this device's user, with other keys", lines=midway.line(me, **{key: other}))
    midway.refuses(
        "'user-0-0' with another identity key than the charter", lines=midway.line(me, identity=stranger.public)
    )
    midway.ends_well()


@pytest.mark.parametrize("user", ["user-0-1", OTHER])
@pytest.mark.parametrize("key", ["mask_key", "share_key"])
def test_a_substituted_key_in_the_roster_is_refused(before, inner, user, key):
    """A key that its user has not signed for this round is refused."""
    midway = before(SHARE)
    lines = midway.line(user, **{key: ShareKey.generate().public})
    forged = f"signature of '{user}' for 'advertise' is forged"
    midway.refuses(NO_PAIRS if (inner, key) == ("lightsecagg", "mask_key") else forged, lines=lines)
    elsewhere = next(line for line in before(SHARE).good.lines if line.user == user)
    lines = midway.line(user, signature=elsewhere.signature)
    midway.refuses(forged, lines=lines)
    midway.ends_well()


def test_an_invented_user_in_the_roster_is_refused(before):
    """A user whom verify_member does not know is refused, whatever it signed; in the own batch, by the charter."""
    midway = before(SHARE)
    known = {(line.user, line.identity) for line in midway.good.lines}
    party = midway.me._rounds[SCOPE]._party  # noqa: SLF001 - founded while everybody was trusted
    object.__setattr__(party, "verify_member", lambda user, identity: (user, identity) in known)
    impostor = IdentityKey.generate()
    for user, reason in (
        (OTHER, f"verify_member refused '{OTHER}'"),
        ("user-0-1", "'user-0-1' with another identity key than the charter"),
    ):
        line = next(line for line in midway.good.lines if line.user == user)
        invented = signed_line(impostor, midway.good.context, user, line.mask_key, line.share_key)
        midway.refuses(reason, lines=midway.with_line(invented))
    midway.ends_well()


def test_a_roster_that_lists_a_user_twice_is_refused(before):
    """Ids come once, in the order of their bytes."""
    midway = before(SHARE)
    lines = midway.good.lines
    midway.refuses("not in order, or has 'user-1-0' twice", lines=(*lines[:4], lines[3], *lines[4:8]))
    midway.refuses("not in order", lines=lines[::-1])
    midway.refuses("not in order", lines=(*lines[:7], lines[8], lines[7]))
    midway.ends_well()


@pytest.mark.parametrize("kind", ["identity", "mask_key", "share_key"])
def test_two_users_of_a_roster_with_one_key_are_refused(before, inner, kind):
    """Two users that share a key could be one party; in LightSecAgg nobody has a mask key."""
    midway = before(SHARE)
    if (inner, kind) == ("lightsecagg", "mask_key"):
        assert {line.mask_key for line in midway.good.lines} == {b""}
        return
    key = getattr(midway.good.lines[8], kind)
    spoken = kind.replace("_", " ")
    midway.refuses(f"two users .* the same {spoken}", lines=midway.line(OTHER, **{kind: key}))
    midway.ends_well()


@pytest.mark.parametrize("kind", ["mask", "share"])
@pytest.mark.parametrize("number", [0, 1, 2**255 - 20, 2**255 + 9])
def test_a_round_key_of_low_order_is_refused(before, inner, kind, number):
    """A mask or share key of low order, or not canonical, is refused, although its user signed it."""
    midway = before(SHARE)
    identity = midway.clients[OTHER].membership.identity
    line = next(line for line in midway.good.lines if line.user == OTHER)
    keys = {"mask_key": line.mask_key, "share_key": line.share_key, f"{kind}_key": number.to_bytes(32, "little")}
    bad = signed_line(identity, midway.good.context, OTHER, **keys)
    weak = f"the {kind} key of '{OTHER}' (has low order|is not canonical)"
    reason = NO_PAIRS if (inner, kind) == ("lightsecagg", "mask") else weak
    midway.refuses(reason, lines=midway.with_line(bad))
    midway.ends_well()


def stranger_line(context):
    """The line of a tenth user, who has signed it."""
    keys = (MaskKey.generate().public, ShareKey.generate().public)
    return signed_line(IdentityKey.generate(), context, "zoe", *keys)


def test_a_roster_too_small_or_too_large_is_refused(before):
    """A roster has at least as many users as must be included, and at most the charter's cohort."""
    midway = before(SHARE)
    midway.refuses("roster has 5 users; this round takes 6 to 9", lines=midway.good.lines[:5])
    lines = (*midway.good.lines, stranger_line(midway.good.context))
    midway.refuses("roster has 10 users; this round takes 6 to 9", lines=lines)
    midway.ends_well()


def test_a_roster_larger_than_the_device_allows_is_refused(before):
    """The owner bounds the work that a roster may cause, whatever the charter's cohort is."""
    midway = before(SHARE, largest_roster=8)
    midway.refuses("roster has 9 users; this round takes 6 to 8")


@pytest.mark.parametrize(
    ("inner", "common"),
    [
        ("secagg", {"quantiser": quantiser(cohort=9, clip=2.0)}),
        ("secagg", {"quantiser": quantiser(cohort=9, ring=RING_16)}),
        ("secagg", {"parameters": Parameters(250, 300)}),
        ("secagg", {"parameters": Parameters(200, 250)}),
        ("lightsecagg", {"quantiser": quantiser(cohort=9, clip=2.0, ring=PRIME_31)}),
        ("lightsecagg", {"parameters": Parameters(250, 300)}),
    ],
    ids=["clip", "ring", "colluders", "losses", "lightsecagg, clip", "lightsecagg, colluders"],
)
def test_batches_of_different_quantiser_or_parameters_never_meet(before, common):
    """Both are in the context: whoever advertised under others has signed for another round."""
    midway, other = before(SHARE), before(SHARE, common=common)
    assert midway.good.context != other.good.context
    midway.clients |= {user: other.clients[user] for user in ("user-1-0", "user-1-1", "user-1-2")}
    lines = (*midway.good.lines[:3], *other.good.lines[3:6], *midway.good.lines[6:])
    midway.refuses("signature of 'user-1-0' for 'advertise' is forged, or made for something else", lines=lines)
    charters = [midway.batches.charters[0], *other.batches.charters[1:]]
    with pytest.raises(UsageError, match="2 different ones"):
        sealed_round(charters, 1, terms(min_included=6))


def test_a_roster_with_an_id_that_is_too_long_is_refused(before):
    """Ids have 64 bytes of UTF-8 at most, also if they have fewer characters."""
    midway = before(SHARE)
    lines = (*midway.good.lines[:8], msgspec.structs.replace(midway.good.lines[8], user="é" * 33))
    midway.refuses("an id of 66 bytes", lines=tuple(sorted(lines, key=lambda line: line.user.encode())))
    midway.ends_well()


# --- the sharers -------------------------------------------------------------------------------------------


def test_sharers_that_are_no_list_of_users_are_refused(before):
    """Sharers are places of the roster, each once, in ascending order, with the device's own among them."""
    midway = before(UPLOAD)
    midway.refuses("sharers name user 9 of a roster of 9", sharers=(*range(8), 9))
    midway.refuses("not in ascending order, or name a user twice", sharers=(0, 1, 1, 2, 3, 4, 5, 6, 7))
    midway.refuses("not in ascending order", sharers=(1, 0, 2, 3, 4, 5, 6, 7, 8))
    midway.refuses("sharers do not have 'user-0-0'", sharers=tuple(range(1, 9)))
    midway.ends_well()


def test_too_few_sharers_are_refused(before):
    """With fewer sharers than must sign later, of all users of the roster, nothing is masked."""
    midway = before(UPLOAD)
    midway.refuses("5 sharers among 9 users; 6 are needed", sharers=tuple(range(5)))
    midway.ends_well()


def test_a_sharer_whose_box_never_came_is_refused(before):
    """A server that withheld a box cannot have its sender among the sharers: a share of it would be missing."""
    midway = before(RECEIVE)
    good = midway.good
    cut = msgspec.structs.replace(
        good, senders=good.senders[:-1], parcels=good.parcels[: len(good.parcels) // 8 * 7]
    )
    midway.answered.add(midway.me.user)
    midway.server.receive(midway.me.user, midway.me.receive(encode(cut)))
    midway.deliver()
    midway.advance()
    midway.refuses("sharers have 'user-2-2', of whom this device has no share")
    midway.me.receive(encode(msgspec.structs.replace(midway.good, sharers=tuple(range(8)))))


def test_sharers_changed_after_upload_are_refused(before):
    """A vector leaves once, masked for one list of sharers: masks for another would show their difference."""
    midway = before(UPLOAD)
    fewer = encode(msgspec.structs.replace(midway.good, sharers=tuple(range(8))))
    midway.server.receive(midway.me.user, midway.answer(midway.me.user))
    refused(midway.me, fewer, "SharersCall came from the server out of order")
    midway.deliver()
    midway.advance()
    refused(midway.me, fewer, "SharersCall came from the server out of order")
    midway.refuses("lists are not the sharers: they differ in 'user-2-2'", included=tuple(range(8)))
    assert len(midway.ends_well()) == 9


def test_sharers_who_differ_between_clients_open_nothing(before):
    """Who was shown other sharers signs another statement, and its signature counts for nobody else."""
    midway = before(UPLOAD)
    cut = msgspec.structs.replace(midway.good, sharers=tuple(range(8)))
    vector = bytes(midway.me.receive(encode(cut)))
    midway.server_refuses(midway.me.user, vector, "signature of 'user-0-0' for 'upload' is forged")
    midway.deliver(but={midway.me.user})
    midway.advance()
    midway.refuses("lists are not the sharers: they differ in 'user-2-2'")


# --- the agreement -----------------------------------------------------------------------------------------


def everyone():
    return tuple(range(9))


def test_a_user_both_included_and_excluded_is_refused(before):
    """No user is on both lists: both its secrets would be opened."""
    midway = before(AGREE)
    for place in (0, 4):
        midway.refuses(f"includes and excludes 'user-{place // 3}-{place % 3}'", excluded=(place,))
    midway.ends_well()


def test_lists_that_are_not_the_sharers_are_refused(before):
    """Both lists together are exactly the sharers: nobody is left out, and no one else is named."""
    midway = before(AGREE, away={"user-2-0"})
    good = midway.good
    assert (good.included, good.excluded) == (tuple(range(6)), (6, 7, 8))
    midway.refuses("they differ in 'user-2-2'", excluded=(6, 7))
    midway.refuses("excluded users name user 9", excluded=(6, 7, 8, 9))
    midway.refuses("in ascending order, or name a user twice", excluded=(6, 6, 7, 8))
    midway.refuses("in ascending order, or name a user twice", included=(0, 2, 1, 3, 4, 5))
    assert len(midway.ends_well()) == 6


def test_a_non_sharer_on_a_list_is_refused(before):
    """A user who did not share is on neither list: nobody gives shares of it."""
    midway = _without_sharer(before)
    assert 8 not in {*midway.good.included, *midway.good.excluded}
    midway.refuses("they differ in 'user-2-2'", excluded=(6, 7, 8))
    midway.refuses("they differ in 'user-2-2'", included=(0, 1, 2, 3, 4, 5, 8))
    midway.ends_well()


def _without_sharer(before):
    """A round before its agreement in which user-2-2 advertised and did not share."""
    midway = before(SHARE)
    midway.deliver(but={"user-2-2"})
    for _ in range(2):
        midway.advance()
        midway.deliver()
    midway.advance()
    return midway


def test_an_own_batch_that_is_partly_included_is_refused(before):
    """The device's batch is included as a whole, or not at all."""
    for included in ((0, 3, 4, 5, 6, 7, 8), (0, 1, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 5, 6, 7, 8)):
        midway = before(AGREE)
        excluded = tuple(place for place in everyone() if place not in included)
        midway.refuses("a part of the batch of 'user-0-0'", included=included, excluded=excluded)
        assert len(midway.ends_well()) == 9


def test_an_own_batch_that_is_incomplete_is_never_included(before):
    """Who has uploaded nothing, since its batch lacks a sharer, is on the list of the excluded."""
    midway = _without_sharer(before)
    midway.me = midway.clients["user-2-0"]
    midway.refuses("a part of the batch of 'user-2-0'", included=tuple(range(8)), excluded=())
    midway.refuses("a part of the batch of 'user-2-0'", included=tuple(range(7)), excluded=(7,))
    assert len(midway.ends_well()) == 6


def test_too_few_included_users_are_refused(before):
    """At least min_included users are summed."""
    midway = before(AGREE)
    midway.refuses("includes 3 users; at least 6", included=(0, 1, 2), excluded=(3, 4, 5, 6, 7, 8))
    midway.refuses("includes 5 users", included=(3, 4, 5, 6, 7), excluded=(0, 1, 2, 8))
    midway.refuses("includes 0 users", included=(), excluded=everyone())
    assert len(midway.ends_well()) == 9


def test_a_large_batch_is_never_alone_in_a_sum():
    """Others could agree to a sum of one batch alone, without its members: so terms ask for T more than it has."""
    common = {"quantiser": quantiser(cohort=24)}
    large = Batches(1, 6, privacy=3, inner="secagg", prefix="a", common=common)
    small = Batches(6, 3, inner="secagg", prefix="b", common=common)
    charters = [*large.charters, *small.charters]
    good = sealed_round(charters, 0, terms(min_included=9)).start()
    message = from_server(good["a-0-0"])
    for least in (6, 8):
        bad = encode(msgspec.structs.replace(message, min_included=least))
        refused(large.clients["a-0-0"], bad, f"included users to {least}; this device takes 9 to 65535")
    assert isinstance(large.clients["a-0-0"].receive(good["a-0-0"]), Task)


def test_of_two_proposals_at_once_one_is_signed(before):
    """Two different proposals in two threads: one is signed, the other refused, however they race."""
    midway = before(AGREE)
    other = msgspec.structs.replace(midway.good, included=tuple(range(6)), excluded=(6, 7, 8))
    party = midway.me._rounds[SCOPE]._party  # noqa: SLF001 - to make it slow
    entered, release = threading.Semaphore(0), threading.Event()

    class Slow:
        """An identity key that takes its time."""

        def sign(self, *statement):
            entered.release()
            assert release.wait(20)
            return identity.sign(*statement)

    identity = party.identity
    object.__setattr__(party, "identity", Slow())

    def ask(message):
        try:
            return midway.me.receive(encode(message))
        except PeerError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, message) for message in (midway.good, other)]
        assert entered.acquire(timeout=20)
        assert not entered.acquire(timeout=0.2)  # the other one waits outside
        release.set()
        answers = [each.result(timeout=20) for each in asked]
    assert sum(isinstance(answer, bytes) for answer in answers) == 1
    assert any("out of order: in the state 'agreed'" in str(answer) for answer in answers)


def signatures(midway):
    """The signatures that are ready for "me": under the agreement, and under the uploads."""
    good = midway.good
    return good.signatures[: len(good.signers)], good.signatures[len(good.signers) :]


def opening(midway, signers, agreed, uploaded=None):
    """What is ready for "me", with other signatures under the agreement, and perhaps under the uploads."""
    uploaded = signatures(midway)[1] if uploaded is None else uploaded
    return encode(msgspec.structs.replace(midway.good, signers=tuple(signers), signatures=(*agreed, *uploaded)))


def test_a_lowered_threshold_is_refused(before):
    """Fewer than ⌊(n + ⌊γn⌋)/2⌋ + 1 signatures open nothing, and no message says how many are needed."""
    midway = before(UNMASK)
    signers, (agreed, _) = midway.good.signers, signatures(midway)
    assert len(signers) == (9 + 1) // 2 + 1 == 6
    for count in range(6):
        data = opening(midway, signers[:count], agreed[:count])
        refused(midway.me, data, f"{count} users under the agreement; 6 are needed")
    refused(midway.me, opening(midway, signers, agreed[:5]), "8 signatures of 6 users .* and 3 under")
    refused(midway.me, opening(midway, signers[:5], agreed), "5 users under the agreement; 6 are needed")
    kinds = (RosterCall, Delivery, RevealCall, SharersCall, Proposal, Opening)
    fields = {field for kind in kinds for field in kind.__struct_fields__}
    assert not fields & {"threshold", "users_needed", "shares_needed"}
    midway.ends_well()


def test_t_is_never_counted_from_fewer_than_the_roster(before):
    """With three of nine users lost, as many must still sign as of nine: two lists could have five each."""
    midway = before(UPLOAD, away={"user-2-0", "user-2-1", "user-2-2"})
    midway.deliver(lost={"user-2-0", "user-2-1", "user-2-2"})
    midway.advance()
    assert len(midway.good.included) == 6
    midway.deliver()
    midway.advance()
    signers, (agreed, uploaded) = midway.good.signers, signatures(midway)
    silent = (agreed[5], *uploaded)
    refused(
        midway.me, opening(midway, signers[:5], agreed[:5], silent), "5 users under the agreement; 6 are needed"
    )
    assert len(midway.ends_well()) == 6


def test_signatures_that_are_not_of_distinct_users_are_refused(before):
    """One signature counts once, and only under its own user's name."""
    midway = before(UNMASK)
    signers, (agreed, _) = midway.good.signers, signatures(midway)
    refused(midway.me, opening(midway, (*signers[:5], signers[4]), (*agreed[:5], agreed[4])), "name a user")
    refused(midway.me, opening(midway, (*signers[:5], 8), (*agreed[:5], agreed[4])), "'user-2-2' .* forged")
    refused(midway.me, opening(midway, (*signers[:5], 9), agreed), "signers name user 9 of a roster of 9")
    refused(midway.me, opening(midway, signers, (*agreed[:5], bytes(64))), "for 'agree' is forged")
    midway.ends_well()


def test_different_lists_for_different_clients_open_nothing(before):
    """A server that has half the users sign one list and half another finds enough signatures for neither."""
    midway = before(AGREE)
    other = encode(msgspec.structs.replace(midway.good, included=tuple(range(6)), excluded=(6, 7, 8)))
    signed = {}
    for number, user in enumerate(midway.clients):
        shown = other if number % 2 else midway.outgoing[user]
        signed[user] = from_client(midway.clients[user].receive(shown))
    places = dict(enumerate(sorted(midway.clients)))
    for parity in (0, 1):
        for user in midway.clients:
            own = [place for place in places if place % 2 == parity]
            message = Opening(
                SCOPE, midway.good.context, tuple(own), tuple(signed[places[place]].signature for place in own)
            )
            refused(midway.clients[user], encode(message), "6 are needed")
            everyones = [signed[places[place]].signature for place in range(9)]
            message = msgspec.structs.replace(message, signers=tuple(range(9)), signatures=tuple(everyones))
            refused(midway.clients[user], encode(message), "for 'agree' is forged, or made for something else")


def test_signatures_of_another_agreement_are_refused(before):
    """What users signed in another round, or about other lists, opens nothing here."""
    midway, twin = before(UNMASK), before(UNMASK, away={"user-2-0"})
    for elsewhere in (twin, before(UNMASK)):
        data = opening(midway, elsewhere.good.signers, signatures(elsewhere)[0])
        refused(midway.me, data, "for 'agree' is forged, or made for something else")
    midway.ends_well()


def test_uploads_that_are_not_for_these_sharers_are_not_opened(before):
    """An included user who signed no agreement has signed for which sharers it masked; or nothing is opened."""
    midway, twin = before(UNMASK), before(UNMASK)
    signers, (agreed, uploaded) = midway.good.signers, signatures(midway)
    forged = "for 'upload' is forged, or made for something else"
    for wrong, reason in (
        ((), "6 signatures of 6 users under the agreement and 3 under their uploads"),
        (uploaded[:1], "7 signatures"),
        ((*uploaded, uploaded[1]), "10 signatures"),
        ((*uploaded[:2], bytes(64)), f"'user-2-2' {forged}"),
        ((uploaded[1], uploaded[0], uploaded[2]), f"'user-2-0' {forged}"),
        ((agreed[0], *uploaded[1:]), f"'user-2-0' {forged}"),
        (signatures(twin)[1], f"'user-2-0' {forged}"),
    ):
        refused(midway.me, opening(midway, signers, agreed, wrong), reason)
    assert len(midway.ends_well()) == 9


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("hidden", [0, 4])
def test_a_batch_that_was_shown_fewer_sharers_is_not_opened(sealed, hidden):
    """A server hides one batch from another, and has all others agree to a sum of these two and of nobody else.

    The one batch has masks in common with excluded users only, all of which are opened: its sum, or in an unsealed
    round each of its users' updates, would lie open. Its members do not sign, and nobody needs them to.
    """
    users = Batches(4, 4, inner="secagg") if sealed else Loners(16)
    conditions = terms(min_included=8)
    server = (
        sealed_round(users.charters, 0, conditions)
        if sealed
        else unsealed_round(users.rules, users.identities, 0, conditions)
    )
    outgoing = server.start()
    for _ in range(3):
        for user, data in outgoing.items():
            answer = users.clients[user].receive(data)
            first = isinstance(answer, Task)
            server.receive(user, users.clients[user].seal(answer, users.updates[user]) if first else answer)
        outgoing = server.advance()
    names, uploaded = sorted(outgoing), []
    for place, user in enumerate(names):
        good = from_server(outgoing[user])
        shown = tuple(other for other in range(16) if place >= 4 or not 4 <= other < 4 + hidden)
        message = msgspec.structs.replace(good, sharers=shown)
        uploaded.append(from_client(bytes(users.clients[user].receive(encode(message)))).signature)
    proposal = encode(Proposal(good.scope, good.context, tuple(range(8)), tuple(range(8, 16))))
    agreed = [from_client(users.clients[user].receive(proposal)).signature for user in names[4:]]
    asked = encode(Opening(good.scope, good.context, tuple(range(4, 16)), (*agreed, *uploaded[:4])))
    for user in names[4:]:
        if hidden:
            with pytest.raises(PeerError, match=f"'{names[0]}' for 'upload' is forged, or made for something"):
                users.clients[user].receive(asked)
        else:
            opened = from_client(users.clients[user].receive(asked))
            assert len(opened.shares) == 16 * SHARE_BYTES


def test_a_device_opens_what_it_signed_and_nothing_else():
    """Of the included it gives a seed share, of the excluded a key share, of a non-sharer none, never both."""
    midway = _without_sharer(Midway)
    midway.deliver()
    midway.advance()
    held = dict(midway.me._rounds[SCOPE]._shares)  # noqa: SLF001 - what it could give away
    assert held.keys() == set(range(8))
    message = from_client(midway.me.receive(midway.outgoing[midway.me.user]))
    sent = [message.shares[start : start + SHARE_BYTES] for start in range(0, len(message.shares), SHARE_BYTES)]
    assert sent == [held[place][:SHARE_BYTES] for place in range(6)] + [held[p][SHARE_BYTES:] for p in (6, 7)]
    refused(midway.me, midway.outgoing[midway.me.user], "Opening .* out of order: in the state 'ready'")
    assert midway.me._rounds == {}  # noqa: SLF001 - nothing is left that could be asked for
