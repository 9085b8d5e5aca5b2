"""Sealed open rounds: the sum over complete batches, or nothing; whatever is lost on the way."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coterie.errors import PeerError, TooFewUsers, UsageError
from coterie.secagg import OpenRound, SealedClient, found_batch, run_round, simulated_client
from coterie.secagg.crypto.ring import RING_32
from support.secagg.batches import DIMENSION, SCOPE, Batches, configuration, terms


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


def check(batches, result, lost, terms_, weights=None):
    """The result is the sum over the complete batches within the rounding of each vector, and nothing else."""
    values, weight = expected(batches, lost, weights)
    quantisation = terms_.quantisation(RING_32)
    assert result.sum.weight == weight
    assert np.abs(result.sum.values - values).max() <= quantisation.step * weight
    complete = {batch.users for batch in result.learned}
    assert complete == {
        tuple(member.user for member in charter.members)
        for charter in batches.charters
        if not lost & {member.user for member in charter.members}
    }
    assert len(result.lost) == len(batches.charters) - len(complete)


class Rounds(RuleBasedStateMachine):
    """Rounds go on with users lost at any moment; every result is right, and no round is lost silently."""

    @initialize(users=st.integers(12, 60), size=st.integers(2, 6), weight_cap=st.sampled_from([1, 7, 1000]))
    def enrol(self, users, size, weight_cap):
        batches = users // size
        self.batches = Batches(batches, size)
        self.weight_cap = weight_cap
        self.round = 0
        self.rng = np.random.default_rng(batches * 100 + size)

    @rule(
        away=st.floats(0, 0.4),
        fading=st.floats(0, 0.3),
        skip=st.integers(0, 3),
        least=st.integers(1, 3),
    )
    def a_round(self, away, fading, skip, least):
        names = list(self.batches.clients)
        never_called = {name for name in names if self.rng.random() < away}
        cut_off = {name for name in names if self.rng.random() < fading}
        lost = never_called | cut_off
        self.round += 1 + skip
        weights = {name: int(self.rng.integers(1, self.weight_cap + 1)) for name in names}
        conditions = terms(
            cohort=len(names),
            weight_cap=self.weight_cap,
            model=bytes(self.round),
            min_included=min(least * len(self.batches.charters[0].members), len(names)),
        )
        complete = len(self.batches.charters) - len({name.split("-")[1] for name in lost})
        call = lambda: run_round(  # noqa: E731 - one call, two ways to end
            OpenRound(self.batches.charters, self.round, conditions),
            self.batches.clients,
            self.batches.train,
            weights=weights,
            loses=lambda user, phase, way: user in (never_called if way == "to" else cut_off),
        )
        if complete < min(least, len(self.batches.charters)):
            with pytest.raises(TooFewUsers, match=f"{complete} of"):
                call()
        else:
            check(self.batches, call(), lost, conditions, weights)

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
    result = run_round(OpenRound(batches.charters, 0, terms()), batches.clients, lambda user, task: update)
    assert result.sum.values == pytest.approx([1.5] * 20 + [-0.75] * 20, abs=1e-5)
    assert result.sum.mean == pytest.approx([0.5] * 20 + [-0.25] * 20, abs=1e-5)


def test_spare_batches_fill_in_for_incomplete_ones():
    """Asking for more batches than needed, the round succeeds although one is incomplete (§8)."""
    batches = Batches(4, 3)
    result = run_round(
        OpenRound(batches.charters, 0, terms(min_included=9)),
        batches.clients,
        batches.train,
        loses=lambda user, phase, way: user == "user-2-1" and way == "from",
    )
    check(batches, result, {"user-2-1"}, terms(min_included=9))


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_ids_in_any_script_and_order_cancel(seed):
    """The sign of a mask follows the bytes of the ids, so any ids cancel."""
    alphabet = ["ä", "é", "z", "Z", "0", "𝔘", "ﬀ", "-", "字"]
    rng = np.random.default_rng(seed)
    names = {"".join(rng.choice(alphabet, 3)) for _ in range(5)} | {"a", "b"}
    clients = {name: simulated_client(name, configuration()) for name in names}
    charter = found_batch(SCOPE, 2, clients.values(), inner="open")
    updates = {name: rng.uniform(-1, 1, DIMENSION) for name in names}
    result = run_round(OpenRound([charter], 0, terms()), clients, lambda user, task: updates[user])
    assert result.sum.values == pytest.approx(sum(updates.values()), abs=1e-4)


def test_a_round_that_could_not_be_is_refused_at_the_server():
    """More users than the terms allow, or one user in two batches, are the caller's error."""
    batches = Batches(2, 3)
    with pytest.raises(UsageError, match="more than the 5"):
        OpenRound(batches.charters, 0, terms(cohort=5))
    with pytest.raises(UsageError, match="two of the batches"):
        OpenRound([batches.charters[0]] * 2, 0, terms())


@pytest.mark.parametrize("weight", [0, -1, 2.5, None, "3", float("inf")])
def test_what_is_no_weight_is_refused(weight):
    """A weight is a whole number from 1 up."""
    batches = Batches(1, 3)
    client = batches.clients["user-0-0"]
    task = client.receive(OpenRound(batches.charters, 0, terms()).start()[client.user])
    with pytest.raises(UsageError, match="weight"):
        client.seal(task, batches.updates[client.user], weight=weight)


def test_a_weight_above_the_cap_counts_as_the_cap():
    """Refusing it would tell the server that the weight is high."""
    batches = Batches(1, 3)
    weights = {"user-0-0": 900, "user-0-1": 2, "user-0-2": 1}
    result = run_round(
        OpenRound(batches.charters, 0, terms(weight_cap=5)), batches.clients, batches.train, weights=weights
    )
    assert result.sum.weight == 5 + 2 + 1


def test_a_user_who_abstains_completes_its_batch_with_zeros():
    """Abstaining looks like any other vector, and adds nothing to the sum of values."""
    batches = Batches(1, 3)
    server = OpenRound(batches.charters, 0, terms())
    sizes = set()
    for user, call in server.start().items():
        client = batches.clients[user]
        task = client.receive(call)
        sealed = client.abstain(task) if user == "user-0-1" else client.seal(task, batches.updates[user])
        sizes.add(len(sealed))
        server.receive(user, sealed)
    found = server.finish().sum
    assert len(sizes) == 1
    assert found.values == pytest.approx(batches.updates["user-0-0"] + batches.updates["user-0-2"], abs=1e-4)


def test_a_stricter_configuration_acts_on_the_charter_in_force():
    """An owner who raises the least T stops the device from sealing in its smaller batch."""
    batches = Batches(1, 3)
    client = batches.clients["user-0-0"]
    stricter = SealedClient(dataclasses.replace(client.membership, configuration=configuration(least_privacy=4)))
    call = OpenRound(batches.charters, 0, terms()).start()[client.user]
    with pytest.raises(PeerError, match="accepts 4 or more"):
        stricter.receive(call)


def test_a_device_seals_with_its_own_record_only():
    """Another user's record, or one that lost a member's chain key, is not sealed with."""
    batches = Batches(1, 3)
    ana, bob = batches.clients["user-0-0"], batches.clients["user-0-1"]
    calls = OpenRound(batches.charters, 0, terms()).start()
    stranger = SealedClient(dataclasses.replace(bob.membership, store=ana.membership.store))
    with pytest.raises(UsageError, match="is not one of"):
        stranger.receive(calls[bob.user])
    with ana.membership.record(SCOPE) as record:
        record.chain_keys = {"user-0-1": record.chain_keys["user-0-1"]}
    with pytest.raises(UsageError, match="is not one of"):
        ana.receive(calls[ana.user])


def test_terms_that_could_wrap_are_refused_before_anyone_is_called():
    """The server's own side refuses terms under which the sum could wrap around."""
    batches = Batches(1, 3)
    with pytest.raises(UsageError, match=r"levels|wrap"):
        OpenRound(batches.charters, 0, terms(cohort=2**20, weight_cap=2**16))
