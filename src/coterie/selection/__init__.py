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
from coterie.selection.plans import (
    by_availability,
    by_co_availability,
    consecutive,
    join,
    keep,
    leave,
    merge,
    mix,
    shuffled,
)
from coterie.selection.schemes import selector_named
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
    "keep",
    "least_served",
    "leave",
    "merge",
    "mix",
    "one_least_served",
    "selector_named",
    "shuffled",
    "uniform",
    "user_partition",
]
