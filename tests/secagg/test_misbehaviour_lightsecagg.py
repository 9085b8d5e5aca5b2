"""What a device, or the server, refuses in rounds of LightSecAgg (docs/threat-model.md)."""

import msgspec
import numpy as np
import pytest

from coterie.errors import UsageError
from coterie.secagg import SealedClient, run_round, sealed_round
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.crypto.coded_masks import Code
from coterie.secagg.crypto.ring import PRIME_31
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.boxes import leaf, parcel_bytes, sharing_tree
from coterie.secagg.protocols.agreement.messages import RevealCall
from coterie.secagg.protocols.lightsecagg import code_for
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE
from support.secagg.midway import AGREE, RECEIVE, SHARE, UNMASK, UPLOAD, Midway, from_client
from support.secagg.servers import packed, refused


def light(phase, **changes):
    """A round of LightSecAgg before a phase."""
    return Midway(phase, inner="lightsecagg", **changes)


def test_coded_shares_of_another_round_roster_or_dimension_are_refused():
    """A box counts only with its sender's signature over this context and roster, and in its size."""
    midway = light(RECEIVE)
    roster, good = midway.roster, midway.good
    box_bytes = roster.box_format.box_bytes
    sender = midway.clients["user-0-1"].membership.identity
    signed = midway.server._boxes._signed[1]  # noqa: SLF001 - what user-0-1 signed
    for context, digest in ((bytes(32), roster.digest), (roster.context, bytes(32))):
        signature = sender.sign("share", context, digest, "user-0-1", signed.tree.root)
        parcels = good.parcels[:box_bytes] + signature + good.parcels[box_bytes + 64 :]
        midway.refuses("signature of 'user-0-1' for 'share'", parcels=parcels)
    midway.refuses("speaks of the round", context=bytes(32))
    shorter = parcel_bytes(box_bytes - 4, 8) * len(good.senders)
    midway.refuses(f"delivered {shorter} bytes of boxes", parcels=good.parcels[:shorter])
    midway.ends_well()


def test_a_coded_box_that_the_server_alters_reveals_nothing():
    """Its holder complains about what it got; its sender made another box, and keeps the key to itself."""
    midway = light(RECEIVE)
    parcels = bytearray(midway.good.parcels)
    parcels[40] ^= 1
    box = bytes(parcels[: midway.roster.box_format.box_bytes])
    receipt = from_client(midway.me.receive(encode(msgspec.structs.replace(midway.good, parcels=bytes(parcels)))))
    (complaint,) = receipt.complaints
    assert (complaint.user, complaint.box_digest) == (1, leaf(box))
    sender = midway.clients["user-0-1"]
    midway.answer("user-0-1")
    call = RevealCall(SCOPE, midway.roster.context, (msgspec.structs.replace(complaint, user=0),))
    refused(sender, encode(call), "is about another box")


def test_a_coded_recovery_before_the_agreement_is_refused():
    """Shares are of no use to anyone before t users have signed: a device has not even looked at the lists."""
    midway, later = light(AGREE), light(UNMASK)
    opening = msgspec.structs.replace(later.good, context=midway.good.context)
    refused(midway.me, encode(opening), "out of order")
    midway.ends_well()


def test_a_second_coded_recovery_is_refused_after_a_restart_too():
    """One sum is sent, and then no share is left; a device that was restarted has none either."""
    midway = light(UNMASK)
    restarted = SealedClient(midway.me.membership)
    refused(restarted, midway.outgoing[midway.me.user], "out of order")
    participant = midway.me._rounds[SCOPE]  # noqa: SLF001 - what it holds
    assert midway.me.receive(midway.outgoing[midway.me.user]) is not None
    assert not hasattr(participant, "_shares")
    refused(midway.me, midway.outgoing[midway.me.user], "out of order")


def test_a_coded_recovery_of_another_set_is_refused():
    """Signatures under other lists than those that the device signed do not count, however many."""
    midway = light(UNMASK)
    good, roster = midway.good, midway.roster
    statement = roster.agreement_to_sign(tuple(range(9)), tuple(range(6)), (6, 7, 8))
    signatures = tuple(
        midway.clients[roster.lines[place].user].membership.identity.sign(*statement) for place in good.signers
    )
    others = good.signatures[len(good.signers) :]
    midway.refuses("for 'agree' is forged, or made for something else", signatures=(*signatures, *others))
    midway.refuses("5 users under the agreement; 6 are needed", signers=good.signers[:5])
    midway.ends_well()


def test_a_device_that_lacks_a_coded_share_sends_no_sum():
    """It takes no sharers of whom it has no share, and so signs no list with one and opens none."""
    midway = light(RECEIVE)
    good = midway.good
    size = len(good.parcels) // len(good.senders)
    fewer = msgspec.structs.replace(good, senders=good.senders[1:], parcels=good.parcels[size:])
    midway.server.receive(midway.me.user, midway.me.receive(encode(fewer)))
    midway.answered.add(midway.me.user)
    midway.deliver()
    midway.advance()
    midway.refuses("'user-0-1', of whom this device has no share")


def test_a_coded_mask_is_never_used_again():
    """A round has one roster, and the next round another mask and other noise."""
    midway, masks, shares = light(RECEIVE), [], []
    again = encode(msgspec.structs.replace(light(SHARE).good, context=midway.good.context))
    refused(midway.me, again, "out of order")
    for round_ in (1, 2):
        server = sealed_round(midway.batches.charters, round_, midway.terms)

        def watch(user, phase, way):
            if (user, phase, way) == (midway.me.user, 1, "from"):
                participant = midway.me._rounds[SCOPE]  # noqa: SLF001 - its secrets
                masks.append(participant._seed.reveal())  # noqa: SLF001
                shares.append(participant._shares[participant._own_position])  # noqa: SLF001
            return False

        run_round(server, midway.clients, midway.batches.train, loses=watch)
    assert masks[0] != masks[1]
    assert shares[0] != shares[1]


def test_a_code_that_hides_nothing_is_refused():
    """U ≤ t: what decodes a mask would be in colluders' hands; no charter leads to such a code."""
    for needed in (4, 5):
        with pytest.raises(UsageError, match="U must be above t"):
            Code(10, 5, needed)
    with pytest.raises(UsageError, match="must stay below 1"):
        Parameters(400, 300)
    for users in range(2, 200):
        code = code_for(users, Parameters(399, 300))
        assert code.privacy < code.needed


def test_words_that_are_no_numbers_modulo_p_are_refused_by_the_server():
    """Neither a vector nor a sum of shares has a word of p or more, and a sum has its length."""
    for phase in (UPLOAD, UNMASK):
        midway = light(phase)
        answer = midway.answer("user-1-0")
        message, tail = messages_from_client.decode(answer)
        words = np.frombuffer(tail, dtype="<u4").copy()
        words[3 % len(words)] = PRIME_31.modulus
        midway.server_refuses("user-1-0", packed(message, words.tobytes()), "a word of 2147483647")
        midway.server_refuses("user-1-0", packed(message, bytes(tail) + bytes(4)), "bytes")
        midway.server.receive("user-1-0", answer)
        midway.ends_well()


def test_a_sender_who_signs_another_digest_than_its_boxes_have_is_left_out():
    """The boxes open, but are not what was signed: holders complain, and the sender is named, nobody else."""
    midway = light(SHARE)
    message, tail = messages_from_client.decode(midway.answer("user-2-0"))
    roster, box_bytes = midway.roster, midway.roster.box_format.box_bytes
    boxes = bytearray(tail)
    boxes[box_bytes - 1] ^= 1
    identity = midway.clients["user-2-0"].membership.identity
    root = sharing_tree(b"", bytes(boxes), roster.box_format).root
    signature = identity.sign(*roster.boxes_to_sign(roster.position["user-2-0"], root))
    sent = midway.clients["user-2-0"]._rounds[SCOPE]._sent.boxes  # noqa: SLF001 - it stands by its boxes
    sent[0] = bytes(boxes[:box_bytes])
    midway.server.receive("user-2-0", packed(msgspec.structs.replace(message, signature=signature), bytes(boxes)))
    assert midway.ends_well() == {user for user in midway.clients if "-2-" not in user}
    assert midway.server.liars == {"user-2-0": "sent user-0-0 a box that does not open to what it signed"}
