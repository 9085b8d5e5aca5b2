"""The account never flatters: the level reported is never above the one that all received bytes really leave."""

from collections import Counter, defaultdict

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.federation.aggregation import UnsealedAggregation
from coterie.federation.ledger import Ledger, State
from coterie.leakage import strong_level
from coterie.secagg import PROTOCOLS, UnsealedClient
from coterie.secagg.loopback import Arrival
from coterie.values import BatchPlan
from support.federation.aggregations import Scripted, everybody, outcome_of
from support.federation.federation import INNER, Federation, ScriptedNetwork, in_six_batches

BATCHES = [[0, 1], [2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]
USERS = 12
ROUNDS = 3


class Wire:
    """A transport that spoils some vectors, and remembers whose vectors of which round the server got."""

    def __init__(self, users, garbled, network):
        self._users, self._garbled, self._network = users, garbled, network
        self.received = defaultdict(set)

    def exchange(self, outgoing, moment):
        """Answers that are late come first, and are of the round before."""
        late = [user for user, sent in self._network.late if sent.round is not None and sent.round < moment.round]
        for place, (user, data) in enumerate(self._users.exchange(outgoing, moment)):
            round_ = moment.round - 1 if place < len(late) else moment.round
            self.received[round_].add(user)
            raw = bytes(data)
            yield user, raw[:-1] + bytes([raw[-1] ^ 0x7F]) if (user, round_) in self._garbled else raw


def true_level(received):
    """The strong level that all vectors received leave, by linear algebra on the masks, knowing no protocol.

    A vector of `open` is its user's update plus, for every other member of the batch, a mask that only the two
    share and that one adds and the other subtracts, new in every round. What can be computed are the combinations
    in which all masks cancel: the left kernel of the mask matrix. Users whose coefficients are the same in all of
    them are alike; the level is the least number of users that are alike and in one of them at all.
    """
    rows = []
    for users in received.values():
        vectors = sorted(users)
        masks = {}
        for place, user in enumerate(vectors):
            batch = next(batch for batch in BATCHES if user in batch)
            for other in batch:
                if other != user:
                    pair = masks.setdefault((min(user, other), max(user, other)), [0] * len(vectors))
                    pair[place] = 1 if user < other else -1
        if not vectors:
            continue
        kernel, rank = flint.fmpz_mat([list(column) for column in masks.values()]).nullspace()
        for column in range(rank):
            row = [0] * USERS
            for place, user in enumerate(vectors):
                row[user] = int(kernel[place, column])
            rows.append(row)
    columns = Counter(tuple(row[user] for row in rows) for user in range(USERS))
    return min((count for column, count in columns.items() if any(column)), default=USERS)


KEYS = st.tuples(
    st.sampled_from([f"user-{user}" for user in range(USERS)]),
    st.integers(0, ROUNDS - 1),
    st.just(0),
    st.sampled_from(["to", "from"]),
)
LIES = st.sets(st.tuples(st.sampled_from([f"user-{user}" for user in range(USERS)]), st.integers(0, ROUNDS - 1)))


@given(script=st.dictionaries(KEYS, st.sampled_from([Arrival.LOST, Arrival.LATE]), max_size=8), garbled=LIES)
@settings(max_examples=40, deadline=None)
def test_no_level_is_reported_above_the_true_one(new_folder, script, garbled):
    """Sealed `open` rounds with messages lost, late and false: reported is at most true, and here exactly it."""
    with Ledger.create(new_folder()) as ledger:
        federation = Federation(ledger, BatchPlan.from_batches(USERS, 2, BATCHES), "open")
        assert federation.form_batches(federation.reach()) == {}
        network = ScriptedNetwork(script)
        wire = Wire(federation.reach(network), garbled, network)
        coordinator = federation.coordinator(per_round=7)
        for _ in range(ROUNDS):
            coordinator.run_round(federation.everyone, federation.aggregation(wire))
            network.heard()
        received = {
            round_: {int(user.removeprefix("user-")) for user in users} for round_, users in wire.received.items()
        }
        log = ledger.log()
        reported = strong_level(log) if len(log.set_rounds) else USERS
        assert reported <= true_level(received)
        assert reported == true_level(received)


def test_a_sum_that_a_late_vector_completes_is_a_further_row(ledger):
    """The result is without the batch; when its last vector comes, in the next round, the batch is learned."""
    federation = in_six_batches(ledger, "open")
    network = ScriptedNetwork({("user-3", 0, 0, "from"): Arrival.LATE})
    transport, coordinator = federation.reach(network), federation.coordinator(per_round=12)
    first = coordinator.run_round(federation.everyone, federation.aggregation(transport))
    assert (first.lost.keys(), len(first.included)) == ({1}, 10)
    assert [2, 3] not in [users.tolist() for users in ledger.rounds()[0].exposure]
    coordinator.run_round(federation.everyone, federation.aggregation(transport))
    record = ledger.rounds()[0]
    assert (record.late, [users.tolist() for users in record.exposure][-1]) == (1, [2, 3])
    assert ledger.counts.tolist() == [2, 2, 1, 1, *[2] * 8]


def test_a_batch_with_wrong_check_words_is_learned_and_not_included(ledger):
    """Whoever garbles its vector keeps its batch out of the model, and not out of the account."""
    federation = in_six_batches(ledger, "open")
    wire = Wire(federation.reach(), {("user-5", 0)}, ScriptedNetwork())
    outcome = federation.coordinator(per_round=12).run_round(federation.everyone, federation.aggregation(wire))
    assert outcome.lost.keys() == {2}
    assert 4 not in outcome.included
    assert [4, 5] in [users.tolist() for users in outcome.learned]


def test_plain_rounds_show_everybody_alone(ledger):
    """Whatever is summed up in the open, the log of it has level 1."""
    federation = in_six_batches(ledger, "open", found=False)

    def plainly(round_, cohort):
        whole = everybody(round_, cohort)
        return outcome_of(round_, cohort, [cohort.users[:2]], whole.mean) if round_ else whole

    coordinator = federation.coordinator(per_round=12)
    coordinator.run_round(federation.everyone, Scripted(plainly, name="secagg"))
    assert strong_level(ledger.log()) == 12
    with ledger.claim():
        number = ledger.open_round(coordinator.choose(federation.everyone), sealed=False, protocol="plain")
        ledger.commit_round(number, [], alone=range(12))
    assert (strong_level(ledger.log()), ledger.snapshot().plain_rounds) == (1, (1,))


def test_a_batch_that_fails_again_and_again_is_retired(ledger):
    """After so many losses in a row, and only then, the ledger has it with the reason; others are asked on."""
    federation = in_six_batches(ledger, "open")
    network = ScriptedNetwork({("user-4", round_, 0, "from"): Arrival.LOST for round_ in range(6)})
    coordinator = federation.coordinator(per_round=10, retire_after=3)
    transport = federation.reach(network)
    for round_ in range(6):
        outcome = coordinator.run_round(federation.everyone, federation.aggregation(transport))
        assert outcome.state is State.COMMITTED
        assert (2 in outcome.cohort.batches) == (round_ < 3)
    (change,) = ledger.snapshot().retired
    assert (change.users.tolist(), change.since, change.reason) == ([4, 5], 3, "lost in 3 rounds in a row")


def test_an_outage_of_everybody_retires_nobody(ledger):
    """Rounds in which no batch came through say nothing about any one of them."""
    federation = in_six_batches(ledger, "open")
    names = [f"user-{user}" for user in range(12)]
    network = ScriptedNetwork({(name, round_, 0, "from"): Arrival.LOST for name in names for round_ in range(4)})
    coordinator = federation.coordinator(per_round=12, retire_after=2)
    for _ in range(4):
        outcome = coordinator.run_round(federation.everyone, federation.aggregation(federation.reach(network)))
        assert (outcome.state, len(outcome.lost)) == (State.ABANDONED, 6)
    assert not np.any(ledger.retired)


class GarbledUpload:
    """A transport that flips the last byte of one user's message in the phase of the vectors."""

    def __init__(self, users, user, phase):
        self._users, self._user, self._phase = users, user, phase

    def exchange(self, outgoing, moment):
        for user, data in self._users.exchange(outgoing, moment):
            raw = bytes(data)
            spoilt = user == self._user and moment.phase == self._phase
            yield user, raw[:-1] + bytes([raw[-1] ^ 0x7F]) if spoilt else raw


@pytest.mark.parametrize("inner", [inner for inner in INNER if inner != "open"])
@pytest.mark.parametrize("garbled", [True, False])
def test_without_a_seal_whatever_does_not_end_as_agreed_leaves_level_1(ledger, inner, garbled):
    """One wrong vector, or too few who agree: any sum of the uploaders may be known, so each counts as alone."""
    federation = in_six_batches(ledger, inner, found=False)
    for name, client in federation.clients.items():
        member = client.membership
        federation.clients[name] = UnsealedClient(
            name, member.identity, member.configuration, member.verify_member
        )
    upload = PROTOCOLS[inner].upload_phase
    late = {(f"user-{user}", 0, upload + 1, "from"): Arrival.LOST for user in range(11)}
    users = federation.reach(ScriptedNetwork({} if garbled else late))
    transport = GarbledUpload(users, "user-7", upload) if garbled else users
    aggregation = UnsealedAggregation(ledger, transport, federation.terms(min_included=2), federation.rules())
    outcome = federation.coordinator(per_round=12).run_round(federation.everyone, aggregation)
    assert outcome.state is State.ABANDONED
    assert outcome.alone.tolist() == list(range(12))
    assert (strong_level(ledger.log()), ledger.snapshot().unknown_rounds) == (1, (0,))
