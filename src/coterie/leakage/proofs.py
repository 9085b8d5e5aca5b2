"""Proofs that anyone can check from the log alone, over the integers; nothing of the search is used here."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.values import IntArray, ParticipationLog


@dataclass(frozen=True)
class Combination:
    """A combination of learned sets: set `sets[k]` of the log has the weight numerators[k] / denominator.

    >>> log = ParticipationLog.from_dense([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    >>> halves = Combination(sets=(0, 1, 2), numerators=(1, -1, 1), denominator=2)
    >>> halves.result(log), halves.isolates(0, log)
    ({0: Fraction(1, 1)}, True)
    """

    sets: tuple[int, ...]
    numerators: tuple[int, ...]
    denominator: int

    def result(self, log: ParticipationLog) -> dict[int, Fraction]:
        """Return the coefficient of every user that the combination of the log's sums still contains."""
        totals: defaultdict[int, int] = defaultdict(int)
        for index, weight in zip(self.sets, self.numerators, strict=True):
            if not 0 <= index < len(log.set_rounds):
                raise UsageError(f"set {index} is not one of the log's {len(log.set_rounds)} learned sets")
            for user in log.members[log.starts[index] : log.starts[index + 1]].tolist():
                totals[user] += weight
        return {user: Fraction(total, self.denominator) for user, total in sorted(totals.items()) if total}

    def isolates(self, user: int, log: ParticipationLog) -> bool:
        """Say whether the combination is exactly that user's update."""
        return self.result(log) == {user: 1}

    def last_round(self, log: ParticipationLog) -> int:
        """Return the last round whose sum is used."""
        return int(log.set_rounds[list(self.sets)].max())


@dataclass(frozen=True)
class FullRank:
    """Everyone who has a column of its own in the first `sets` learned sets is isolated, and this is why.

    The different non-zero columns of these sets are as many as their rank modulo `prime`. The rank over the
    rationals is at least that, and at most the number of different columns. So they are equal, and every
    different column's unit vector is a combination of the sets.
    """

    sets: int
    prime: int

    def holds(self, log: ParticipationLog) -> bool:
        """Check it from the log.

        >>> FullRank(3, 2**61 - 1).holds(ParticipationLog.from_dense([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))
        True
        """
        from flint import nmod_mat

        columns = np.unique(self._columns(log)[1], axis=1)
        sets, different = columns.shape
        return bool(nmod_mat(sets, different, columns.ravel().tolist(), self.prime).rank() == different)

    def isolates(self, user: int, log: ParticipationLog) -> bool:
        """Say whether the user has a column of its own, and the rank is full."""
        participants, dense = self._columns(log)
        if user not in participants:
            return False
        column = dense[:, np.searchsorted(participants, user)]
        return int((dense == column[:, None]).all(axis=0).sum()) == 1 and self.holds(log)

    def _columns(self, log: ParticipationLog) -> tuple[IntArray, NDArray[np.uint8]]:
        """Return the users seen in the sets, and their columns."""
        bounds = log.starts[: self.sets + 1]
        participants, where = np.unique(log.members[: bounds[-1]], return_inverse=True)
        dense = np.zeros((self.sets, len(participants)), dtype=np.uint8)
        dense[np.repeat(np.arange(self.sets), np.diff(bounds)), where] = 1
        return participants, dense
