"""Selection schemes by the names that people give them."""

import difflib
import re

from coterie.errors import UsageError
from coterie.selection.plans import by_availability, consecutive
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
from coterie.values import FloatArray

SCHEMES = "random, weighted, partition, bernoulli, T6 (any T), T6-text, T6-uniform, T6-sorted"
"""The names, for people to read."""

_ORDERS = {"text": one_least_served, "uniform": uniform, "sorted": least_served, None: least_served}


def selector_named(name: str, users: int, per_round: int, dropout: FloatArray | None) -> Selector:
    """Return the selector of a scheme; `dropout` is each user's, or None if nobody knows it.

    >>> selector_named("T4", users=12, per_round=8, dropout=None).plan
    BatchPlan(12 users, 3 batches of 4, privacy 4)
    >>> selector_named("randm", users=12, per_round=8, dropout=None)
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no scheme 'randm'; did you mean random? known are random, weighted, partition, bernoulli, T6 (any T), T6-text, T6-uniform, T6-sorted
    """  # noqa: E501 - the message is one line
    match name:
        case "random":
            return RandomSelector(per_round)
        case "weighted":
            return WeightedRandomSelector(per_round)
        case "partition":
            return user_partition(users, per_round)
    if name == "bernoulli" or name.endswith("-sorted"):
        if dropout is None:
            raise UsageError(f"the scheme {name} must know each user's dropout; leave out --redraw")
        if name == "bernoulli":
            return BernoulliSelector.expecting(users, per_round, float(dropout.mean()))
    parts = re.fullmatch(r"[Tt](\d{1,9})(?:-(text|uniform|sorted))?", name)
    if parts is None:
        near = difflib.get_close_matches(name.lower(), ["random", "weighted", "partition", "bernoulli"], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"there is no scheme {name!r}; {hint}known are {SCHEMES}")
    privacy, reading = int(parts[1]), parts[2]
    if reading == "sorted" and dropout is not None:
        plan = by_availability(dropout, privacy)
    else:
        plan = consecutive(users, privacy)
    return BatchSelector(plan, per_round, _ORDERS[reading])
