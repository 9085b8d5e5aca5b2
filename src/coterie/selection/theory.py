"""Closed forms of the paper, each with its assumptions: pure functions of numbers.

Three parts: cardinality C, fairness gap F and family size R, for users of unequal availability too; how soon
random selection exposes every user (thm:random-selection-multi-round), where all updates can be told apart as
soon as the participation matrix P has rank N; and how fast training converges (thm:convergence), as printed,
with a note on what the printed form gets wrong.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    check_count,
    check_divides,
    check_parameters,
    check_probabilities,
    check_probability,
    frozen,
)

_NEGLIGIBLE = 1e-300  # smaller probabilities count as zero: denormal numbers are slow
_ALIKE = 16  # so many equal probabilities are worth a binomial of their own
_BLOCK = 64  # sums of so many are built side by side, larger ones one by one


def cardinality(users: int, per_round: int, privacy: int, dropout: float) -> float:
    """Return C for equal dropout p (thm:multi-roundsecagg-guarantees).

        C = K (1 - Σ_{i = N/T-K/T+1 … N/T} C(N/T, i) q^i (1-q)^(N/T-i)),  q = 1 - (1-p)^T

    that is K · P(at least K/T of the N/T batches are whole). Users drop independently; T divides N and K.

    >>> [round(cardinality(120, 12, privacy, 0.1), 4) for privacy in (1, 6, 12)]
    [12.0, 11.9999, 11.5657]
    >>> round(cardinality(10_000_000, 10_000, 10, 0.5), 4)
    2306.1593
    """
    batches, needed = check_divides(users, per_round, privacy)
    dropped = check_probability(dropout, "the dropout probability")
    whole = 0.0 if dropped == 1.0 else math.exp(privacy * math.log1p(-dropped))
    return per_round * binomial_at_least(batches, whole, needed)


def cardinality_of_batches(whole: ArrayLike, needed: int, cohort: float) -> float:
    """Return C for unequal batches: the Poisson-binomial form of Theorem 1.

        C = cohort · P(at least `needed` batches are whole),  P(batch b is whole) = Π_{i in b} (1 - p_i)

    `cohort` is the number of users in `needed` batches, on average if batches differ in size. Batches are
    whole independently of one another.

    >>> cardinality_of_batches([0.5, 0.5, 1.0], needed=2, cohort=12)
    9.0
    """
    if not 0.0 <= cohort < math.inf:
        raise UsageError(f"the cohort has {cohort} users; give a number that is not negative")
    return cohort * at_least(whole, needed)


def at_least(probabilities: ArrayLike, needed: int) -> float:
    """Return P(at least `needed` of independent events happen), events having these probabilities.

    >>> at_least([0.5, 0.5, 1.0], 2)
    0.75
    """
    return min(1.0, float(poisson_binomial(probabilities, needed)[-1]))


def poisson_binomial(probabilities: ArrayLike, limit: int) -> FloatArray:
    """Return P(X = 0), …, P(X = limit - 1) and, last, P(X ≥ limit).

    X is the number of independent events that happen. Only positive numbers are added, so every entry keeps
    its relative accuracy. Equal probabilities are taken together as a binomial: a million of few kinds is
    fast.

    >>> poisson_binomial([0.5, 0.5, 1.0], 2)
    array([0.  , 0.25, 0.75])
    """
    chances = check_probabilities(probabilities, "probability")
    limit = check_count(limit, "the limit", least=0)
    values, counts = np.unique(chances, return_counts=True)
    alike = counts >= _ALIKE
    sums = [_binomial(int(n), float(a), limit) for a, n in zip(values[alike], counts[alike], strict=True)]
    sums += _blocks(np.repeat(values[~alike], counts[~alike]), limit)
    if not sums:
        return certain(0, limit)
    while len(sums) > 1:
        pairs = [add(left, right) for left, right in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[len(pairs) * 2 :]
    return sums[0]


def certain(value: int, limit: int) -> FloatArray:
    """Return the distribution, in the form of `poisson_binomial`, of a number that is always `value`."""
    distribution = np.zeros(limit + 1)
    distribution[min(value, limit)] = 1.0
    return distribution


def upper(distribution: FloatArray) -> FloatArray:
    """Return P(X ≥ 0), …, P(X ≥ limit) for a distribution in the form of `poisson_binomial`."""
    return np.cumsum(distribution[::-1])[::-1]


def add(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the distribution of X + Y for independent X and Y, all in the form of `poisson_binomial`.

    >>> add(np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.5, 0.0]))
    array([0.25, 0.5 , 0.25])
    """
    limit = len(left) - 1
    total = np.zeros(limit + 1)
    total[limit] = left[limit] + left[:limit] @ upper(right)[:0:-1]
    x, y = np.flatnonzero(left[:limit]), np.flatnonzero(right[:limit])
    if len(x) and len(y) and x[0] + y[0] < limit:
        body = np.convolve(left[x[0] : x[-1] + 1], right[y[0] : y[-1] + 1])[: limit - x[0] - y[0]]
        total[x[0] + y[0] : x[0] + y[0] + len(body)] = np.where(body < _NEGLIGIBLE, 0.0, body)
    return total


def _blocks(chances: FloatArray, limit: int) -> list[FloatArray]:
    """Return distributions of sums over blocks of the events: pairs, then pairs of pairs, and so on."""
    table = np.stack((1.0 - chances, chances), axis=1)
    while len(table) > 1 and table.shape[1] <= _BLOCK:
        width = table.shape[1]
        if len(table) % 2:
            table = np.vstack((table, certain(0, width - 1)))
        left, right = table[::2], table[1::2]
        table = np.zeros((len(left), 2 * width - 1))
        for happened in range(width):
            table[:, happened : happened + width] += left[:, happened, None] * right
    # A row has at least two columns: P(X = 0), P(X = 1), …; those from `limit` on are taken together.
    missing = max(0, limit + 1 - table.shape[1])
    tail = np.pad(table, ((0, 0), (0, missing)))
    return list(np.column_stack((tail[:, :limit], tail[:, limit:].sum(axis=1))))


def _binomial(trials: int, chance: float, limit: int) -> FloatArray:
    """Return the distribution of a binomial number, in the form of `poisson_binomial`."""
    counts = np.arange(min(limit, trials + 1))
    distribution = np.zeros(limit + 1)
    distribution[: len(counts)] = binomial(trials, chance, counts)
    distribution[limit] = binomial_at_least(trials, chance, limit)
    return distribution


def binomial_at_least(trials: int, chance: float, needed: int) -> float:
    """Return P(Bin(n, a) ≥ k) = I_a(k, n - k + 1), the regularised incomplete beta function.

    >>> binomial_at_least(3, 0.5, 2)
    0.5
    """
    from scipy.special import betainc

    if needed <= 0:
        return 1.0
    return float(betainc(needed, trials - needed + 1, chance)) if needed <= trials else 0.0


def binomial(trials: int, chance: float, counts: IntArray) -> FloatArray:
    """Return P(Bin(n, a) = x) for each x in `counts`, to eleven digits for ten million events.

    By the ratios P(x + 1)/P(x) = (n - x)/(x + 1) · a/(1 - a), multiplied outwards from the most probable x and
    scaled to the sum one: no difference of large logarithms, so that every entry keeps its relative accuracy.

    >>> binomial(3, 0.5, np.arange(4))
    array([0.125, 0.375, 0.375, 0.125])
    """
    if trials == 0 or chance in {0.0, 1.0}:
        return np.where(counts == round(trials * chance), 1.0, 0.0)
    x = np.arange(trials)
    ratios = (trials - x) / (x + 1) * (chance / (1.0 - chance))
    mode = min(trials, int((trials + 1) * chance))
    below, above = np.cumprod(1.0 / ratios[:mode][::-1])[::-1], np.cumprod(ratios[mode:])
    probability = np.concatenate((below, [1.0], above))
    probability /= probability.sum()
    return np.where(probability < _NEGLIGIBLE, 0.0, probability)[counts]


_EXACT = 1 << 23  # numbers kept twice: 128 MiB
_GROUPS = 256
_STRAIGHT = 1e-12  # a bend of the hull smaller than this is rounding


def participation_rates(whole: ArrayLike, needed: int) -> FloatArray:
    """Return the share of rounds in which each batch takes part, in the long run. Ours, not in the paper.

    Every round serves the k = `needed` least-served of its whole batches A, and is skipped if #A < k. Batch
    b is whole with probability `whole[b]`, independently.

    For one A, the served sets are the bases of a matroid. So the rates that any policy can reach are the
    base polytope of the submodular function f(S) = E[min(k, #(A ∩ S)); #A ≥ k]. Serving the least-served is
    the greedy (Frank-Wolfe) step that lowers the sum of squared rates, so the rates tend to the base of
    least norm, which is also the max-min fair one (Fujishige 1980). Swapping a batch of S for one that is
    whole less often never raises f(S), so the sets that minimise f(S) - λ·#S are prefixes in ascending
    `whole`. Hence the rates are the slopes of the lower convex hull of the points (m, f(first m batches)),
    with

        f(first m) = Σ_{x<k} x P(X_m = x) P(Y_m ≥ k - x) + k P(X_m ≥ k),

    X_m and Y_m being the numbers of whole batches among the first m and among the others. Batches that are
    whole equally often have equal rates; if all are, every rate is k/B · P(#A ≥ k) and F = 0 (Theorem 1).

    Exact while distinct probabilities × k stay below about 8 million. Beyond, neighbours are taken together
    in about 256 groups, finer at the low end: a group's rate is then the mean over its batches.

    >>> participation_rates([0.5, 0.5, 0.5], needed=1).tolist()
    [0.2916666666666667, 0.2916666666666667, 0.2916666666666667]
    >>> participation_rates([0.9, 0.1, 0.9], needed=1).round(4).tolist()
    [0.4455, 0.1, 0.4455]
    """
    chances = check_probabilities(whole, "the probability of batch")
    needed = check_count(needed, "the number of batches needed")
    if needed > len(chances):
        raise UsageError(
            f"a round needs {needed} batches but there are only {len(chances)}; lower K or add batches"
        )
    ascending = np.sort(chances)
    ends = _group_ends(ascending, needed)
    rates = np.empty(len(chances))
    rates[np.argsort(chances, kind="stable")] = _hull_slopes(ends, _served(ascending, ends, needed))
    return rates


def fairness_gap(whole: ArrayLike, needed: int) -> float:
    """Return F, the largest minus the smallest of `participation_rates`.

    >>> fairness_gap([0.5, 0.6, 0.7], needed=1)
    0.0
    >>> round(fairness_gap([0.9, 0.1, 0.9], needed=1), 4)
    0.3455
    """
    return float(np.ptp(participation_rates(whole, needed)))


def _group_ends(ascending: FloatArray, needed: int) -> IntArray:
    """Return where each group of batches ends; equal probabilities are never split."""
    ends = np.append(np.flatnonzero(np.diff(ascending)) + 1, len(ascending))
    if len(ends) * (needed + 1) > _EXACT and len(ends) > _GROUPS:
        even = np.linspace(0, len(ascending), _GROUPS + 1)[1:]
        fine = 2 ** np.arange(int(even[0]).bit_length())
        ends = np.unique(ends[np.searchsorted(ends, np.append(fine, even))])
    return ends


def _served(ascending: FloatArray, ends: IntArray, needed: int) -> FloatArray:
    """Return f(first m batches) for each m in `ends`."""
    groups = [poisson_binomial(group, needed) for group in np.split(ascending, ends[:-1])]
    others = [certain(0, needed)]
    for group in groups[:0:-1]:
        others.append(add(others[-1], group))
    served = np.empty(len(ends))
    first = certain(0, needed)
    counts = np.arange(needed)
    for number, group in enumerate(groups):
        first = add(first, group)
        rest = upper(others.pop())[:0:-1]  # P(Y ≥ k), P(Y ≥ k - 1), …, P(Y ≥ 1)
        served[number] = (counts * first[:-1]) @ rest + needed * first[-1]
    return served


def _hull_slopes(ends: IntArray, served: FloatArray) -> FloatArray:
    """Return, for each batch, the slope of the lower convex hull of (0, 0) and the points (ends, served)."""
    slack = _STRAIGHT * served[-1]
    hull = [(0, 0.0)]
    for point in zip(ends.tolist(), served.tolist(), strict=True):
        while len(hull) > 1:
            (left, low), (middle, height), (right, high) = hull[-2], hull[-1], point
            if height < low + (high - low) * (middle - left) / (right - left) - slack:
                break
            hull.pop()
        hull.append(point)
    widths, rises = np.diff(np.array(hull), axis=0).T
    return np.repeat(rises / widths, widths.astype(np.int64))


def family_size(users: int, per_round: int, privacy: int) -> int:
    """Return R = C(N/T, K/T), the number of cohorts made of whole batches; T divides N and K.

    T = 1 is random selection (weighted or not), T = K is user partition.

    >>> [family_size(120, 12, privacy) for privacy in (6, 4, 3, 12)]  # the paper prints 91389: a rounding
    [190, 4060, 91390, 10]
    >>> f"{family_size(120, 12, privacy=1):.1e}"
    '1.1e+16'
    """
    return comb(*check_divides(users, per_round, privacy))


def family_size_bound(users: int, per_round: int, privacy: int) -> int:
    """Return the most cohorts of K users that any scheme of strong privacy T can have (app:converse).

        R ≤ C(D, E),  D = ⌊N/T⌋,  E = min(⌊K/T⌋, ⌊(N-K)/T⌋, ⌊D/2⌋)

    Strong privacy T makes classes of at least T users that take part together, at most D of them. A cohort
    is a union of at most K/T classes, and the users it leaves out are a union of at most (N-K)/T. Cohorts
    of equal size never contain one another, so by the LYM inequality there are at most C(D, E) of them. For
    K ≤ N/2 this is the paper's C(⌊N/T⌋, ⌊K/T⌋). The paper stops there; the users left out settle K > N/2:
    batch partitioning is the best for every K if T divides N and K.

    >>> family_size_bound(120, 12, 6), family_size_bound(120, 108, 6), family_size_bound(125, 17, 6)
    (190, 190, 190)
    """
    check_parameters(users, per_round, privacy)
    most = users // privacy
    return comb(most, min(per_round // privacy, (users - per_round) // privacy, most // 2))


# --- how soon random selection exposes every user

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


# --- how fast training converges


@dataclass(frozen=True, eq=False)
class Problem:
    """A federated learning problem, by the constants of assumptions 1-4 (subsec:convergence).

    >>> problem = Problem(
    ...     smoothness=2.0, strong_convexity=1.0, gradient_variances=np.full(4, 0.5), gradient_bound=4.0,
    ...     optimum=1.0, user_optima=np.full(4, 0.125), initial_distance=3.0, local_steps=5,
    ... )
    >>> problem.users, problem.gamma
    (4, 16.0)
    """

    smoothness: float  # ρ: every L_i is ρ-smooth
    strong_convexity: float  # μ: every L_i is μ-strongly convex
    gradient_variances: FloatArray  # σ_i²: variance of user i's stochastic gradients
    gradient_bound: float  # G²: E‖stochastic gradient‖² at most
    optimum: float  # L* = min L
    user_optima: FloatArray  # L_i* = min L_i
    initial_distance: float  # E‖x⁰ - x*‖²
    local_steps: int  # E: SGD steps of a user in a round

    def __post_init__(self) -> None:
        for name in ("gradient_variances", "user_optima"):
            object.__setattr__(self, name, frozen(np.array(getattr(self, name), dtype=np.float64)))
        if self.gradient_variances.shape != (self.users,) or self.users == 0:
            raise UsageError(
                f"gradient variances are given for {self.gradient_variances.shape} users, "
                f"optima for {self.user_optima.shape}; give one of each per user"
            )
        for name in ("smoothness", "strong_convexity", "gradient_bound", "initial_distance"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; give a finite number that is not negative")
        if not 0.0 < self.strong_convexity <= self.smoothness:
            raise UsageError(
                f"strong convexity is {self.strong_convexity} and smoothness {self.smoothness}; "
                "0 < strong convexity ≤ smoothness holds for every loss"
            )
        if not np.all((self.gradient_variances >= 0.0) & np.isfinite(self.gradient_variances)):
            raise UsageError("a gradient variance is negative or not finite; give σ² ≥ 0 for every user")
        if not (np.isfinite(self.optimum) and np.all(np.isfinite(self.user_optima))):
            raise UsageError("an optimum is not finite; give the least loss of every user and of all together")
        check_count(self.local_steps, "the number of local steps E")

    @property
    def users(self) -> int:
        """The number of users N."""
        return len(self.user_optima)

    @property
    def gamma(self) -> float:
        """γ = max(8ρ/μ, E), at least 8 because ρ ≥ μ."""
        return max(8.0 * self.smoothness / self.strong_convexity, float(self.local_steps))


def convergence_bound(problem: Problem, users: int, per_round: int, cardinality: float, rounds: int) -> float:
    """Return the bound on E[L(x^J)] - L* exactly as thm:convergence prints it (eq:conv_rate).

        ρ / (γ + (C/K) E J - 1) · (2(α+β)/μ² + (γ/2) E‖x⁰ - x*‖²),
        α = (1/N) Σσ_i² + 6ρΓ + 8(E-1)²G²,  β = 4(N-K) E²G² / (K(N-1)),  Γ = L* - ΣL_i*

    It holds for equal dropout. The printed form gets three things wrong:

    - Γ lacks its 1/N: it should be L* - (1/N) ΣL_i*. As printed it is not even ≥ 0 when losses are large.
    - β is the variance of sampling users. The mean over k of B batches, drawn without replacement, has the
      variance (B-k)/(k(B-1)) times the variance between batches, and that is at most the variance between users
      (Jensen). With B = N/T and k = K/T, the form for batches is β = 4T(N-K) E²G² / (K(N-T)).
    - The number of rounds that run is random, X ~ Bin(J, C/K), and E[1/X] is taken as 1/E[X], which by Jensen is
      too small. The right factor is the mean of 1/(γ+EX-1) over X.

    >>> problem = Problem(2.0, 1.0, np.full(4, 0.5), 4.0, 1.0, np.full(4, 0.125), 3.0, local_steps=5)
    >>> round(convergence_bound(problem, users=4, per_round=2, cardinality=1.5, rounds=100), 3)
    6.809
    """
    check_parameters(users, per_round)
    check_count(rounds, "the number of rounds J", least=0)
    if problem.users != users:
        raise UsageError(f"the problem has {problem.users} users and N is {users}; they must be the same")
    if not 0.0 <= cardinality <= per_round:
        raise UsageError(f"cardinality C is {cardinality}; it lies between 0 and K = {per_round}")
    steps, rho = problem.local_steps, problem.smoothness
    heterogeneity = problem.optimum - float(problem.user_optima.sum())
    drift = 8.0 * (steps - 1) ** 2 * problem.gradient_bound
    alpha = float(problem.gradient_variances.mean()) + 6.0 * rho * heterogeneity + drift
    factor = 0.0 if per_round == users else (users - per_round) / (per_round * (users - 1))
    beta = 4.0 * factor * steps**2 * problem.gradient_bound
    noise = 2.0 * (alpha + beta) / problem.strong_convexity**2
    scale = rho * (noise + problem.gamma / 2.0 * problem.initial_distance)
    return scale / (problem.gamma + cardinality / per_round * steps * rounds - 1.0)
