"""Logs as values: who was online when, and which sets of users the server learned the sum of, round by round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.values.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    check_users,
    checked_names,
    frozen,
    frozen_integers,
    learned_set,
    starts_of,
)


@dataclass(frozen=True, eq=False)
class AvailabilityLog:
    """Who was online in each of the recorded rounds: `online[round, user]`.

    >>> log = AvailabilityLog(np.array([[True, False], [True, True]]))
    >>> log.rounds, log.users, log.dropout.tolist()
    (2, 2, [0.0, 0.5])
    """

    online: BoolArray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = np.asarray(self.online)
        if given.dtype != np.bool_ and not np.isin(given, (0, 1)).all():
            raise UsageError("an availability log holds only 0 and 1, or False and True")
        online = given.astype(np.bool_)
        if online.ndim != 2 or 0 in online.shape:  # noqa: PLR2004 - rounds × users
            raise UsageError(f"an availability log has rounds and users, not the shape {online.shape}")
        object.__setattr__(self, "online", frozen(online))
        object.__setattr__(self, "names", checked_names(self.names, self.users))

    @property
    def rounds(self) -> int:
        """The number of recorded rounds."""
        return int(self.online.shape[0])

    @property
    def users(self) -> int:
        """The number of users."""
        return int(self.online.shape[1])

    @cached_property
    def dropout(self) -> FloatArray:
        """Each user's share of rounds in which it was not online."""
        return frozen(np.asarray(1.0 - self.online.mean(axis=0), dtype=np.float64))

    def window(self, start: int, stop: int) -> "AvailabilityLog":
        """Return the recorded rounds `start` … `stop - 1` as a log of their own."""
        return AvailabilityLog(self.online[start:stop], self.names)


@dataclass(frozen=True, eq=False, repr=False)
class ParticipationLog:
    """The learned sets of rounds `first` … `first + rounds - 1`, stored sparsely.

    Set s was learned in round `set_rounds[s]` and holds the users `members[starts[s]:starts[s + 1]]`, sorted.
    A round may have no set (it was skipped or abandoned), one, or several (one per batch). Build a log round
    by round with `LogBuilder`, or from the dense matrix:

    >>> log = ParticipationLog.from_dense([[1, 1, 0], [0, 0, 0], [0, 1, 1]])
    >>> log
    ParticipationLog(3 users, 3 rounds, 2 learned sets)
    >>> [(round_, users.tolist()) for round_, users in log.sets()]
    [(0, [0, 1]), (2, [1, 2])]
    >>> log.window(1, 3).to_dense().tolist()
    [[0, 0, 0], [0, 1, 1]]
    """

    users: int
    rounds: int
    set_rounds: IntArray
    starts: IntArray
    members: IntArray
    names: tuple[str, ...] | None = None
    first: int = 0

    def __post_init__(self) -> None:
        set_rounds = frozen_integers(self.set_rounds, np.int64, "rounds of learned sets")
        starts = frozen_integers(self.starts, np.int64, "starts of learned sets")
        members = frozen_integers(self.members, np.int32, "users of learned sets")
        object.__setattr__(self, "set_rounds", set_rounds)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "names", checked_names(self.names, self.users))
        if self.users < 0 or self.rounds < 0:
            raise UsageError(f"there cannot be {self.users} users and {self.rounds} rounds")
        if len(starts) != len(set_rounds) + 1 or starts[0] != 0 or starts[-1] != len(members):
            raise UsageError("starts must begin with 0, end with the number of members, and bound every set")
        if np.any(np.diff(starts) < 1):
            raise UsageError("a learned set has no users; a round without a result simply has no set")
        if len(set_rounds):
            if np.any(np.diff(set_rounds) < 0):
                raise UsageError("learned sets must come in the order of their rounds")
            if set_rounds[0] < self.first or set_rounds[-1] >= self.first + self.rounds:
                raise UsageError(
                    f"a learned set lies outside the rounds {self.first} … {self.first + self.rounds - 1}"
                )
            check_users(members, self.users)
        rising = np.diff(members) > 0
        rising[starts[1:-1] - 1] = True
        if not rising.all():
            raise UsageError("the users of a learned set must be sorted and distinct")

    @classmethod
    def from_dense(
        cls, matrix: ArrayLike, rounds: Sequence[int] | None = None, names: Sequence[str] | None = None
    ) -> "ParticipationLog":
        """Build a log from a 0/1 matrix, a row per learned set; an all-zero row is a round without a result.

        Each row is a round of its own unless `rounds` gives the rows' rounds (see `row_rounds`).
        """
        dense = np.asarray(matrix)
        if dense.ndim != 2:  # noqa: PLR2004 - rows × users
            raise UsageError(f"a participation matrix has rows and columns, not the shape {dense.shape}")
        if not np.isin(dense, (0, 1)).all():
            raise UsageError("a participation matrix holds only 0 and 1")
        row_rounds = np.arange(len(dense)) if rounds is None else np.asarray(rounds, dtype=np.int64)
        if len(row_rounds) != len(dense):
            raise UsageError(f"{len(row_rounds)} rounds were given for {len(dense)} rows")
        if np.any(np.diff(row_rounds) < 0):
            raise UsageError("the rows must come in the order of their rounds")
        first = int(row_rounds[0]) if len(row_rounds) else 0
        count = int(row_rounds[-1]) - first + 1 if len(row_rounds) else 0
        rows, members = np.nonzero(dense)
        chosen_rows, sizes = np.unique(rows, return_counts=True)
        known = None if names is None else tuple(names)
        return cls(dense.shape[1], count, row_rounds[chosen_rows], starts_of(sizes), members, known, first)

    @classmethod
    def from_sets(
        cls,
        users: int,
        rounds: int,
        set_rounds: ArrayLike,
        sets: Sequence[IntArray],
        *,
        names: tuple[str, ...] | None = None,
        first: int = 0,
    ) -> "ParticipationLog":
        """Build a log from learned sets, each sorted, in the order of their rounds."""
        starts, members = starts_of([*map(len, sets)]), np.concatenate([np.zeros(0, dtype=np.int32), *sets])
        return cls(users, rounds, np.asarray(set_rounds), starts, members, names, first)

    def row_rounds(self) -> IntArray:
        """Return the round of each row of `to_dense`: once per learned set, once for a round without any."""
        empty = np.setdiff1d(np.arange(self.first, self.first + self.rounds), self.set_rounds)
        return np.sort(np.concatenate((self.set_rounds, empty)))

    def to_dense(self) -> NDArray[np.uint8]:
        """Return the matrix P: a row per learned set, and a row of zeros for a round without a result."""
        row_rounds = self.row_rounds()
        dense = np.zeros((len(row_rounds), self.users), dtype=np.uint8)
        rows = np.flatnonzero(np.isin(row_rounds, self.set_rounds))
        dense[np.repeat(rows, np.diff(self.starts)), self.members] = 1
        return dense

    def __len__(self) -> int:
        return self.rounds

    def __repr__(self) -> str:
        sets = len(self.set_rounds)
        return f"ParticipationLog({self.users} users, {self.rounds} rounds, {sets} learned sets)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ParticipationLog):
            return NotImplemented
        return (
            (self.users, self.rounds, self.names) == (other.users, other.rounds, other.names)
            and (self.first == other.first or self.rounds == 0)
            and np.array_equal(self.set_rounds, other.set_rounds)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.members, other.members)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays are compared by content, never hashed

    @cached_property
    def participants(self) -> IntArray:
        """The users who are in a learned set; what this costs does not depend on how many others are claimed."""
        if self.users > len(self.members):
            return np.unique(self.members)
        took_part = np.zeros(self.users, dtype=np.bool_)
        took_part[self.members] = True
        return np.flatnonzero(took_part)

    @property
    def completed(self) -> int:
        """The number of rounds with a result."""
        return len(np.unique(self.set_rounds))

    def sets(self) -> Iterator[tuple[int, IntArray]]:
        """Yield (round, users) for every learned set, in order."""
        for round_, (start, stop) in zip(self.set_rounds.tolist(), pairwise(self.starts.tolist()), strict=True):
            yield round_, self.members[start:stop]

    def by_round(self) -> Iterator[tuple[int, list[IntArray]]]:
        """Yield (round, its learned sets) for every round, also those without a result."""
        bounds = np.searchsorted(self.set_rounds, np.arange(self.first, self.first + self.rounds + 1))
        for index, (low, high) in enumerate(pairwise(bounds)):
            sets = [self.members[self.starts[s] : self.starts[s + 1]] for s in range(low, high)]
            yield self.first + index, sets

    def window(self, start: int, stop: int) -> "ParticipationLog":
        """Return the rounds numbered `start` … `stop - 1`, with their numbers as they are."""
        start = max(start, self.first)
        stop = max(start, min(stop, self.first + self.rounds))
        low, high = np.searchsorted(self.set_rounds, (start, stop))
        offset = self.starts[low]
        return replace(
            self,
            rounds=stop - start,
            set_rounds=self.set_rounds[low:high],
            starts=self.starts[low : high + 1] - offset,
            members=self.members[offset : self.starts[high]],
            first=start,
        )

    def only(self, users: ArrayLike) -> "ParticipationLog":
        """Return the columns of some users, numbered anew in their old order; sets left empty vanish.

        >>> ParticipationLog.from_dense([[1, 1, 0], [0, 0, 1]]).only([1, 2]).to_dense().tolist()
        [[1, 0], [0, 1]]
        """
        who = np.unique(frozen_integers(users, np.int64, "users to keep"))
        check_users(who, self.users)
        if len(who) == self.users:
            return self
        if self.users <= len(self.members):
            place = np.full(self.users, -1, dtype=np.int64)
            place[who] = np.arange(len(who))
            places = place[self.members]
        else:  # a log may claim any number of users, who must cost nothing
            places = np.where(np.isin(self.members, who), np.searchsorted(who, self.members), -1)
        sets = np.repeat(np.arange(len(self.set_rounds)), np.diff(self.starts))
        sizes = np.bincount(sets[places >= 0], minlength=len(self.set_rounds))
        return replace(
            self,
            users=len(who),
            set_rounds=self.set_rounds[sizes > 0],
            starts=starts_of(sizes[sizes > 0]),
            members=places[places >= 0],
            names=None if self.names is None else tuple(self.names[user] for user in who.tolist()),
        )


class LogBuilder:
    """Builds a participation log by appending rounds; nothing appended is ever changed.

    >>> builder = LogBuilder(users=4)
    >>> builder.append([0, 1])
    >>> builder.append()  # skipped
    >>> builder.append([0, 1], [2, 3])  # two sums were learned
    >>> builder.build()
    ParticipationLog(4 users, 3 rounds, 3 learned sets)
    """

    def __init__(self, users: int, names: Sequence[str] | None = None, first: int = 0) -> None:
        self._users = users
        self._names = checked_names(names, users)
        self._first = first
        self._rounds = 0
        self._set_rounds: list[int] = []
        self._sets: list[IntArray] = []

    def append(self, *learned: ArrayLike) -> None:
        """Add the next round with the sets learned in it; none means that the round gave no result."""
        sets = [learned_set(users, self._users) for users in learned]
        self._set_rounds.extend([self._first + self._rounds] * len(sets))
        self._sets.extend(sets)
        self._rounds += 1

    def build(self) -> ParticipationLog:
        """Return the log of all rounds so far; building may go on afterwards."""
        return ParticipationLog.from_sets(
            self._users, self._rounds, self._set_rounds, self._sets, names=self._names, first=self._first
        )
