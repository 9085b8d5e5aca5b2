"""`BatchPlan`, the partition of the users into batches, and `Cohort`, the users asked in one round."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from coterie.errors import UsageError
from coterie.values.checks import (
    BoolArray,
    IntArray,
    check_users,
    checked_names,
    frozen,
    frozen_integers,
    places_of,
    starts_of,
)


@dataclass(frozen=True, eq=False)
class Cohort:
    """The users asked to take part in a round, and the batches they come as (none for unbatched schemes)."""

    users: IntArray
    batches: IntArray

    def __len__(self) -> int:
        return len(self.users)

    def survivors(self, survives: BoolArray, sealed_by: "BatchPlan | None") -> IntArray:
        """Return the users whose updates are in the sum, where `survives` says of each user who is not lost.

        Sealed by the batches of a plan, a batch that lost a member is lost whole; without a seal the others count.

        >>> plan = BatchPlan.from_batches(users=4, privacy=2, batches=[[0, 1], [2, 3]])
        >>> cohort, survives = Cohort(np.arange(4), np.arange(2)), np.array([True, True, True, False])
        >>> cohort.survivors(survives, plan).tolist(), cohort.survivors(survives, None).tolist()
        ([0, 1], [0, 1, 2])
        """
        if sealed_by is None:
            return self.users[survives[self.users]]
        return sealed_by.users_of(np.intersect1d(self.batches, sealed_by.whole(survives[: sealed_by.users])))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cohort):
            return NotImplemented
        return np.array_equal(self.users, other.users) and np.array_equal(self.batches, other.batches)

    __hash__ = None  # type: ignore[assignment]  # arrays are compared by content, never hashed


@dataclass(frozen=True, eq=False, repr=False)
class BatchPlan:
    """A partition of users 0 … N-1 into batches of at least `privacy` users each.

    Batch b holds `members[starts[b]:starts[b + 1]]`. The order inside a batch means nothing. A user in no
    batch is retired: its batch lost a member for good, and it never takes part again (letting the rest of the
    batch go on would single the lost member out).

    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> plan
    BatchPlan(5 users, 2 batches of 2 to 3, privacy 2)
    >>> plan.whole(np.array([True, True, True, False, True]))
    array([0])
    """

    users: int
    privacy: int
    members: IntArray
    starts: IntArray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        members = frozen_integers(self.members, np.int32, "members of batches")
        starts = frozen_integers(self.starts, np.int64, "starts of batches")
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "names", checked_names(self.names, self.users))
        if self.users < 0:
            raise UsageError(f"there cannot be {self.users} users")
        if self.privacy < 1:
            raise UsageError(f"privacy is {self.privacy}: a batch needs at least one user")
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(members):
            raise UsageError("starts must begin with 0 and end with the number of members")
        smallest = int(self.sizes.min(initial=self.privacy))
        if smallest < self.privacy:
            raise UsageError(f"a batch has {smallest} users, fewer than the privacy level {self.privacy}")
        check_users(members, self.users)
        seen = np.zeros(self.users, dtype=np.bool_)
        seen[members] = True
        if np.count_nonzero(seen) != len(members):
            raise UsageError("a user is in two batches; every user belongs to one batch at most")

    @classmethod
    def from_batches(
        cls, users: int, privacy: int, batches: Iterable[Sequence[int]], names: Sequence[str] | None = None
    ) -> "BatchPlan":
        """Build a plan from lists of users, one list per batch."""
        batches = list(batches)
        members = np.fromiter(chain.from_iterable(batches), dtype=np.int64)
        return cls(
            users, privacy, members, starts_of([*map(len, batches)]), None if names is None else tuple(names)
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        if len(self) == 0:
            return f"BatchPlan({self.users} users, no batches, privacy {self.privacy})"
        low, high = int(self.sizes.min()), int(self.sizes.max())
        sizes = f"{low}" if low == high else f"{low} to {high}"
        return f"BatchPlan({self.users} users, {len(self)} batches of {sizes}, privacy {self.privacy})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchPlan):
            return NotImplemented
        return (
            (self.users, self.privacy, self.names) == (other.users, other.privacy, other.names)
            and len(self) == len(other)
            and np.array_equal(self.batch_of, other.batch_of)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays are compared by content, never hashed

    @cached_property
    def sizes(self) -> IntArray:
        """How many users each batch has."""
        return frozen(np.diff(self.starts))

    @cached_property
    def batch_of(self) -> IntArray:
        """Each user's batch, -1 for a retired user."""
        batch_of = np.full(self.users, -1, dtype=np.int32)
        batch_of[self.members] = np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)
        return frozen(batch_of)

    @property
    def retired(self) -> IntArray:
        """The users that are in no batch any more."""
        return np.flatnonzero(self.batch_of < 0)

    def batch(self, index: int) -> IntArray:
        """Return the users of one batch."""
        return self.members[self.starts[index] : self.starts[index + 1]]

    def users_of(self, batches: IntArray) -> IntArray:
        """Return the users of several batches, sorted."""
        return np.sort(self.members_of(batches))

    def members_of(self, batches: IntArray) -> IntArray:
        """Return the users of several batches, batch after batch."""
        return self.members[places_of(self.starts[batches], self.sizes[batches])]

    def whole(self, available: BoolArray) -> IntArray:
        """Return the batches all of whose users are available."""
        if available.shape != (self.users,):
            raise UsageError(f"availability is given for {available.shape} users; the plan has {self.users}")
        # One slot more than batches: a retired user's batch, -1, writes there and spoils nothing.
        lost = np.zeros(len(self) + 1, dtype=np.bool_)
        lost[self.batch_of[np.flatnonzero(~available)]] = True
        return np.flatnonzero(~lost[:-1])
