"""What must fail to learn: a server that follows no rule gets noise; without the seal the same attack works."""

from itertools import combinations

import flint
import numpy as np
import pytest
from scipy.stats import chisquare

from coterie.errors import TooFewUsersError
from coterie.federation.device_file import DeviceFile
from coterie.secagg import (
    RING_16,
    RING_32,
    IdentityKey,
    Membership,
    SealedClient,
    TrustServerForIdentities,
    found_batch,
    sealed_round,
    simulated_client,
)
from coterie.secagg.batch.membership import seal_masks
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.open import CollectionState
from support.forked import CONTEXT
from support.secagg.batches import DIMENSION, SCOPE, Batches, configuration, quantiser, rules, terms
from support.secagg.racing import race
from support.secagg.servers import call

RINGS = pytest.mark.parametrize("ring", [RING_16, RING_32], ids=["2^16", "2^32"])


def sealed_words(client, charter, round_, update, **conditions):
    """Call a client to a round with these terms and return the words that it sends."""
    sent = client.seal(client.receive(call(charter, round_, **conditions)), update)
    _, tail = messages_from_client.decode(sent)
    return np.frombuffer(tail, dtype=charter.quantiser.ring.dtype).astype(np.int64)


def uniform(words, ring):
    """Whether words look uniform: chi-square over their high and low bytes, at a fixed level."""
    for shift in (0, 8 * ring.dtype.itemsize - 8):
        counts = np.bincount((words >> shift) & 255, minlength=256)
        if chisquare(counts).pvalue < 1e-6:
            return False
    return True


@RINGS
@pytest.mark.parametrize(
    "changes",
    [{"model": b"crafted"}, {"configuration": b'{"learning_rate":9.0}'}, {"min_included": 2}, {"step": 1}],
    ids=["model", "configuration", "min_included", "step"],
)
def test_members_shown_different_terms_give_noise(ring, changes):
    """One member is shown a crafted model (or setting): the batch's sum is noise, and the check words say so."""
    batches = Batches(1, 4, common={"quantiser": quantiser(ring=ring)}, configuration_in_terms=True)
    charter = batches.charters[0]
    server = sealed_round([charter], 1, terms())
    total = 0
    for number, member in enumerate(charter.members):
        shown = changes if number == 2 else {}
        client = batches.clients[member.user]
        total = total + sealed_words(client, charter, 1, batches.updates[member.user], **shown)
    server._sums[charter.digest] = (total % ring.modulus).astype(ring.dtype)  # noqa: SLF001 - it follows no rule
    server._states = dict.fromkeys(server._states, CollectionState.RECEIVED)  # noqa: SLF001
    with pytest.raises(TooFewUsersError):
        server.finish()
    assert (total[-ring.check_words :] % ring.modulus).tolist() != [4] * ring.check_words


class Observer:
    """A server that asks whom it likes, records every word, and knows only what it saw."""

    def __init__(self, batches):
        self.batches = batches
        self.owners, self.masks, self.rounds = [], [], []
        self.columns = {}

    def ask(self, charter, users, round_, **conditions):
        """Call some members of a batch and note which masks their vectors carry (over Z_q, by seed)."""
        for user in users:
            client = self.batches.clients[user]
            with client.membership.record(SCOPE) as record:
                chain = record.chain.advance(round_)
            row = {}
            for mask in seal_masks(chain, round_, terms(**conditions).digest, user):
                column = self.columns.setdefault(mask.seed.reveal(), len(self.columns))
                row[column] = mask.sign
            sealed_words(client, charter, round_, self.batches.updates[user], **conditions)
            self.owners.append(user)
            self.masks.append(row)
            self.rounds.append(round_)

    def kernel(self):
        """Return a basis of all combinations of the recorded vectors in which every mask cancels, over Z_q."""
        matrix = [[row.get(column, 0) for column in range(len(self.columns))] for row in self.masks]
        # Entries are 0 and ±1 and every column has at most two of them: a network matrix, totally unimodular,
        # so the kernel over the integers gives the kernel over Z_q.
        nullspace, rank = flint.fmpz_mat(matrix).transpose().nullspace()
        return [[int(nullspace[row, column]) for row in range(len(matrix))] for column in range(rank)]


def test_no_combination_of_all_records_splits_a_batch():
    """Over many rounds, drops and changed terms, whatever cancels all masks is constant on each batch."""
    batches = Batches(3, 3)
    observer, rng = Observer(batches), np.random.default_rng(0)
    members = [[member.user for member in charter.members] for charter in batches.charters]
    for round_ in range(14):
        for charter, users in zip(batches.charters, members, strict=True):
            asked = [user for user in users if rng.random() < 0.8]
            observer.ask(charter, asked, round_, model=bytes([int(rng.integers(2))]))
    basis = observer.kernel()
    assert basis  # some batches were whole: their sums are what the server may learn
    batch_of = {user: index for index, users in enumerate(members) for user in users}
    for combination in basis:
        seen = {}
        for coefficient, user, round_ in zip(combination, observer.owners, observer.rounds, strict=True):
            seen.setdefault((round_, batch_of[user]), {})[user] = coefficient
        for (_, batch), coefficients in seen.items():
            values = [coefficients.get(user, 0) for user in members[batch]]
            assert len(set(values)) == 1, "a combination tells the members of a batch apart"


def test_without_the_seal_the_same_attack_isolates_users():
    """The same rounds, drops and all, with a plain secure sum: every user's update comes out, exactly."""
    batches, rng = Batches(3, 3), np.random.default_rng(0)
    users = list(batches.clients)
    rows, sums = [], []
    for _ in range(14):
        asked = [user for user in users if rng.random() < 0.8]
        rows.append([float(user in asked) for user in users])
        sums.append(np.sum([batches.updates[user] for user in asked], axis=0, dtype=np.float64))
    recovered, *_ = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=None)
    assert recovered == pytest.approx(np.array([batches.updates[user] for user in users]), abs=1e-5)


@RINGS
def test_an_incomplete_batch_is_uniform_noise(ring):
    """Single vectors, sums of proper subsets and differences of an incomplete batch pass a uniformity test."""
    batches = Batches(1, 4, common={"quantiser": quantiser(ring=ring)})
    charter, q = batches.charters[0], ring.modulus
    update = np.full(20_000, 0.25, dtype=np.float32)  # the least random update there is
    vectors = [sealed_words(client, charter, 0, update, dimension=20_000) for client in batches.clients.values()]
    for size in (1, 2, 3):
        for chosen in combinations(vectors, size):
            assert uniform(sum(chosen) % q, ring)
    for one, other in combinations(vectors, 2):
        assert uniform((one - other) % q, ring)
    assert not uniform(sum(vectors) % q, ring)


@pytest.mark.parametrize("inner", ["open", "secagg+"])
def test_two_processes_never_seal_one_round_twice(tmp_path, inner):
    """Two real processes race with one device's file: one seals, the other is refused; again and again."""
    path = tmp_path / "ana.device"
    identity = IdentityKey.generate()
    with DeviceFile.create(path, identity.to_bytes()) as store:
        ana = SealedClient(Membership("ana", identity, configuration(), TrustServerForIdentities(), store))
        others = [simulated_client(name, configuration()) for name in ("bob", "cas")]
        charter = found_batch(rules(inner=inner), [ana, *others])
    for round_ in range(3):
        asked = call(charter, round_, min_included=5)
        gate, answers = CONTEXT.Barrier(2), CONTEXT.Queue()
        updates = [np.full(DIMENSION, value, dtype=np.float32) for value in (0.1, 0.9)]
        racers = [CONTEXT.Process(target=race, args=(path, asked, update, gate, answers)) for update in updates]
        for racer in racers:
            racer.start()
        outcomes = [answers.get(timeout=60) for _ in racers]
        for racer in racers:
            racer.join(timeout=30)
        assert sum(isinstance(outcome, bytes) for outcome in outcomes) == 1, outcomes
        assert any(isinstance(outcome, str) and "past it" in outcome for outcome in outcomes), outcomes
