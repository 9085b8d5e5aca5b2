"""Masks of LightSecAgg that are shared before a round is called: used once or never, and for one sum (§5)."""

import dataclasses

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.secagg import (
    MemoryStore,
    PreparingClient,
    SealedClient,
    Task,
    prepare_round,
    prepared_round,
    run_round,
    sealed_round,
)
from coterie.secagg.preparation import sharing_setting
from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.protocols.agreement.messages import Advertisement, MaskedVector, Proposal
from coterie.secagg.protocols.interface import RoundSetting
from coterie.secagg.protocols.lightsecagg import ShareSum
from coterie.secagg.wire.framing import encode
from support.secagg.batches import DIMENSION, SCOPE, quantiser, rules, terms
from support.secagg.prepared import LEAST, Devices, call, refused


def test_a_prepared_round_is_a_call_an_agreement_and_one_sum():
    """After the call every message goes out three times, and the sum is that of all; nothing stays stored."""
    devices, phases = Devices(), []
    preparation = devices.prepare()
    devices.restart()  # the shares are on the disk
    server = prepared_round(devices.charters, terms(min_included=LEAST), preparation)
    result = run_round(
        server, devices.clients, devices.train, loses=lambda user, phase, way: phases.append(phase) or False
    )
    assert devices.check(result) == set(devices.clients)
    assert set(phases) == {0, 1, 2}
    assert server.exposure().learned == (result.learned[0].users,)
    assert not any(devices.stored(name) for name in devices.clients)


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_who_is_lost_while_shares_are_exchanged_takes_its_batch_along(phase):
    """The sharers are whole batches, and the round is called for these alone."""
    devices = Devices(4)
    preparation = devices.prepare(loses=lambda user, at, way: user == "user-1-1" and at == phase)
    result = run_round(
        prepared_round(devices.charters, terms(min_included=LEAST), preparation), devices.clients, devices.train
    )
    assert devices.check(result) == {user for user in devices.clients if "-1-" not in user}


@pytest.mark.parametrize(("phase", "included"), [(0, 6), (1, 9), (2, 9)])
def test_losses_after_the_call(phase, included):
    """A vector that does not come leaves its batch out; an agreement or a sum of shares that does not is spare."""
    devices = Devices()
    preparation = devices.prepare()
    server = prepared_round(devices.charters, terms(min_included=LEAST), preparation)
    result = run_round(
        server, devices.clients, devices.train, loses=lambda user, at, way: user == "user-2-2" and at == phase
    )
    assert len(devices.check(result)) == included


def test_a_round_has_one_roster_after_a_restart_too():
    """A second preparation of a round, or of an earlier one, is refused, finished or not."""
    devices = Devices()
    client, charter = devices.clients["user-0-0"], devices.charters[0]
    client.receive(call(charter, 5))
    for again in (client, devices.restarted("user-0-0")):
        for round_ in (4, 5):
            refused(
                again, call(charter, round_), f"prepares round {round_}; this device prepared or sealed round 5"
            )
    client.receive(call(charter, 6))


def test_a_mask_is_used_once():
    """It is deleted before its vector leaves: neither another call nor a restart brings a second one."""
    devices = Devices()
    preparation = devices.prepare()
    server = prepared_round(devices.charters, terms(min_included=LEAST), preparation)
    user = "user-0-0"
    calls, client = server.start(), devices.clients[user]
    task = client.receive(calls[user])
    assert devices.stored(user)
    first = client.seal(task, devices.updates[user])
    assert isinstance(messages_from_client.decode(first)[0], MaskedVector)
    assert not devices.stored(user)
    for again in (client, devices.restarted(user)):
        refused(again, calls[user], "asked for round 0; this device is past it, at 1")
        assert bytes(again.resend_sealed(SCOPE, 0)) == bytes(first)


def test_a_mask_is_deleted_when_its_vector_never_leaves(monkeypatch):
    """A device that dies while it seals has deleted the mask, and shares another one in the same round."""
    devices = Devices()
    preparation = devices.prepare()
    server = prepared_round(devices.charters, terms(min_included=LEAST), preparation)
    user = "user-0-0"
    client = devices.clients[user]
    task = client.receive(server.start()[user])

    def dies(*arguments, **options):
        raise KeyboardInterrupt((arguments, options))

    with monkeypatch.context() as patch:
        patch.setattr("coterie.secagg.client.mask_into", dies)
        with pytest.raises(KeyboardInterrupt):
            client.seal(task, devices.updates[user])
    assert not devices.stored(user)
    restarted = devices.restarted(user)
    answer = restarted.seal(restarted.receive(server.start()[user]), devices.updates[user])
    assert isinstance(messages_from_client.decode(answer)[0], Advertisement)


def test_a_mask_that_cannot_be_read_is_deleted():
    """Its round is not sealed with it, and the next call is answered by sharing another one."""
    devices = Devices()
    server = prepared_round(devices.charters, terms(min_included=LEAST), devices.prepare())
    user, shares = "user-0-0", devices.stores["user-0-0"][1].records
    client = devices.clients[user]
    fields = msgspec.msgpack.decode(shares[SCOPE])
    shares[SCOPE] = msgspec.msgpack.encode([*fields[:4], fields[4][:-1], *fields[5:]])
    record = dict(devices.stores[user][0].records)
    with pytest.raises(UsageError, match="stored of a round cannot be read"):
        client.seal(client.receive(server.start()[user]), devices.updates[user])
    assert devices.stores[user][0].records == record
    assert not devices.stored(user)
    answer = client.seal(client.receive(server.start()[user]), devices.updates[user])
    assert isinstance(messages_from_client.decode(answer)[0], Advertisement)


def test_a_prepared_recovery_comes_after_the_agreement_and_once():
    """Before the agreement, a second time, or after a restart no sum of shares is given: none are stored."""
    devices = Devices()
    server = prepared_round(devices.charters, terms(min_included=LEAST), devices.prepare())
    user, messages, sent = "user-0-0", server.start(), []
    client = devices.clients[user]
    for _ in range(2):
        for name, data in messages.items():
            answer = devices.clients[name].receive(data)
            task = isinstance(answer, Task)
            server.receive(name, devices.clients[name].seal(answer, devices.updates[name]) if task else answer)
        sent.append(messages := server.advance())
    proposal, opening = (each[user] for each in sent)
    for other in (devices.restarted(user), devices.restarted("user-0-1")):
        refused(other, opening, "out of order")
    late = Devices()
    behind = prepared_round(late.charters, terms(min_included=LEAST), late.prepare())
    late.clients[user].seal(late.clients[user].receive(behind.start()[user]), late.updates[user])
    context = behind._setting.context  # noqa: SLF001 - the round that the device is in
    early = msgspec.structs.replace(messages_from_server.decode(opening)[0], context=context)
    refused(late.clients[user], encode(early), "Opening came from the server out of order")
    refused(client, proposal, "Proposal came from the server out of order")
    assert isinstance(messages_from_client.decode(client.receive(opening))[0], ShareSum)
    refused(client, opening, "out of order")


@pytest.mark.parametrize("changes", [{"dimension": 30}, {"min_included": 7}])
def test_a_call_of_other_sizes_does_not_get_the_mask(changes):
    """The device shares anew, as if nothing had been prepared, and the stored mask is deleted."""
    devices = Devices()
    devices.prepare()
    conditions = terms(**{"min_included": LEAST, **changes})
    user = "user-0-0"
    client = devices.clients[user]
    task = client.receive(sealed_round(devices.charters, 0, conditions).start()[user])
    answer = client.seal(task, np.zeros(conditions.dimension))
    assert isinstance(messages_from_client.decode(answer)[0], Advertisement)
    assert not devices.stored(user)


def test_a_mask_of_a_round_that_was_passed_over_is_deleted():
    """Sealing a later round deletes it; sealing an earlier one leaves it for its own."""
    devices = Devices()
    later = devices.prepare(1)
    run_round(sealed_round(devices.charters, 0, terms(min_included=LEAST)), devices.clients, devices.train)
    assert all(devices.stored(name) for name in devices.clients)
    run_round(prepared_round(devices.charters, terms(min_included=LEAST), later), devices.clients, devices.train)
    devices.prepare(2)
    result = run_round(
        sealed_round(devices.charters, 3, terms(min_included=LEAST)), devices.clients, devices.train
    )
    assert devices.check(result) == set(devices.clients)
    assert not any(devices.stored(name) for name in devices.clients)
    refused(devices.clients["user-0-0"], call(devices.charters[0], 3), "past it, at 4")


def test_shares_of_another_round_or_roster_do_not_fit():
    """Boxes for one preparation are refused in another: their signatures name its context and roster."""
    devices, others = Devices(), Devices()
    first = prepare_round(devices.charters, 0, DIMENSION, LEAST)
    second = prepare_round(others.charters, 0, DIMENSION, LEAST)
    outgoing = [devices.answered(first, phases=2), others.answered(second, phases=2)]
    user = "user-0-0"
    client = devices.clients[user]
    foreign = messages_from_server.decode(outgoing[1][user])[0]
    refused(client, encode(foreign), r"signature of .* for 'share'")
    other_round = msgspec.structs.replace(messages_from_server.decode(outgoing[0][user])[0], context=bytes(32))
    refused(client, encode(other_round), "out of order")
    assert client.receive(outgoing[0][user]) is not None


def test_a_message_that_comes_as_the_preparation_ends_finds_it_over():
    """A thread that still has the participant when another one gives it the sharers gets a refusal."""
    devices = Devices()
    messages = devices.answered(prepare_round(devices.charters, 0, DIMENSION, LEAST), phases=3)
    client = devices.clients["user-0-0"]
    participant, _ = client._preparing[SCOPE]  # noqa: SLF001 - what the other thread has
    client.receive(messages["user-0-0"])
    everyone = tuple(range(len(devices.clients)))
    with pytest.raises(PeerError, match="Proposal came from the server out of order"):
        participant.take(Proposal(SCOPE, participant.advertisement.context, everyone, ()))


def test_members_who_are_called_with_different_models_give_no_sum():
    """Masks were shared before the model was known; uploads and agreements name it, so nothing is opened."""
    devices = Devices()
    preparation = devices.prepare()
    server = prepared_round(devices.charters, terms(min_included=LEAST), preparation)
    crafted = prepared_round(devices.charters, terms(min_included=LEAST, model=b"crafted"), preparation)
    calls = {**server.start(), "user-0-0": crafted.start()["user-0-0"]}
    user, client = "user-0-0", devices.clients["user-0-0"]
    answer = client.seal(client.receive(calls[user]), devices.updates[user])
    with pytest.raises(PeerError, match="answered for another round"):
        server.receive(user, answer)
    for other in set(devices.clients) - {user}:
        task = devices.clients[other].receive(calls[other])
        assert isinstance(task, Task)
        server.receive(other, devices.clients[other].seal(task, devices.updates[other]))
    messages = server.advance()
    refused(client, messages[user], "speaks of the round")


def test_the_device_bounds_what_it_stores():
    """A roster whose shares are too many bytes is refused before anything is encrypted."""
    devices = Devices(largest_shares=100)
    with pytest.raises(PeerError, match=r"the shares of this roster have \d+ bytes; this device stores 100"):
        devices.prepare()


def test_a_part_of_a_batch_is_not_prepared():
    """Sharers without a member of the device's own batch are refused: such a round could never include it."""
    devices = Devices()
    messages = devices.answered(prepare_round(devices.charters, 0, DIMENSION, LEAST), phases=3)
    sharers = messages_from_server.decode(messages["user-0-0"])[0]
    part = msgspec.structs.replace(sharers, sharers=(0, *sharers.sharers[2:]))
    refused(devices.clients["user-0-0"], encode(part), "a part of the batch of 'user-0-0', not the whole")
    assert devices.clients["user-0-0"].receive(messages["user-0-0"]) is None
    assert devices.stored("user-0-0")


def test_what_cannot_be_prepared_is_refused():
    """Another charter, another protocol, a round that was sealed or lies too far ahead, sizes out of bounds."""
    devices, pairwise = Devices(), Devices(inner="secagg")
    client, charter = devices.clients["user-0-0"], devices.charters[0]
    refused(client, call(devices.charters[1]), "this device is under")
    refused(client, call(charter, 65_536), "more than 65536 ahead")
    refused(client, call(charter, dimension=2**26 + 1), "set the dimension")
    refused(client, call(charter, least=5), "least number of included users to 5")
    refused(pairwise.clients["user-0-0"], call(pairwise.charters[0]), "whose masks are not shared before")
    plain = SealedClient(devices.memberships["user-0-0"])
    with pytest.raises(PeerError, match="PreparationCall came from the server out of order"):
        plain.receive(call(charter))
    outside = PreparingClient(
        dataclasses.replace(devices.memberships["user-0-0"], store=MemoryStore()), MemoryStore()
    )
    refused(outside, call(charter), "out of order: in the state 'outside' only nothing is expected")


def test_a_server_is_told_what_it_cannot_do():
    """A preparation gives no sum, is for its own batches and sizes, and for lightsecagg alone."""
    devices, pairwise = Devices(), Devices(inner="secagg")
    server = prepare_round(devices.charters, 0, DIMENSION, LEAST)
    with pytest.raises(UsageError, match="the preparation is not over"):
        _ = server.sharers
    with pytest.raises(UsageError, match="give no sum; call the round"):
        server.finish()
    with pytest.raises(UsageError, match="in lightsecagg only, not in secagg"):
        prepare_round(pairwise.charters, 0, DIMENSION, LEAST)
    preparation = devices.prepare()
    with pytest.raises(UsageError, match="another dimension"):
        prepared_round(devices.charters, terms(min_included=7), preparation)
    with pytest.raises(UsageError, match="not those that shared"):
        prepared_round(devices.charters[:2], terms(min_included=LEAST), preparation)


def test_too_few_who_share_end_the_preparation():
    """With fewer than t users left nothing is fixed, and nothing is stored."""
    devices = Devices()
    with pytest.raises(TooFewUsersError, match="advertised"):
        devices.prepare(loses=lambda user, at, way: user[5] != "0")
    assert not any(devices.stored(name) for name in devices.clients)


def test_the_context_before_a_call_is_no_round_s():
    """It names scope, round, sizes, quantiser and parameters, and fits no call, whatever its terms."""
    setting = RoundSetting("sealed", "lightsecagg", SCOPE, 3, terms(), quantiser(), rules().parameters)
    before = sharing_setting(setting)
    assert before == sharing_setting(dataclasses.replace(setting, terms=terms(model=b"another", step=2)))
    changed = [{"scope": "other"}, {"round": 4}, {"terms": terms(dimension=41)}, {"terms": terms(min_included=2)}]
    contexts = {sharing_setting(dataclasses.replace(setting, **change)).context for change in changed}
    without_model = dataclasses.replace(setting, terms=terms(model=b""))
    assert sharing_setting(without_model) == before
    assert len({*contexts, before.context, setting.context, without_model.context}) == len(changed) + 3
