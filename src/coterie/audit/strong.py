"""The strong privacy level T of a log (eq. def_privacy), exact, by partition refinement."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values import IntArray, ParticipationLog
from coterie.values.log import learned_set


class StrongLevel:
    """The strong privacy level after each learned set, kept up to date in O(n log n) for a set of n users.

    The level is the largest T for which every non-zero combination Pᵀz of the learned sums falls into groups
    of at least T users with one coefficient each. Users with the same column of P have the same coefficient
    in every combination; for a generic z users with different columns have different ones, and a special z
    only joins groups or cancels them. So

        T = size of the smallest class of users with identical, non-zero columns of P,

    and N while nothing was learned, since there is no sum over fewer. A new set cuts every class it meets
    into the part inside and the part outside, so T never rises.

    >>> strong = StrongLevel(users=6)
    >>> strong.level
    6
    >>> strong.add([0, 1, 2, 3])  # a new class, of users never seen
    array([-1])
    >>> strong.level
    4
    >>> strong.add([3, 4])  # two new ones: of user 4, and of user 3, cut from class 0
    array([-1,  0])
    >>> strong.level, strong.class_of.tolist(), strong.class_sizes().tolist()
    (1, [0, 0, 0, 2, 1, -1], [3, 3, 3, 1, 1, 0])
    """

    def __init__(self, users: int) -> None:
        if users < 0:
            raise UsageError(f"there cannot be {users} users")
        self._users = users
        self._level = users
        self._classes = 0
        self._class_of = np.full(users, -1, dtype=np.int32)
        # Classes are disjoint and not empty, so N slots are enough. The slot after them is where class -1,
        # the users never seen, looks up its size: 0.
        self._sizes = np.zeros(users + 1, dtype=np.int32)

    @property
    def level(self) -> int:
        """The strong privacy level T of all sets added so far."""
        return self._level

    @property
    def classes(self) -> int:
        """The number of classes; users never seen belong to none."""
        return self._classes

    @property
    def class_of(self) -> IntArray:
        """Each user's class, -1 for a user in no set so far: a read-only view that follows later sets."""
        view = self._class_of.view()
        view.flags.writeable = False
        return view

    @property
    def sizes(self) -> IntArray:
        """The size of each class: a read-only view that follows later sets."""
        view = self._sizes[: self._classes]
        view.flags.writeable = False
        return view

    def class_sizes(self) -> IntArray:
        """Return the size of each user's class, 0 for a user in no set so far: no sum tells of that user."""
        return self._sizes[self._class_of]

    def add(self, members: ArrayLike) -> IntArray:
        """Take in one more learned set; return what each new class was cut from, -1 for users never seen."""
        users = learned_set(members, self._users)
        # int64: as an index it needs no conversion, and the sort below is vectorised for it.
        classes, where, inside = np.unique(
            self._class_of[users].astype(np.int64), return_inverse=True, return_counts=True
        )
        before = self._sizes[classes]
        cut = inside != before  # part of a class, or users never seen before
        if not cut.any():
            return classes[:0]
        parts = inside[cut]
        fresh = np.arange(self._classes, self._classes + len(parts))
        self._classes += len(parts)
        self._sizes[fresh] = parts
        renamed = classes.copy()
        renamed[cut] = fresh
        self._class_of[users] = renamed[where]
        split = cut & (classes >= 0)
        left = before[split] - inside[split]
        self._sizes[classes[split]] = left
        self._level = min(self._level, int(parts.min()), int(left.min(initial=self._level)))
        parents: IntArray = classes[cut]
        return parents


def strong_level(log: ParticipationLog) -> int:
    """Return the strong privacy level T of a log (eq. def_privacy); N if it holds no learned set.

    >>> strong_level(ParticipationLog.from_dense([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]))
    2
    >>> strong_level(ParticipationLog.from_dense([[1, 1, 1, 0], [0, 1, 1, 0]]))
    1
    """
    dense, _ = participants_only(log)
    if dense.users == 0:
        return log.users
    strong = StrongLevel(dense.users)
    for start, stop in pairwise(dense.starts.tolist()):
        strong.add(dense.members[start:stop])
    return strong.level


def participants_only(log: ParticipationLog) -> tuple[ParticipationLog, IntArray]:
    """Return the log of the users who took part, numbered anew, and their old numbers.

    Only they decide the levels, and a log may claim any number of others: what is done costs by the sets alone.

    >>> log = ParticipationLog(users=2**31 - 1, rounds=1, set_rounds=[0], starts=[0, 2], members=[5, 10**9])
    >>> dense, participants = participants_only(log)
    >>> dense, dense.members.tolist(), participants.tolist()
    (ParticipationLog(2 users, 1 rounds, 1 learned sets), [0, 1], [5, 1000000000])
    """
    if log.users <= len(log.members):
        took_part = np.zeros(log.users, dtype=np.bool_)
        took_part[log.members] = True
        participants = np.flatnonzero(took_part)
        everyone = len(participants) == log.users
        members = log.members if everyone else (np.cumsum(took_part) - 1)[log.members]
    else:
        participants, members = np.unique(log.members, return_inverse=True)
    dense = ParticipationLog(len(participants), log.rounds, log.set_rounds, log.starts, members, first=log.first)
    return dense, participants
