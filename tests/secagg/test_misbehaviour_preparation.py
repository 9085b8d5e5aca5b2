"""What a device refuses of a server that misuses masks shared before a call (docs/threat-model.md)."""

import msgspec
import pytest

from coterie.errors import PeerError
from coterie.secagg import found_batch, prepare_round, prepared_round, sealed_round
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols.agreement.messages import Advertisement, Complaint, Opening, Proposal, RevealCall
from coterie.secagg.wire.framing import encode
from support.secagg.batches import DIMENSION, SCOPE, terms
from support.secagg.prepared import LEAST, Devices, call, refused

ME = "user-0-0"


def sealed(client, data, update):
    """A client's first answer to a call, without its tail."""
    return messages_from_client.decode(client.seal(client.receive(data), update))[0]


def test_a_batch_that_was_called_with_another_model_is_not_opened_with_the_rest():
    """One preparation, two models: neither the batch's uploads nor its agreements count under the other model.

    The server keeps no rule of its own machine: it gives each device what its state takes, and then shows one
    batch's signatures to the others.
    """
    devices = Devices()
    preparation = devices.prepare()
    servers = {
        model: prepared_round(devices.charters, terms(min_included=LEAST, model=model), preparation)
        for model in (b"model", b"crafted")
    }
    everyone, uploads, agreements = tuple(range(9)), [], []
    for user, client in sorted(devices.clients.items()):
        server = servers[b"crafted" if "-2-" in user else b"model"]
        context = server._setting.context  # noqa: SLF001 - what the device takes messages of
        uploads.append(sealed(client, server.start()[user], devices.updates[user]).signature)
        proposal = encode(Proposal(SCOPE, context, everyone, ()))
        agreements.append(messages_from_client.decode(client.receive(proposal))[0].signature)
    context = servers[b"model"]._setting.context  # noqa: SLF001
    by_upload = Opening(SCOPE, context, everyone[:6], (*agreements[:6], *uploads[6:]))
    refused(devices.clients[ME], encode(by_upload), "the signature of 'user-2-0' for 'upload' is forged")
    by_agreement = Opening(SCOPE, context, everyone, tuple(agreements))
    refused(devices.clients[ME], encode(by_agreement), "the signature of 'user-2-0' for 'agree' is forged")


def test_a_mask_of_another_charter_is_not_used():
    """A batch that was founded anew between preparation and call shares anew, and the old mask is deleted."""
    devices = Devices()
    devices.prepare()
    members = [devices.clients[name] for name in devices.clients if "-0-" in name]
    charters = [found_batch(devices.rules, members), *devices.charters[1:]]
    assert devices.stored(ME)
    server = sealed_round(charters, 0, terms(min_included=LEAST))
    answer = sealed(devices.clients[ME], server.start()[ME], devices.updates[ME])
    assert isinstance(answer, Advertisement)
    assert not devices.stored(ME)


def test_a_preparation_that_ends_late_replaces_no_later_one():
    """A second process began the next round's: that round still has one roster, and nothing earlier is stored."""
    devices = Devices()
    messages = devices.answered(prepare_round(devices.charters, 0, DIMENSION, LEAST), phases=3)
    second = devices.restarted(ME)
    second.receive(call(devices.charters[0], 1))
    assert devices.clients[ME].receive(messages[ME]) is None
    assert not devices.stored(ME)
    for process in (devices.clients[ME], second, devices.restarted(ME)):
        refused(process, call(devices.charters[0], 1), "prepared or sealed round 1")


def test_a_preparation_that_ends_after_its_round_was_sealed_stores_nothing():
    """A second process was called to the round and sealed it: no share of a round that is over stays."""
    devices = Devices()
    messages = devices.answered(prepare_round(devices.charters, 0, DIMENSION, LEAST), phases=3)
    second = devices.restarted(ME)
    server = sealed_round(devices.charters, 0, terms(min_included=LEAST))
    assert isinstance(sealed(second, server.start()[ME], devices.updates[ME]), Advertisement)
    assert devices.clients[ME].receive(messages[ME]) is None
    assert not devices.stored(ME)


def test_a_call_ends_a_preparation():
    """After the call nothing of a preparation that was not finished is answered, and nothing of it is stored."""
    devices = Devices()
    messages = devices.answered(prepare_round(devices.charters, 0, DIMENSION, LEAST), phases=3)
    client = devices.clients[ME]
    client.receive(sealed_round(devices.charters, 0, terms(min_included=LEAST)).start()[ME])
    refused(client, messages[ME], "SharersCall came from the server out of order: in the state 'called'")
    assert not devices.stored(ME)


def test_a_batch_of_which_a_member_is_not_on_the_roster_is_not_prepared():
    """All who are there may be on the server's list: a part of the device's batch is not the whole."""
    devices = Devices(4)
    server = prepare_round(devices.charters, 0, DIMENSION, LEAST)
    messages = server.start()
    for _ in range(3):
        for user, data in messages.items():
            if user != "user-0-1":
                server.receive(user, devices.clients[user].receive(data))
        messages = server.advance()
    assert ME not in messages
    message = messages_from_server.decode(messages["user-1-0"])[0]
    everyone = msgspec.structs.replace(message, sharers=tuple(range(11)))
    refused(devices.clients[ME], encode(everyone), "a part of the batch of 'user-0-0', not the whole")


def test_a_prepared_round_reveals_no_key_of_a_box():
    """Complaints end with the preparation: a call for keys is out of order from the first answer on."""
    devices = Devices()
    server = prepared_round(devices.charters, terms(min_included=LEAST), devices.prepare())
    client = devices.clients[ME]
    answer = sealed(client, server.start()[ME], devices.updates[ME])
    with pytest.raises(PeerError, match="RevealCall came from the server out of order"):
        client.receive(encode(RevealCall(SCOPE, answer.context, (Complaint(1, bytes(32), bytes(64)),))))
