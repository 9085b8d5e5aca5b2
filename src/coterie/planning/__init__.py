"""Which privacy level a federation can afford: the trade-off over T for its users' availability."""

from coterie.planning.options import (
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

__all__ = [
    "ROUNDS_LIMIT",
    "RULE",
    "Churn",
    "KnownDropout",
    "Option",
    "Population",
    "RecordedAvailability",
    "Trade",
    "feasible_levels",
    "halves",
    "homogeneity_warning",
    "options",
    "plan_makers",
    "recommend",
]
