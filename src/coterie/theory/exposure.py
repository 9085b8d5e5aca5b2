"""How soon random selection exposes every user (thm:random-selection-multi-round).

All users' updates can be told apart as soon as the participation matrix P has rank N.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from coterie.errors import UsageError
from coterie.theory.measures import binomial_at_least
from coterie.values.checks import BoolArray, check_count, check_parameters, check_probability

_PRIME = 2**61 - 1
_NORMAL = 1.959963984540054  # two-sided 95 % point of the normal distribution
_MOST_UNSEEN = 10_000.0  # more make the alternating sum take seconds
_ACCURACY = 1e-13


@dataclass(frozen=True)
class Estimate:
    """A measured probability and the interval that holds the true one in 95 of 100 cases."""

    value: float
    low: float
    high: float

    @classmethod
    def of_share(cls, successes: int, trials: int) -> "Estimate":
        """Return the share of successes with Wilson's interval.

        (s + z²/2 ± z √(s(n-s)/n + z²/4)) / (n + z²) for s of n successes, z = 1.96

        >>> Estimate.of_share(0, 100)
        Estimate(value=0.0, low=0.0, high=0.03699349820698568)
        """
        trials = check_count(trials, "the number of trials")
        successes = check_count(successes, "the number of successes", least=0)
        if successes > trials:
            raise UsageError(f"{successes} successes in {trials} trials; there cannot be more than trials")
        square = _NORMAL**2
        centre = successes + square / 2.0
        half = _NORMAL * math.sqrt(successes * (trials - successes) / trials + square / 4.0)
        low = 0.0 if successes == 0 else (centre - half) / (trials + square)
        high = 1.0 if successes == trials else (centre + half) / (trials + square)
        return cls(successes / trials, low, high)


def uniform_exposure_bound(users: int, rate: float) -> float:
    """Return 1 - 2 exp(-c'N): K-uniform selection exposes everyone in N rounds at least so probably.

    Part 1 of thm:random-selection-multi-round, for min(K, N-K) ≥ cN. The constant c' = `rate` depends on c;
    the paper does not give it. So this is a shape, not a number to rely on: `uniform_exposure_probability`
    measures.

    >>> round(uniform_exposure_bound(120, rate=0.05), 4)
    0.995
    """
    check_count(users, "the number of users N")
    if not 0.0 < rate < math.inf:
        raise UsageError(f"the rate c' is {rate}; give a positive number")
    return max(0.0, 1.0 - 2.0 * math.exp(-rate * users))


def bernoulli_exposure_bound(users: int, per_round: int) -> float:
    """Return the least probability that i.i.d. selection exposes everyone in N rounds.

        1 - 2N(1-t)^N - (1 + o(1)) N(N-1) (t² + (1-t)²)^N,  t = K/N

    Part 2 of thm:random-selection-multi-round. The o(1), not known, is taken as 0, and a negative value as
    0: for small N it is an approximation. With dropout, an available user is chosen with K/(N(1-p)): again
    t in all.

    >>> round(bernoulli_exposure_bound(120, 12), 6), bernoulli_exposure_bound(120, 2)
    (0.999224, 0.0)
    """
    check_parameters(users, per_round)
    share = per_round / users
    unseen = 2.0 * users * (1.0 - share) ** users
    alike = users * (users - 1.0) * (share**2 + (1.0 - share) ** 2) ** users
    return max(0.0, 1.0 - unseen - alike)


def uniform_exposure_probability(users: int, per_round: int, rounds: int, trials: int, rng: Generator) -> Estimate:
    """Measure how probably J rounds of K uniformly chosen users expose everyone. Ranks are exact.

    >>> uniform_exposure_probability(20, 5, rounds=25, trials=100, rng=np.random.default_rng(1))
    Estimate(value=0.98, low=0.9299882092714561, high=0.9944980324498377)
    """
    check_parameters(users, per_round)

    def draw() -> BoolArray:
        order = np.argpartition(rng.random((rounds, users)), per_round - 1, axis=1)
        matrix = np.zeros((rounds, users), dtype=np.bool_)
        np.put_along_axis(matrix, order[:, :per_round], values=True, axis=1)
        return matrix

    return _measure(draw, rounds, trials)


def bernoulli_exposure_probability(
    users: int, per_round: int, rounds: int, trials: int, rng: Generator
) -> Estimate:
    """Measure how probably J rounds of i.i.d. selection with K/N expose everyone. Ranks are exact.

    >>> bernoulli_exposure_probability(20, 5, rounds=25, trials=100, rng=np.random.default_rng(1))
    Estimate(value=1.0, low=0.9630065017930143, high=1.0)
    """
    check_parameters(users, per_round)
    return _measure(lambda: rng.random((rounds, users)) < per_round / users, rounds, trials)


def _measure(draw: Callable[[], BoolArray], rounds: int, trials: int) -> Estimate:
    check_count(rounds, "the number of rounds J")
    check_count(trials, "the number of trials")
    return Estimate.of_share(sum(_exposes_all(draw()) for _ in range(trials)), trials)


def _exposes_all(matrix: BoolArray) -> bool:
    """Say whether the matrix has full column rank over the rationals.

    Full rank modulo a prime proves it. The converse does not hold, so anything else is decided exactly.
    """
    from flint import fmpz_mat, nmod_mat

    rounds, users = matrix.shape
    if rounds < users or not matrix.any(axis=0).all():
        return False
    entries = matrix.astype(np.int64).ravel().tolist()
    if nmod_mat(rounds, users, entries, _PRIME).rank() == users:
        return True
    return bool(fmpz_mat(rounds, users, entries).rank() == users)


def expected_rounds_to_exposure(users: int, per_round: int, dropout: float = 0.0) -> float:
    """Return how many rounds K-uniform selection takes to expose everyone: a lower bound on the mean.

        E[max(N, L)] / P(Bin(N, 1-p) ≥ K),
        E[max(N, L)] = N + Σ_{j=1…N} (-1)^(j+1) C(N, j) r_j^N / (1 - r_j),  r_j = C(N-j, K) / C(N, K)

    Rank N needs N rounds that run, and every user in one of them: L is the first by which all were seen. It
    also needs every user left out of one (else that user's column is a multiple of the others' sum), so for
    K > N/2 the same formula holds with N-K for K. K = N exposes nobody, unless N = 1. For K = 1 the true
    mean is equal; in simulations it is at most two rounds above, and within a tenth for N ≥ 20, 5 ≤ K ≤
    N-5. Every user misses a round with probability p, independently; a round runs if K or more are left.

    The sum alternates: it is taken in ball arithmetic, with precision raised until the result is certain to
    twelve digits, and cut off where Bonferroni's inequalities allow it.

    >>> round(expected_rounds_to_exposure(120, 12), 6)
    120.003875
    >>> expected_rounds_to_exposure(2, 1)  # two coupons: 1 + 2
    3.0
    """
    check_parameters(users, per_round)
    runs = binomial_at_least(users, 1.0 - check_probability(dropout, "the dropout probability"), per_round)
    rarer = min(per_round, users - per_round)
    if runs == 0.0 or (rarer == 0 and users > 1):
        return math.inf
    return (users + (_rounds_unseen(users, rarer) if users > 1 else 0.0)) / runs


def _rounds_unseen(users: int, sample: int) -> float:
    """Return Σ_{t ≥ N} P(some user was in none of t uniform draws of K), within 2e-13 · N."""
    unseen = users * math.exp(users * math.log1p(-sample / users))
    if unseen > _MOST_UNSEEN:
        raise UsageError(
            f"of N = {users} users, drawn {sample} a round, {unseen:.0f} are still unseen after N rounds; "
            f"more than {_MOST_UNSEEN:.0f} take too long to compute: ask for fewer users or more per round"
        )
    precision = 128
    while True:
        total = _alternating_sum(users, sample, precision)
        if total is not None:
            return total
        precision *= 2


def _alternating_sum(users: int, sample: int, precision: int) -> float | None:
    """Return the sum of `expected_rounds_to_exposure`, or None if `precision` bits are too few."""
    from flint import arb, ctx

    tolerance = _ACCURACY * users
    with ctx.workprec(precision):
        total, choices, ratio = arb(0), arb(1), arb(1)
        for left_out in range(1, users - sample + 1):
            before = users - left_out + 1
            choices = choices * before / left_out
            ratio = ratio * (before - sample) / before
            term = choices * ratio**users / (1 - ratio)
            total += term if left_out % 2 else -term
            if not total.rad() < tolerance:
                return None
            # Bonferroni: the true value lies between any two successive partial sums.
            if term < tolerance:
                break
        return float(total.mid())
