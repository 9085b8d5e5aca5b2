"""Charters that break a rule are neither signed nor accepted, and change nothing on the device (§2)."""

import dataclasses
import re

import msgspec
import numpy as np
import pytest

from coterie.errors import PeerError
from coterie.secagg import (
    PRIME_31,
    BatchFounder,
    IdentityKey,
    Parameters,
    SealKey,
    found_batch,
    run_round,
    sealed_round,
    simulated_client,
)
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.wire.framing import encode
from coterie.secagg.wire.messages import Draft, Founding, Invitation
from support.secagg.batches import DIMENSION, Batches, configuration, quantiser, rules, terms
from support.secagg.servers import Enrolling, call, changed, raw_charter, refused

PRIME = 2**255 - 19


def key_bytes(number):
    """A public key's 32 bytes from its number."""
    return number.to_bytes(32, "little")


# --- the device's own rules --------------------------------------------------------------------------------


def test_a_charter_below_the_devices_least_privacy_is_refused():
    """A T below the device's own least is refused, although enough members are there."""
    enrolling = Enrolling(least_privacy=4)
    enrolling.refuses(enrolling.charter(privacy=3), "T = 3; this device accepts 4 or more")


def test_a_charter_with_fewer_members_than_its_privacy_is_refused():
    """A charter that promises T and has fewer members is refused."""
    enrolling = Enrolling()
    enrolling.refuses(enrolling.charter(privacy=5), "4 members, fewer than its T = 5")


def test_a_charter_of_a_foreign_scope_is_refused():
    """For a scope that the device does not serve it neither enrols, signs nor accepts."""
    enrolling = Enrolling()
    refused(enrolling.client, encode(Invitation("photos")), "'photos'; this device serves keyboard")
    enrolling.refuses(enrolling.charter(scope="photos"), "'photos'; this device serves keyboard")


@pytest.mark.parametrize("inner", ["secagg", "plain"])
def test_an_inner_protocol_that_is_not_permitted_is_refused(inner):
    """The device's configuration decides which inner protocols it takes; invented ones it never takes."""
    enrolling = Enrolling(protocols={"open"})
    enrolling.refuses(enrolling.charter(inner=inner), f"inner protocol '{inner}'; this device permits")


@pytest.mark.parametrize("inner", ["open", "secagg", "secagg+"])
def test_a_modulus_of_another_inner_protocol_is_refused(inner):
    """The inner protocol says which q it can add modulo; any other one is refused."""
    enrolling = Enrolling()
    prime = enrolling.charter(inner=inner, quantiser=quantiser(ring=PRIME_31))
    enrolling.refuses(prime, f"modulus 2147483647; '{re.escape(inner)}' needs 65536 or 4294967296")
    for modulus in (0, 1, 7, 2**16 - 1, 2**31, 2**64 - 1):
        enrolling.refuses(raw_charter(enrolling.charter(inner=inner), modulus=modulus), f"modulus is {modulus};")


def test_a_share_of_colluders_below_the_devices_is_refused():
    """A charter that stands fewer colluders than the device wants is refused; one that stands more is not."""
    enrolling = Enrolling(least_colluders=200)
    enrolling.refuses(
        enrolling.charter(parameters=Parameters(199, 300)), "γ = 0.199; this device wants 0.2 or more"
    )
    enrolling.found(enrolling.charter(parameters=Parameters(201, 300)))


@pytest.mark.parametrize(
    ("colluders", "losses"), [(200, 400), (1000, 0), (0, 500), (2**64 - 1, 0), (0, 2**64 - 1)]
)
def test_parameters_that_leave_no_sum_are_refused(colluders, losses):
    """γ + 2δ ≥ 1 is refused: with so many colluding and lost nobody could be left to open a sum."""
    enrolling = Enrolling()
    encoded = raw_charter(enrolling.charter(), colluders=colluders, losses=losses)
    enrolling.refuses(encoded, r"γ \+ 2δ must stay below 1")


def test_a_first_round_too_far_ahead_is_refused():
    """A charter that begins far ahead is refused: after one seal no round before it could ever be sealed."""
    enrolling = Enrolling(largest_first=100, largest_skip=10)
    for first in (101, 2**63 - 1, 2**64 - 1):
        enrolling.refuses(
            enrolling.charter(first=first), f"begins with round {first}; this device takes 100 at most"
        )
    enrolling.seal(enrolling.found(enrolling.charter(first=100)), round_=104)
    enrolling.enrol()
    enrolling.refuses(enrolling.charter(first=115), "begins with round 115; this device takes 114 at most")
    enrolling.found(enrolling.charter(first=114))


# --- signatures --------------------------------------------------------------------------------------------


def test_a_forged_signature_is_refused():
    """A signature by another key than the member's, or with one changed bit, is refused."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    signatures = enrolling.sign(charter)
    bit = bytearray(signatures["fake-1"])
    bit[7] ^= 1
    other = IdentityKey.generate().sign("charter", charter.encode())
    for forged in (other, bytes(bit), bytes(64), signatures["fake-2"]):
        enrolling.refuses_founding(
            charter.encode(), {**signatures, "fake-1": forged}, "signature of 'fake-1' .* forged"
        )


@pytest.mark.parametrize("missing", ["fake-2", "me"])
def test_a_missing_signature_is_refused(missing):
    """A founding that a member has not signed is refused, also if that is the device itself."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    signatures = enrolling.sign(charter)
    del signatures[missing]
    enrolling.refuses_founding(charter.encode(), signatures, f"not signed by '{missing}'")


def test_a_strangers_signature_is_refused():
    """A founding with a good signature of somebody who is no member is refused."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    stranger = IdentityKey.generate().sign("charter", charter.encode())
    signatures = {**enrolling.sign(charter), "stranger": stranger}
    enrolling.refuses_founding(charter.encode(), signatures, "'stranger', who is not a member")


def test_a_signature_of_another_charter_is_refused():
    """What members signed for one draft founds no other, not even one that the device signed too."""
    enrolling = Enrolling()
    charter, other = enrolling.charter(), enrolling.charter(privacy=3)
    others, signatures = enrolling.sign(other), enrolling.sign(charter)
    swapped = {**signatures, "fake-0": others["fake-0"]}
    enrolling.refuses_founding(charter.encode(), swapped, "signature of 'fake-0' .* made for something else")
    enrolling.refuses_founding(charter.encode(), others, "made for something else")


# --- members and their keys --------------------------------------------------------------------------------


def test_a_member_listed_twice_is_refused():
    """One user with two lines, of the same keys or of others, is refused."""
    for again in ({}, {"identity": IdentityKey.generate().public, "seal": SealKey.generate().public}):
        enrolling = Enrolling()
        charter = enrolling.charter()
        first = charter.members[1]
        members = sorted((*charter.members, dataclasses.replace(first, **again)), key=lambda m: m.user)
        enrolling.refuses(raw_charter(charter, members), f"the member '{first.user}' twice")


@pytest.mark.parametrize("owner", ["fake-1", "me"])
@pytest.mark.parametrize("kind", ["identity", "seal"])
def test_two_members_with_one_key_are_refused(owner, kind):
    """Two users that share an identity key or a seal key are refused: they could be one party."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    key = next(getattr(member, kind) for member in charter.members if member.user == owner)
    enrolling.refuses(changed(charter, "fake-0", **{kind: key}), f"the same {kind} key, {key.hex()}")


def test_a_member_that_verify_member_refuses_is_refused():
    """A member for whom the device's own check does not answer True is refused; each is looked up once."""
    known, asked = {"me", "fake-1"}, []

    def verify(user, identity):
        asked.append((user, identity))
        return user in known

    enrolling = Enrolling(verify_member=verify)
    charter = enrolling.charter()
    refused(enrolling.client, encode(Draft(charter.encode())), "verify_member refused 'fake-0'")
    known |= {"fake-0", "fake-2"}
    asked.clear()
    enrolling.found(charter)
    assert sorted(asked) == sorted((member.user, member.identity) for member in charter.members)


def test_a_draft_that_breaks_a_rule_looks_nobody_up():
    """What a draft's bytes show to be wrong is refused before anybody is asked who the members are."""
    asked = []
    enrolling = Enrolling(verify_member=lambda user, _: asked.append(user) is None)
    weak = changed(enrolling.charter(), "fake-1", seal=key_bytes(0))
    for draft in (enrolling.charter(privacy=5), enrolling.charter(scope="photos"), weak):
        with pytest.raises(PeerError):
            enrolling.client.receive(encode(Draft(draft.encode())))
    assert asked == []


@pytest.mark.parametrize("number", [0, 1, PRIME - 1])
def test_a_seal_key_of_low_order_is_refused(number):
    """A seal key of low order, with which everybody shares the same secret, is refused."""
    enrolling = Enrolling()
    weak = changed(enrolling.charter(), "fake-1", seal=key_bytes(number))
    enrolling.refuses(weak, "seal key of 'fake-1' has low order")


@pytest.mark.parametrize("number", [0, 1, PRIME - 1, 2**255 + 1])
def test_an_identity_key_of_small_order_is_refused(number):
    """An identity key of small order, under which one signature fits many charters, is refused."""
    enrolling = Enrolling()
    weak = changed(enrolling.charter(), "fake-1", identity=key_bytes(number))
    enrolling.refuses(weak, "identity key of 'fake-1' has small order")


@pytest.mark.parametrize(("kind", "number"), [("seal", PRIME + 9), ("seal", 2**255 + 9), ("identity", PRIME + 3)])
def test_a_key_that_is_not_canonical_is_refused(kind, number):
    """A second encoding of a key is refused: equal keys must be equal bytes."""
    enrolling = Enrolling()
    second = changed(enrolling.charter(), "fake-1", **{kind: key_bytes(number)})
    enrolling.refuses(second, f"{kind} key of 'fake-1' is not canonical")


def test_a_charter_without_the_devices_own_user_is_refused():
    """A charter that the device is not in is refused."""
    enrolling = Enrolling()
    charter = enrolling.charter(privacy=3)
    others = tuple(member for member in charter.members if member.user != "me")
    enrolling.refuses(dataclasses.replace(charter, members=others), "does not have 'me'")


@pytest.mark.parametrize("kind", ["identity", "seal"])
def test_a_charter_with_another_key_for_the_device_is_refused(kind):
    """A charter with another key in the device's own line is refused: somebody else would go by its name."""
    enrolling = Enrolling()
    key = {"identity": IdentityKey, "seal": SealKey}[kind].generate().public
    other = changed(enrolling.charter(), "me", **{kind: key})
    enrolling.refuses(other, f"'me', this device's user, with another {kind} key")


def test_the_seal_key_of_an_earlier_invitation_is_refused():
    """Every invitation has its own seal key; a draft with the one before is refused."""
    enrolling = Enrolling()
    earlier = enrolling.charter()
    enrolling.enrol()
    enrolling.refuses(earlier, "another seal key")


def test_a_substituted_seal_key_finds_no_signature():
    """A server that gives ana another seal key for bob lacks bob's signature, which is over his own key."""
    clients = {user: simulated_client(user, configuration()) for user in ("ana", "bob")}
    founder = BatchFounder(rules(), clients)
    for user, invitation in founder.invitations().items():
        drafts = founder.receive(user, clients[user].receive(invitation))
    honest = founder._draft  # noqa: SLF001 - this server looks where it likes
    crafted = changed(honest, "bob", seal=SealKey.generate().public)
    signatures = {
        "ana": messages_from_client.decode(clients["ana"].receive(encode(Draft(crafted.encode()))))[0].signature,
        "bob": messages_from_client.decode(clients["bob"].receive(drafts["bob"]))[0].signature,
    }
    refused(clients["bob"], encode(Draft(crafted.encode())), "'bob', this device's user, with another seal key")
    founding = encode(Founding(crafted.encode(), signatures))
    refused(clients["ana"], founding, "signature of 'bob' .* made for something else")


# --- one batch after another -------------------------------------------------------------------------------


def sealed_once(**changes):
    """A device that has sealed a round, and has enrolled for its next charter."""
    enrolling = Enrolling(**changes)
    enrolling.seal(enrolling.found(enrolling.charter()))
    enrolling.enrol()
    return enrolling


def test_a_charter_that_splits_a_batch_is_refused():
    """Having sealed with a batch, a device joins no other one that lacks any of its members."""
    for missing in ("fake-0", "fake-1", "fake-2"):
        enrolling = sealed_once()
        charter = enrolling.charter(privacy=3)
        rest = tuple(member for member in charter.members if member.user != missing)
        enrolling.refuses(dataclasses.replace(charter, members=rest), f"splits the batch .* lacks '{missing}'")


def test_honest_devices_refuse_to_be_split():
    """Of two batches that have sealed, no two halves can be made into one."""
    batches = Batches(2, 4)
    run_round(sealed_round(batches.charters, 0, terms()), batches.clients, batches.train)
    halves = [batches.clients[f"user-{b}-{i}"] for b in range(2) for i in range(2)]
    with pytest.raises(PeerError, match="lacks 'user-0-2'"):
        found_batch(rules(privacy=4), halves, first=1)


def test_an_older_draft_is_not_founded():
    """Of several drafts that a device signed only the last can be founded."""
    enrolling = Enrolling()
    older, last = enrolling.charter(privacy=3), enrolling.charter()
    signatures = enrolling.sign(older)
    signed_last = enrolling.sign(last)
    enrolling.refuses_founding(older.encode(), signatures, f"signed {last.digest.hex()} last")
    enrolling.client.receive(encode(Founding(last.encode(), signed_last)))


def test_an_unused_charter_does_not_undo_the_one_before():
    """After a merger under which nothing was sealed, the batch that did seal must still stay together."""
    enrolling = sealed_once()
    enrolling.found(enrolling.charter(enrolling.newcomers(4)))
    enrolling.enrol()
    assert enrolling.mine.predecessor == enrolling.sealed_under
    charter = enrolling.charter(enrolling.newcomers(4), privacy=3)
    split = tuple(member for member in charter.members if member.user != "fake-2")
    enrolling.refuses(dataclasses.replace(charter, members=split), "lacks 'fake-2'")


def test_an_old_member_with_another_identity_key_is_refused():
    """A member of the batch that comes back with another identity key is somebody else, and refused."""
    enrolling = sealed_once()
    other = changed(enrolling.charter(), "fake-1", identity=IdentityKey.generate().public)
    enrolling.refuses(other, "'fake-1' with another identity key")


@pytest.mark.parametrize("predecessor", [b"", bytes(32)], ids=["newcomers", "a part of another batch"])
def test_a_group_of_fewer_than_privacy_is_refused(predecessor):
    """Those who join come as whole groups of at least T: fewer would be told apart by the difference of sums."""
    for count in (1, 3):
        enrolling = sealed_once()
        charter = enrolling.charter(enrolling.newcomers(count, predecessor))
        enrolling.refuses(charter, f"{count} members of the charter .*, fewer than its T = 4")
    enrolling = sealed_once()
    enrolling.found(enrolling.charter(enrolling.newcomers(4, predecessor)))


def test_a_predecessor_that_is_not_the_devices_own_is_refused():
    """In the device's line stands the charter that it last sealed under, or nothing if it never sealed."""
    enrolling = Enrolling()
    enrolling.refuses(changed(enrolling.charter(), "me", predecessor=bytes(32)), "'me', .* predecessor 0+;")
    enrolling = sealed_once()
    for past in (b"", bytes(32)):
        enrolling.refuses(changed(enrolling.charter(), "me", predecessor=past), "'me', .* predecessor")


def test_others_name_the_predecessor_as_the_device_does():
    """All members of the old batch name it, and nobody else does."""
    enrolling = sealed_once()
    for past in (b"", bytes(32)):
        enrolling.refuses(changed(enrolling.charter(), "fake-0", predecessor=past), "'fake-0' with another")
    stranger = enrolling.newcomers(1, enrolling.sealed_under)
    enrolling.refuses(enrolling.charter(stranger), "'new-0' with a predecessor that it was not a member of")


@pytest.mark.parametrize("user", ["me", "fake-1"])
def test_a_seal_key_of_the_charter_before_is_refused(user):
    """Seal keys are fresh for every charter: one that comes again would tie the masks of two to one secret."""
    enrolling = Enrolling()
    charter = enrolling.found(enrolling.charter())
    enrolling.seal(charter)
    enrolling.enrol()
    used = next(member.seal for member in charter.members if member.user == user)
    enrolling.refuses(changed(enrolling.charter(), "fake-1", seal=used), "'fake-1' was used in the charter before")


def test_a_charter_that_begins_before_a_sealed_round_is_refused():
    """Rounds of a scope only go forward: what a device signed for one round fits no other of the same number."""
    enrolling = Enrolling()
    enrolling.seal(enrolling.found(enrolling.charter()), round_=5)
    enrolling.enrol()
    for first in (0, 4, 5):
        enrolling.refuses(
            enrolling.charter(first=first), f"begins with round {first}; this device has sealed round 5 already"
        )
    enrolling.found(enrolling.charter(first=6))


def test_a_founding_out_of_order_is_refused():
    """A charter is accepted once, and only after the device signed a draft of this invitation."""
    enrolling = Enrolling()
    charter = enrolling.charter()
    founding = encode(Founding(charter.encode(), enrolling.signatures(charter.encode())))
    refused(enrolling.client, founding, "Founding .* out of order: in the state 'enrolled'")
    enrolling.found(charter)
    refused(enrolling.client, founding, "Founding .* out of order: in the state 'idle'")
    refused(enrolling.client, encode(Draft(charter.encode())), "Draft .* out of order: in the state 'idle'")
    enrolling.enrol()
    refused(enrolling.client, founding, "Founding .* out of order: in the state 'enrolled'")


def test_a_charter_never_sealed_under_may_be_replaced():
    """Before anything was sealed, users may be regrouped freely."""
    batches = Batches(2, 3)
    regrouped = [batches.clients[name] for name in ("user-0-0", "user-0-1", "user-1-0", "user-1-1")]
    assert len(found_batch(rules(privacy=4), regrouped).members) == 4


def test_whole_batches_may_merge_and_grow_by_whole_groups():
    """Two batches that have sealed become one, together with T newcomers, and its rounds give the right sum."""
    batches = Batches(2, 3)
    run_round(sealed_round(batches.charters, 0, terms()), batches.clients, batches.train)
    newcomers = {f"new-{i}": simulated_client(f"new-{i}", configuration()) for i in range(3)}
    clients = {**batches.clients, **newcomers}
    charter = found_batch(rules(privacy=3), clients.values(), first=1)
    update = np.full(DIMENSION, 0.25, dtype=np.float32)
    result = run_round(sealed_round([charter], 1, terms()), clients, lambda _user, _task: update)
    assert result.sum.values == pytest.approx(np.full(DIMENSION, 0.25 * 9), abs=1e-4)
    old = call(batches.charters[0], round_=1)
    refused(clients["user-0-0"], old, f"round of charter {batches.charters[0].digest.hex()}")


# --- the server's side -------------------------------------------------------------------------------------


def test_the_founder_refuses_what_is_not_the_members_answer():
    """The server takes each answer once, in order, from the member it names, with its own signature."""
    clients = {user: simulated_client(user, configuration()) for user in ("ana", "bob")}
    founder = BatchFounder(rules(), clients)
    enrolments = {user: clients[user].receive(data) for user, data in founder.invitations().items()}
    for user, answer, reason in (
        ("eve", enrolments["ana"], "'eve', who is not to be in this batch"),
        ("bob", enrolments["ana"], "bob sent a message of 'ana'"),
    ):
        with pytest.raises(PeerError, match=reason):
            founder.receive(user, answer)
    enrolment, _ = messages_from_client.decode(enrolments["ana"])
    for changes, reason in (
        ({"seal": key_bytes(0)}, "seal key of 'ana' has low order"),
        ({"identity": key_bytes(1)}, "identity key of 'ana' has small order"),
        ({"predecessor": bytes(31)}, "no charter can hold: .* 31 bytes"),
    ):
        with pytest.raises(PeerError, match=reason):
            founder.receive("ana", encode(msgspec.structs.replace(enrolment, **changes)))
    assert founder.receive("ana", enrolments["ana"]) == {}
    with pytest.raises(PeerError, match="Enrolment came from ana out of order: in the state 'enrolled'"):
        founder.receive("ana", enrolments["ana"])
    drafts = founder.receive("bob", enrolments["bob"])
    signed, _ = messages_from_client.decode(clients["ana"].receive(drafts["ana"]))
    for changes, reason in (
        ({"signature": bytes(64)}, "signature of 'ana' .* forged"),
        ({"charter": bytes(32)}, "ana speaks of another charter"),
        ({"scope": "photos"}, "for the scope 'photos'"),
    ):
        with pytest.raises(PeerError, match=reason):
            founder.receive("ana", encode(msgspec.structs.replace(signed, **changes)))
    assert founder.receive("ana", encode(signed)) == {}
    foundings = founder.receive("bob", clients["bob"].receive(drafts["bob"]))
    for user, founding in foundings.items():
        founder.receive(user, clients[user].receive(founding))
    assert founder.charter is not None
