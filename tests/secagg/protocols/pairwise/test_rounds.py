"""Pairwise rounds, sealed and unsealed: the sum over complete batches, or nothing; whatever is lost on the way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import TooFewUsersError, UsageError
from coterie.secagg import run_round, sealed_round, unsealed_round
from coterie.secagg.crypto.ring import RING_16, RING_32
from coterie.secagg.protocols import PROTOCOLS
from support.secagg.batches import Batches, Loners, quantiser, rules, terms

PHASES, UPLOAD = PROTOCOLS["secagg"].phases, PROTOCOLS["secagg"].upload_phase


def check(users, result, weights=None):
    """The result is the sum over its users within the rounding of each vector, and says nothing else."""
    (learned,) = result.learned
    share = dict.fromkeys(learned.users, 1) if weights is None else weights
    values = sum(share[user] * users.updates[user].astype(np.float64) for user in learned.users)
    weight = sum(share[user] for user in learned.users)
    assert learned.sum.weight == weight
    assert np.abs(learned.sum.values - values).max() <= users.rules.quantiser.step * weight
    return set(learned.users)


class Losses:
    """Messages that are lost: a chance for each, phase by phase, decided once."""

    def __init__(self, rng, chances):
        self._rng, self._chances = rng, chances
        self.lost = set()

    def __call__(self, user, phase, way):
        del way
        if self._rng.random() < self._chances[phase]:
            if phase <= UPLOAD:
                self.lost.add(user)
            return True
        return False


def expected_batches(batches, lost):
    """The users of batches that lost nobody before the agreement."""
    members = [{member.user for member in charter.members} for charter in batches.charters]
    return set().union(*(users for users in members if not users & lost))


@given(
    st.sampled_from(["secagg", "secagg+"]),
    st.integers(2, 4),
    st.integers(2, 5),
    st.lists(st.sampled_from([0, 0, 0.01, 0.05, 0.2]), min_size=PHASES, max_size=PHASES),
    st.integers(0, 2**32),
)
@settings(max_examples=12, deadline=None)
def test_losses_at_any_phase_give_the_right_sum_or_none(inner, size, count, chances, seed):
    """With users lost at every phase: exactly the complete batches' sum, or TooFewUsersError; then a round."""
    weighted = {"quantiser": quantiser(cohort=40, weight_cap=3)}
    batches = Batches(max(count, -(-12 // size)), size, inner=inner, common=weighted)
    weights = {user: 1 + number % 3 for number, user in enumerate(batches.clients)}
    conditions = terms(min_included=2 * size)
    losses = Losses(np.random.default_rng(seed), chances)
    server = sealed_round(batches.charters, 0, conditions)
    try:
        result = run_round(server, batches.clients, batches.train, weights=weights, loses=losses)
    except TooFewUsersError:
        assert any(chances)
    else:
        assert check(batches, result, weights) == expected_batches(batches, losses.lost)
        lost = [c.digest for c in batches.charters if losses.lost & {m.user for m in c.members}]
        assert result.lost.keys() == set(lost)
    again = sealed_round(batches.charters, 1, conditions)
    assert check(batches, run_round(again, batches.clients, batches.train, weights=weights), weights) == set(
        batches.clients
    )


@pytest.mark.parametrize("losing", [UPLOAD, PHASES - 1])
def test_many_users_of_whom_some_are_lost(losing):
    """Beyond 59 users SecAgg+ has a sparse graph: users are lost before uploading, and after."""
    batches = Batches(16, 4, inner="secagg+", common={"quantiser": quantiser(cohort=64)})
    conditions = terms(min_included=8)
    away = {f"user-{batch}-1" for batch in (3, 11, 14)}
    result = run_round(
        sealed_round(batches.charters, 0, conditions),
        batches.clients,
        batches.train,
        loses=lambda user, phase, way: user in away and phase == losing,
    )
    lost = away if losing == UPLOAD else set()
    assert check(batches, result) == expected_batches(batches, lost)


@given(
    st.sampled_from(["secagg", "secagg+"]),
    st.sampled_from([RING_16, RING_32]),
    st.integers(3, 20),
    st.lists(st.sampled_from([0, 0, 0.02, 0.1]), min_size=PHASES, max_size=PHASES),
    st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_unsealed_rounds_sum_over_whoever_uploaded(inner, ring, users, chances, seed):
    """Without batches every user who uploaded is included; everyone else is not."""
    loners = Loners(users, common={"inner": inner, "quantiser": quantiser(cohort=20, ring=ring)})
    conditions = terms(min_included=2)
    losses = Losses(np.random.default_rng(seed), chances)
    server = unsealed_round(loners.rules, loners.identities, 0, conditions)
    try:
        result = run_round(server, loners.clients, loners.train, loses=losses)
    except TooFewUsersError:
        assert any(chances)
    else:
        assert check(loners, result) == set(loners.clients) - losses.lost
        assert result.lost == {}


def test_most_rounds_survive_one_loss_in_ten():
    """T = 3, 18 users, of whom 10 % are lost somewhere in a round: over 90 % of the rounds give their sum."""
    batches = Batches(6, 3, inner="secagg+")
    conditions = terms(min_included=6)
    rng = np.random.default_rng(1)
    rounds, succeeded = 12, 0
    for round_ in range(rounds):
        lost = {user: int(rng.integers(PHASES)) for user in batches.clients if rng.random() < 0.1}
        server = sealed_round(batches.charters, round_, conditions)
        try:
            result = run_round(
                server,
                batches.clients,
                batches.train,
                loses=lambda user, phase, way, lost=lost: phase >= lost.get(user, PHASES),
            )
        except TooFewUsersError:
            continue
        before = {user for user, phase in lost.items() if phase <= UPLOAD}
        assert check(batches, result) == expected_batches(batches, before)
        succeeded += 1
    assert succeeded > 0.9 * rounds


def test_incomplete_batches_upload_nothing_and_help_to_unmask():
    """Members of a batch that lost one are not asked for a vector, and their shares open what others masked."""
    batches = Batches(3, 3, inner="secagg")
    conditions = terms(min_included=6)
    answers = {}

    def loses(user, phase, way):
        if way == "from":
            answers.setdefault(user, []).append(phase)
        return user == "user-1-0" and phase == 1

    result = run_round(sealed_round(batches.charters, 0, conditions), batches.clients, batches.train, loses=loses)
    assert check(batches, result) == expected_batches(batches, {"user-1-0"})
    assert answers["user-1-1"] == [0, 1, 2, 4, 5]
    assert answers["user-0-0"] == [0, 1, 2, 3, 4, 5]
    assert result.lost == {batches.charters[1].digest: "user-1-0 did not answer"}


def test_responders_and_included_are_two_numbers():
    """A round with enough included users fails if too few respond, and the other way round."""
    batches = Batches(4, 3, inner="secagg")
    conditions = terms(min_included=6)
    away = list(batches.clients)[:5]
    for phase, reason in ((4, "7 of 12 users agreed; 8 are needed"), (5, "7 shares of a user's secret came; 8")):
        server = sealed_round(batches.charters, phase, conditions)
        with pytest.raises(TooFewUsersError, match=reason):
            run_round(
                server,
                batches.clients,
                batches.train,
                loses=lambda user, at, way, phase=phase: user in away and at == phase,
            )
    one_each = {f"user-{batch}-0" for batch in range(3)}
    with pytest.raises(TooFewUsersError, match="3 users in 1 of 4 batches uploaded; 6 are needed"):
        run_round(
            sealed_round(batches.charters, 9, conditions),
            batches.clients,
            batches.train,
            loses=lambda user, at, way: user in one_each and (at, way) == (UPLOAD, "from"),
        )


def test_spare_batches_fill_in_for_incomplete_ones():
    """Asking more batches than needed, the round succeeds with those that are complete (§8)."""
    batches = Batches(4, 3, inner="secagg+")
    conditions = terms(min_included=9)
    result = run_round(
        sealed_round(batches.charters, 0, conditions),
        batches.clients,
        batches.train,
        loses=lambda user, phase, way: user == "user-2-1" and (phase, way) == (UPLOAD, "from"),
    )
    assert len(check(batches, result)) == 9


def test_batches_of_different_sizes_and_levels_go_together():
    """Every device has its own T and batch: the largest of them and its T are the least that terms can ask for."""
    small, large = Batches(2, 2, inner="secagg"), Batches(1, 5, privacy=3, inner="secagg", prefix="other")
    charters, clients = [*small.charters, *large.charters], {**small.clients, **large.clients}
    updates = {**small.updates, **large.updates}
    with pytest.raises(UsageError, match=r"min_included is 7; give 8 \(the largest batch and T more\) to 9"):
        sealed_round(charters, 0, terms(min_included=7))
    conditions = terms(min_included=8)
    result = run_round(sealed_round(charters, 0, conditions), clients, lambda user, task: updates[user])
    assert len(result.learned[0].users) == 9
    # Without one of the small batches there are 7 users: fewer than the large one and its T = 3.
    with pytest.raises(TooFewUsersError, match="7 users in 2 of 3 batches advertised; 8 are needed"):
        run_round(
            sealed_round(charters, 1, conditions),
            clients,
            lambda user, task: updates[user],
            loses=lambda user, phase, way: user == "user-0-0",
        )


def test_a_batch_founded_late_can_be_called():
    """A charter's first round may lie beyond what a chain from zero reaches; rounds before it are never sealed."""
    batches = Batches(2, 3, inner="secagg+", first=1_000_000)
    conditions = terms(min_included=6)
    result = run_round(sealed_round(batches.charters, 1_000_007, conditions), batches.clients, batches.train)
    assert check(batches, result) == set(batches.clients)


def test_a_round_that_could_not_be_is_refused_at_the_server():
    """Mixed or unknown inner protocols, too many users and a wrong min_included are the caller's error."""
    pairwise, plain = Batches(2, 3, inner="secagg"), Batches(1, 3, prefix="other")
    with pytest.raises(UsageError, match="2 different ones"):
        sealed_round([*pairwise.charters, *plain.charters], 0, terms(min_included=6))
    with pytest.raises(UsageError, match="open has no privacy but its seal"):
        unsealed_round(rules(inner="open"), {}, 0, terms())
    small = Batches(2, 3, inner="secagg", common={"quantiser": quantiser(cohort=5)})
    with pytest.raises(UsageError, match="6 users are asked, more than the 5"):
        sealed_round(small.charters, 0, terms(min_included=6))
    with pytest.raises(UsageError, match="two of the batches"):
        sealed_round([pairwise.charters[0]] * 2, 0, terms(min_included=6))
    for least in (5, 7):
        with pytest.raises(UsageError, match=f"min_included is {least}; give 6 .* to 6"):
            sealed_round(pairwise.charters, 0, terms(min_included=least))
    server = sealed_round(pairwise.charters, 0, terms(min_included=6))
    with pytest.raises(UsageError, match="the round is not over"):
        server.finish()


def test_an_update_that_is_not_finite_is_included_with_zeros():
    """It looks like any other answer in every phase, and adds nothing to the sum of values."""
    batches = Batches(2, 3, inner="secagg")
    conditions = terms(min_included=6)
    broken = {**batches.updates, "user-1-2": np.full(conditions.dimension, np.nan, dtype=np.float32)}
    batches.updates["user-1-2"] = np.zeros(conditions.dimension, dtype=np.float32)
    result = run_round(
        sealed_round(batches.charters, 0, conditions), batches.clients, lambda user, task: broken[user]
    )
    assert check(batches, result) == set(batches.clients)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_the_sum(threads):
    """Clients and server may use several threads; losses too."""
    loners = Loners(8)
    conditions = terms(dimension=70_000, min_included=2)
    updates = {user: np.full(70_000, number / 10, dtype=np.float32) for number, user in enumerate(loners.clients)}
    server = unsealed_round(loners.rules, loners.identities, 0, conditions, threads=threads)
    result = run_round(
        server,
        loners.clients,
        lambda user, task: updates[user],
        loses=lambda user, phase, way: user == "user-3" and phase == UPLOAD,
    )
    expected = sum(update for user, update in updates.items() if user != "user-3")
    assert result.sum.values == pytest.approx(expected, abs=1e-4)
