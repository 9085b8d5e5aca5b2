"""How soon random selection exposes every user (thm:random-selection-multi-round).

All users' updates can be told apart as soon as the participation matrix P has rank N.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from coterie.errors import UsageError
from coterie.values.checks import BoolArray, check_count, check_parameters

_PRIME = 2**61 - 1
_NORMAL = 1.959963984540054  # two-sided 95 % point of the normal distribution


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
