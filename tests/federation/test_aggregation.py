"""Sealed rounds under a coordinator: whatever is lost on the way, learned is what complete batches gave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.federation.aggregation import UnsealedAggregation
from coterie.federation.ledger import Ledger, Phase, State
from coterie.secagg import Membership, MemoryStore, SealedClient, UnsealedClient
from coterie.secagg.loopback import Arrival, DeviceFailed
from support.federation.aggregations import check_sound
from support.federation.federation import (
    DIMENSION,
    INNER,
    NAMES,
    PHASES,
    UPLOADED,
    USERS,
    ScriptedNetwork,
    WrongShares,
    configuration,
    in_six_batches,
)

inners = pytest.mark.parametrize("inner", INNER)
SPOILT = st.sampled_from([Arrival.LOST, Arrival.LATE])
WAYS = st.sampled_from(["to", "from"])
ROUNDS = 3


@inners
@given(data=st.data(), weighted=st.booleans())
@settings(max_examples=20)
def test_learned_is_what_complete_batches_gave(new_folder, inner, data, weighted):
    """With messages lost or late at any moment, both ways: the complete batches are learned, and nothing else.

    The mean is theirs to within the rounding of one vector; late answers are refused, and their senders named.
    """
    keys = st.tuples(st.sampled_from(NAMES), st.integers(0, ROUNDS - 1), st.integers(0, PHASES[inner] - 1), WAYS)
    network = ScriptedNetwork(data.draw(st.dictionaries(keys, SPOILT, max_size=6)))
    folder = new_folder()
    with Ledger.create(folder) as ledger:
        federation = in_six_batches(ledger, inner, weighted=weighted)
        transport = federation.reach(network)
        coordinator = federation.coordinator(per_round=8)
        for round_ in range(ROUNDS):
            outcome = coordinator.run_round(federation.everyone, federation.aggregation(transport))
            assert outcome.round == round_
            _check(federation, outcome, network)
            assert outcome.refused.keys() == network.heard()
    check_sound(folder)


def _check(federation, outcome, network):
    """The outcome is what the script of losses makes it, computed without any protocol."""
    inner, ledger = federation.inner, federation.ledger
    asked = outcome.cohort.batches.tolist()
    complete = [
        batch
        for batch in asked
        if not any(
            network.spoils(f"user-{user}", outcome.round, UPLOADED[inner] + 1) for user in ledger.plan.batch(batch)
        )
    ]
    users = ledger.plan.users_of(np.array(complete, dtype=np.int64)).tolist()
    record = list(ledger.rounds())[outcome.round]
    lost = [user for user in outcome.cohort.users if network.spoils(f"user-{user}", outcome.round, PHASES[inner])]
    too_few = len(users) < federation.terms().min_included
    # The pairwise protocols need answers from two thirds of their users to the end: one lost user never matters.
    assert too_few <= (outcome.state == "abandoned") <= (too_few or (inner != "open" and len(lost) > 1))
    if outcome.state == "abandoned":
        assert (record.state, record.reason) == (State.ABANDONED, outcome.reason)
        # From the moment when shares may have been sent, the sum of the included could be known.
        if record.learned:
            _check_learned(record.learned, [ledger.plan.batch(batch).tolist() for batch in complete], inner)
        assert outcome.mean is None
        return
    for learned in (outcome.learned, record.learned):
        _check_learned(learned, [ledger.plan.batch(batch).tolist() for batch in complete], inner)
    assert outcome.lost.keys() == record.lost.keys() == set(asked) - set(complete)
    step = federation.rules().quantiser.step
    assert np.abs(outcome.mean - federation.mean(users)).max() <= step


def _check_learned(learned, batches, inner):
    """`open` shows each complete batch, `secagg` their one sum; `secagg+` the sums of the graph's components.

    The sparse graph may fall apart when half of its users are lost. What is learned then are still whole batches.
    """
    learned = sorted(sorted(each.tolist()) for each in learned)
    if inner == "secagg+":
        component = {user: number for number, users in enumerate(learned) for user in users}
        assert sorted(component) == sorted(user for users in learned for user in users)
        assert sorted(component) == sorted(user for users in batches for user in users)
        assert all(len({component[user] for user in users}) == 1 for users in batches)
    elif inner == "open":
        assert learned == sorted(map(sorted, batches))
    else:
        assert learned == [sorted(user for users in batches for user in users)]


@inners
def test_who_was_silent_is_told_by_phase(ledger, inner):
    """A user that misses its call is missing in the first phase; its batch is lost, and the reason names it."""
    federation = in_six_batches(ledger, inner)
    network = ScriptedNetwork({("user-3", 0, 0, "to"): Arrival.LOST, ("user-6", 0, 0, "from"): Arrival.LOST})
    outcome = federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(federation.reach(network))
    )
    assert outcome.silent[0] == {"user-3", "user-6"}
    assert outcome.lost == {1: "user-3 did not answer", 3: "user-6 did not answer"}
    assert len(outcome.included) == USERS - 4


@inners
def test_the_ledger_keeps_the_digest_of_what_devices_were_shown(ledger, inner):
    """A round's record names its terms by the digest that every device makes of them: any of them can check."""
    federation = in_six_batches(ledger, inner)
    federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(federation.reach())
    )
    [record] = ledger.rounds()
    assert record.terms == federation.terms().digest.hex()


@inners
def test_every_phase_is_announced_to_those_who_watch(ledger, inner):
    """While users are asked, another reader of the ledger sees the round, its phase and how many were asked."""
    federation, seen = in_six_batches(ledger, inner), []

    class Watched:
        def exchange(self, outgoing, moment):
            with Ledger.open(ledger.place, read_only=True) as reader:
                seen.append((moment.round, moment.phase, len(outgoing), reader.phase, reader.coordinated))
            return users.exchange(outgoing, moment)

    users = federation.reach()
    federation.coordinator(per_round=USERS).run_round(federation.everyone, federation.aggregation(Watched()))
    assert len(seen) == PHASES[inner]
    assert all(phase == Phase(*asked) and live for *asked, phase, live in seen)
    with Ledger.open(ledger.place, read_only=True) as reader:
        assert not reader.coordinated


@inners
def test_a_device_that_forgot_everything_costs_its_batch_only(ledger, inner):
    """A device that starts again without its state refuses every round; the other batches never notice."""
    federation = in_six_batches(ledger, inner)
    old = federation.clients["user-4"].membership
    federation.clients["user-4"] = SealedClient(
        Membership("user-4", old.identity, old.configuration, old.verify_member, MemoryStore())
    )
    transport = federation.reach()
    coordinator = federation.coordinator(per_round=USERS)
    for _ in range(2):
        outcome = coordinator.run_round(federation.everyone, federation.aggregation(transport))
        assert outcome.lost.keys() == {2}
        assert len(outcome.included) == USERS - 2
    assert "'outside'" in transport.refusals["user-4"]


@inners
def test_a_device_that_was_restarted_goes_on(ledger, inner):
    """What a device has stored is enough to take part in the next round."""
    federation = in_six_batches(ledger, inner)
    coordinator = federation.coordinator(per_round=USERS)
    for name in NAMES[:4]:
        coordinator.run_round(federation.everyone, federation.aggregation(federation.reach()))
        federation.restart(name)
    outcome = coordinator.run_round(federation.everyone, federation.aggregation(federation.reach()))
    assert len(outcome.included) == USERS


@inners
def test_a_device_with_stricter_bounds_costs_its_batch_only(ledger, inner):
    """Terms that one device's owner does not allow are refused there; everybody else takes part."""
    federation = in_six_batches(ledger, inner)
    old = federation.clients["user-9"].membership
    strict = configuration(inner, largest_dimension=DIMENSION - 1)
    federation.clients["user-9"] = SealedClient(
        Membership("user-9", old.identity, strict, old.verify_member, old.store)
    )
    transport = federation.reach()
    outcome = federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(transport)
    )
    assert f"dimension to {DIMENSION}" in transport.refusals["user-9"]
    assert outcome.lost.keys() == {4}
    assert len(outcome.included) == USERS - 2


@inners
def test_a_round_with_too_few_users_tells_who_was_silent(ledger, inner):
    """An abandoned round has its reason, and still says who did not answer."""
    federation = in_six_batches(ledger, inner)
    lost = {(name, 0, 0, "from"): Arrival.LOST for name in NAMES[::2]}
    outcome = federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(federation.reach(ScriptedNetwork(lost)))
    )
    assert (outcome.state, outcome.mean) == ("abandoned", None)
    assert outcome.silent[0] == set(NAMES[::2])
    assert ledger.rounds()[0].reason == outcome.reason
    assert ledger.log().completed == 0


def test_batches_that_lay_open_in_an_abandoned_round_are_learned(ledger):
    """With `open` the server has the sum of a complete batch also if the terms want more users: it is logged."""
    federation = in_six_batches(ledger, "open")
    network = ScriptedNetwork({(f"user-{user}", 0, 0, "from"): Arrival.LOST for user in (0, 2, 4, 6)})
    outcome = federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(federation.reach(network), min_included=6)
    )
    assert (outcome.state, outcome.mean) == ("abandoned", None)
    assert "6 are needed" in outcome.reason
    assert [users.tolist() for _, users in ledger.log().sets()] == [[8, 9], [10, 11]]
    assert ledger.counts.sum() == 0


@pytest.mark.parametrize("inner", [inner for inner in INNER if inner != "open"])
def test_without_the_seal_the_survivors_are_learned(ledger, inner):
    """Who drops out of an unsealed round splits its batch: learned is the set of those left, and it is logged."""
    federation = in_six_batches(ledger, inner, found=False)
    for name, client in federation.clients.items():
        member = client.membership
        federation.clients[name] = UnsealedClient(
            name, member.identity, member.configuration, member.verify_member
        )
    network = ScriptedNetwork({("user-3", 0, 1, "to"): Arrival.LOST, ("user-8", 0, 2, "from"): Arrival.LOST})
    aggregation = UnsealedAggregation(ledger, federation.reach(network), federation.terms(), federation.rules())
    outcome = federation.coordinator(per_round=USERS).run_round(federation.everyone, aggregation)
    left = [user for user in range(USERS) if user not in {3, 8}]
    assert [users.tolist() for users in outcome.learned] == [left]
    assert np.abs(outcome.mean - federation.mean(left)).max() <= federation.rules().quantiser.step
    [record] = ledger.rounds()
    assert (record.sealed, [users.tolist() for users in record.learned]) == (False, [left])


def test_a_device_that_fails_ends_the_round_as_one_that_died(ledger):
    """Vectors may have come before a device failed: the round is no abandoned one, and the worst is assumed."""
    federation = in_six_batches(ledger, "open")
    coordinator = federation.coordinator(per_round=USERS)
    sound = federation.updates["user-7"]
    federation.updates["user-7"] = sound[:-1]
    with pytest.raises(DeviceFailed, match="values"):
        coordinator.run_round(federation.everyone, federation.aggregation(federation.reach()))
    federation.updates["user-7"] = sound
    outcome = coordinator.run_round(federation.everyone, federation.aggregation(federation.reach()))
    assert (outcome.round, len(outcome.included), ledger.snapshot().assumed_rounds) == (1, USERS, (0,))


@pytest.mark.parametrize("inner", ["secagg", "secagg+"])
def test_a_liar_is_named_and_counted_in_the_ledger(ledger, inner):
    """Who gives a wrong share is named with what it did; all are in the mean, and the ledger counts the liar."""
    federation = in_six_batches(ledger, inner)
    transport = WrongShares(federation.reach(), "user-3", PHASES[inner] - 1)
    coordinator = federation.coordinator(per_round=USERS)
    outcome = coordinator.run_round(federation.everyone, federation.aggregation(transport))
    assert outcome.liars == {"user-3": "sent 1 wrong shares"}
    assert len(outcome.included) == USERS
    (round_,) = ledger.snapshot().rounds
    assert round_.metrics == {"liars": 1.0}
