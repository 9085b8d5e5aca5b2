"""Theorem 3's shapes, and measured exposure."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from coterie.errors import UsageError
from coterie.selection import theory
from coterie.selection.theory import Estimate, _exposes_all


def exact_rank(rows: list[list[int]]) -> int:
    """Return the rank over the rationals by plain elimination."""
    table = [[Fraction(value) for value in row] for row in rows]
    rank = 0
    for column in range(len(table[0])):
        pivot = next((r for r in range(rank, len(table)) if table[r][column]), None)
        if pivot is None:
            continue
        table[rank], table[pivot] = table[pivot], table[rank]
        for r in range(rank + 1, len(table)):
            factor = table[r][column] / table[rank][column]
            table[r] = [a - factor * b for a, b in zip(table[r], table[rank], strict=True)]
        rank += 1
    return rank


@given(st.integers(1, 5), st.integers(1, 7), st.data())
@settings(deadline=None)
def test_full_rank_is_decided_exactly(users: int, rounds: int, data: st.DataObject) -> None:
    """Everyone is exposed exactly if the rank over the rationals is N."""
    row = st.lists(st.integers(0, 1), min_size=users, max_size=users)
    matrix = data.draw(st.lists(row, min_size=rounds, max_size=rounds))
    assert _exposes_all(np.array(matrix, dtype=np.bool_)) == (exact_rank(matrix) == users)


def test_low_rank_modulo_a_prime_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's three rounds of pairs expose all, though their determinant 2 is zero modulo 2."""
    monkeypatch.setattr(theory, "_PRIME", 2)
    assert _exposes_all(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.bool_))


@given(st.integers(1, 400), st.data())
def test_interval_is_wilsons(trials: int, data: st.DataObject) -> None:
    """The interval is scipy's Wilson interval."""
    successes = data.draw(st.integers(0, trials))
    estimate = Estimate.of_share(successes, trials)
    interval = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert estimate.low <= estimate.value == successes / trials <= estimate.high


def test_shares_must_make_sense() -> None:
    """No trials, or more successes than trials, are refused."""
    with pytest.raises(UsageError, match="trials is 0"):
        Estimate.of_share(0, 0)
    with pytest.raises(UsageError, match="3 successes in 2 trials"):
        Estimate.of_share(3, 2)


def near(estimate: Estimate, truth: float, trials: int) -> bool:
    """Say whether a measured share lies within five standard errors of the truth."""
    return abs(estimate.value - truth) < 5.0 * math.sqrt(truth * (1.0 - truth) / trials)


def test_measured_probabilities_are_right() -> None:
    """For three users, both schemes' measured probabilities agree with enumeration of all matrices."""
    rng = np.random.default_rng(8)
    cohorts = [[int(user in pair) for user in range(3)] for pair in combinations(range(3), 2)]
    full = [exact_rank(list(rows)) == 3 for rows in product(cohorts, repeat=4)]
    uniform = theory.uniform_exposure_probability(3, 2, rounds=4, trials=4000, rng=rng)
    assert near(uniform, sum(full) / len(full), 4000)
    patterns = list(product((0, 1), repeat=3))
    truth = 0.0
    for rows in product(patterns, repeat=3):
        seen = sum(map(sum, rows))
        truth += (2 / 3) ** seen * (1 / 3) ** (9 - seen) * (exact_rank([list(row) for row in rows]) == 3)
    bernoulli = theory.bernoulli_exposure_probability(3, 2, rounds=3, trials=4000, rng=rng)
    assert near(bernoulli, truth, 4000)


def test_fewer_rounds_than_users_never_expose_all() -> None:
    """Rank N takes at least N rounds."""
    rng = np.random.default_rng(0)
    assert theory.uniform_exposure_probability(10, 3, rounds=9, trials=20, rng=rng).value == 0.0


def test_bernoulli_bound_is_below_the_measured_probability() -> None:
    """The formula's value, o(1) left out, is not above what is measured for 40 users and 10 a round."""
    rng = np.random.default_rng(6)
    measured = theory.bernoulli_exposure_probability(40, 10, rounds=40, trials=300, rng=rng)
    assert 0.99 < theory.bernoulli_exposure_bound(40, 10) <= measured.high


@pytest.mark.parametrize(("users", "per_round"), [(10, 2), (120, 12), (50, 20)])
def test_bernoulli_bound_is_the_printed_formula(users: int, per_round: int) -> None:
    """The bound is part 2 of Theorem 3 in exact fractions, and never negative."""
    t = Fraction(per_round, users)
    exact = 1 - 2 * users * (1 - t) ** users - users * (users - 1) * (t**2 + (1 - t) ** 2) ** users
    assert theory.bernoulli_exposure_bound(users, per_round) == pytest.approx(float(max(0, exact)), abs=1e-12)


def test_uniform_bound_needs_its_constant() -> None:
    """Part 1 is 1 - 2 exp(-c'N), clipped at 0; the constant must be positive."""
    assert theory.uniform_exposure_bound(100, 0.1) == pytest.approx(1 - 2 * math.exp(-10))
    assert theory.uniform_exposure_bound(1, 0.1) == 0.0
    with pytest.raises(UsageError, match="c' is 0"):
        theory.uniform_exposure_bound(100, 0)
