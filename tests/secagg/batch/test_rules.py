"""What a device accepts: charters, successors, terms, and its owner's configuration."""

from dataclasses import FrozenInstanceError, replace

import pytest

from coterie.errors import PeerError, UsageError
from coterie.secagg import (
    PRIME_31,
    PROTOCOLS,
    RING_16,
    RING_32,
    DeviceConfiguration,
    Member,
    Parameters,
    TrustServerForIdentities,
    write_recipe,
)
from coterie.secagg.batch.charter import sign_charter
from coterie.secagg.batch.rules import DeviceHistory, check_terms
from support.secagg.batches import configuration, quantiser, terms
from support.secagg.charters import (
    NEW,
    OLD,
    accepts,
    ask,
    charter,
    identity,
    member,
    members,
    refuses,
    seal,
    signatures,
)

P = 2**255 - 19


def test_a_charter_that_keeps_the_rules_is_accepted():
    """A device signs and accepts a charter at its own least T, and above."""
    accepts(charter())
    accepts(charter(*members(*OLD, *NEW)))
    accepts(charter(*members(*OLD, *NEW), privacy=6))


def test_another_scope_is_refused():
    """The data that may be read is the device's own decision."""
    accepts(charter(scope="photos"))
    refuses("named the scope 'contacts'; this device serves", charter(scope="contacts"))


def test_a_privacy_level_below_the_least_is_refused():
    """T is at least the device's own minimum, however many members there are."""
    refuses("has T = 2; this device accepts 3 or more", charter(*members(*OLD, *NEW), privacy=2))


def test_fewer_members_than_t_are_refused():
    """A charter has at least T members."""
    refuses("has 3 members, fewer than its T = 4", charter(privacy=4))


def test_an_inner_protocol_that_is_not_permitted_is_refused():
    """The inner protocol is one that the device permits; an unsealed or unknown one never is."""
    only = configuration(least_privacy=3, protocols={"secagg+"})
    accepts(charter(inner="secagg+"), configuration=only)
    refuses("named the inner protocol 'open'; this device permits", charter(), configuration=only)
    refuses("named the inner protocol 'unsealed'", charter(inner="unsealed"))


@pytest.mark.parametrize("inner", PROTOCOLS)
def test_another_modulus_is_refused(inner):
    """q is one in which the inner protocol can add vectors."""
    every = configuration(least_privacy=3, protocols=set(PROTOCOLS))
    for ring in (RING_16, RING_32, PRIME_31):
        asked = charter(inner=inner, quantiser=quantiser(ring=ring))
        if ring in PROTOCOLS[inner].rings:
            accepts(asked, configuration=every)
        else:
            refuses(f"named the modulus {ring.modulus}; '.*' needs", asked, configuration=every)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"clip": 0.4}, "set the clip to 0.4; this device takes 0.5 to 2.0"),
        ({"clip": 2.1}, "set the clip to 2.1"),
        ({"weight_cap": 10}, "set the largest weight to 10; this device takes 1 to 9"),
        ({"cohort": 101}, "set the cohort bound to 101; this device takes 1 to 100"),
    ],
)
def test_a_quantiser_out_of_the_devices_bounds_is_refused(changes, rule):
    """Clip, largest weight and cohort bound lie within what the device's owner allows."""
    bounds = configuration(least_privacy=3, clip_range=(0.5, 2.0), largest_weight_cap=9, largest_cohort=100)
    accepts(charter(quantiser=quantiser(clip=0.5, weight_cap=9, cohort=100)), configuration=bounds)
    refuses(rule, charter(quantiser=quantiser(**changes)), configuration=bounds)


def test_more_members_than_the_cohort_bound_are_refused():
    """A sum of more vectors than the bound could wrap around."""
    accepts(charter(quantiser=quantiser(cohort=3)))
    refuses("has 3 members; its cohort bound is 2", charter(quantiser=quantiser(cohort=2)))


def test_more_members_than_the_device_takes_are_refused():
    """All sign all of a charter, so what verifying one costs grows with the square of its members."""
    accepts(charter(), configuration=configuration(least_privacy=3, largest_batch=3))
    refuses(
        "has 3 members; this device takes 2 at most",
        charter(),
        configuration=configuration(least_privacy=3, largest_batch=2),
    )


def test_a_share_of_colluders_below_the_devices_is_refused():
    """γ is at least the device's own."""
    accepts(charter(parameters=Parameters(200, 300)))
    accepts(charter(parameters=Parameters(0, 300)), configuration=configuration(least_colluders=0))
    refuses("named γ = 0.199; this device wants 0.2 or more", charter(parameters=Parameters(199, 300)))


@pytest.mark.parametrize("key", ["examples", "time_budget", "user", "indices", "Epochs", ""])
def test_a_recipe_with_an_unknown_setting_is_refused(key):
    """A recipe fixes what the owner lets it fix: no choice of examples, no time budget, no single user."""
    accepts(charter(recipe=write_recipe({"epochs": 2, "learning_rate": 0.1, "optimiser": "sgd"})))
    refuses(f"training configuration sets '{key}'; this device takes", charter(recipe=write_recipe({key: 1})))
    owner = configuration(least_privacy=3, recipe_keys={key})
    accepts(charter(recipe=write_recipe({key: 1})), configuration=owner)


def test_a_first_round_too_far_ahead_is_refused():
    """The first round is at most the device's bound, and after a seal at most its largest skip later."""
    device = configuration(least_privacy=3, largest_first=1000, largest_skip=10)
    accepts(charter(first=1000), configuration=device)
    refuses("begins with round 1001; this device takes 1000 at most", charter(first=1001), configuration=device)
    past = DeviceHistory(FIRST, 7, 1)
    for first in (8, 17):
        accepts(successor(first=first), number=2, past=past, configuration=device)
    for first, rule in ((7, "has sealed round 7 already"), (0, "round 7 already"), (18, "takes 17 at most")):
        refuses(rule, successor(first=first), number=2, past=past, configuration=device)
    # Also where the owner let go of the old charter: rounds never come twice.
    refuses("round 7 already", charter(first=7), past=DeviceHistory(None, 7, 1), configuration=device)


def test_a_largest_weight_below_that_of_the_first_seal_is_refused():
    """Also after an override, and whatever the device's own weight: what is refused must not tell that."""
    past = DeviceHistory(None, sealed_round=0, weight_cap=9)
    for cap in (9, 10):
        accepts(charter(quantiser=quantiser(weight_cap=cap), first=1), past=past)
    refuses(
        "largest weight is 8; this device's weight was fixed for good under one of 9",
        charter(quantiser=quantiser(weight_cap=8), first=1),
        past=past,
    )


def test_a_charter_without_me_is_refused():
    """A device is among the members of its charter."""
    refuses("does not have 'ana', this device's user", charter(*members(*NEW)))


def test_my_entry_with_other_keys_is_refused():
    """A server cannot put its own keys beside this device's id."""
    rest = members("bob", "cem")
    stolen = Member("ana", identity("eve").public, seal("ana", 1).public)
    refuses("'ana', this device's user, with another identity key", charter(stolen, *rest))
    refuses("'ana', this device's user, with another seal key", charter(member("ana", 2), *rest))


def test_a_member_that_verify_member_refuses_is_refused():
    """All members pass `verify_member`, which sees id and key of each, this device's own too."""
    seen = []

    def verify(user, key):
        seen.append((user, key))
        return user != "cem"

    refuses("verify_member refused 'cem'", charter(), verify_member=verify)
    assert seen[:3] == [(user, identity(user).public) for user in OLD]


@pytest.mark.parametrize("answer", [None, 1, "yes", object()])
def test_only_true_passes_a_member(answer):
    """An answer that is merely not false, as a coroutine nobody awaited, passes nobody."""
    refuses("verify_member refused 'ana'", charter(), verify_member=lambda *_: answer)


def test_an_error_of_verify_member_passes_nobody():
    """A check that cannot be made is not passed, and its own error is seen."""

    def verify(user, key):
        raise TimeoutError(user, key)

    for signed in (None, signatures(charter())):
        with pytest.raises(TimeoutError):
            ask(charter(), signed, verify_member=verify)


def test_trusting_the_server_passes_everybody():
    """It is chosen by name, as an object; the class itself passes nobody."""
    assert TrustServerForIdentities()("anybody", bytes(32)) is True
    with pytest.raises(TypeError):
        ask(charter(), None, verify_member=TrustServerForIdentities)


def test_two_members_with_one_key_are_refused():
    """Members are distinct in their keys too: no one counts twice, not even this device."""
    bob, cem = members("bob", "cem")
    for own in ("ana", "bob"):
        double = replace(cem, identity=identity(own).public)
        refuses("two members of the charter have the same identity key", charter(member("ana"), bob, double))
        double = replace(cem, seal=seal(own, 1).public)
        refuses("two members of the charter have the same seal key", charter(member("ana"), bob, double))


@pytest.mark.parametrize("y", [0, 1, P - 1, P, P + 1, 1 + 2**255])
def test_an_identity_key_of_small_order_is_refused(y):
    """A key under which everything is signed is refused even before signing."""
    forged = replace(member("cem"), identity=y.to_bytes(32, "little"))
    refuses("identity key of 'cem' has small order", charter(*members("ana", "bob"), forged))


@pytest.mark.parametrize("u", [0, 1, P - 1, P, P + 1, 2**255, 2**255 + 1])
def test_a_seal_key_of_low_order_is_refused(u):
    """A key with which everybody agrees on zero is refused even before signing."""
    forged = replace(member("cem"), seal=u.to_bytes(32, "little"))
    refuses("seal key of 'cem' has low order", charter(*members("ana", "bob"), forged))


def test_a_second_encoding_of_a_key_is_refused():
    """The same seal key in other bytes does not make two of one."""
    copied = int.from_bytes(seal("bob", 1).public, "little") + 2**255
    forged = replace(member("cem"), seal=copied.to_bytes(32, "little"))
    refuses("seal key of 'cem' is not canonical", charter(*members("ana", "bob"), forged))
    forged = replace(member("cem"), identity=(P + 3).to_bytes(32, "little"))
    refuses("identity key of 'cem' is not canonical", charter(*members("ana", "bob"), forged))


# --- signatures -----------------------------------------------------------------------------------------


def refuses_signatures(rule, signed):
    with pytest.raises(PeerError, match=rule):
        ask(charter(), signed)


@pytest.mark.parametrize("user", OLD)
def test_a_missing_signature_is_refused(user):
    """Every member signs, this device too."""
    rest = {signer: made for signer, made in signatures(charter()).items() if signer != user}
    refuses_signatures(f"the charter is not signed by '{user}'", rest)
    refuses_signatures("the charter is not signed by 'ana'", {})


@pytest.mark.parametrize("user", OLD)
def test_a_forged_signature_is_refused(user):
    """A signature is made with the member's own identity key."""
    forged = {user: sign_charter(charter(), identity("eve"))}
    refuses_signatures(f"the signature of '{user}' for 'charter' is forged", signatures(charter()) | forged)
    refuses_signatures(f"the signature of '{user}' .* has 63 bytes", signatures(charter()) | {user: bytes(63)})


def test_swapped_signatures_are_refused():
    """A signature stands under its signer's name."""
    signed = signatures(charter())
    refuses_signatures("'ana' for 'charter' is forged", signed | {"ana": signed["bob"], "bob": signed["ana"]})


@pytest.mark.parametrize(
    "other",
    [
        charter(scope="photos"),
        charter(privacy=2),
        charter(inner="secagg"),
        charter(first=1),
        charter(*members(*OLD, *NEW)),
        charter(*(member(user, 2) for user in OLD)),
        charter(*(member(user, 1, bytes(32)) for user in OLD)),
    ],
)
def test_signatures_of_another_charter_are_refused(other):
    """A signature is for the whole charter: scope, T, inner protocol, first round, members, keys and past."""
    refuses_signatures(
        "is forged, or made for something else", signatures(charter()) | {"bob": signatures(other)["bob"]}
    )


def test_a_signature_for_another_purpose_is_refused():
    """What a member signed for another purpose is no signature of a charter."""
    made = identity("bob").sign("agree", charter().encode())
    refuses_signatures("'bob' for 'charter' is forged", signatures(charter()) | {"bob": made})


def test_a_signature_of_a_stranger_is_refused():
    """Only members sign; signatures are not a place to hide things in."""
    more = {"eve": sign_charter(charter(), identity("eve"))}
    refuses_signatures("the charter is signed by 'eve', who is not a member", signatures(charter()) | more)


# --- one charter per data scope ---------------------------------------------------------------------------

FIRST = charter()
PAST = DeviceHistory(FIRST, sealed_round=0, weight_cap=1)


def successor(*joining, leaving=(), **changed):
    """A charter of the old members, who name the first one, and of others."""
    staying = tuple(member(user, 2, FIRST.digest) for user in OLD if user not in leaving)
    return charter(*staying, *joining, **{"first": 1, **changed})


def accepts_after(asked):
    accepts(asked, number=2, past=PAST)


def refuses_after(rule, asked):
    refuses(rule, asked, number=2, past=PAST)


def test_a_batch_may_grow_by_whole_groups():
    """The same members with fresh keys, T new users, another whole batch: all of them keep who is together."""
    accepts_after(successor())
    accepts_after(successor(*members(*NEW)))
    other = tuple(member(user, 2, bytes(32)) for user in NEW)
    accepts_after(successor(*other))
    accepts_after(successor(*other, *members("gus", "hal", "ivo")))


@pytest.mark.parametrize("user", OLD[1:])
def test_a_charter_that_loses_a_member_is_refused(user):
    """After sealing, no member of the old batch may be missing, not even if others take its place."""
    refuses_after(f"splits the batch .* it lacks '{user}'", successor(*members(*NEW), leaving={user}))


def test_a_charter_that_splits_a_batch_is_refused():
    """A batch of 2T is not cut into two of T, though each keeps every other rule."""
    large = charter(*members(*OLD, *NEW))
    half = charter(*(member(user, 2, large.digest) for user in OLD), first=1)
    refuses("splits the batch .* it lacks 'dia'", half, number=2, past=DeviceHistory(large, 0, 1))


def test_a_member_with_a_new_identity_is_refused():
    """An old member stays itself: a stranger under its id would split it from the batch."""
    changed = replace(member("cem", 2, FIRST.digest), identity=identity("eve").public)
    with pytest.raises(PeerError, match="has 'cem' with another identity key than the one before it"):
        ask(successor(changed, leaving={"cem"}), None, number=2, past=PAST)


@pytest.mark.parametrize("past", [b"", bytes(32)], ids=["none", "another"])
def test_an_old_member_names_its_predecessor(past):
    """Each member of the old batch names the charter that it comes from, and no other."""
    refuses_after("'cem' with another predecessor than", successor(member("cem", 2, past), leaving={"cem"}))
    rest = tuple(member(user, 2, FIRST.digest) for user in ("bob", "cem"))
    refuses_after(
        "'ana', this device's user, with the predecessor", charter(member("ana", 2, past), *rest, first=1)
    )


def test_a_predecessor_that_i_do_not_have_is_refused():
    """A device that never sealed is new: else a single new user, called an old one, could be told apart."""
    refuses(
        "with the predecessor 00.*; this device sealed under none",
        charter(*(member(u, 1, bytes(32)) for u in OLD)),
    )


def test_a_stranger_does_not_come_from_my_batch():
    """Nobody else may name the old charter, and so join without T others."""
    joining = member("dia", 2, FIRST.digest)
    refuses_after("'dia' with a predecessor that it was not a member of", successor(joining))


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_t_new_users_are_refused(count):
    """Users without a predecessor are none or at least T, for those who were there and for those who come."""
    joined = successor(*members(*NEW[:count]))
    refuses_after(f"{count} members of the charter have no predecessor, fewer than its T = 3", joined)
    own = {"user": "dia", "identity": identity("dia").public, "seal": seal("dia", 1).public}
    refuses(f"{count} members of the charter have no predecessor, fewer than its T = 3", joined, **own)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_t_users_of_another_batch_are_refused(count):
    """Another batch that merges is at least T too."""
    joined = successor(*(member(user, 2, bytes(32)) for user in NEW[:count]))
    refuses_after(f"{count} members of the charter come from the charter 00.*, fewer than its T = 3", joined)


def test_t_does_not_rise_above_the_old_batch():
    """A merger does not make the rounds before it more private: T stays at most the smallest group's size."""
    merged = successor(*(member(user, 2, bytes(32)) for user in NEW), privacy=6)
    refuses_after("3 members of the charter come from the charter .*, fewer than its T = 6", merged)


@pytest.mark.parametrize("user", ["ana", "cem"])
def test_a_seal_key_is_fresh_for_every_charter(user):
    """No seal key of the old charter comes again, not even this device's own."""
    reused = successor(member(user, 1, FIRST.digest), leaving={user})
    rule = f"the seal key of '{user}' was used in the charter before; it must be fresh"
    refuses(rule, reused, number=1 if user == "ana" else 2, past=PAST)


def test_the_same_charter_again_is_refused():
    """A charter is not its own successor."""
    refuses("this device sealed under", FIRST, past=PAST)


def test_a_charter_never_sealed_under_may_be_replaced():
    """Without a sealed round any charter that keeps the other rules may come."""
    accepts(charter(*(member(user, 2) for user in ("ana", *NEW))), number=2)


def test_scopes_do_not_bind_one_another():
    """What was sealed in one scope says nothing about another; mixing them up is the caller's mistake."""
    accepts(charter(scope="photos"))
    with pytest.raises(UsageError, match="the device sealed in the scope 'photos', the charter is for 'keyboard'"):
        ask(FIRST, None, past=DeviceHistory(charter(scope="photos"), 0, 1))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"quantiser": quantiser(clip=2.0)}, "changes the quantiser .*: clip 2.0 in place of 1.0"),
        ({"quantiser": quantiser(weight_cap=2)}, "changes the quantiser .*: weight cap 2 in place of 1"),
        ({"quantiser": quantiser(cohort=59)}, "changes the quantiser .*: cohort 59 in place of 60"),
        ({"quantiser": quantiser(ring=RING_16)}, r"changes the quantiser .*: ring Ring\(modulus=65536\)"),
        ({"recipe": b'{"epochs":2}'}, "changes the recipe"),
    ],
)
def test_a_successor_with_another_quantiser_or_recipe_is_refused(changes, rule):
    """Quantiser and recipe are for a batch's whole life; whoever changes one between rounds reads updates."""
    refuses_after(rule, successor(**changes))
    refuses_after(rule, successor(*members(*NEW), **changes))


def test_a_successor_may_have_other_parameters_or_another_protocol():
    """What no update depends on may change: the inner protocol, its parameters, a T that all groups keep."""
    accepts_after(successor(inner="secagg", parameters=Parameters(250, 300)))
    accepts_after(successor(*members(*NEW), first=9))


# --- terms ----------------------------------------------------------------------------------------------


def test_terms_out_of_bounds_are_refused():
    """The dimension is within the owner's bound, and the least number of included within batch and roster."""
    device = configuration(largest_dimension=50, largest_roster=60)
    check_terms(terms(dimension=50, min_included=5), 5, device)
    for changes, rule in (
        ({"dimension": 51}, "set the dimension to 51; this device takes 1 to 50"),
        ({"min_included": 4}, "least number of included users to 4; this device takes 5 to 60"),
        ({"min_included": 61}, "least number of included users to 61"),
    ):
        with pytest.raises(PeerError, match=rule):
            check_terms(terms(**{"min_included": 5, **changes}), 5, device)


def test_a_configuration_comes_with_a_round_only_if_the_owner_permits_it():
    """Otherwise the charter's recipe is the only one; and it never sets what a recipe may not."""
    sent = terms(configuration=write_recipe({"learning_rate": 0.1}))
    with pytest.raises(PeerError, match="sent a training configuration with the round"):
        check_terms(sent, 1, configuration())
    permits = configuration(configuration_in_terms=True)
    check_terms(sent, 1, permits)
    for wrong, rule in (
        (write_recipe({"examples": [1]}), "sets 'examples'"),
        (b'{"epochs": 2}', "cannot be used"),
    ):
        with pytest.raises(PeerError, match=rule):
            check_terms(terms(configuration=wrong), 1, permits)


# --- the device's configuration (§0) -------------------------------------------------------------------------


def test_a_configuration_has_bounds_for_all_but_the_scopes():
    """Sets are frozen, and the defaults are the ones in the documentation."""
    with pytest.raises(TypeError):
        DeviceConfiguration()
    configuration = DeviceConfiguration(scopes={"keyboard"})
    assert configuration.scopes == frozenset({"keyboard"})
    assert configuration.protocols == frozenset({"secagg+"})
    assert configuration.least_privacy == 8
    assert DeviceConfiguration(scopes={"keyboard"}, least_privacy=2, clip_range=(1.0, 1.0)).least_privacy == 2
    with pytest.raises(FrozenInstanceError):
        configuration.least_privacy = 2


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"scopes": frozenset()}, "no scopes"),
        ({"scopes": "keyboard"}, "set of names"),
        ({"scopes": {""}}, "give 1 to 64"),
        ({"scopes": {"s" * 65}}, "give 1 to 64"),
        ({"protocols": "open"}, "set of names"),
        ({"protocols": frozenset()}, "give some of open, secagg"),
        ({"protocols": {"open", "unsealed"}}, "give some of open, secagg"),
        ({"least_privacy": 0}, "least_privacy is 0"),
        ({"least_privacy": 1}, "least_privacy is 1; a batch hides nobody"),
        ({"least_privacy": True}, "least_privacy is True"),
        ({"least_privacy": 2.5}, "least_privacy is 2.5"),
        ({"largest_dimension": 0}, "largest_dimension is 0"),
        ({"largest_weight_cap": -1}, "largest_weight_cap is -1"),
        ({"recipe_keys": "epochs"}, "set of names"),
        ({"largest_skip": 65_537}, "largest_skip is 65537; give at most 65536"),
        ({"largest_first": 0}, "largest_first is 0"),
        ({"least_colluders": -1}, "least_colluders is -1"),
        ({"clip_range": (0.0, 1.0)}, "clip_range is"),
        ({"clip_range": (2.0, 1.0)}, "clip_range is"),
        ({"clip_range": (1.0, float("inf"))}, "clip_range is"),
        ({"clip_range": (float("nan"), 1.0)}, "clip_range is"),
        ({"clip_range": (1.0, float("nan"))}, "clip_range is"),
    ],
)
def test_a_configuration_without_sense_is_refused(changed, rule):
    """A device is not configured by mistake."""
    with pytest.raises(UsageError, match=rule):
        DeviceConfiguration(**{"scopes": {"keyboard"}} | changed)
