"""The paper's closed forms of cardinality C, fairness gap F and family size R, for unequal users too."""

import math
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values.checks import (
    FloatArray,
    IntArray,
    check_count,
    check_divides,
    check_parameters,
    check_probabilities,
    check_probability,
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
