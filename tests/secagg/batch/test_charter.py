from dataclasses import FrozenInstanceError, replace
from functools import cache
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import (
    LARGEST_BATCH,
    MODULUS,
    Charter,
    DeviceConfiguration,
    Member,
    TrustServerForIdentities,
    check_charter,
    sign_charter,
)
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import IdentityKey, SealKey

P = 2**255 - 19
OLD, NEW = ("ana", "bob", "cem"), ("dia", "eva", "fin")
DEVICE = DeviceConfiguration(scopes={"keyboard", "photos"}, least_privacy=3, inner=frozenset(MODULUS))


@cache
def identity(user):
    return IdentityKey.from_bytes(sha256(f"identity key of {user}".encode()).digest())


@cache
def seal(user, number):
    return SealKey.from_bytes(sha256(f"seal key {number} of {user}".encode()).digest())


def member(user, number=1, predecessor=b""):
    """A member of the first charter, or of a later one: its seal key is fresh for each."""
    return Member(user, identity(user).public, seal(user, number).public, predecessor)


def members(*users):
    return tuple(member(user) for user in users)


def charter(*given_, **changed):
    """A charter that keeps all rules, but for what is given."""
    rules = {"scope": "keyboard", "privacy": 3, "modulus": 2**32, "inner": "open"} | changed
    return Charter(**rules, members=given_ or members(*OLD))


def signatures(signed):
    return {m.user: sign_charter(signed, identity(m.user)) for m in signed.members}


def ask(asked, signed, number=1, **changed):
    """Let ana's device check a charter."""
    own = {"user": "ana", "identity": identity("ana").public, "seal": seal("ana", number).public}
    rest = {"configuration": DEVICE, "verify_member": TrustServerForIdentities(), "sealed_under": None}
    check_charter(asked, signed, **own | rest | changed)


def accepts(asked, **changed):
    """The device signs a charter, and accepts it once all have signed."""
    ask(asked, None, **changed)
    ask(asked, signatures(asked), **changed)


def refuses(rule, asked, **changed):
    """The device refuses a charter for this reason, to sign and to accept, though all have signed it."""
    for signed in (None, signatures(asked)):
        with pytest.raises(PeerError, match=rule):
            ask(asked, signed, **changed)


# --- the value and its bytes -------------------------------------------------------------------------

NAMES = st.text(min_size=1, max_size=64).filter(lambda name: len(name.encode()) <= 64)
KEYS = st.binary(min_size=32, max_size=32)
MEMBERS = st.builds(Member, NAMES, KEYS, KEYS, st.just(b"") | KEYS)
COUNTS = st.integers(1, 2**64 - 1)
CHARTERS = st.builds(
    Charter,
    NAMES,
    COUNTS,
    COUNTS,
    NAMES,
    st.lists(MEMBERS, min_size=1, max_size=5, unique_by=lambda m: m.user).map(tuple),
)


@given(CHARTERS)
def test_a_charter_comes_back_from_its_bytes(written):
    """decode(encode(c)) = c."""
    assert Charter.decode(written.encode()) == written
    assert Charter.decode(written.encode()).digest == written.digest


@given(CHARTERS, CHARTERS)
def test_two_charters_have_two_digests(one, other):
    """Charters are the same exactly if their bytes and their digests are."""
    assert (one == other) == (one.encode() == other.encode()) == (one.digest == other.digest)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    """Random bytes are no charter, and nothing but a PeerError says so."""
    with pytest.raises(PeerError):
        Charter.decode(data)


@given(CHARTERS, st.data())
def test_changed_bytes_are_refused_or_are_another_charter(written, data):
    """Bytes changed, lost or added anywhere are refused, or are the only encoding of another charter."""
    encoded = written.encode()
    start = data.draw(st.integers(0, len(encoded)))
    stop = data.draw(st.integers(start, min(len(encoded), start + 40)))
    changed = encoded[:start] + data.draw(st.binary(max_size=40)) + encoded[stop:]
    try:
        read = Charter.decode(changed)
    except PeerError:
        return
    assert read.encode() == changed
    assert (read == written) == (changed == encoded)


@given(CHARTERS, st.data())
def test_a_charter_that_is_cut_off_is_refused(written, data):
    """No beginning of a charter is a charter."""
    encoded = written.encode()
    with pytest.raises(PeerError, match="cut off"):
        Charter.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_the_encoding_is_the_one_written_down():
    """The encoding is enc(protocol, version, scope, T, q, inner, first, number, then enc(…) of each member)."""
    fields = [enc(m.user, m.identity, m.seal, m.predecessor) for m in members(*OLD)]
    assert charter().encode() == enc("coterie/sealed", 1, "keyboard", 3, 2**32, "open", 0, 3, *fields)
    late = enc("coterie/sealed", 1, "keyboard", 3, 2**32, "open", 70_000, 3, *fields)
    assert charter(first=70_000).encode() == late


def test_the_order_of_members_means_nothing():
    """However members are given, the charter and its digest are the same."""
    one, other = charter(*members("ana", "bob", "cem")), charter(*members("cem", "ana", "bob"))
    assert one == other
    assert one.digest == other.digest


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True))
def test_members_are_sorted_by_the_bytes_of_their_ids(users):
    """The order is that of UTF-8, in which Python's own order of text agrees."""
    sorted_ = charter(*(Member(user, bytes(32), bytes(32)) for user in users)).members
    encoded = [m.user.encode() for m in sorted_]
    assert encoded == sorted(user.encode() for user in users) == [user.encode() for user in sorted(users)]


def raw(*lines, number=None, protocol="coterie/sealed", version=1):
    """An encoding as a careless or hostile server writes it."""
    fields = [enc(m.user, m.identity, m.seal, m.predecessor) for m in lines]
    count = len(lines) if number is None else number
    return enc(protocol, version, "keyboard", 2, 2**32, "open", 0, count, *fields)


def refuses_bytes(rule, data):
    with pytest.raises(PeerError, match=rule):
        Charter.decode(data)


def test_members_that_are_not_sorted_are_refused():
    """A charter has one order of members on the wire."""
    assert Charter.decode(raw(member("ana"), member("bob"))).members == members("ana", "bob")
    refuses_bytes("not sorted by the bytes of their ids", raw(member("bob"), member("ana")))


def test_the_order_of_utf_16_is_refused():
    """A server that sorts as Java and JavaScript do puts U+1F600 before U+FF5E; its charter is refused."""
    tilde, smile = member("\uff5e"), member("\U0001f600")
    assert smile.user.encode("utf-16-be") < tilde.user.encode("utf-16-be")
    assert Charter.decode(raw(tilde, smile)).members == (tilde, smile)
    refuses_bytes("not sorted", raw(smile, tilde))


def test_a_member_that_comes_twice_is_refused():
    """A user is in a charter once, with the same keys or with others; also this device's own user."""
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana"), member("ana"), member("bob")))
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana", 1), member("ana", 2), member("bob")))
    refuses_bytes("the charter has the member 'ana' twice", raw(member("ana"), member("bob"), member("ana")))
    with pytest.raises(UsageError, match="the charter has the member 'ana' twice"):
        charter(member("ana", 1), member("bob"), member("ana", 2))


def test_ids_are_not_normalised():
    """Ids that look the same are two users with two keys: `verify_member` has to know them apart."""
    composed, decomposed = member("zo\u00eb"), member("zoe\u0308")
    read = Charter.decode(raw(decomposed, composed))
    assert [m.user for m in read.members] == ["zoe\u0308", "zo\u00eb"]
    own = {"user": "zo\u00eb", "identity": composed.identity, "seal": composed.seal}
    accepts(charter(composed, decomposed, member("bob")), **own)
    refuses("does not have 'zoë', this device's user", charter(decomposed, *members("bob", "cem")), **own)


def test_other_protocols_and_versions_are_refused():
    """A charter says what it is a charter of."""
    refuses_bytes(
        "for the protocol 'coterie/open', not 'coterie/sealed'", raw(member("ana"), protocol="coterie/open")
    )
    for version in (0, 2, 2**64 - 1):
        refuses_bytes(f"has the version {version}; this is version 1", raw(member("ana"), version=version))


def test_bytes_after_the_members_are_refused():
    """Nothing hides behind the last member, nor inside one."""
    refuses_bytes("bytes follow field 9, which must be the last", raw(member("ana")) + b"\0")
    refuses_bytes("bytes follow field 9, which must be the last", raw(*members("ana", "bob"), number=1))
    padded = enc("ana", bytes(32), bytes(32), b"", b"")
    header = enc("coterie/sealed", 1, "keyboard", 2, 2**32, "open", 0, 1)
    refuses_bytes("member 0 of the charter: 8 bytes follow field 4", header + enc(padded))


def test_the_number_of_members_is_bounded():
    """A number of members is refused before any of them is read, and so is a charter of nobody."""
    for number in (LARGEST_BATCH + 1, 2**64 - 1):
        refuses_bytes(f"has {number} members; at most 10000 are allowed", raw(number=number))
    refuses_bytes("the charter is cut off", raw(number=LARGEST_BATCH))
    refuses_bytes("has 0 members; it can have 1 to 10000", raw())
    many = [Member(f"{number:05}", bytes(32), bytes(32)) for number in range(LARGEST_BATCH + 1)]
    assert len(Charter.decode(charter(*many[:-1]).encode()).members) == LARGEST_BATCH
    with pytest.raises(UsageError, match="has 10001 members"):
        charter(*many)


def test_fields_are_bounded():
    """Ids, scopes and names have 1 to 64 bytes, keys 32, a predecessor 32 or none."""
    charter(Member("é" * 32, bytes(32), bytes(32), bytes(32)), scope="s" * 64)
    for user in ("", "a" * 65, "é" * 33, "\ud800"):
        with pytest.raises(UsageError):
            Member(user, bytes(32), bytes(32))
    for size in (0, 31, 33):
        with pytest.raises(UsageError, match=f"identity key of 'ana' has {size} bytes"):
            Member("ana", bytes(size), bytes(32))
        with pytest.raises(UsageError, match=f"seal key of 'ana' has {size} bytes"):
            Member("ana", bytes(32), bytes(size))
    for size in (1, 31, 33):
        with pytest.raises(UsageError, match=f"predecessor of 'ana' has {size} bytes"):
            Member("ana", bytes(32), bytes(32), bytes(size))
    for bad in ({"scope": ""}, {"scope": "é" * 33}, {"inner": ""}, {"inner": "i" * 65}):
        with pytest.raises(UsageError, match="give 1 to 64"):
            charter(**bad)
    for bad in ({"privacy": 0}, {"privacy": True}, {"privacy": 2.0}, {"modulus": 0}, {"modulus": 2**64}):
        with pytest.raises(UsageError, match="give an integer from 1 to"):
            charter(**bad)


def test_a_charter_is_frozen():
    """What was signed does not change."""
    with pytest.raises(FrozenInstanceError):
        charter().privacy = 1
    with pytest.raises(FrozenInstanceError):
        member("ana").seal = bytes(32)


# --- what a device accepts (§2, §7) ---------------------------------------------------------------------


def test_a_charter_that_keeps_the_rules_is_accepted():
    """A device signs and accepts a charter at its own least T, and above."""
    accepts(charter())
    accepts(charter(*members(*OLD, *NEW)))
    accepts(charter(*members(*OLD, *NEW), privacy=6))


def test_another_scope_is_refused():
    """The data that may be read is the device's own decision."""
    accepts(charter(scope="photos"))
    refuses("for the scope 'contacts'; this device serves", charter(scope="contacts"))


def test_a_privacy_level_below_the_least_is_refused():
    """T is at least the device's own minimum, however many members there are."""
    refuses("has T = 2; this device accepts 3 or more", charter(*members(*OLD, *NEW), privacy=2))


def test_fewer_members_than_t_are_refused():
    """A charter has at least T members."""
    refuses("has 3 members, fewer than its T = 4", charter(privacy=4))


def test_an_inner_protocol_that_is_not_permitted_is_refused():
    """The inner protocol is one that the device permits; an unsealed or unknown one never is."""
    only = DeviceConfiguration(scopes={"keyboard"}, least_privacy=3, inner={"secagg+"})
    accepts(charter(inner="secagg+"), configuration=only)
    refuses("has the inner protocol 'open'; this device permits", charter(), configuration=only)
    refuses("has the inner protocol 'unsealed'", charter(inner="unsealed"))


@pytest.mark.parametrize("inner", MODULUS)
def test_another_modulus_is_refused(inner):
    """q belongs to the inner protocol: 2^32, and the prime 2^31 - 1 for lightsecagg."""
    right = 2**31 - 1 if inner == "lightsecagg" else 2**32
    accepts(charter(inner=inner, modulus=right))
    for wrong in {1, 2, 2**31, 2**31 - 1, 2**32, 2**64 - 1} - {right}:
        refuses(f"has q = {wrong}; .* needs {right}", charter(inner=inner, modulus=wrong))


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


def successor(*joining, leaving=(), **changed):
    """A charter of the old members, who name the first one, and of others."""
    staying = tuple(member(user, 2, FIRST.digest) for user in OLD if user not in leaving)
    return charter(*staying, *joining, **changed)


def accepts_after(asked):
    accepts(asked, number=2, sealed_under=FIRST)


def refuses_after(rule, asked):
    refuses(rule, asked, number=2, sealed_under=FIRST)


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
    half = charter(*(member(user, 2, large.digest) for user in OLD))
    refuses("splits the batch .* it lacks 'dia'", half, number=2, sealed_under=large)


def test_a_member_with_a_new_identity_is_refused():
    """An old member stays itself: a stranger under its id would split it from the batch."""
    changed = replace(member("cem", 2, FIRST.digest), identity=identity("eve").public)
    with pytest.raises(PeerError, match="has 'cem' with another identity key than the one before it"):
        ask(successor(changed, leaving={"cem"}), None, number=2, sealed_under=FIRST)


@pytest.mark.parametrize("past", [b"", bytes(32)], ids=["none", "another"])
def test_an_old_member_names_its_predecessor(past):
    """Each member of the old batch names the charter that it comes from, and no other."""
    refuses_after("'cem' with another predecessor than", successor(member("cem", 2, past), leaving={"cem"}))
    rest = tuple(member(user, 2, FIRST.digest) for user in ("bob", "cem"))
    refuses_after("'ana', this device's user, with the predecessor", charter(member("ana", 2, past), *rest))


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
    refuses(rule, reused, number=1 if user == "ana" else 2, sealed_under=FIRST)


def test_the_same_charter_again_is_refused():
    """A charter is not its own successor."""
    refuses("this device sealed under", FIRST, sealed_under=FIRST)


def test_a_charter_never_sealed_under_may_be_replaced():
    """Without a sealed round any charter that keeps the other rules may come."""
    accepts(charter(*(member(user, 2) for user in ("ana", *NEW))), number=2)


def test_scopes_do_not_bind_one_another():
    """What was sealed in one scope says nothing about another; mixing them up is the caller's mistake."""
    accepts(charter(scope="photos"))
    with pytest.raises(UsageError, match="sealed_under has the scope 'photos', the charter 'keyboard'"):
        ask(FIRST, None, sealed_under=charter(scope="photos"))


# --- the device's configuration (§0) -------------------------------------------------------------------------


def test_a_configuration_has_bounds_for_all_but_the_scopes():
    """Sets are frozen, and the defaults are the ones in the documentation."""
    with pytest.raises(TypeError):
        DeviceConfiguration()
    configuration = DeviceConfiguration(scopes={"keyboard"})
    assert configuration.scopes == frozenset({"keyboard"})
    assert configuration.inner == frozenset({"secagg+"})
    assert configuration.least_privacy == 8
    assert DeviceConfiguration(scopes={"keyboard"}, least_privacy=2, clip_range=(1.0, 1.0)).least_privacy == 2
    with pytest.raises(FrozenInstanceError):
        configuration.least_privacy = 2


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"scopes": frozenset()}, "no scopes"),
        ({"scopes": "keyboard"}, "sets of names"),
        ({"scopes": {""}}, "give 1 to 64"),
        ({"scopes": {"s" * 65}}, "give 1 to 64"),
        ({"inner": "open"}, "sets of names"),
        ({"inner": frozenset()}, "give some of open, secagg"),
        ({"inner": {"open", "unsealed"}}, "give some of open, secagg"),
        ({"least_privacy": 0}, "least_privacy is 0"),
        ({"least_privacy": 1}, "least_privacy is 1; a batch hides nobody"),
        ({"least_privacy": True}, "least_privacy is True"),
        ({"least_privacy": 2.5}, "least_privacy is 2.5"),
        ({"largest_dimension": 0}, "largest_dimension is 0"),
        ({"largest_weight_cap": -1}, "largest_weight_cap is -1"),
        ({"largest_cohort": 2**64}, "largest_cohort is"),
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
