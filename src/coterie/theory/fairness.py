"""The aggregation fairness gap F (eq:def_fairness) when users drop with unequal probabilities."""

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.theory.cardinality import add, certain, poisson_binomial, upper
from coterie.values.arrays import FloatArray, IntArray
from coterie.values.checks import check_count, check_probabilities

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
