"""Theorem 2 as printed: number by number, its β as a variance of sampling, its Γ, and training."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from coterie.errors import UsageError
from coterie.selection.theory import Problem, cardinality, convergence_bound
from coterie.values import FloatArray

PROBLEM = Problem(
    smoothness=3.0,
    strong_convexity=1.5,
    gradient_variances=np.linspace(0.1, 0.9, 12),
    gradient_bound=5.0,
    optimum=2.0,
    user_optima=np.zeros(12),
    initial_distance=4.0,
    local_steps=2,
)


def sampling_error(problem: Problem, units: int, sample: int) -> float:
    """Return β of the bound, of a problem of so many users in which β alone is not zero."""
    nothing = np.zeros(units)
    alone = replace(
        problem, gradient_variances=nothing, optimum=0.0, user_optima=nothing, initial_distance=0.0, local_steps=1
    )
    bound = convergence_bound(alone, units, sample, float(sample), 0)
    return bound * (alone.gamma - 1.0) * alone.strong_convexity**2 / (2.0 * alone.smoothness)


@pytest.mark.parametrize("rounds", [0, 1, 50])
def test_printed_bound_by_hand(rounds: int) -> None:
    """The bound is eq:conv_rate, number by number."""
    alpha = 0.5 + 6 * 3 * 2.0 + 8 * 1 * 5
    beta = 4 * (12 - 4) * 4 * 5 / (4 * 11)
    expected = 3 / (16 + 3 / 4 * 2 * rounds - 1) * (2 * (alpha + beta) / 2.25 + 8 * 4)
    assert convergence_bound(PROBLEM, 12, 4, 3.0, rounds) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("users", "per_round"), [(12, 4), (12, 1), (12, 12), (1, 1)])
def test_sampling_error_is_the_printed_beta(users: int, per_round: int) -> None:
    """For one step, β = 4(N-K) G² / (K(N-1)); with everyone in every round it is zero."""
    printed = 4 * (users - per_round) * 5.0 / (per_round * (users - 1)) if users > 1 else 0.0
    assert sampling_error(PROBLEM, users, per_round) == pytest.approx(printed, rel=1e-14)


@pytest.mark.parametrize(
    ("users", "per_round", "privacy"), [(12, 4, 1), (12, 4, 2), (12, 6, 3), (12, 8, 4), (6, 6, 2)]
)
def test_variance_of_batch_sampling(users: int, per_round: int, privacy: int) -> None:
    """Over all cohorts, the cohort mean varies by the β of k of B units: of batches, or of users if T = 1."""
    draws = np.random.default_rng(users + privacy).integers(-9, 10, users)
    models = [Fraction(int(value)) for value in draws]
    batches, needed = users // privacy, per_round // privacy
    means = [sum(models[b * privacy : (b + 1) * privacy]) / privacy for b in range(batches)]
    centre = sum(models) / users
    cohorts = [sum(chosen) / needed for chosen in combinations(means, needed)]
    variance = sum((value - centre) ** 2 for value in cohorts) / len(cohorts)
    between_batches = sum((value - centre) ** 2 for value in means) / batches
    between_users = sum((value - centre) ** 2 for value in models) / users
    factor = Fraction(privacy * (users - per_round), per_round * (users - privacy))
    assert variance == factor * between_batches <= factor * between_users
    problem = replace(PROBLEM, gradient_bound=1.0)
    assert sampling_error(problem, batches, needed) == pytest.approx(4 * float(factor), rel=1e-14)


def test_printed_heterogeneity_can_be_negative() -> None:
    """Users with the same loss differ in nothing; the printed Γ, which lacks its 1/N, is then negative."""
    alike = replace(PROBLEM, user_optima=np.full(12, 2.0), gradient_bound=0.0, gradient_variances=np.zeros(12))
    expected = 3 / 15 * (2 * 6 * 3 * (2.0 - 12 * 2.0) / 2.25 + 8 * 4.0)
    assert convergence_bound(alike, 12, 4, 4.0, 0) == pytest.approx(expected, rel=1e-14)
    assert expected < 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"smoothness": 1.0}, "strong convexity ≤ smoothness"),
        ({"strong_convexity": 0.0}, "strong convexity is 0.0"),
        ({"gradient_bound": float("nan")}, "gradient_bound is nan"),
        ({"initial_distance": -1.0}, "initial_distance is -1.0"),
        ({"gradient_variances": np.full(12, -1.0)}, "variance is negative"),
        ({"gradient_variances": np.ones(3)}, "one of each per user"),
        ({"optimum": float("inf")}, "optimum is not finite"),
        ({"local_steps": 0}, "local steps E is 0"),
    ],
)
def test_impossible_problems_are_refused(changes: dict[str, object], words: str) -> None:
    """A constant that no loss can have is named."""
    with pytest.raises(UsageError, match=words):
        replace(PROBLEM, **changes)


def test_numbers_must_fit_the_problem() -> None:
    """N is the problem's, C lies between 0 and K, J is a count."""
    with pytest.raises(UsageError, match="12 users and N is 13"):
        convergence_bound(PROBLEM, 13, 4, 3.0, 5)
    with pytest.raises(UsageError, match=r"C is 4\.5"):
        convergence_bound(PROBLEM, 12, 4, 4.5, 5)
    with pytest.raises(UsageError, match="rounds J is -1"):
        convergence_bound(PROBLEM, 12, 4, 3.0, -1)


def test_training_stays_below_the_bound() -> None:
    """FedAvg on strongly convex losses, with dropout, stays below the bound. Γ is right as every L_i* is 0."""
    rng = np.random.default_rng(11)
    users, per_round, steps, dropout, trials = 8, 4, 3, 0.2, 400
    curvature = np.linspace(1.0, 2.0, users)
    data = rng.normal(size=(users, 5, 2)) * 0.3 + rng.normal(size=(users, 1, 2))
    start = np.array([3.0, -3.0])
    centres = data.mean(axis=1)
    spread = np.square(data - centres[:, None]).sum(axis=2).mean(axis=1)
    best = curvature @ centres / curvature.sum()

    def loss(x: FloatArray) -> FloatArray:
        distance = np.square(x[..., None, :] - centres).sum(axis=-1)
        return np.asarray((curvature / 2 * distance).mean(axis=-1))

    # Steps are short, so iterates stay in the hull of the start and all data, whose corners bound G².
    corners = np.vstack((start, data.reshape(-1, 2)))
    squares = np.square(corners[:, None, None] - data).sum(axis=-1).mean(axis=2)
    problem = Problem(
        smoothness=2.0,
        strong_convexity=1.0,
        gradient_variances=curvature**2 * spread,
        gradient_bound=float((curvature**2 * squares).max()),
        optimum=float(loss(best)),
        user_optima=np.zeros(users),
        initial_distance=float(np.square(start - best).sum()),
        local_steps=steps,
    )
    x, step = np.tile(start, (trials, 1)), np.zeros(trials)
    mean_size = cardinality(users, per_round, 1, dropout)
    for rounds in range(1, 61):
        local, rate = np.repeat(x[:, None], users, axis=1), step.copy()
        for _ in range(steps):
            sample = data[np.arange(users), rng.integers(0, 5, (trials, users))]
            size = 2.0 / (problem.strong_convexity * (problem.gamma + rate))
            local = local - size[:, None, None] * curvature[:, None] * (local - sample)
            rate += 1
        up = rng.random((trials, users)) >= dropout
        order = np.argsort(np.where(up, rng.random(up.shape), 2.0), axis=1)[:, :per_round]
        runs = up.sum(axis=1) >= per_round
        cohort = np.take_along_axis(local, order[:, :, None], axis=1).mean(axis=1)
        x, step = np.where(runs[:, None], cohort, x), np.where(runs, rate, step)
        excess = loss(x) - problem.optimum
        worst = excess.mean() + 4.0 * excess.std() / np.sqrt(trials)
        assert worst < convergence_bound(problem, users, per_round, mean_size, rounds)
    assert excess.mean() < 0.1 * float(loss(start) - problem.optimum)
