"""Sealed open rounds: the sum over complete batches, or nothing; whatever is lost on the way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coterie.errors import TooFewUsers, UsageError
from coterie.secagg import OpenRound, found_batch, run_open_round, simulated_client
from coterie.secagg.ring import RING_32
from secagg.batches import DIMENSION, SCOPE, Batches, configuration, terms


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
    complete = {batch.users for batch in result.batches}
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
        conditions = terms(cohort=len(names), weight_cap=self.weight_cap, model=bytes(self.round))
        complete = len(self.batches.charters) - len({name.split("-")[1] for name in lost})
        call = lambda: run_open_round(  # noqa: E731 - one call, two ways to end
            self.batches.charters,
            self.batches.clients,
            self.round,
            conditions,
            self.batches.train,
            weights=weights,
            loses=lambda user, way: user in (never_called if way == "to" else cut_off),
            least_batches=least,
        )
        if complete < least:
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
    result = run_open_round(batches.charters, batches.clients, 0, terms(), lambda user, task: update)
    assert result.sum.values == pytest.approx([1.5] * 20 + [-0.75] * 20, abs=1e-5)
    assert result.sum.mean == pytest.approx([0.5] * 20 + [-0.25] * 20, abs=1e-5)


def test_spare_batches_fill_in_for_incomplete_ones():
    """Asking for more batches than needed, the round succeeds although one is incomplete (§8)."""
    batches = Batches(4, 3)
    result = run_open_round(
        batches.charters,
        batches.clients,
        0,
        terms(),
        batches.train,
        loses=lambda user, way: user == "user-2-1" and way == "from",
        least_batches=3,
    )
    check(batches, result, {"user-2-1"}, terms())


@given(st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_ids_in_any_script_and_order_cancel(seed):
    """The sign of a mask follows the bytes of the ids, so any ids cancel."""
    alphabet = ["ä", "é", "z", "Z", "0", "𝔘", "ﬀ", "-", "字"]
    rng = np.random.default_rng(seed)
    names = {"".join(rng.choice(alphabet, 3)) for _ in range(5)} | {"a", "b"}
    clients = {name: simulated_client(name, configuration()) for name in names}
    charter = found_batch(SCOPE, 2, clients.values())
    updates = {name: rng.uniform(-1, 1, DIMENSION) for name in names}
    result = run_open_round([charter], clients, 0, terms(), lambda user, task: updates[user])
    assert result.sum.values == pytest.approx(sum(updates.values()), abs=1e-4)


def test_a_round_that_could_not_be_is_refused_at_the_server():
    """More users than the terms allow, or one user in two batches, are the caller's error."""
    batches = Batches(2, 3)
    with pytest.raises(UsageError, match="more than the 5"):
        OpenRound(batches.charters, 0, terms(cohort=5))
    with pytest.raises(UsageError, match="two of the batches"):
        OpenRound([batches.charters[0]] * 2, 0, terms())
