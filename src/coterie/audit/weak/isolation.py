"""Which users a growing log singles out, modulo a prime: fast enough for every round of a simulation."""

import numpy as np
from numpy.typing import ArrayLike

from coterie.audit.strong import StrongLevel
from coterie.audit.weak.elimination import Echelon
from coterie.values import IntArray
from coterie.values.log import learned_set

PRIME = 2**31 - 1


class IsolatedUsers:
    """The users whose update alone is a combination of the sums learned so far, modulo a prime.

    User i is isolated if the unit vector e_i lies in the row space of P. In the reduced row echelon form that
    is a row whose only entry is in column i. The form is kept up to date, with one column for all users that
    took part in the same sets so far.

    Modulo a prime this is a measurement for simulations and not a proof: a log exists in which a user is
    isolated over the rationals and not modulo the prime. (`Audit` proves.) If *everyone* is isolated modulo a
    prime, that holds over the rationals too (a non-zero determinant modulo a prime is non-zero).

    >>> isolated = IsolatedUsers(users=3)
    >>> for members in ([0, 1], [1, 2], [0, 2]):
    ...     isolated.add(members)
    ...     print(isolated.users.tolist())
    []
    []
    [0, 1, 2]
    """

    def __init__(self, users: int) -> None:
        self._strong = StrongLevel(users)
        self.everyone = users
        self._form = Echelon(PRIME)

    def add(self, members: ArrayLike) -> None:
        """Take in one more learned set."""
        checked = learned_set(members, self.everyone)
        for parent in self._strong.add(checked).tolist():
            self._form.add_column(parent if parent >= 0 else None)
        self._form.add(np.unique(self._strong.class_of[checked]))

    @property
    def strong_level(self) -> int:
        """The strong privacy level."""
        return self._strong.level

    @property
    def rank(self) -> int:
        """The rank of the learned sets, modulo the prime."""
        return self._form.rank

    @property
    def users(self) -> IntArray:
        """The isolated users."""
        alone = self._form.alone()
        return np.flatnonzero(np.isin(self._strong.class_of, alone[self._strong.sizes[alone] == 1]))
