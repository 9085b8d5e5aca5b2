"""Calls and vectors that break a rule are refused, and change nothing on the device (§3)."""

import dataclasses

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError, UsageError
from coterie.federation.device_file import DeviceFile
from coterie.secagg import (
    IdentityKey,
    Membership,
    SealedClient,
    Task,
    TrustServerForIdentities,
    UnsealedClient,
    found_batch,
    sealed_round,
    simulated_client,
    write_recipe,
)
from coterie.secagg import client as client_module
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.server import unsealed_call
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import Invitation
from support.secagg.batches import DIMENSION, SCOPE, Batches, configuration, quantiser, rules, terms
from support.secagg.mutations import with_body
from support.secagg.servers import UPDATE, Enrolling, call, packed, refused, state


@pytest.fixture
def batches():
    """Two batches of three."""
    return Batches(2, 3)


@pytest.fixture
def charter(batches):
    """The first batch's charter."""
    return batches.charters[0]


@pytest.fixture
def client(batches):
    """A member of the first batch."""
    return batches.clients["user-0-0"]


# --- rounds ------------------------------------------------------------------------------------------------


def test_a_request_without_a_seal_is_refused(charter, client):
    """A call without a seal is refused; no other tag is a call, and a sealed one's fields hold no such wish."""
    refused(client, encode(unsealed_call(rules(inner="secagg"), 0, terms())), "UnsealedCall .* out of order")
    fields = msgspec.msgpack.decode(call(charter)[16:])[1:]

    def wish(*body):
        return with_body(msgspec.msgpack.encode(body))

    for tag in {*range(-40, 300)} - {7}:
        refused(client, wish(tag, *fields), "malformed message|out of order")
    for more in (False, "open", {"sealed": False}):
        refused(client, wish(7, *fields, more), "malformed message")
    task = client.receive(wish(7, *fields))
    _, tail = messages_from_client.decode(client.seal(task, UPDATE))
    words = np.frombuffer(tail, dtype="<u4")
    assert (words >= quantiser().levels).any()  # an unsealed vector has levels and ones only
    assert words[-quantiser().extra_words :].tolist() != [1, 1, 1]


def test_a_replayed_round_is_refused(charter, client):
    """A sealed round is not sealed again, whatever the terms; only the stored bytes can be sent once more."""
    task = client.receive(call(charter, round_=5))
    sent = client.seal(task, UPDATE)
    before = state(client)
    refused(client, call(charter, round_=5), "round 5; this device is past it, at 6")
    refused(client, call(charter, round_=5, model=b"another"), "past it")
    with pytest.raises(UsageError, match="not the one that was asked for last"):
        client.seal(task, UPDATE)
    assert client.resend_sealed(SCOPE, 5) == sent
    assert state(client) == before


def test_a_round_is_not_replayed_after_a_restart(charter, client):
    """A device that was started anew remembers what it sealed; an open call it has forgotten."""
    task = client.receive(call(charter, round_=5))
    restarted = SealedClient(client.membership)
    with pytest.raises(UsageError, match="not the one that was asked for last"):
        restarted.seal(task, UPDATE)
    sent = client.seal(task, UPDATE)
    for round_ in (0, 5):
        refused(restarted, call(charter, round_=round_), f"round {round_}; this device is past it, at 6")
    assert restarted.resend_sealed(SCOPE, 5) == sent


def test_nothing_of_an_old_charter_is_sent_again(batches, charter, client):
    """Once a later charter is accepted, the last message under the one before it is gone."""
    for member in charter.members:
        device = batches.clients[member.user]
        device.seal(device.receive(call(charter)), UPDATE)
    found_batch(rules(privacy=3), [batches.clients[member.user] for member in charter.members], first=1)
    with pytest.raises(UsageError, match="round 0 of scope 'keyboard' is not the last"):
        client.resend_sealed(SCOPE, 0)
    refused(client, call(charter, round_=1), f"charter {charter.digest.hex()}")


def test_a_lower_round_is_refused(charter, client):
    """Rounds below the position are refused, sealed or skipped, and there is nothing of them to send again."""
    client.seal(client.receive(call(charter, round_=5)), UPDATE)
    for round_ in (4, 1, 0):
        refused(client, call(charter, round_=round_), f"round {round_}; this device is past it, at 6")
        with pytest.raises(UsageError, match=f"round {round_} .* is not the last"):
            client.resend_sealed(SCOPE, round_)


def test_a_round_too_far_ahead_is_refused(charter, client):
    """A device moves on by less than 65 536 rounds at once, from wherever it stands; the last of them it takes."""
    for round_ in (65_536, 65_537, 2**63 - 1):
        refused(client, call(charter, round_=round_), f"round {round_}, .* ahead of 0")
    client.seal(client.receive(call(charter, round_=7)), UPDATE)
    refused(client, call(charter, round_=8 + 65_536), "ahead of 8")
    assert isinstance(client.receive(call(charter, round_=8 + 65_535)), Task)


def test_a_call_of_another_scope_is_refused(charter, client):
    """A call for a scope that is not served is refused, and so is one for a scope with another batch or none."""
    refused(client, call(charter, changes={"scope": "photos"}), "'photos'; this device serves keyboard")
    both = simulated_client("both", configuration(scopes={SCOPE, "photos"}))
    others = [simulated_client("other", configuration(scopes={SCOPE, "photos"}))]
    keyboard = found_batch(rules(), [both, *others])
    refused(both, call(keyboard, changes={"scope": "photos"}), "out of order: in the state 'outside'")
    photos = found_batch(rules(scope="photos"), [both, *others])
    refused(both, call(keyboard, changes={"scope": "photos"}), f"this device is under {photos.digest.hex()}")


def test_a_call_of_another_charter_is_refused(batches, charter, client):
    """Another batch's charter, an unknown one and one that was replaced are refused."""
    refused(client, call(batches.charters[1]), f"charter {batches.charters[1].digest.hex()}")
    refused(client, call(charter, changes={"charter": bytes(32)}), f"this device is under {charter.digest.hex()}")
    found_batch(rules(privacy=3), [batches.clients[member.user] for member in charter.members])
    refused(client, call(charter), f"charter {charter.digest.hex()}")


def test_a_call_outside_a_batch_is_refused(charter):
    """A device in no batch seals nothing, be it new, enrolled or with a signed draft."""
    refused(simulated_client("me", configuration()), call(charter), "out of order: in the state 'outside'")
    enrolling = Enrolling()
    draft = enrolling.charter()
    refused(enrolling.client, call(draft), "RoundCall .* out of order: in the state 'outside'")
    enrolling.sign(draft)
    refused(enrolling.client, call(draft), "RoundCall .* out of order: in the state 'outside'")


def test_a_call_that_the_owner_no_longer_allows_is_refused():
    """A charter that the device accepted is compared with its owner's configuration again in every round."""
    enrolling = Enrolling()
    charter = enrolling.found(enrolling.charter())
    before = enrolling.client.membership
    for changes, reason in (
        ({"least_privacy": 5}, "T = 4; this device accepts 5 or more"),
        ({"protocols": {"secagg"}}, "inner protocol 'open'; this device permits"),
        ({"scopes": {"photos"}}, "'keyboard'; this device serves photos"),
    ):
        stricter = dataclasses.replace(before, configuration=configuration(**changes))
        refused(SealedClient(stricter), call(charter), reason)


def test_two_calls_for_one_round_give_one_vector(charter, client):
    """Of two calls with different terms only the last can be sealed, and then neither any more."""
    first = client.receive(call(charter))
    second = client.receive(call(charter, model=b"another"))
    before = state(client)
    with pytest.raises(UsageError, match="not the one that was asked for last"):
        client.seal(first, UPDATE)
    assert state(client) == before
    server = sealed_round([charter], 0, terms(model=b"another"))
    server.receive(client.user, client.seal(second, UPDATE))
    assert client.user not in server.waiting
    refused(client, call(charter), "past it")
    for task in (first, second):
        with pytest.raises(UsageError, match="not the one that was asked for last"):
            client.seal(task, UPDATE)


def test_a_call_of_a_charter_that_was_replaced_is_not_sealed(batches, charter, client):
    """A task that is open while the device accepts another charter gives no vector under either."""
    task = client.receive(call(charter))
    found_batch(rules(privacy=3), [batches.clients[member.user] for member in charter.members])
    before = dict(client.membership.store.records)
    with pytest.raises((PeerError, UsageError)):
        client.seal(task, UPDATE)
    assert client.membership.store.records == before


@pytest.fixture
def server(charter):
    """The server in the first batch's round 0."""
    return sealed_round([charter], 0, terms())


def sealed(batches, charter, user="user-0-0", **changes):
    """A user's sealed message of round 0, with changes to its head."""
    client = batches.clients[user]
    message, tail = messages_from_client.decode(client.seal(client.receive(call(charter)), batches.updates[user]))
    return packed(msgspec.structs.replace(message, **changes), bytes(tail))


def complete(server, batches, charter, given=()):
    """The others' vectors complete the round, and its sum is right: nothing refused was added."""
    for member in charter.members:
        if member.user not in given:
            server.receive(member.user, sealed(batches, charter, member.user))
    expected = sum(batches.updates[member.user].astype(np.float64) for member in charter.members)
    assert server.finish().sum.values == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scope": "photos"}, "another scope: 'photos'"),
        ({"charter": bytes(32)}, "another charter"),
        ({"context": bytes(32)}, "another round"),
        ({"user": "user-0-1"}, "another user: 'user-0-1'"),
    ],
)
def test_a_vector_of_something_else_is_refused(batches, charter, server, changes, reason):
    """The server takes a vector only for its own scope, charter and user, and of this round's context."""
    good = sealed(batches, charter)
    message, tail = messages_from_client.decode(good)
    with pytest.raises(PeerError, match=f"user-0-0 sealed for {reason}"):
        server.receive("user-0-0", packed(msgspec.structs.replace(message, **changes), bytes(tail)))
    assert "user-0-0" in server.waiting
    server.receive("user-0-0", good)
    complete(server, batches, charter, {"user-0-0"})


def test_a_vector_from_an_unknown_user_is_refused(batches, charter, server):
    """Who was not asked in this round gives no vector, not even a member's."""
    good = sealed(batches, charter)
    for user in ("user-1-0", "stranger"):
        with pytest.raises(PeerError, match=f"'{user}', who was not asked"):
            server.receive(user, good)
    server.receive("user-0-0", good)
    complete(server, batches, charter, {"user-0-0"})


def test_a_second_vector_of_one_user_is_refused(batches, charter, server):
    """A user's vector is added once."""
    good = sealed(batches, charter)
    server.receive("user-0-0", good)
    with pytest.raises(PeerError, match="user-0-0 out of order: in the state 'received'"):
        server.receive("user-0-0", good)
    complete(server, batches, charter, {"user-0-0"})


def refuses_to_go_on(client, task, charter, reason="damaged"):
    """The device seals nothing, takes no call and founds nothing; the bytes of its record stay."""
    before = dict(client.membership.store.records)
    for step in (
        lambda: client.seal(task, UPDATE),
        lambda: client.receive(call(charter, round_=1)),
        lambda: client.resend_sealed(SCOPE, 0),
        lambda: found_batch(rules(), [client, simulated_client("new", configuration())]),
    ):
        with pytest.raises(UsageError, match=reason):
            step()
        assert client.membership.store.records == before


def test_a_damaged_record_seals_nothing(charter, client):
    """A record that is cut off, has lost fields, or is of another version or kind stops the device by name."""
    client.seal(client.receive(call(charter)), UPDATE)
    task = client.receive(call(charter, round_=1))
    records = client.membership.store.records
    good = records[SCOPE]
    fields = msgspec.msgpack.decode(good)
    damaged = [good[:size] for size in range(0, len(good), 7)] + [good + b"\0", bytes(100), b"\xc0"]
    damaged += [msgspec.msgpack.encode(fields[:count]) for count in range(len(fields))]
    damaged += [msgspec.msgpack.encode([99, *fields[1:]]), msgspec.msgpack.encode([*fields, b""])]
    for bad in damaged:
        records[SCOPE] = bad
        refuses_to_go_on(client, task, charter)
    records[SCOPE] = good
    assert client.seal(task, UPDATE)


@pytest.mark.parametrize(("field", "kind"), [(3, "call"), (3, "seal"), (6, "invitation")])
def test_a_damaged_charter_in_the_record_is_not_the_servers_fault(charter, client, field, kind):
    """A charter that the device itself kept, and cannot read any more, stops it with an error of its own."""
    client.seal(client.receive(call(charter)), UPDATE)
    task = client.receive(call(charter, round_=1))
    records = client.membership.store.records
    fields = msgspec.msgpack.decode(records[SCOPE])
    fields[field] = fields[field][:-1]
    records[SCOPE] = bad = msgspec.msgpack.encode(fields)
    steps = {
        "call": lambda: client.receive(call(charter, round_=1)),
        "seal": lambda: client.seal(task, UPDATE),
        "invitation": lambda: client.receive(encode(Invitation(SCOPE))),
    }
    with pytest.raises(UsageError, match=r"record is damaged .* must be retired"):
        steps[kind]()
    assert records == {SCOPE: bad}


def test_a_record_without_a_members_key_seals_nothing(charter, client):
    """A vector that lacks a mask, or has one of somebody else, never leaves: the record must fit the charter."""
    task = client.receive(call(charter))
    records = client.membership.store.records
    fields = msgspec.msgpack.decode(records[SCOPE])
    keys = fields[5]
    for wrong in ({}, {"user-0-1": keys["user-0-1"]}, {**keys, "stranger": bytes(32)}):
        records[SCOPE] = bad = msgspec.msgpack.encode([*fields[:5], wrong, *fields[6:]])
        for step in (lambda: client.seal(task, UPDATE), lambda: client.receive(call(charter))):
            with pytest.raises(UsageError, match="record of scope 'keyboard'"):
                step()
            assert records == {SCOPE: bad}


def test_a_damaged_device_file_seals_nothing(tmp_path):
    """On a disk no byte of the record can change without being noticed before anything is sealed."""
    path, identity = tmp_path / "ana.device", IdentityKey.generate()
    with DeviceFile.create(path, identity.to_bytes()) as store:
        ana = SealedClient(Membership("ana", identity, configuration(), TrustServerForIdentities(), store))
        charter = found_batch(rules(), [ana, simulated_client("bob", configuration())])
        task = ana.receive(call(charter))
        good = path.read_bytes()
        start = good.index(charter.encode())
        for at in (start - 40, start + 5, start + len(charter.encode()) + 30):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            bad = path.read_bytes()
            with pytest.raises(UsageError, match="damaged"):
                ana.seal(task, UPDATE)
            assert path.read_bytes() == bad
        path.write_bytes(good)
        assert ana.seal(task, UPDATE)


# --- terms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"round_": 1}, {"model": b"another"}, {"step": 1, "round_": 1}])
def test_a_vector_of_another_round_or_model_is_refused(batches, charter, server, other):
    """The context is over round and terms: what was sealed for others is refused, and the round goes on."""
    client = batches.clients["user-0-0"]
    strayed = client.seal(client.receive(call(charter, **other)), UPDATE)
    with pytest.raises(PeerError, match="user-0-0 sealed for another round"):
        server.receive("user-0-0", strayed)
    assert "user-0-0" in server.waiting
    assert server.exposure().learned == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dimension": 101}, "dimension to 101; this device takes 1 to 100"),
        ({"dimension": 2**63 - 1}, "dimension to 9223372036854775807"),
        ({"min_included": 201}, "included users to 201; this device takes 1 to 200"),
        ({"min_included": 2**63 - 1}, "included users to 9223372036854775807"),
        ({"step": 1}, "step 1 in round 0"),
    ],
)
def test_terms_out_of_bounds_are_refused(changes, reason):
    """Dimension, step and least number of included users lie within the device's own bounds."""
    enrolling = Enrolling(largest_dimension=100, largest_roster=200)
    charter = enrolling.found(enrolling.charter())
    refused(enrolling.client, call(charter, changes=changes), reason)
    fitting = {"dimension": 100, "min_included": 200}
    assert isinstance(enrolling.client.receive(call(charter, changes=fitting)), Task)


@pytest.mark.parametrize("recipe", [{}, {"learning_rate": 0.1}])
def test_a_configuration_that_is_not_the_recipe_is_refused(recipe):
    """The training configuration is the charter's; with a round comes none, not even the same."""
    enrolling = Enrolling()
    charter = enrolling.found(enrolling.charter(recipe=write_recipe(recipe)))
    for configuration_ in ({}, {"learning_rate": 0.1}, {"learning_rate": 0.2}):
        changes = {"configuration": write_recipe(configuration_)}
        refused(
            enrolling.client, call(charter, changes=changes), "with the round; this device takes the charter's"
        )
    assert enrolling.client.receive(call(charter)).recipe == charter.recipe


@pytest.mark.parametrize("setting", [{"examples": [3]}, {"time_budget": 10}, {"epochs": {"me": 3}}, {"clip": 1.0}])
def test_a_configuration_that_selects_examples_or_sets_a_time_budget_is_refused(setting):
    """Where the owner lets a configuration come with a round, it still fixes only what a recipe may."""
    enrolling = Enrolling(configuration_in_terms=True)
    charter = enrolling.found(enrolling.charter(recipe=write_recipe({"learning_rate": 0.1})))
    refused(enrolling.client, call(charter, configuration=write_recipe(setting)), "training configuration sets '")
    refused(enrolling.client, call(charter, configuration=b'{"epochs": 1}'), "not a JSON object in canonical form")
    other = write_recipe({"learning_rate": 0.2})
    task = enrolling.client.receive(call(charter, configuration=other))
    assert task.recipe == other
    assert task.terms.digest != terms().digest


def test_an_update_of_another_dimension_is_not_sealed(charter, client):
    """An update that is not of the terms' dimension is the caller's error; the round stays open."""
    task = client.receive(call(charter))
    before = state(client)
    for size in (0, 1, DIMENSION - 1, DIMENSION + 1):
        with pytest.raises(UsageError, match=f"{size} values; the terms ask for {DIMENSION}"):
            client.seal(task, np.zeros(size, dtype=np.float32))
        assert state(client) == before
    assert client.seal(task, UPDATE)


@pytest.mark.parametrize(
    ("update", "weight", "reason"),
    [
        (np.zeros(DIMENSION, dtype=np.int64), 1, "int64"),
        (UPDATE, -1, "weight is -1"),
        (UPDATE, 0, "weight is 0"),
    ],
)
def test_a_bad_update_is_the_callers_error_and_burns_no_round(charter, client, update, weight, reason):
    """What cannot be sealed is refused before anything has changed."""
    task = client.receive(call(charter))
    before = state(client)
    with pytest.raises(UsageError, match=reason):
        client.seal(task, update, weight=weight)
    assert state(client) == before
    assert client.seal(task, UPDATE)


@pytest.mark.parametrize("cut", [4, 60, 100])
def test_a_vector_that_is_cut_off_counts_as_seen(batches, charter, server, cut):
    """A vector that is refused for its length has come all the same, and the words that it has can be added."""
    other, users = sealed_round([charter], 0, terms()), tuple(member.user for member in charter.members)
    good = {user: sealed(batches, charter, user) for user in users}
    message, tail = messages_from_client.decode(good["user-0-0"])
    for part, judge in ((good["user-0-0"][:-cut], server), (packed(message, bytes(tail)[:-cut]), other)):
        for user in users[1:]:
            judge.receive(user, good[user])
        assert judge.exposure().learned == ()
        with pytest.raises(PeerError, match="bytes"):
            judge.receive("user-0-0", part)
        assert "user-0-0" in judge.waiting
        assert judge.exposure().learned == (users,)


@pytest.mark.parametrize("change", [-4, -1, 1, 4, 400])
def test_a_vector_of_the_wrong_dimension_is_refused(batches, charter, server, change):
    """The server takes exactly as many bytes of words as the quantiser gives for the dimension."""
    good = sealed(batches, charter)
    message, tail = messages_from_client.decode(good)
    wrong = (bytes(tail) + bytes(400))[: len(tail) + change]
    with pytest.raises(PeerError, match=f"user-0-0 sent {len(wrong)} bytes of words, not {len(tail)}"):
        server.receive("user-0-0", packed(message, wrong))
    assert "user-0-0" in server.waiting
    server.receive("user-0-0", good)
    complete(server, batches, charter, {"user-0-0"})


def test_an_update_is_never_masked_for_a_call_that_came_meanwhile(monkeypatch):
    """A call that arrives while an unsealed update is read brings its own settings, for its own round only."""
    client = UnsealedClient("ana", IdentityKey.generate(), configuration(), TrustServerForIdentities())
    first = rules(inner="secagg")
    clipped = dataclasses.replace(first.quantiser, clip=first.quantiser.clip / 4)
    later = dataclasses.replace(first, quantiser=clipped)
    shown = terms(min_included=2)
    task = client.receive(encode(unsealed_call(first, 5, shown)))
    flat_update = client_module.flat_update

    def interrupted(update, own_terms):
        client.receive(encode(unsealed_call(later, 6, shown)))
        return flat_update(update, own_terms)

    with monkeypatch.context() as patch:
        patch.setattr(client_module, "flat_update", interrupted)
        client.seal(task, np.zeros(DIMENSION))
    setting = client._rounds[SCOPE]._setting  # noqa: SLF001
    assert (setting.round, setting.quantiser) == (5, first.quantiser)
