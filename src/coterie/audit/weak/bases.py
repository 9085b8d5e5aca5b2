"""Disjoint bases: a light vector has few entries in one of them, and so is a combination of few echelon rows.

Let I_1 … I_s be disjoint column bases. A vector of weight w has weight at most w / s in one of them, I_q. In the
echelon form with the pivots I_q it is the combination of as many rows as it has entries in I_q. So looking at
all combinations of at most j rows of each form finds every vector of fewer than (j + 1) s entries.
"""

from collections.abc import Callable

import numpy as np

from coterie.audit.weak.elimination import Echelon
from coterie.audit.weak.supports import divided
from coterie.values import BoolArray, IntArray


def disjoint_forms(form: Echelon, columns: BoolArray) -> list[Echelon]:
    """Return forms of one row space with disjoint pivots among the marked columns: as many as come easily."""
    forms = [form.copy()]
    used = form.is_pivot() & columns
    following = form.copy()
    while used.any() and following.leave(used) is None:
        forms.append(following.copy())
        used |= following.is_pivot() & columns
    return forms


def lightest_pair(form: Echelon, sizes: IntArray, spent: Callable[[], bool]) -> tuple[int, BoolArray] | None:
    """Return the weight and the support of the lightest combination of two rows; None if spent, or without pairs.

    Of a - λb the weight is w(a or b not 0) less the weight of the columns where a = λb ≠ 0: the best λ is the
    ratio a / b that the heaviest columns share.
    """
    rows = np.flatnonzero(form.dense.any(axis=1))
    dense, width = form.dense[rows], sizes[form.free]
    if len(rows) < 2:  # noqa: PLR2004 - a pair
        return None
    filled = dense != 0
    inverse = np.where(filled, divided(np.ones_like(dense), dense, form.prime), 0)
    best: tuple[int, int, int, int] | None = None
    for one in range(len(rows) - 1):
        if spent():
            return None
        others = slice(one + 1, None)
        ratios = dense[one] * inverse[others] % form.prime
        gains, shared = _heaviest(ratios, width)
        weights = (filled[one] | filled[others]) @ width - gains + sizes[form.pivots[rows[others]]]
        other = int(np.argmin(weights))
        weight = int(weights[other] + sizes[form.pivots[rows[one]]])
        if best is None or weight < best[0]:
            best = weight, one, one + 1 + other, int(shared[other])
    if best is None:
        return None
    weight, one, other, ratio = best
    support = np.zeros(form.columns, dtype=np.bool_)
    support[form.free] = (dense[one] - ratio * dense[other]) % form.prime != 0
    support[form.pivots[rows[[one, other]]]] = True
    return weight, support


def _heaviest(ratios: IntArray, weights: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each row the most weight that one ratio (not 0) has, and that ratio; 0 and 1 if there is none."""
    order = np.argsort(ratios, axis=1)
    ordered = np.take_along_axis(ratios, order, axis=1)
    begins = np.ones(ratios.shape, dtype=np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(begins)
    sums = np.add.reduceat(weights[order].ravel(), starts)
    values = ordered.ravel()[starts]
    sums[values == 0] = 0
    row_starts = np.searchsorted(starts, np.arange(len(ratios)) * ratios.shape[1])
    gains = np.maximum.reduceat(sums, row_starts)
    row_of = starts // ratios.shape[1]
    heaviest = np.flatnonzero(sums == gains[row_of])
    shared = np.ones(len(ratios), dtype=np.int64)
    shared[row_of[heaviest]] = np.maximum(values[heaviest], 1)
    return gains, shared
