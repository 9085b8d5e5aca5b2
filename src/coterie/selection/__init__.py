"""WHO takes part: plans, the family they allow, availability, and the selectors."""

from coterie.selection.availability import (
    AvailabilityModel,
    CorrelatedGroups,
    DailyCycle,
    IndependentDropout,
    MarkovOnOff,
    RedrawnDropout,
    Replay,
    draw_dropout,
)
from coterie.selection.family import Family
from coterie.selection.plan import (
    by_availability,
    by_co_availability,
    consecutive,
    join,
    leave,
    merge,
    shuffled,
)
from coterie.selection.selectors import (
    BatchSelector,
    BernoulliSelector,
    RandomSelector,
    Selector,
    WeightedRandomSelector,
    least_served,
    one_least_served,
    uniform,
    user_partition,
)

__all__ = [
    "AvailabilityModel",
    "BatchSelector",
    "BernoulliSelector",
    "CorrelatedGroups",
    "DailyCycle",
    "Family",
    "IndependentDropout",
    "MarkovOnOff",
    "RandomSelector",
    "RedrawnDropout",
    "Replay",
    "Selector",
    "WeightedRandomSelector",
    "by_availability",
    "by_co_availability",
    "consecutive",
    "draw_dropout",
    "join",
    "least_served",
    "leave",
    "merge",
    "one_least_served",
    "shuffled",
    "uniform",
    "user_partition",
]
