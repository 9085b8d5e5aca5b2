"""WHO takes part: plans, the family they allow, availability, and the selectors.

What rests on them has modules of its own: `theory` has the paper's closed forms, `trade_off` is `coterie.plan`,
`simulation` is `coterie.simulate`, and `plan_file` keeps plans as JSON.

In: a plan, who is available, how often everyone took part, a generator.
Out: a `Cohort` of whole batches, or None where the round is skipped.
"""

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
from coterie.selection.plans import (
    Family,
    by_availability,
    by_co_availability,
    consecutive,
    dealt,
    join,
    keep,
    leave,
    merge,
    mix,
    shuffled,
)
from coterie.selection.schemes import knows_users, privacy_of, selector_named
from coterie.selection.selectors import (
    BatchSelector,
    BernoulliSelector,
    PlanSelector,
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
    "PlanSelector",
    "RandomSelector",
    "RedrawnDropout",
    "Replay",
    "Selector",
    "WeightedRandomSelector",
    "by_availability",
    "by_co_availability",
    "consecutive",
    "dealt",
    "draw_dropout",
    "join",
    "keep",
    "knows_users",
    "least_served",
    "leave",
    "merge",
    "mix",
    "one_least_served",
    "privacy_of",
    "selector_named",
    "shuffled",
    "uniform",
    "user_partition",
]
