"""Schemes: the names that people give to selectors, `random` or `T6-sorted`, and what each stands for."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from coterie.errors import UsageError
from coterie.selection.plans import (
    by_availability,
    by_co_availability,
    consecutive,
    dealt,
    mix,
    shuffled,
)
from coterie.selection.selectors import (
    BatchSelector,
    BernoulliSelector,
    Order,
    RandomSelector,
    Selector,
    WeightedRandomSelector,
    least_served,
    one_least_served,
    uniform,
    user_partition,
)
from coterie.values import AvailabilityLog, BatchPlan, FloatArray

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class SchemeRequest:
    """A scheme by its name, and what it may know: N, K, how often users are away, who was online when."""

    scheme: str
    users: int
    per_round: int
    rng: np.random.Generator
    dropout: FloatArray | None
    record: AvailabilityLog | None
    privacy: int = 1
    share: float = 0.0
    """What stands behind a variant's name, T6-mixed30: 0.3."""

    def known_dropout(self) -> FloatArray:
        """Return each user's dropout; refuse the scheme where nobody knows it."""
        return self._known(self.dropout, "each user's dropout; leave out --redraw")

    def known_record(self) -> AvailabilityLog:
        """Return who was online when; refuse the scheme where nobody knows it."""
        return self._known(self.record, "who was online when; give a record of availability")

    def by_availability(self) -> BatchPlan:
        """Return batches of users of like dropout."""
        return by_availability(self.known_dropout(), self.privacy)

    def _known(self, value: _T | None, what: str) -> _T:
        if value is None:
            raise UsageError(f"the scheme {self.scheme} must know {what}")
        return value


@dataclass(frozen=True)
class UserScheme:
    """A scheme without T in its name."""

    selector: Callable[[SchemeRequest], Selector]
    privacy: Callable[[int], int] = lambda per_round: 1  # noqa: ARG005 - users chosen one by one
    """T, from K."""


@dataclass(frozen=True)
class BatchScheme:
    """What can stand behind T6-: how users are put into batches, and in which order these are taken."""

    plan: Callable[[SchemeRequest], BatchPlan] = lambda request: consecutive(request.users, request.privacy)
    order: Order = least_served
    selector: Callable[[BatchPlan, int, Order], Selector] = BatchSelector
    """Made of the plan, K and the order."""
    knows_users: bool = False
    """Whether the plan is made for its users: by their dropout, or by when they are online."""
    percent: str = ""
    """Of a name that ends with a share in percent, one to show."""


USER_SCHEMES = {
    "random": UserScheme(lambda request: RandomSelector(request.per_round)),
    "weighted": UserScheme(lambda request: WeightedRandomSelector(request.per_round)),
    "partition": UserScheme(
        lambda request: user_partition(request.users, request.per_round), privacy=lambda per_round: per_round
    ),
    "bernoulli": UserScheme(
        lambda request: BernoulliSelector.expecting(
            request.users, request.per_round, float(request.known_dropout().mean())
        )
    ),
}
BATCH_SCHEMES = {
    "": BatchScheme(),
    "text": BatchScheme(order=one_least_served),
    "uniform": BatchScheme(order=uniform),
    "sorted": BatchScheme(SchemeRequest.by_availability, knows_users=True),
    "mixed": BatchScheme(
        lambda request: mix(request.by_availability(), request.share, request.rng), knows_users=True, percent="30"
    ),
    "together": BatchScheme(
        lambda request: by_co_availability(request.known_record(), request.privacy), knows_users=True
    ),
    "shuffled": BatchScheme(lambda request: shuffled(request.users, request.privacy, request.rng)),
    "dealt": BatchScheme(lambda request: dealt(request.users, request.privacy)),
}
"""The schemes with T in their name, by what stands behind it."""

SCHEME_NAMES = (
    *USER_SCHEMES,
    "T6",
    *(f"T6-{name}{scheme.percent}" for name, scheme in BATCH_SCHEMES.items() if name),
)
"""The names, with T = 6 for any T and 30 for any share."""

_NAME = re.compile(rf"[Tt](\d{{1,9}})(?:-({'|'.join(filter(None, BATCH_SCHEMES))})(\d{{1,3}})?)?")


def _batch_scheme(name: str) -> tuple[BatchScheme, int, float]:
    """Return what a name with T stands for, the T, and the share; refuse any other name."""
    parts = _NAME.fullmatch(name)
    scheme = None if parts is None else BATCH_SCHEMES[parts[2] or ""]
    if parts is None or scheme is None or bool(parts[3]) != bool(scheme.percent):
        near = difflib.get_close_matches(name.lower(), USER_SCHEMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"there is no scheme {name!r}; {hint}known are {', '.join(SCHEME_NAMES)}; in place of 6 any T"
        )
    return scheme, int(parts[1]), int(parts[3] or 0) / 100


def privacy_of(scheme: str, per_round: int) -> int:
    """Return the T of a scheme: as its name says, K of a partition, and 1 where users are chosen one by one.

    >>> [privacy_of(scheme, per_round=12) for scheme in ("T6-sorted", "partition", "random")]
    [6, 12, 1]
    """
    if scheme in USER_SCHEMES:
        return USER_SCHEMES[scheme].privacy(per_round)
    return _batch_scheme(scheme)[1]


def knows_users(scheme: str) -> bool:
    """Return whether a scheme's plan is made for its users: by their dropout, or by when they are online.

    >>> knows_users("T6-mixed30"), knows_users("T6-dealt")
    (True, False)
    """
    return scheme not in USER_SCHEMES and _batch_scheme(scheme)[0].knows_users


def selector_named(
    name: str,
    users: int,
    per_round: int,
    dropout: FloatArray | None,
    *,
    rng: np.random.Generator,
    record: AvailabilityLog | None = None,
) -> Selector:
    """Return the selector of a scheme; `dropout` is each user's, or None if nobody knows it.

    `rng` places users where a plan does that at random (mixed, shuffled); `record` says who was online when in
    earlier rounds, for batches of users who are online together.

    >>> selector_named("T4", users=12, per_round=8, dropout=None, rng=np.random.default_rng(0)).plan
    BatchPlan(12 users, 3 batches of 4, privacy 4)
    >>> selector_named("randm", users=12, per_round=8, dropout=None, rng=np.random.default_rng(0))
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no scheme 'randm'; did you mean random? known are random, weighted, partition, bernoulli, T6, T6-text, T6-uniform, T6-sorted, T6-mixed30, T6-together, T6-shuffled, T6-dealt; in place of 6 any T
    """  # noqa: E501 - the message is one line
    if name in USER_SCHEMES:
        return USER_SCHEMES[name].selector(SchemeRequest(name, users, per_round, rng, dropout, record))
    scheme, privacy, share = _batch_scheme(name)
    plan = scheme.plan(SchemeRequest(name, users, per_round, rng, dropout, record, privacy, share))
    return scheme.selector(plan, per_round, scheme.order)
