"""Forming batches over a coordinator's transport: each by itself, whatever is lost, and again if it failed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.federation.aggregation import form_batches
from coterie.federation.ledger import Ledger
from coterie.secagg import Charter, Membership, MemoryStore, SealedClient, simulated_client
from coterie.secagg.loopback import Arrival
from support.federation.federation import (
    INNER,
    NAMES,
    SCOPE,
    SIZE,
    USERS,
    ScriptedNetwork,
    configuration,
    in_six_batches,
)
from support.secagg.batches import rules

inners = pytest.mark.parametrize("inner", INNER)
SPOILT = st.sampled_from([Arrival.LOST, Arrival.LATE])
WAYS = st.sampled_from(["to", "from"])


def batch_of(name):
    return int(name.removeprefix("user-")) // SIZE


@inners
def test_founding_gives_every_batch_its_charter(ledger, inner):
    """A charter has exactly the batch's users with the keys they enrolled with, and begins with the next round."""
    federation = in_six_batches(ledger, inner, found=False)
    with ledger.claim():
        ledger.skip_round("before anybody was there")
    assert federation.form_batches(federation.reach()) == {}
    assert sorted(ledger.charters) == list(range(len(ledger.plan)))
    for batch, encoded in ledger.charters.items():
        charter = Charter.decode(encoded)
        users = sorted(ledger.plan.batch(batch).tolist(), key=str)
        assert [member.user for member in charter.members] == [f"user-{user}" for user in users]
        assert [member.identity for member in charter.members] == [ledger.key_of(user) for user in users]
        assert (charter.scope, charter.privacy, charter.inner, charter.first) == (SCOPE, SIZE, inner, 1)


LOSSES = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.none(), st.integers(0, 2), WAYS), st.just(Arrival.LOST), max_size=5
)


@given(script=LOSSES)
@settings(max_examples=15)
def test_a_batch_is_formed_if_none_of_its_messages_is_lost(new_folder, script):
    """What fails is told by batch with the reason, costs no other batch, and can be tried again."""
    with Ledger.create(new_folder()) as ledger:
        federation = in_six_batches(ledger, "open", found=False)
        network = ScriptedNetwork(script)
        failed = federation.form_batches(federation.reach(network))
        spoilt = {batch_of(name) for name in NAMES if network.spoils(name, None, 3)}
        assert failed == dict.fromkeys(spoilt, "a member did not answer")
        formed = ledger.charters
        assert formed.keys() == set(range(6)) - spoilt
        assert federation.form_batches(federation.reach()) == {}
        assert {batch: ledger.charters[batch] for batch in formed} == formed
        _all_batches_complete(federation)


@given(script=st.dictionaries(st.tuples(st.sampled_from(NAMES), st.none(), st.integers(0, 3), WAYS), SPOILT))
@settings(max_examples=15)
def test_founding_survives_answers_of_an_earlier_attempt(new_folder, script):
    """Late answers can spoil one more attempt, since they name keys that are gone; then every batch is formed."""
    with Ledger.create(new_folder()) as ledger:
        federation = in_six_batches(ledger, "open", found=False)
        network = ScriptedNetwork(dict(script))
        transport = federation.reach(network)
        federation.form_batches(transport)
        network.script.clear()
        federation.form_batches(transport)
        assert federation.form_batches(transport) == {}
        _all_batches_complete(federation)


def _all_batches_complete(federation):
    """A round with everybody gives everybody's mean."""
    outcome = federation.coordinator(per_round=USERS).run_round(
        federation.everyone, federation.aggregation(federation.reach())
    )
    assert len(outcome.included) == USERS


@inners
def test_a_device_that_does_not_agree_costs_its_batch_only(ledger, inner):
    """A device with a stricter owner keeps its batch from being formed: no round asks it, the others go on."""
    federation = in_six_batches(ledger, inner, found=False)
    federation.clients["user-5"] = simulated_client("user-5", configuration(inner, least_privacy=3))
    transport = federation.reach()
    assert federation.form_batches(transport) == {2: "a member did not answer"}
    assert "accepts 3 or more" in transport.refusals["user-5"]
    coordinator = federation.coordinator(per_round=10)
    for _ in range(3):
        outcome = coordinator.run_round(federation.everyone, federation.aggregation(federation.reach()))
        assert len(outcome.included) == 10
    assert np.flatnonzero(ledger.counts == 0).tolist() == [4, 5]


@inners
def test_the_reason_for_a_failure_names_the_rule_that_a_user_broke(ledger, inner):
    """Two devices with one identity are refused by the server, which says whose key it was."""
    federation = in_six_batches(ledger, inner, found=False)
    twin = federation.clients["user-6"].membership
    federation.clients["user-7"] = SealedClient(
        Membership("user-7", twin.identity, twin.configuration, twin.verify_member, MemoryStore())
    )
    [(batch, reason)] = federation.form_batches(federation.reach()).items()
    assert (batch, reason) == (3, "user-7 enrolled with a key of user-6")


def test_strangers_answers_are_passed_over(ledger):
    """A message of somebody whom no batch waits for changes nothing."""
    federation = in_six_batches(ledger, "open", found=False)
    users = federation.reach()

    class Intruded:
        def exchange(self, outgoing, moment):
            yield "nobody", b"anything"
            yield from users.exchange(outgoing, moment)

    assert form_batches(ledger, Intruded(), federation.rules()) == {}


def test_batches_need_a_plan(ledger):
    """Without a plan there is nothing to form and nothing to ask; the error says what to do."""
    ledger.enrol(["ana", "bob"])
    with pytest.raises(UsageError, match="publish one"):
        form_batches(ledger, None, rules())


def test_batches_that_have_a_charter_are_left_alone(ledger):
    """Nobody is asked again when every batch is formed."""
    federation = in_six_batches(ledger, "open")
    assert form_batches(ledger, None, federation.rules()) == {}
    assert len(federation.ledger.charters) == 6
