"""Schemes by their names, and those to compare unless others are named."""

import math
from collections.abc import Sequence

from coterie.errors import UsageError
from coterie.selection import BatchSelector, Selector, selector_named
from coterie.simulation.setting import Scheme
from coterie.values import BatchPlan, FloatArray
from coterie.values.checks import check_parameters

MOST_LEVELS = 3


def default_names(users: int, per_round: int) -> list[str]:
    """Return the schemes to compare unless others are named: three without batches, and the largest three T.

    T divides N and K where such a T exists (T = K is what `partition` does already); else K/2, K/3 and K/4,
    or K itself.

    >>> default_names(120, 12), default_names(100, 15), default_names(101, 10)
    (['random', 'weighted', 'partition', 'T6', 'T4', 'T3'], ['random', 'weighted', 'partition', 'T5'], \
['random', 'weighted', 'partition', 'T5', 'T3', 'T2'])
    """
    check_parameters(users, per_round)
    common = math.gcd(users, per_round)
    levels = [level for level in range(min(common, per_round - 1), 1, -1) if common % level == 0]
    levels = levels or sorted({per_round // parts for parts in (2, 3, 4)} - {0, 1}, reverse=True)
    levels = levels or [level for level in (per_round,) if level > 1]
    return ["random", "weighted", "partition", *(f"T{level}" for level in levels[:MOST_LEVELS])]


def schemes_named(
    names: Sequence[str], users: int, per_round: int, dropout: FloatArray | None
) -> dict[str, Selector]:
    """Return the selectors of some schemes; `dropout` is each user's, or None if nobody knows it."""
    selectors = {name: selector_named(name, users, per_round, dropout) for name in names}
    if len(selectors) < len(names):
        raise UsageError(f"a scheme is given twice: {', '.join(names)}")
    return selectors


def plan_selector(plan: BatchPlan, users: int, per_round: int) -> Selector:
    """Return the selector of a plan, which must be one of these users."""
    if plan.users != users:
        raise UsageError(f"the plan is one of {plan.users} users, not of {users}; give its number of users")
    return BatchSelector(plan, per_round)


def with_unsealed(selectors: dict[str, Selector], lost: float) -> tuple[Scheme, ...]:
    """Return the schemes; where users can be lost, those with batches come sealed and unsealed."""
    schemes = []
    for name, selector in selectors.items():
        schemes.append(Scheme(name, selector))
        if lost > 0 and isinstance(selector, BatchSelector):
            schemes.append(Scheme(f"{name} unsealed", selector, sealed=False))
    return tuple(schemes)
