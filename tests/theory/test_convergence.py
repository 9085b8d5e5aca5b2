"""Theorem 2 and its careful form: the variance of batch sampling, the three differences, and training."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from coterie.errors import UsageError
from coterie.theory import Problem, batch_convergence_bound, cardinality, convergence_bound
from coterie.theory.convergence import _sampling_error
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


def test_printed_bound_by_hand() -> None:
    """The bound is eq:conv_rate, number by number."""
    alpha = 0.5 + 6 * 3 * 2.0 + 8 * 1 * 5
    beta = 4 * (12 - 4) * 4 * 5 / (4 * 11)
    expected = 3 / (16 + 3 / 4 * 2 * 50 - 1) * (2 * (alpha + beta) / 2.25 + 8 * 4)
    assert convergence_bound(PROBLEM, 12, 4, 3.0, 50) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("rounds", [0, 1, 50])
def test_forms_agree_where_they_should(rounds: int) -> None:
    """With T = 1, no skipped rounds and user optima of zero, the careful bound is the printed one."""
    printed = convergence_bound(PROBLEM, 12, 4, 4.0, rounds)
    assert batch_convergence_bound(PROBLEM, 12, 4, 1, 4.0, rounds) == pytest.approx(printed, rel=1e-14)


@pytest.mark.parametrize(("users", "per_round"), [(12, 4), (12, 1), (12, 12), (1, 1)])
def test_sampling_error_of_users_is_the_printed_beta(users: int, per_round: int) -> None:
    """For T = 1, β = 4(N-K) E²G² / (K(N-1)); with everyone in every round it is zero."""
    printed = 4 * (users - per_round) * 4 * 5.0 / (per_round * (users - 1)) if users > 1 else 0.0
    assert _sampling_error(PROBLEM, users, per_round) == pytest.approx(printed, rel=1e-14)


@pytest.mark.parametrize(
    ("users", "per_round", "privacy"), [(12, 4, 1), (12, 4, 2), (12, 6, 3), (12, 8, 4), (6, 6, 2)]
)
def test_variance_of_batch_sampling(users: int, per_round: int, privacy: int) -> None:
    """Over all cohorts, the cohort mean varies by (B-k)/(k(B-1)) of the variance between batches."""
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
    problem = replace(PROBLEM, gradient_bound=1.0, local_steps=1)
    assert _sampling_error(problem, batches, needed) == pytest.approx(4 * float(factor), rel=1e-14)


def test_skipped_rounds_are_averaged_over() -> None:
    """The careful bound is the mean over the number of completed rounds; by Jensen it is the higher one."""
    chance = [comb(9, x) * 0.25**x * 0.75 ** (9 - x) for x in range(10)]
    by_hand = sum(p * batch_convergence_bound(PROBLEM, 12, 4, 2, 4.0, x) for x, p in enumerate(chance))
    assert batch_convergence_bound(PROBLEM, 12, 4, 2, 1.0, 9) == pytest.approx(by_hand, rel=1e-13)
    assert batch_convergence_bound(PROBLEM, 12, 4, 1, 1.0, 9) > convergence_bound(PROBLEM, 12, 4, 1.0, 9)
    assert batch_convergence_bound(PROBLEM, 12, 4, 2, 0.0, 9) == batch_convergence_bound(PROBLEM, 12, 4, 2, 4.0, 0)


def test_heterogeneity_is_a_mean() -> None:
    """Users with the same loss have Γ = 0 in the careful form; the printed Γ is then negative."""
    alike = replace(PROBLEM, user_optima=np.full(12, 2.0), gradient_bound=0.0, gradient_variances=np.zeros(12))
    expected = 3 / 15 * 8 * 4.0
    assert batch_convergence_bound(alike, 12, 4, 2, 4.0, 0) == pytest.approx(expected, rel=1e-14)
    assert convergence_bound(alike, 12, 4, 4.0, 0) < 0.0


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
    """N is the problem's, C lies between 0 and K, T divides N and K."""
    with pytest.raises(UsageError, match="12 users and N is 13"):
        convergence_bound(PROBLEM, 13, 4, 3.0, 5)
    with pytest.raises(UsageError, match=r"C is 4\.5"):
        convergence_bound(PROBLEM, 12, 4, 4.5, 5)
    with pytest.raises(UsageError, match="does not divide"):
        batch_convergence_bound(PROBLEM, 12, 4, 3, 3.0, 5)


def test_training_stays_below_the_bound() -> None:
    """FedAvg on strongly convex losses, in whole batches and with dropout, stays below the bound."""
    rng = np.random.default_rng(11)
    users, per_round, privacy, steps, dropout, trials = 8, 4, 2, 3, 0.2, 400
    curvature = np.linspace(1.0, 2.0, users)
    data = rng.normal(size=(users, 5, 2)) * 0.3 + rng.normal(size=(users, 1, 2))
    start = np.array([3.0, -3.0])
    centres = data.mean(axis=1)
    spread = np.square(data - centres[:, None]).sum(axis=2).mean(axis=1)
    best = curvature @ centres / curvature.sum()

    def loss(x: FloatArray) -> FloatArray:
        distance = np.square(x[..., None, :] - centres).sum(axis=-1) + spread
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
        user_optima=curvature / 2 * spread,
        initial_distance=float(np.square(start - best).sum()),
        local_steps=steps,
    )
    x, step = np.tile(start, (trials, 1)), np.zeros(trials)
    whole_c = cardinality(users, per_round, privacy, dropout)
    for rounds in range(1, 61):
        local, rate = np.repeat(x[:, None], users, axis=1), step.copy()
        for _ in range(steps):
            sample = data[np.arange(users), rng.integers(0, 5, (trials, users))]
            size = 2.0 / (problem.strong_convexity * (problem.gamma + rate))
            local = local - size[:, None, None] * curvature[:, None] * (local - sample)
            rate += 1
        up = (rng.random((trials, users)) >= dropout).reshape(trials, -1, privacy).all(axis=2)
        order = np.argsort(np.where(up, rng.random(up.shape), 2.0), axis=1)[:, : per_round // privacy]
        runs = up.sum(axis=1) >= per_round // privacy
        means = local.reshape(trials, -1, privacy, 2).mean(axis=2)
        cohort = np.take_along_axis(means, order[:, :, None], axis=1).mean(axis=1)
        x, step = np.where(runs[:, None], cohort, x), np.where(runs, rate, step)
        excess = loss(x) - problem.optimum
        worst = excess.mean() + 4.0 * excess.std() / np.sqrt(trials)
        assert worst < batch_convergence_bound(problem, users, per_round, privacy, whole_c, rounds)
    assert excess.mean() < 0.1 * float(loss(start) - problem.optimum)
