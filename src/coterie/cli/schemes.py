"""Names of selection schemes, as the command line takes them, turned into schemes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coterie.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.selection import Selector
    from coterie.simulation import Scheme
    from coterie.values import FloatArray


def parse_schemes(
    text: str | None, plan: Path | None, users: int, per_round: int, dropout: FloatArray | None, lost: float
) -> tuple[Scheme, ...]:
    """Turn the names of schemes into schemes, and a plan's file into one more named `plan`.

    Batches come sealed and unsealed where users can be lost.
    """
    from coterie.selection import BatchSelector, selector_named
    from coterie.simulation import Scheme
    from coterie.values.checks import check_parameters

    check_parameters(users, per_round)
    if text is None:
        common = math.gcd(users, per_round)
        levels = [level for level in range(common - 1, 1, -1) if common % level == 0][:3]
        names = ["random", "weighted", "partition", *(f"T{level}" for level in levels)]
    else:
        names = [name.strip() for name in text.split(",")]
    selectors = {name: selector_named(name, users, per_round, dropout) for name in names}
    if len(selectors) < len(names):
        raise UsageError(f"a scheme is given twice: {', '.join(names)}")
    if plan is not None:
        selectors["plan"] = _planned(plan, users, per_round)
    found = []
    for name, selector in selectors.items():
        found.append(Scheme(name, selector))
        if lost > 0 and isinstance(selector, BatchSelector):
            found.append(Scheme(f"{name} unsealed", selector, sealed=False))
    return tuple(found)


def _planned(path: Path, users: int, per_round: int) -> Selector:
    from coterie.selection import BatchSelector
    from coterie.storage.plans import read_plan

    plan = read_plan(path)
    if plan.users != users:
        raise UsageError(f"{path} is a plan of {plan.users} users, not of {users}; give --users {plan.users}")
    return BatchSelector(plan, per_round)
