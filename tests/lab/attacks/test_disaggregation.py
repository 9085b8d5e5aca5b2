"""Taking sums apart: exact where it can be, the batch's mean on batch plans, in bounded memory."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.lab.attacks.disaggregation import (
    DiagonalDrift,
    LeastSquares,
    best_window,
    disaggregate,
    disaggregation_errors,
    estimated_updates,
    estimated_weights,
)
from coterie.lab.attacks.view import ServerView

USERS, PER_ROUND, PARAMETERS = 12, 4, 500
METHODS = [LeastSquares(), DiagonalDrift()]


def random_sets(rng, rounds, users=USERS, per_round=PER_ROUND):
    return [np.sort(rng.choice(users, per_round, replace=False)) for _ in range(rounds)]


def batch_sets(rng, rounds, privacy, users=USERS, per_round=PER_ROUND):
    batches = np.arange(users).reshape(-1, privacy)
    return [
        np.sort(np.concatenate(batches[rng.choice(len(batches), per_round // privacy, replace=False)]))
        for _ in range(rounds)
    ]


def static_view(learned, updates, weights=None):
    """Rounds in which every user sends the same update again and again."""
    weights = torch.ones(len(updates)) if weights is None else weights
    totals = [float(weights[members].sum()) for members in learned]
    means = [
        (weights[members, None] * updates[members]).sum(dim=0) / weights[members].sum() for members in learned
    ]
    return ServerView.of(len(updates), learned, means, torch.zeros(updates.shape[1]), totals=totals)


def updates_of(seed, users=USERS):
    return torch.randn(users, PARAMETERS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@given(seed=st.integers(0, 2**16))
def test_static_updates_come_out_exactly_where_the_rank_is_full(method, seed):
    """Random selection, twice as many rounds as users: every user's update is known up to rounding."""
    rng, updates = np.random.default_rng(seed), updates_of(seed)
    view = static_view(random_sets(rng, 2 * USERS), updates)
    assume(np.linalg.matrix_rank(view.participation) == USERS)
    result = disaggregation_errors(view, method, updates)
    # The estimate of a drift that is not there costs some digits.
    assert result.errors.max() < (1e-9 if isinstance(method, DiagonalDrift) else 1e-20)
    assert len(result.found_users) == USERS
    assert result.found_by_chance == 0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("privacy", [2, 4])
def test_on_a_batch_plan_the_estimate_is_the_batchs_mean_and_nobody_is_found(method, privacy):
    """However many rounds there are, members of a batch get one estimate: the mean of their updates."""
    updates = updates_of(privacy)
    view = static_view(batch_sets(np.random.default_rng(0), 200, privacy), updates)
    estimates = estimated_updates(view, method).double()
    means = updates.reshape(-1, privacy, PARAMETERS).mean(dim=1).repeat_interleave(privacy, dim=0)
    assert torch.allclose(estimates, means, atol=1e-5)
    result = disaggregation_errors(view, method, updates)
    assert len(result.found_users) == 0
    assert result.errors.mean() > 0.4


def test_weights_are_found_along_with_the_updates():
    """Users count by their examples: from the totals alone the server knows weights and updates."""
    rng, updates = np.random.default_rng(3), updates_of(3)
    weights = torch.from_numpy(rng.integers(1, 50, USERS).astype(np.float64))
    view = static_view(random_sets(rng, 3 * USERS), updates, weights)
    assert np.allclose(estimated_weights(view), weights)
    assert disaggregation_errors(view, LeastSquares(), updates).errors.max() < 1e-12


def test_in_a_batch_plan_weights_are_the_batchs_mean_weight():
    """The estimate is then the batch's weighted mean."""
    rng, updates = np.random.default_rng(4), updates_of(4)
    weights = torch.from_numpy(rng.integers(1, 50, USERS).astype(np.float64))
    view = static_view(batch_sets(rng, 60, 2), updates, weights)
    pairs = weights.reshape(-1, 2)
    assert np.allclose(estimated_weights(view), pairs.mean(dim=1).repeat_interleave(2))
    mean = (weights[:, None] * updates).reshape(-1, 2, PARAMETERS).sum(dim=1) / pairs.sum(dim=1)[:, None]
    assert torch.allclose(
        estimated_updates(view, LeastSquares()).double(), mean.repeat_interleave(2, 0), atol=1e-5
    )


@pytest.mark.parametrize("rounds", [3, 8, USERS - 1])
def test_with_fewer_rounds_than_users_the_estimate_is_that_of_minimum_norm(rounds):
    """Users of equal weight, too few equations: weights that are equal are not bent to fit the missing rank."""
    updates = updates_of(8)
    view = static_view(random_sets(np.random.default_rng(8), rounds), updates)
    assert np.linalg.matrix_rank(view.participation) < USERS
    expected = np.linalg.lstsq(view.participation, view.participation @ updates.numpy(), rcond=None)[0]
    assert np.allclose(estimated_weights(view), 1.0)
    assert np.allclose(estimated_updates(view, LeastSquares()).numpy(), expected, atol=1e-5)


def test_a_user_who_was_never_in_a_sum_weighs_what_users_do():
    """The totals say nothing of it, and a share of 20 examples is no share of one."""
    view = static_view([[0, 1], [1, 2], [0, 2]], updates_of(9, users=4), torch.full((4,), 20.0))
    assert estimated_weights(view) == pytest.approx([20.0] * 4)


@given(seed=st.integers(0, 2**16), rounds=st.integers(1, 2 * USERS))
def test_no_weight_is_zero_or_less(seed, rounds):
    """Whatever the totals are: updates are divided by weights."""
    rng = np.random.default_rng(seed)
    weights = torch.from_numpy(rng.integers(1, 1000, USERS).astype(np.float64))
    assert (estimated_weights(static_view(random_sets(rng, rounds), updates_of(0), weights)) > 0).all()


def test_a_drift_that_all_users_share_is_taken_out():
    """Updates move with the model by b ∘ (x - x_0): least squares errs by it, the drift-aware one not."""
    rng, updates = np.random.default_rng(5), 0.1 * updates_of(5)
    slope = -0.05 * torch.rand(PARAMETERS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    learned, model, means = random_sets(rng, 3 * USERS), torch.zeros(PARAMETERS, dtype=torch.float64), []
    for members in learned:
        means.append(updates[members].mean(dim=0) + slope * model)
        model = model + means[-1]
    view = ServerView.of(USERS, learned, means, torch.zeros(PARAMETERS, dtype=torch.float64))
    assert disaggregation_errors(view, LeastSquares(), updates).errors.mean() > 1e-3
    assert disaggregation_errors(view, DiagonalDrift(), updates).errors.max() < 1e-12


def test_no_drift_is_read_from_rounding():
    """One round to spare, and models that move within the span of P alone: the estimate is the batch's mean."""
    updates = torch.tensor([[1.0], [1.1], [-1.2], [-0.9]], dtype=torch.float64)
    learned = [[0, 1], [2, 3], [0, 1]]
    means = [updates[members].mean(dim=0) for members in learned]
    view = ServerView.of(4, learned, [means[0], means[1], 1.01 * means[2]], torch.zeros(1, dtype=torch.float64))
    assert torch.equal(view.model_before(2), torch.zeros(1, dtype=torch.float64))
    estimates = estimated_updates(view, DiagonalDrift()).double()
    assert torch.allclose(estimates, torch.tensor([[1.05], [1.05], [-1.05], [-1.05]]).double(), atol=0.01)


@given(memory=st.integers(1, 2**18))
def test_pieces_of_any_size_give_the_same_estimates(memory):
    """A model is attacked in pieces: none is larger than the memory allows, and together they are everything."""
    rng, updates = np.random.default_rng(6), updates_of(6)
    view = static_view(random_sets(rng, 30), updates)
    whole = estimated_updates(view, DiagonalDrift()).double()
    places = []
    for place, estimate in disaggregate(view, DiagonalDrift(), memory):
        width = place.stop - place.start
        assert width == 1 or width * 30 * 8 <= memory
        assert torch.allclose(estimate, whole[:, place], atol=1e-5)
        places.extend(range(place.start, place.stop))
    assert places == list(range(PARAMETERS))


def test_a_round_that_is_repeated_is_no_window():
    """Two equal rounds at the end fit one another exactly, and say nothing of users who are not in them."""
    updates = updates_of(7)
    learned = [*batch_sets(np.random.default_rng(7), 40, 2), [0, 1, 2, 3], [0, 1, 2, 3]]
    chosen = best_window(static_view(learned, updates))
    assert np.linalg.matrix_rank(chosen.participation) == USERS // 2


def test_a_window_knows_its_first_model():
    """The server adds each mean to its model, so a later window starts from all that came before."""
    view = ServerView.of(
        2, [[0], [1], [0]], torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([10.0]), rounds=[3, 4, 7]
    )
    later = view.window(1, 2)
    assert later.rounds == (4, 7)
    assert later.model.tolist() == [11.0]
    assert later.model_before(1).tolist() == [13.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learned": []}, "nothing to attack"),
        ({"learned": [[0]]}, "one of each per round"),
        ({"learned": [[0], [7]]}, "7"),
        ({"model": torch.zeros(3)}, "vectors of one length"),
    ],
)
def test_a_view_that_does_not_fit_together_is_refused(change, words):
    """No round, sets and means of different number, users that do not exist, vectors of another length."""
    good = {"users": 2, "learned": [[0], [1]], "means": torch.zeros(2, 2), "model": torch.zeros(2)}
    with pytest.raises(UsageError, match=words):
        ServerView.of(**{**good, **change, **({"means": []} if change == {"learned": []} else {})})


@pytest.mark.parametrize(("start", "length"), [(0, 3), (2, 1), (-1, 1), (0, 0)])
def test_a_window_outside_the_view_is_refused(start, length):
    """A window has at least one round, and all of them are in the view."""
    view = ServerView.of(2, [[0], [1]], torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(UsageError, match="no window"):
        view.window(start, length)
