"""Which privacy level a federation can afford: the trade-off over T for its users' availability.

In: N, K, and how often or when users are away.
Out: a `TradeOff`: for every T and kind of plan its C, F and skipped rounds, and one recommended plan.
"""

from coterie.planning.options import (
    MOST_SKIPPED,
    ROUNDS_LIMIT,
    RULE,
    Churn,
    Option,
    feasible_levels,
    homogeneity_warning,
    options,
    plan_makers,
    recommend,
)
from coterie.planning.population import KnownDropout, Population, RecordedAvailability, Trade, halves
from coterie.planning.trade_off import TradeOff, plan

__all__ = [
    "MOST_SKIPPED",
    "ROUNDS_LIMIT",
    "RULE",
    "Churn",
    "KnownDropout",
    "Option",
    "Population",
    "RecordedAvailability",
    "Trade",
    "TradeOff",
    "feasible_levels",
    "halves",
    "homogeneity_warning",
    "options",
    "plan",
    "plan_makers",
    "recommend",
]
