"""Sealed open rounds: the sum over complete batches, or nothing; whatever is lost on the way."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.secagg import (
    PROTOCOLS,
    RING_16,
    RING_32,
    SealedClient,
    found_batch,
    run_round,
    sealed_round,
    simulated_client,
    unsealed_round,
)
from support.secagg.batches import DIMENSION, SCOPE, Batches, Loners, configuration, quantiser, rules, terms


def expected(batches, lost, weights=None):
    """Return the weighted sum over the batches that lost nobody, and its weight."""
    total, weight = np.zeros(DIMENSION), 0
    for charter in batches.charters:
        users = [member.user for member in charter.members]
        if not lost & set(users):
            for user in users:
                share = 1 if weights is None else weights[user]
                total += share * batches.updates[user].astype(np.float64)
                weight += share
    return total, weight


def check(batches, result, lost, weights=None):
    """The result is the sum over the complete batches within the rounding of each vector, and nothing else."""
    values, weight = expected(batches, lost, weights)
    complete = {batch.users for batch in result.learned}
    assert result.sum.weight == weight
    step = batches.rules.quantiser.step
    assert np.abs(result.sum.values - values).max() <= 1.001 * step * sum(map(len, complete))
    assert complete == {
        tuple(member.user for member in charter.members)
        for charter in batches.charters
        if not lost & {member.user for member in charter.members}
    }
    assert len(result.lost) == len(batches.charters) - len(complete)


class Rounds(RuleBasedStateMachine):
    """Rounds go on with users lost at any moment; every result is right, and no round is lost silently."""

    @initialize(
        users=st.integers(12, 60),
        size=st.integers(2, 6),
        weight_cap=st.sampled_from([1, 7, 1000]),
        ring=st.sampled_from([RING_16, RING_32]),
    )
    def enrol(self, users, size, weight_cap, ring):
        batches = users // size
        common = {"quantiser": quantiser(ring=ring, weight_cap=weight_cap)}
        self.batches = Batches(batches, size, common=common)
        self.weights = {}
        self.round = 0
        self.rng = np.random.default_rng(batches * 100 + size)

    @rule(
        away=st.floats(0, 0.4),
        fading=st.floats(0, 0.3),
        skip=st.integers(0, 3),
        least=st.integers(1, 3),
    )
    def a_round(self, away, fading, skip, least):
        names, cap = list(self.batches.clients), self.batches.rules.quantiser.weight_cap
        never_called = {name for name in names if self.rng.random() < away}
        cut_off = {name for name in names if self.rng.random() < fading}
        lost = never_called | cut_off
        self.round += 1 + skip
        weights = {name: int(self.rng.integers(1, 2 * cap + 1)) for name in names}
        for name in names:  # the first seal fixes a weight, at most the largest
            if name not in never_called:
                self.weights.setdefault(name, min(weights[name], cap))
        conditions = terms(
            model=bytes(self.round),
            min_included=min(least * len(self.batches.charters[0].members), len(names)),
        )
        complete = len(self.batches.charters) - len({name.split("-")[1] for name in lost})
        call = lambda: run_round(  # noqa: E731 - one call, two ways to end
            sealed_round(self.batches.charters, self.round, conditions),
            self.batches.clients,
            self.batches.train,
            weights=weights,
            loses=lambda user, phase, way: user in (never_called if way == "to" else cut_off),
        )
        if complete < min(least, len(self.batches.charters)):
            with pytest.raises(TooFewUsersError, match=f"{complete} of"):
                call()
        else:
            check(self.batches, call(), lost, self.weights)

    @invariant()
    def devices_only_move_on(self):
        """No device stands beyond the last round, and none has forgotten that it sealed."""
        if not hasattr(self, "batches"):
            return
        for client in self.batches.clients.values():
            with client.membership.record(SCOPE) as record:
                assert record.position <= self.round + 1


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=15, stateful_step_count=6, deadline=None)


def test_a_model_of_named_arrays_comes_back_in_its_shapes():
    """Updates may be dictionaries of arrays of any float type; the server gets their flat sum."""
    batches = Batches(1, 3)
    update = {"weight": np.full((4, 5), 0.5, dtype=np.float16), "bias": np.full(20, -0.25, dtype=np.float64)}
    result = run_round(sealed_round(batches.charters, 0, terms()), batches.clients, lambda user, task: update)
    assert result.sum.values == pytest.approx([1.5] * 20 + [-0.75] * 20, abs=1e-5)
    assert result.sum.mean == pytest.approx([0.5] * 20 + [-0.25] * 20, abs=1e-5)


def test_spare_batches_fill_in_for_incomplete_ones():
    """Asking for more batches than needed, the round succeeds although one is incomplete (§8)."""
    batches = Batches(4, 3)
    result = run_round(
        sealed_round(batches.charters, 0, terms(min_included=9)),
        batches.clients,
        batches.train,
        loses=lambda user, phase, way: user == "user-2-1" and way == "from",
    )
    check(batches, result, {"user-2-1"})


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_ids_in_any_script_and_order_cancel(seed):
    """The sign of a mask follows the bytes of the ids, so any ids cancel."""
    alphabet = ["ä", "é", "z", "Z", "0", "𝔘", "ﬀ", "-", "字"]
    rng = np.random.default_rng(seed)
    names = {"".join(rng.choice(alphabet, 3)) for _ in range(5)} | {"a", "b"}
    clients = {name: simulated_client(name, configuration()) for name in names}
    charter = found_batch(rules(), clients.values())
    updates = {name: rng.uniform(-1, 1, DIMENSION) for name in names}
    result = run_round(sealed_round([charter], 0, terms()), clients, lambda user, task: updates[user])
    assert result.sum.values == pytest.approx(sum(updates.values()), abs=1e-4)


def test_a_round_that_could_not_be_is_refused_at_the_server():
    """A batch beyond its cohort bound, batches of different rules, or one user in two are the caller's error."""
    batches = Batches(2, 3)
    small = [dataclasses.replace(c, quantiser=quantiser(cohort=2)) for c in batches.charters]
    with pytest.raises(UsageError, match="a batch has 3 users, more than the 2"):
        sealed_round(small, 0, terms())
    for changes in ({"quantiser": quantiser(clip=2.0)}, {"scope": "photos"}, {"inner": "secagg"}):
        other = dataclasses.replace(batches.charters[1], **changes)
        with pytest.raises(UsageError, match="these have 2 different ones"):
            sealed_round([batches.charters[0], other], 0, terms())
    with pytest.raises(UsageError, match="two of the batches"):
        sealed_round([batches.charters[0]] * 2, 0, terms())


@pytest.mark.parametrize("weight", [0, -1, 2.5, None, "3", float("inf")])
def test_what_is_no_weight_is_refused(weight):
    """A weight is a whole number from 1 up."""
    batches = Batches(1, 3)
    client = batches.clients["user-0-0"]
    task = client.receive(sealed_round(batches.charters, 0, terms()).start()[client.user])
    with pytest.raises(UsageError, match="weight"):
        client.seal(task, batches.updates[client.user], weight=weight)


def test_a_weight_above_the_cap_counts_as_the_cap():
    """Refusing it would tell the server that the weight is high."""
    batches = Batches(1, 3, common={"quantiser": quantiser(weight_cap=5)})
    weights = {"user-0-0": 900, "user-0-1": 2, "user-0-2": 1}
    result = run_round(sealed_round(batches.charters, 0, terms()), batches.clients, batches.train, weights=weights)
    assert result.sum.weight == 5 + 2 + 1


def test_a_stricter_configuration_acts_on_the_charter_in_force():
    """An owner who raises the least T stops the device from sealing in its smaller batch."""
    batches = Batches(1, 3)
    client = batches.clients["user-0-0"]
    stricter = SealedClient(dataclasses.replace(client.membership, configuration=configuration(least_privacy=4)))
    call = sealed_round(batches.charters, 0, terms()).start()[client.user]
    with pytest.raises(PeerError, match="accepts 4 or more"):
        stricter.receive(call)


def test_a_device_seals_with_its_own_record_only():
    """Another user's record, or one that lost a member's chain key, is not sealed with."""
    batches = Batches(1, 3)
    ana, bob = batches.clients["user-0-0"], batches.clients["user-0-1"]
    calls = sealed_round(batches.charters, 0, terms()).start()
    stranger = SealedClient(dataclasses.replace(bob.membership, store=ana.membership.store))
    with pytest.raises(UsageError, match="is not one of"):
        stranger.receive(calls[bob.user])
    with ana.membership.record(SCOPE) as record:
        record.chain_keys = {"user-0-1": record.chain_keys["user-0-1"]}
    with pytest.raises(UsageError, match="is not one of"):
        ana.receive(calls[ana.user])


def test_open_never_runs_unsealed():
    """Without the seal `open` hides nothing: the server's side and the client refuse it."""
    loners = Loners(3)
    with pytest.raises(UsageError, match="open has no privacy but its seal"):
        unsealed_round(dataclasses.replace(loners.rules, inner="open"), loners.identities, 0, terms())


def test_the_cohort_bound_leaves_room_for_a_merger():
    """Only a batch's own vectors are added; two of the largest batches may become one."""
    assert PROTOCOLS["open"].cohort_bound(per_round=100, largest_batch=7) == 14
    assert PROTOCOLS["open"].least_included([7, 5], privacy=5) == 1


def test_the_least_number_of_included_users_counts_all_batches():
    """A round of many batches may ask for more users than the cohort bound, which holds for each batch's sum."""
    batches = Batches(4, 4, common={"quantiser": quantiser(cohort=8)})
    server = sealed_round(batches.charters, 0, terms(min_included=16))
    assert run_round(server, batches.clients, batches.train).sum.weight == 16


# --- what lies open (§8) --------------------------------------------------------------------------------


def sealed_by(batches, server):
    """Every user's vector of the round."""
    sealed = {}
    for user, call in server.start().items():
        client = batches.clients[user]
        sealed[user] = bytes(client.seal(client.receive(call), batches.updates[user]))
    return sealed


def test_a_batch_lies_open_once_its_last_vector_has_come_also_if_late():
    """The exposure counts every batch of which all vectors came, in time or not, used or not; never a part."""
    batches = Batches(2, 3)
    server = sealed_round(batches.charters, 0, terms())
    sealed = sealed_by(batches, server)
    first, second = ([m.user for m in charter.members] for charter in batches.charters)
    for user in first:
        assert server.exposure().learned == ()
        server.receive(user, sealed[user])
    assert server.exposure().learned == (tuple(first),)
    for user in second[:2]:
        server.receive(user, sealed[user])
    server.advance()
    result = server.finish()
    assert [part.users for part in result.learned] == [tuple(first)]
    assert server.exposure().learned == (tuple(first),)
    with pytest.raises(PeerError, match="out of order"):
        server.receive(second[2], sealed[second[2]])
    assert server.exposure().learned == (tuple(first), tuple(second))
    assert server.exposure().unknown == ()


def test_what_is_no_vector_of_the_round_exposes_nothing():
    """A vector of another round, charter or user is refused and not counted."""
    batches = Batches(1, 2)
    server = sealed_round(batches.charters, 1, terms())
    others = sealed_by(batches, sealed_round(batches.charters, 0, terms()))
    sealed = sealed_by(batches, server)
    one, two = batches.clients
    server.receive(one, sealed[one])
    for data, reason in (
        (others[two], "sealed for another round"),
        (sealed[one], "sealed for another user"),
    ):
        with pytest.raises(PeerError, match=reason):
            server.receive(two, data)
        assert server.exposure().learned == ()


def test_a_sum_with_wrong_check_words_lies_open_too():
    """Whether or not the server's code takes a sum, the bytes for it came: the batch is exposed."""
    batches = Batches(1, 2)
    server = sealed_round(batches.charters, 0, terms())
    sealed = sealed_by(batches, server)
    one, two = sealed
    spoilt = bytearray(sealed[two])
    spoilt[-1] ^= 1
    server.receive(one, sealed[one])
    server.receive(two, bytes(spoilt))
    server.advance()
    with pytest.raises(TooFewUsersError):
        server.finish()
    assert server.exposure().learned == ((one, two),)
