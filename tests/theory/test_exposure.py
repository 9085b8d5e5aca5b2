"""Theorem 3's shapes, measured exposure, and the expected round of exposure."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from flint import ctx, fmpz_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from coterie import theory
from coterie.errors import UsageError
from coterie.theory import Estimate, exposure
from coterie.theory import expected_rounds_to_exposure as expected_rounds
from coterie.theory.exposure import _exposes_all


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
    monkeypatch.setattr(exposure, "_PRIME", 2)
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


@pytest.mark.parametrize("users", [2, 3, 10, 60, 1000])
def test_one_user_a_round_is_the_coupon_collector(users: int) -> None:
    """K = 1 takes N·H_N rounds; so does K = N - 1, where each round leaves one user out."""
    harmonic = float(users * sum(Fraction(1, i) for i in range(1, users + 1)))
    assert expected_rounds(users, 1) == pytest.approx(harmonic, rel=1e-12)
    assert expected_rounds(users, users - 1) == pytest.approx(harmonic, rel=1e-12)


@pytest.mark.parametrize(("users", "per_round"), [(4, 2), (6, 2), (9, 4), (30, 3), (40, 20)])
def test_expected_rounds_equal_exact_fractions(users: int, per_round: int) -> None:
    """The sum, cut off and rounded, equals the formula in exact fractions."""
    total = Fraction(users)
    for j in range(1, users + 1):
        r = Fraction(math.comb(users - j, per_round), math.comb(users, per_round))
        total += (-1) ** (j + 1) * math.comb(users, j) * r**users / (1 - r)
    assert expected_rounds(users, per_round) == pytest.approx(float(total), rel=1e-12)


@pytest.mark.parametrize(("users", "per_round"), [(4, 2), (6, 3), (8, 2), (8, 6), (12, 4), (12, 1)])
def test_simulated_exposure_is_close_above(users: int, per_round: int) -> None:
    """The mean round in which the exact rank reaches N is at least the bound, and at most two more."""
    rng = np.random.default_rng(users * 100 + per_round)
    found = []
    for _ in range(400):
        rows: list[list[int]] = []
        while len(rows) < users or fmpz_mat(rows).rank() < users:
            row = np.zeros(users, dtype=np.int64)
            row[rng.choice(users, per_round, replace=False)] = 1
            rows.append(row.tolist())
        found.append(len(rows))
    error = 4.0 * np.std(found) / math.sqrt(len(found))
    bound = expected_rounds(users, per_round)
    assert bound - error <= np.mean(found) <= bound + 2.0 + error


def test_dropout_costs_skipped_rounds() -> None:
    """Rounds with fewer than K available users are skipped: the count grows by one over P(round runs)."""
    runs = theory.at_least(np.full(10, 0.6), 5)
    assert expected_rounds(10, 5, 0.4) == pytest.approx(expected_rounds(10, 5) / runs, rel=1e-12)
    assert expected_rounds(10, 5, 1.0) == math.inf


def test_extremes() -> None:
    """Everyone in every round exposes nobody, one user alone is exposed at once, many users are fine."""
    assert expected_rounds(10, 10) == math.inf
    assert expected_rounds(1, 1) == 1.0
    assert expected_rounds(10_000_000, 1000) == 10_000_000.0
    with pytest.raises(UsageError, match="still unseen"):
        expected_rounds(1_000_000, 1)


def test_precision_is_given_back() -> None:
    """Flint's working precision is as before, whatever was needed inside."""
    before = ctx.prec
    expected_rounds(300, 1)
    assert ctx.prec == before
