"""Kriging: users are found where updates drift and least squares fails, and nobody in a batch plan."""

import numpy as np
import pytest
import torch

from coterie.lab.attacks.disaggregation import (
    DiagonalDrift,
    Kriging,
    LeastSquares,
    disaggregation_errors,
    errors_by_moments,
    moments_of,
)
from coterie.lab.attacks.view import ServerView

USERS, PER_ROUND, PARAMETERS = 20, 5, 800


def drifting_rounds(rounds, privacy=1, strength=0.3):
    """Users whose updates turn with the model by one matrix; users take part in whole batches."""
    rng, torch_rng = np.random.default_rng(1), torch.Generator().manual_seed(1)
    updates = torch.randn(USERS, PARAMETERS, generator=torch_rng, dtype=torch.float64)
    turn = torch.randn(PARAMETERS, PARAMETERS, generator=torch_rng, dtype=torch.float64) / PARAMETERS**0.5
    batches = np.arange(USERS).reshape(-1, privacy)
    model, learned, means = torch.zeros(PARAMETERS, dtype=torch.float64), [], []
    for _ in range(rounds):
        members = np.concatenate(batches[rng.choice(len(batches), PER_ROUND // privacy, replace=False)])
        means.append(updates[members].mean(dim=0) + strength * (turn @ model) - 0.1 * model)
        learned.append(np.sort(members))
        model = model + 0.3 * means[-1]
        means[-1] = 0.3 * means[-1]
    return ServerView.of(USERS, learned, means, torch.zeros(PARAMETERS, dtype=torch.float64)), 0.3 * updates


def test_a_drift_that_ruins_least_squares_is_seen_through():
    """Half as many rounds again as users, and a matrix of drift that the server never sees."""
    view, updates = drifting_rounds(30)
    plain = disaggregation_errors(view, LeastSquares(), updates)
    diagonal = disaggregation_errors(view, DiagonalDrift(), updates)
    kriging = disaggregation_errors(view, Kriging(), updates)
    assert kriging.errors.mean() < 0.2 * min(plain.errors.mean(), diagonal.errors.mean())
    assert len(kriging.found_users) > len(plain.found_users)


def test_without_drift_it_is_as_good_as_least_squares():
    """Static updates and full rank: nothing is left but the variance that rounding needs."""
    view, updates = drifting_rounds(40, strength=0.0)
    view = ServerView.of(
        USERS, view.learned, [updates[members.tolist()].mean(dim=0) for members in view.learned], view.model
    )
    assert disaggregation_errors(view, Kriging(), updates).errors.max() < 1e-4


@pytest.mark.parametrize("rounds", [12, 120])
def test_in_a_batch_plan_nobody_is_found(rounds):
    """Members of a batch have one and the same estimate, however the updates drift."""
    view, updates = drifting_rounds(rounds, privacy=5)
    operator = Kriging().operator(moments_of(view))
    assert np.allclose(operator.reshape(-1, 5, rounds), operator.reshape(-1, 5, rounds)[:, :1])
    assert len(disaggregation_errors(view, Kriging(), updates).found_users) == 0


@pytest.mark.parametrize("method", [LeastSquares(), Kriging()], ids=lambda method: method.name)
def test_errors_by_moments_are_those_of_the_vectors(method):
    """A study that keeps second moments alone comes to the same errors."""
    view, updates = drifting_rounds(30)
    sums = torch.stack(view.means) * torch.from_numpy(view.totals)[:, None]
    by_moments = errors_by_moments(
        method, moments_of(view), (sums @ updates.T).numpy(), updates.square().sum(dim=1).numpy()
    )
    direct = disaggregation_errors(view, method, updates)
    assert by_moments.errors == pytest.approx(direct.errors, rel=1e-6, abs=1e-9)
    assert by_moments.chance == pytest.approx(direct.chance, rel=1e-6)
