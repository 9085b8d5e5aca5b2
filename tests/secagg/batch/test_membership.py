"""What a device remembers of a scope for good: its weight, its rounding, its last round, and its overrides."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import PeerError, UsageError
from coterie.secagg import RING_16, RING_32, Quantiser, SealedClient, Seed, found_batch, run_round, sealed_round
from coterie.secagg.batch.membership import DeviceRecord
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import Draft, Founding
from support.secagg.batches import DIMENSION, SCOPE, Batches, quantiser, rules, terms, updates
from support.secagg.servers import UPDATE, Enrolling, call, refused

NINE = quantiser(weight_cap=9)


def record_of(client):
    """What a device keeps, as it is stored."""
    return msgspec.msgpack.decode(client.membership.store.records[SCOPE], type=DeviceRecord)


def weights_of(batches, round_, given, **conditions):
    """The sum of weights that a round of `open` shows, one for each batch."""
    server = sealed_round(batches.charters, round_, terms(**conditions))
    result = run_round(server, batches.clients, batches.train, weights=dict.fromkeys(batches.clients, given))
    return [learned.sum.weight for learned in result.learned]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_the_first_seal_fixes_the_weight(given_weights):
    """Whatever weights come later, the device keeps the first, at most the largest that the charter allows."""
    batches = Batches(1, 2, common={"quantiser": NINE})
    pinned = min(given_weights[0], 9)
    for round_, weight in enumerate(given_weights):
        assert weights_of(batches, round_, weight) == [2 * pinned]
    assert {record_of(client).weight for client in batches.clients.values()} == {pinned}


def test_a_weight_is_no_weight_before_the_first_seal():
    """A call that was not sealed fixes nothing; nor does a weight that cannot be."""
    device = Enrolling()
    task = device.client.receive(call(device.found(device.charter(quantiser=NINE))))
    assert record_of(device.client).weight == 0
    for weight in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="the weight is"):
            device.client.seal(task, UPDATE, weight=weight)
    assert record_of(device.client).weight == 0
    device.client.seal(task, UPDATE, weight=12)
    assert record_of(device.client).weight == 9


def test_weight_and_rounding_outlive_a_successor_and_an_override():
    """The record's weight, rounding secret, last round and step stay; the owner's override is counted."""
    device = Enrolling()
    charter = device.found(device.charter(quantiser=NINE))
    device.seal(charter, round_=3, weight=5)
    first = record_of(device.client)
    device.enrol()
    later = device.found(device.charter(quantiser=NINE))
    device.seal(later, round_=4, weight=7)
    device.client.membership.override(SCOPE)
    device.sealed_under = b""
    device.enrol()
    device.found(device.charter(quantiser=dataclasses.replace(NINE, clip=2.0)))
    last = record_of(device.client)
    assert (first.weight, last.weight) == (5, 5)
    assert first.rounding_secret == last.rounding_secret
    assert (last.sealed_round, last.sealed_charter, last.overrides) == (4, b"", 1)


@pytest.mark.parametrize("ring", [RING_16, RING_32], ids=["2^16", "2^32"])
def test_the_same_terms_give_the_same_words(ring):
    """The same update, weight, terms and secret give the same sum in another round; other terms another one."""
    batches = Batches(1, 2, common={"quantiser": Quantiser(ring, 1.0, 1, 60)})

    def total(round_, **conditions):
        server = sealed_round(batches.charters, round_, terms(**conditions))
        return run_round(server, batches.clients, batches.train).sum.values

    first = total(0)
    assert np.array_equal(total(1), first)
    for round_, conditions in enumerate(({"model": b"other"}, {"min_included": 2}, {"step": 1}), start=2):
        assert not np.array_equal(total(round_, **conditions), first)
    assert np.abs(total(9, step=1) - first).max() <= 2 * 2 * batches.rules.quantiser.step


def test_rounding_secrets_are_the_devices_own():
    """Every device draws its own secret, unless one is given: then its rounding can be repeated."""
    batches = Batches(1, 3)
    run_round(sealed_round(batches.charters, 0, terms()), batches.clients, batches.train)
    assert len({record_of(client).rounding_secret for client in batches.clients.values()}) == 3
    device = Enrolling()
    fixed = dataclasses.replace(device.client.membership, new_secret=lambda: Seed(bytes(range(32))))
    fixed.store.records.clear()
    device.client = SealedClient(fixed)
    device.enrol()
    assert record_of(device.client).rounding_secret == bytes(range(32))


def test_an_update_that_is_not_finite_is_the_zero_update():
    """The sum with it is the sum with zeros, bit for bit, at the same weight: neither silence nor a word tells."""

    def total(bad):
        batches = Batches(1, 2, common={"quantiser": NINE})
        for number, (name, client) in enumerate(batches.clients.items()):
            secret = Seed(bytes([number]) * 32)
            again = dataclasses.replace(client.membership, new_secret=lambda secret=secret: secret)
            again.store.records.clear()
            batches.clients[name] = SealedClient(again)
        charter = found_batch(batches.rules, batches.clients.values())
        batches.updates["user-0-0"] = bad
        server = sealed_round([charter], 0, terms())
        return run_round(server, batches.clients, batches.train, weights={"user-0-0": 4, "user-0-1": 2}).sum

    zero = total(np.zeros(DIMENSION, dtype=np.float32))
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = updates(["anyone"])["anyone"]
        spoilt[7] = bad
        assert np.array_equal(total(spoilt).values, zero.values)
        assert total(spoilt).weight == zero.weight == 6


# --- override -------------------------------------------------------------------------------------------


def test_only_the_owner_lets_go_of_a_charter():
    """After an override the next charter may split the batch, with another quantiser and recipe."""
    device = Enrolling(others=5)
    first = device.found(device.charter())
    device.seal(first)
    device.enrol()
    half = (device.charter().members[-1], *device.charter().members[:2])
    split = dataclasses.replace(
        device.charter(), privacy=3, members=tuple(dataclasses.replace(m, predecessor=b"") for m in half),
        recipe=b'{"epochs":2}', quantiser=quantiser(clip=2.0),
    )  # fmt: skip
    assert "me" in split.identities
    device.refuses(split, "with the predecessor none; this device sealed under")
    device.client.membership.override(SCOPE)
    device.sealed_under = b""
    device.enrol()
    mine = dataclasses.replace(split.members[-1], user="me", seal=device.mine.seal)
    later = dataclasses.replace(split, members=(*(m for m in split.members if m.user != "me"), mine))
    answer, _ = messages_from_client.decode(device.client.receive(encode(Draft(later.encode()))))
    signed = {user: made for user, made in device.signatures(later.encode()).items() if user in later.identities}
    device.client.receive(encode(Founding(later.encode(), {**signed, "me": answer.signature})))
    assert record_of(device.client).in_force == later


def test_an_override_opens_no_past_round():
    """Rounds never come twice: a charter that begins at or before the last sealed round is refused still."""
    device = Enrolling()
    device.seal(device.found(device.charter()), round_=6)
    device.client.membership.override(SCOPE)
    device.sealed_under = b""
    device.enrol()
    device.refuses(device.charter(first=6), "begins with round 6; this device has sealed round 6 already")
    device.found(device.charter(first=7))


def test_there_is_nothing_to_override_before_a_seal():
    """A charter never sealed under binds nobody; to override nothing is a mistake and changes nothing."""
    device = Enrolling()
    with pytest.raises(UsageError, match="has sealed under no charter in the scope 'keyboard'"):
        device.client.membership.override(SCOPE)
    device.found(device.charter())
    before = dict(device.client.membership.store.records)
    with pytest.raises(UsageError, match="nothing binds it"):
        device.client.membership.override(SCOPE)
    assert device.client.membership.store.records == before
    with pytest.raises(PeerError, match="named the scope 'photos'"):
        device.client.membership.override("photos")


def test_the_batch_in_force_goes_on_after_an_override():
    """The owner lets go of what binds the next charter; rounds of the present one are sealed and bind again."""
    device = Enrolling()
    charter = device.found(device.charter())
    device.seal(charter, round_=0)
    device.client.membership.override(SCOPE)
    device.seal(charter, round_=1)
    assert record_of(device.client).sealed_charter == charter.encode()


# --- steps ----------------------------------------------------------------------------------------------


def test_a_step_never_goes_back_and_never_runs_ahead():
    """The step of a round is at least that of the last sealed round, and at most the round's number."""
    device = Enrolling()
    charter = device.found(device.charter())
    refused(device.client, call(charter, 5, step=6), "step 6 in round 5; this device takes 0, its last, to 5")
    device.client.seal(device.client.receive(call(charter, 5, step=3)), UPDATE)
    refused(device.client, call(charter, 6, step=2), "step 2 in round 6; this device takes 3, its last, to 6")
    device.client.seal(device.client.receive(call(charter, 6, step=3)), UPDATE)
    assert record_of(device.client).sealed_step == 3


def test_a_record_of_version_1_is_refused():
    """A device that was in a batch of version 1 is not taken for a new one."""
    device = Enrolling()
    store = device.client.membership.store
    fields = msgspec.msgpack.decode(store.records[SCOPE])
    for damaged in ([1, *fields[1:]], fields[:-1], [*fields, 0], fields[:9]):
        store.records[SCOPE] = msgspec.msgpack.encode(damaged)
        with (
            pytest.raises(UsageError, match="record of scope 'keyboard' is damaged"),
            device.client.membership.record(SCOPE),
        ):
            pass


def test_rules_of_batches_are_checked_when_they_are_made():
    """A founder's rules that no device could accept are the caller's mistake."""
    for changes, message in (
        ({"inner": "lightning"}, "there is no inner protocol 'lightning'"),
        ({"privacy": 0}, "the privacy level is 0"),
        ({"recipe": b"{ }"}, "canonical form"),
        ({"scope": ""}, "give 1 to 64"),
    ):
        with pytest.raises(UsageError, match=message):
            rules(**changes)
