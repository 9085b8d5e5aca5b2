"""Boxes, complaints about them, and wrong shares: no single user stops a round or frames another (§5)."""

from functools import partial

import msgspec
import numpy as np
import pytest

from coterie.errors import TooFewUsersError
from coterie.secagg import Task, run_round, unsealed_round
from coterie.secagg.crypto.keys import BoxKey
from coterie.secagg.crypto.ring import PRIME_31, RING_16, RING_32
from coterie.secagg.crypto.shamir import SHARE_BYTES
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.boxes import Route, leaf, parcel_bytes, sharing_tree
from coterie.secagg.protocols.agreement.messages import (
    Complaint,
    Receipt,
    Reveal,
    RevealCall,
)
from coterie.secagg.protocols.lightsecagg import CodedSharing
from coterie.secagg.protocols.pairwise import PAIRS, Sharing
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE, Loners, quantiser, terms
from support.secagg.midway import AGREE, RECEIVE, SHARE, UNMASK, UPLOAD, Midway, from_client, from_server
from support.secagg.servers import packed, refused

LIAR, OTHER = "user-1-1", "user-1-0"
BOX_BYTES = PAIRS.box_bytes
PARCEL_BYTES = parcel_bytes(BOX_BYTES, 8)


def parts(content, size):
    """Bytes cut into pieces of one size."""
    return [content[start : start + size] for start in range(0, len(content), size)]


@pytest.fixture(params=["secagg", "lightsecagg"])
def before(request):
    """A round of a protocol with boxes, before a phase; secagg+ differs from secagg in its graph alone."""
    return partial(Midway, inner=request.param)


def shared_boxes(roster, answer):
    """A user's message with its boxes, and the boxes one by one."""
    message, tail = messages_from_client.decode(answer)
    content = message.boxes if isinstance(message, Sharing) else bytes(tail)
    return message, parts(content, roster.box_format.box_bytes)


def signed_sharing(identity, roster, message, boxes):
    """A user's boxes, some of them altered, under a signature that is really its own."""
    content, pairs = b"".join(boxes), isinstance(message, Sharing)
    statement = message.seed_digest + message.own_commitments if pairs else b""
    root = sharing_tree(statement, content, roster.box_format).root
    signature = identity.sign(*roster.boxes_to_sign(roster.position[message.user], root))
    if pairs:
        return encode(msgspec.structs.replace(message, boxes=content, signature=signature))
    return packed(msgspec.structs.replace(message, signature=signature), content)


def lying_share(midway, alter, liar=LIAR):
    """Let all share; the liar's boxes go through `alter(holder's place, box)` before it signs them."""
    midway.deliver(but={liar})
    message, good = shared_boxes(midway.roster, midway.answer(liar))
    holders = midway.roster.graph.neighbours(midway.roster.position[liar])
    boxes = [alter(at, box) for at, box in zip(holders, good, strict=True)]
    client = midway.clients[liar]
    client._rounds[SCOPE]._sent.boxes.update(zip(holders, boxes, strict=True))  # noqa: SLF001 - it stands by them
    midway.server.receive(liar, signed_sharing(client.membership.identity, midway.roster, message, boxes))
    midway.advance()


def garbage(at, box):
    """A box of random bytes."""
    return np.random.default_rng(at).bytes(len(box))


def rewritten(midway, liar, change):
    """What alters a box by its content: boxes that open to their commitments, of another pair of shares."""
    place = midway.roster.position[liar]

    def alter(at, box):
        user = midway.roster.lines[at].user
        route = Route(midway.roster, place, at)
        pair = route.decrypt_shares(midway.clients[user]._rounds[SCOPE]._share_key, box)  # noqa: SLF001
        return route.encrypt_shares(BoxKey.generate(), change(at, pair))

    return alter


# --- unsigned, altered and missing boxes ---------------------------------------------------------------------


def test_an_unsigned_altered_or_missing_box_is_refused():
    """A box that its sender did not sign for this holder and round is the server's fault: nobody is named."""
    midway, twin = Midway(RECEIVE), Midway(RECEIVE)
    parcels = midway.good.parcels
    for wrong in (b"", parcels[:-1], parcels + bytes(1), parcels[PARCEL_BYTES:]):
        midway.refuses(f"delivered {len(wrong)} bytes of boxes; 8 senders give {8 * PARCEL_BYTES}", parcels=wrong)
    flipped = [parcels[:at] + bytes([parcels[at] ^ 1]) + parcels[at + 1 :] for at in range(0, PARCEL_BYTES, 31)]
    swapped = parcels[PARCEL_BYTES : 2 * PARCEL_BYTES] + parcels[:PARCEL_BYTES] + parcels[2 * PARCEL_BYTES :]
    other = from_server(midway.outgoing[OTHER]).parcels
    for wrong in (*flipped, swapped, other, twin.good.parcels, bytes(len(parcels))):
        midway.refuses("signature of 'user-[0-9]-[0-9]' for 'share' is forged", parcels=wrong)
    midway.ends_well()
    assert midway.server.liars == {}


def test_a_box_that_the_server_made_is_refused(before):
    """Anyone can make a box that opens to its commitments; only its sender can sign it."""
    midway = before(RECEIVE)
    content = bytes(midway.roster.box_format.content_bytes)
    box = Route(midway.roster, 1, 0).encrypt_shares(BoxKey.generate(), content)
    midway.refuses("signature of 'user-0-1' for 'share'", parcels=box + midway.good.parcels[len(box) :])
    midway.ends_well()


def test_a_box_of_no_neighbour_is_refused(before):
    """Boxes come from neighbours, each once, in ascending order: from nobody else, and not from the device."""
    midway = before(RECEIVE)
    midway.refuses("a box of 'user-0-0', who is no neighbour", senders=tuple(range(8)))
    midway.refuses("senders name user 9", senders=(*range(1, 8), 9))
    midway.refuses("in ascending order, or name a user twice", senders=(1, 1, *range(3, 9)))
    midway.ends_well()


def test_an_unsigned_box_is_refused_by_the_server():
    """What no holder would take is not passed on: its sender is lost to the round, and nobody else is."""
    midway = Midway(SHARE)
    midway.answers[LIAR] = midway.answer(LIAR)
    message = from_client(midway.answers[LIAR])
    for changes in (
        {"signature": bytes(64)},
        {"seed_digest": bytes(32)},
        {"own_commitments": bytes(64)},
        {"boxes": bytes(len(message.boxes))},
    ):
        midway.server_refuses(LIAR, midway.changed(LIAR, changes), "signature of 'user-1-1' for 'share' is forged")
    midway.deliver()
    midway.advance()
    assert midway.ends_well() == {user for user in midway.clients if not user.startswith("user-1")}


# --- complaints, as the accused device takes them --------------------------------------------------------------


class Accusing:
    """A round in which "me" has sent good boxes and opened all others; anyone's complaint can be made up."""

    def __init__(self, before):
        self.midway = before(SHARE)
        self.midway.deliver()
        _, boxes = shared_boxes(self.midway.roster, self.midway.answers["user-0-0"])
        self.boxes = dict(zip(range(1, 9), boxes, strict=True))
        self.midway.advance()
        self.midway.deliver()
        self.context = self.midway.good.context
        self.me = self.midway.me

    def complaint(self, holder, box=None, signer=None):
        """A complaint in a holder's name, about its box or another, with its signature or another's."""
        roster, digest = self.midway.roster, leaf(self.boxes[holder if box is None else box])
        key = self.midway.clients[roster.lines[holder if signer is None else signer].user].membership.identity
        return Complaint(holder, digest, key.sign(*roster.complaint_to_sign(0, holder, digest)))

    def call(self, *complaints):
        """The server's message with some complaints."""
        return encode(RevealCall(SCOPE, self.context, complaints))

    def refuses(self, reason, *complaints):
        """ "me" reveals nothing."""
        refused(self.me, self.call(*complaints), reason)


def test_an_unsigned_complaint_reveals_nothing(before):
    """A key is revealed only to a complaint that the box's holder signed, in this round."""
    accusing, twin = Accusing(before), Accusing(before)
    good = accusing.complaint(4)
    for signature in (bytes(64), twin.complaint(4).signature):
        bad = msgspec.structs.replace(good, signature=signature)
        accusing.refuses("signature of 'user-1-1' for 'complaint' is forged", bad)
    accusing.refuses("without a complaint")
    accusing.midway.advance()
    accusing.midway.ends_well()


def test_a_complaint_by_another_holder_reveals_nothing(before):
    """One holder cannot have another's box opened: not in its own name, and not in the other's."""
    accusing = Accusing(before)
    accusing.refuses("signature of 'user-1-1' for 'complaint' is forged", accusing.complaint(4, signer=5))
    accusing.refuses("complaint of 'user-1-2' is about another box", accusing.complaint(5, box=4))
    own = Complaint(0, leaf(accusing.boxes[1]), accusing.complaint(1).signature)
    accusing.refuses("complaint by user 0, who was sent no box", own)
    stranger = msgspec.structs.replace(accusing.complaint(4), user=9)
    accusing.refuses("complaint by user 9, who was sent no box", stranger)


def test_a_complaint_about_another_box_reveals_nothing(before):
    """A complaint names the box by its digest; about a box that was never sent nothing is revealed."""
    accusing = Accusing(before)
    good = accusing.complaint(4)
    accusing.refuses("about another box", msgspec.structs.replace(good, box_digest=bytes(32)))
    accusing.refuses("not in ascending order, or two are about one box", good, good)
    accusing.refuses("not in ascending order", accusing.complaint(5), good)
    accusing.refuses("about another box", accusing.complaint(3), accusing.complaint(4, box=5))


def test_a_second_reveal_is_refused(before):
    """Keys are revealed once, before the sharers are fixed, and only those that were complained about."""
    accusing = Accusing(before)
    answer = from_client(accusing.me.receive(accusing.call(accusing.complaint(4))))
    key = BoxKey.from_bytes(answer.keys)
    assert key.public == accusing.boxes[4][:32]
    for again in (4, 5):
        accusing.refuses("RevealCall came from the server out of order", accusing.complaint(again))
    accusing.midway.advance()
    accusing.midway.ends_well()
    accusing.refuses("RevealCall came from the server out of order", accusing.complaint(5))


def test_a_reveal_shows_no_more_than_the_holder_has(before):
    """The key of one box opens that box alone: no other box, and no secret of the device's."""
    accusing = Accusing(before)
    key = from_client(accusing.me.receive(accusing.call(accusing.complaint(4)))).keys
    roster = accusing.midway.roster
    holder = accusing.midway.clients["user-1-1"]._rounds[SCOPE]  # noqa: SLF001 - what it was sent
    assert Route(roster, 0, 4).revealed_shares(key, accusing.boxes[4]) == holder._shares[0]  # noqa: SLF001
    for other in set(accusing.boxes) - {4}:
        assert Route(roster, 0, other).revealed_shares(key, accusing.boxes[other]) is None


# --- complaints, as the server takes them ----------------------------------------------------------------------


def test_a_complaint_that_is_not_the_holders_is_refused_by_the_server(before):
    """Unsigned, about a box of somebody else, or twice about one: it counts for nothing, and accuses nobody."""
    midway = before(RECEIVE)
    midway.answers[OTHER] = midway.answer(OTHER)
    roster, place = midway.roster, midway.roster.position[OTHER]
    digest = leaf(midway.server._boxes.box(0, place))  # noqa: SLF001 - the box that it was sent
    signature = midway.clients[OTHER].membership.identity.sign(*roster.complaint_to_sign(0, place, digest))
    good = Complaint(0, digest, signature)
    elsewhere = leaf(midway.server._boxes.box(0, 4))  # noqa: SLF001 - somebody else's
    for complaints, reason in (
        ((msgspec.structs.replace(good, signature=bytes(64)),), "for 'complaint' is forged"),
        ((msgspec.structs.replace(good, box_digest=elsewhere),), "complains about a box that it was not sent"),
        ((msgspec.structs.replace(good, user=1),), "complains about a box that it was not sent"),
        ((msgspec.structs.replace(good, user=place),), "complains about a box that it was not sent"),
        ((good, good), "two are about one box"),
    ):
        midway.server_refuses(OTHER, midway.changed(OTHER, {"complaints": complaints}), reason)
    midway.server.receive(OTHER, midway.answers[OTHER])
    assert len(midway.ends_well()) == 9
    assert midway.server.liars == {}


@pytest.mark.parametrize("inner", ["secagg", "secagg+", "lightsecagg"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_garbage_boxes_stop_nobody_but_their_sender(inner, count):
    """One user's signed boxes are garbage, for one neighbour or all: it is named, the others have their sum."""
    midway = Midway(SHARE, inner=inner)
    victims = midway.roster.graph.neighbours(midway.roster.position[LIAR])[:count]
    lying_share(midway, lambda at, box: garbage(at, box) if at in victims else box)
    midway.deliver()
    midway.advance()
    assert set(midway.outgoing) == {LIAR}
    assert isinstance(from_server(midway.outgoing[LIAR]), RevealCall)
    included = midway.ends_well()
    assert included == {user for user in midway.clients if not user.startswith("user-1")}
    (reason,) = midway.result.lost.values()
    assert reason.startswith(f"{LIAR} sent user-")
    assert list(midway.server.liars) == [LIAR]
    assert "does not open to what it signed" in midway.server.liars[LIAR]


def test_every_way_to_spoil_a_box_is_the_senders_lie(before):
    """A key of low order, another commitment, a wrong tag, words that are no share: never the holder's fault."""
    low_order = bytes(32)
    for number, spoil in enumerate(
        (
            lambda at, box: low_order + box[32:],
            lambda at, box: box[:-1] + bytes([box[-1] ^ 1]),
            lambda at, box: box[:40] + bytes([box[40] ^ 1]) + box[41:],
            None,
        )
    ):
        midway = before(SHARE)
        alter = spoil or rewritten(midway, LIAR, lambda at, shares: b"\xff" * len(shares))
        lying_share(midway, lambda at, box, alter=alter: alter(at, box) if at == 0 else box)
        midway.deliver()
        midway.advance()
        assert len(midway.ends_well()) == 6, number
        assert list(midway.server.liars) == [LIAR], number


def false_receipt(midway, liar, senders):
    """A receipt in which a holder complains about good boxes of some senders."""
    roster, place = midway.roster, midway.roster.position[liar]
    identity = midway.clients[liar].membership.identity
    complaints = []
    for sender in senders:
        digest = leaf(midway.server._boxes.box(sender, place))  # noqa: SLF001 - what it was sent
        signature = identity.sign(*roster.complaint_to_sign(sender, place, digest))
        complaints.append(Complaint(sender, digest, signature))
    return encode(Receipt(SCOPE, midway.good.context, liar, tuple(complaints)))


@pytest.mark.parametrize("senders", [(0,), (0, 3, 8), (0, 1, 2, 3, 5, 6, 7, 8)])
def test_a_false_complainer_is_named_and_nobody_else(before, senders):
    """Who complains about good boxes is left out; those it accused reveal the boxes' keys and stay in the sum."""
    midway = before(RECEIVE)
    midway.deliver(but={LIAR})
    midway.server.receive(LIAR, false_receipt(midway, LIAR, senders))
    midway.answered.add(LIAR)
    midway.advance()
    assert [midway.roster.position[user] for user in midway.outgoing] == list(senders)
    assert midway.server.waiting == set(midway.outgoing)
    assert midway.ends_well() == {user for user in midway.clients if not user.startswith("user-1")}
    assert midway.server.liars.keys() == {LIAR}
    assert "complained about a good box" in midway.server.liars[LIAR]


def test_silence_after_a_complaint_is_a_loss(before):
    """Who does not reveal is left out like anybody lost; neither side is called a liar."""
    midway = before(SHARE)
    lying_share(midway, lambda at, box: garbage(at, box) if at == 0 else box)
    midway.deliver()
    midway.advance()
    midway.advance()
    assert midway.ends_well() == {user for user in midway.clients if not user.startswith("user-1")}
    assert midway.server.liars == {}


def test_another_key_than_the_boxs_is_the_senders_lie(before):
    """A revealed key that is not the box's own convicts the sender; one of a wrong size is no answer."""
    midway = before(SHARE)
    lying_share(midway, lambda at, box: garbage(at, box) if at == 0 else box)
    midway.deliver()
    midway.advance()
    context = from_server(midway.outgoing[LIAR]).context
    for wrong in (b"", bytes(31), bytes(64)):
        midway.server_refuses(LIAR, encode(Reveal(SCOPE, context, LIAR, wrong)), "bytes of keys, not 32")
    midway.server.receive(LIAR, encode(Reveal(SCOPE, context, LIAR, BoxKey.generate().to_bytes())))
    midway.advance()
    assert len(midway.ends_well()) == 6
    assert list(midway.server.liars) == [LIAR]


def test_a_box_under_another_key_than_it_states_frames_nobody(before):
    """It opens with the key that its sender reveals, and not for its holder: the sender lied all the same."""
    midway, key, stated = before(SHARE), BoxKey.generate(), BoxKey.generate().public
    roster = midway.roster
    route = Route(roster, roster.position[LIAR], 0)

    def alter(at, box):
        if at != 0:
            return box
        content = route.decrypt_shares(midway.me._rounds[SCOPE]._share_key, box)  # noqa: SLF001 - of the holder
        info = route._info(stated)  # noqa: SLF001 - what its sender makes of the protocol
        shared = key.agree(roster.lines[0].share_key, who="user-0-0")
        made = stated + route._cipher(shared, info).encrypt(bytes(12), content, info)  # noqa: SLF001
        return made + roster.box_format.commit(content, made)

    lying_share(midway, alter)
    midway.deliver()
    midway.advance()
    midway.server.receive(LIAR, encode(Reveal(SCOPE, roster.context, LIAR, key.to_bytes())))
    midway.advance()
    assert len(midway.ends_well()) == 6
    assert list(midway.server.liars) == [LIAR]


def test_nothing_is_uploaded_while_complaints_are_open(before):
    """Vectors leave once all complaints are judged: a vector that comes before is refused."""
    midway, other = before(SHARE), before(AGREE)
    lying_share(midway, garbage)
    midway.deliver()
    midway.advance()
    head = msgspec.structs.replace(from_client(other.answers["user-0-0"]), context=midway.roster.context)
    size = other.server._setting.vector_bytes  # noqa: SLF001 - of its quantiser
    midway.server_refuses("user-0-0", packed(head, bytes(size)), "out of order: in the state 'received'")
    assert len(midway.ends_well()) == 6


# --- wrong shares at the end -----------------------------------------------------------------------------------


def test_a_wrong_share_is_an_erasure_and_names_its_holder():
    """Shares that miss their commitments are as if lost; the others open everything, and the sum is exact."""
    for changed in ([0], [7], list(range(9))):
        midway = Midway(UNMASK, away={"user-2-0"})
        message = from_client(midway.answer(midway.me.user))
        shares = bytearray(message.shares)
        for place in changed:
            shares[SHARE_BYTES * place] ^= 1
        midway.server.receive(midway.me.user, encode(msgspec.structs.replace(message, shares=bytes(shares))))
        assert len(midway.ends_well()) == 6
        assert midway.server.liars == {"user-0-0": f"sent {len(changed)} wrong shares"}


def test_a_share_of_the_other_secret_is_an_erasure():
    """A colluder cannot pass a key's share off as a seed's: there is a commitment to each."""
    midway = Midway(UNMASK, away={"user-2-0"})
    pairs = midway.me._rounds[SCOPE]._shares  # noqa: SLF001 - what it holds
    keys = b"".join(pair[SHARE_BYTES:] for _, pair in sorted(pairs.items()))
    message = from_client(midway.answer(midway.me.user))
    midway.server.receive(midway.me.user, encode(msgspec.structs.replace(message, shares=keys)))
    assert len(midway.ends_well()) == 6
    assert midway.server.liars == {"user-0-0": "sent 6 wrong shares"}


@pytest.mark.parametrize("away", [(), {"user-1-0"}])
def test_committed_shares_off_one_polynomial_name_the_sharer(away):
    """One committed share is wrong: the secret comes out of the others, and its maker is named, not its holder."""
    midway = Midway(SHARE)
    zeros = bytes(72)
    flip = rewritten(midway, LIAR, lambda at, pair: zeros)
    lying_share(midway, lambda at, box: flip(at, box) if at == 0 else box)
    for phase in range(RECEIVE, UNMASK):
        midway.deliver(lost=away if phase == UPLOAD else ())
        midway.advance()
    assert len(midway.ends_well()) == (6 if away else 9)
    assert midway.server.liars == {LIAR: "shared a secret in pieces that do not belong together"}


def test_a_secret_in_pieces_that_never_fit_ends_the_round_in_its_sharers_name():
    """Shares of nothing at all, signed and committed to: there is no sum, and only their sharer is named."""
    midway = Midway(SHARE)
    rng = np.random.default_rng(0)
    alter = rewritten(midway, LIAR, lambda at, pair: rng.integers(0, 2**31 - 1, 18).astype("<u4").tobytes())
    lying_share(midway, alter)
    with pytest.raises(TooFewUsersError, match="user-1-1 shared a secret in pieces that do not belong together"):
        midway.ends_well()
    assert list(midway.server.liars) == [LIAR]


# --- without a seal --------------------------------------------------------------------------------------------


class LyingLoner:
    """An unsealed client whose boxes are garbage for everyone."""

    def __init__(self, client, server):
        self.client, self.user, self._server = client, client.user, server

    def receive(self, data):
        """Answer as the client does, but with garbage in the boxes."""
        answer = self.client.receive(data)
        message = None if isinstance(answer, Task) or answer is None else from_client(bytes(answer))
        if not isinstance(message, Sharing | CodedSharing):
            return answer
        _, good = shared_boxes(self._server._roster, bytes(answer))  # noqa: SLF001
        boxes = [garbage(at, box) for at, box in enumerate(good)]
        sent = self.client._rounds[SCOPE]._sent.boxes  # noqa: SLF001 - it stands by them
        sent.update(zip(sent, boxes, strict=True))
        return signed_sharing(self.client._owner.identity, self._server._roster, message, boxes)  # noqa: SLF001

    def seal(self, task, update, **options):
        """Seal as the client does."""
        return self.client.seal(task, update, **options)


@pytest.mark.parametrize(
    ("inner", "ring"),
    [
        *((inner, ring) for inner in ("secagg", "secagg+") for ring in (RING_16, RING_32)),
        ("lightsecagg", PRIME_31),
    ],
)
def test_one_garbage_sharer_costs_the_others_nothing(inner, ring):
    """Of twelve users without a seal one is left out by name, and the exact sum of eleven comes out."""
    loners = Loners(12, common={"inner": inner, "quantiser": quantiser(cohort=12, ring=ring)})
    server = unsealed_round(loners.rules, loners.identities, 0, terms(min_included=2))
    clients = {**loners.clients, "user-7": LyingLoner(loners.clients["user-7"], server)}
    result = run_round(server, clients, loners.train)
    (learned,) = result.learned
    assert set(learned.users) == set(clients) - {"user-7"}
    expected = sum(loners.updates[user].astype(float) for user in learned.users)
    assert np.abs(learned.sum.values - expected).max() <= 11 * loners.rules.quantiser.step
    assert list(result.liars) == ["user-7"]
