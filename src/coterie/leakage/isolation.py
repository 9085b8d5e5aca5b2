"""`Audit`: what a growing log has given away. Sets are taken in one by one; proofs and bounds follow on demand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError
from coterie.leakage.elimination import Echelon, RowBasis, random_primes
from coterie.leakage.measures import StrongLevel
from coterie.leakage.proofs import Combination, FullRank
from coterie.leakage.weak_level import MisleadingPrimeError, TimeLeft, WeakSearch
from coterie.values import IntArray, ParticipationLog
from coterie.values.checks import learned_set
from coterie.values.text import number

MOST_CLASSES = 4096
"""With more different columns nothing is eliminated: a dense form of that many squared is too much."""
_AT_ONCE = 20  # users whose combinations are solved for in one go


@dataclass(frozen=True)
class Bracket:
    """low ≤ T ≤ high for the weak level T; the combination, if any, covers exactly `high` users.

    >>> str(Bracket(3, 5)), str(Bracket(4, 4))
    ('3..5', '4')
    """

    low: int
    high: int
    witness: Combination | None = None

    @property
    def exact(self) -> bool:
        """Whether one number is proven."""
        return self.low == self.high

    def __str__(self) -> str:
        return number(self.low) if self.exact else f"{number(self.low)}..{number(self.high)}"


@dataclass(frozen=True)
class IsolatedUser:
    """A user whose update alone is a combination of the sums up to `round`, and why.

    It is a combination of no fewer rounds, unless the audit was stopped before that was proven.
    """

    user: int
    round: int
    proof: Combination | FullRank


class Audit:
    """What the learned sets so far have given away: the strong level, who is isolated, and the weak level.

    A further round costs one row of an elimination, whatever came before. Elimination modulo a prime only
    proposes: `settle` proves (and begins anew with another prime where the first one misled), `refine` narrows
    the weak level. Both can be stopped at any time, and what is proven so far stays.

    >>> audit = Audit(users=4, rng=np.random.default_rng(0))
    >>> for learned in ([0, 1], [1, 2], [0, 2, 3]):
    ...     audit.append(learned)
    >>> audit.strong.level, audit.weak.low, audit.weak.high
    (1, 1, 2)
    >>> audit.append([0, 2])
    >>> audit.settle()
    True
    >>> [(each.user, each.round) for each in audit.isolated]
    [(0, 3), (1, 3), (2, 3), (3, 3)]
    >>> for _ in audit.refine(time_left=lambda: 1.0):
    ...     pass
    >>> audit.weak.exact, audit.weak.high
    (True, 1)
    """

    def __init__(
        self, users: int, rng: np.random.Generator, primes: Iterator[int] | None = None, first: int = 0
    ) -> None:
        self._rng = rng
        self._primes = random_primes(rng) if primes is None else primes
        self._users = users
        self._first = first
        self._rounds = 0
        self._sets: list[IntArray] = []
        self._set_rounds: list[int] = []
        self._smallest = 0  # the set with the fewest users
        self._single: dict[int, int] = {}  # user: the first learned set that is this user alone
        self._begin()

    @classmethod
    def of(
        cls,
        log: ParticipationLog,
        rng: np.random.Generator,
        should_stop: Callable[[], bool] = lambda: False,
        primes: Iterator[int] | None = None,
    ) -> "Audit":
        """Take in a log; rounds without a result are passed over, so that their number costs nothing.

        If `should_stop` says so the audit ends early: `complete` tells.
        """
        audit = cls(log.users, rng, primes, log.first)
        for round_, members in log.sets():
            if should_stop():
                audit._stop_eliminating()
            audit._keep(round_, members)
        audit._rounds = log.rounds
        return audit

    def append(self, *learned: ArrayLike) -> None:
        """Take in the next round with the sets learned in it; none means that the round gave no result."""
        sets = [learned_set(members, self._users) for members in learned]
        for members in sets:
            self._keep(self._first + self._rounds, members)
        self._rounds += 1

    def _keep(self, round_: int, members: IntArray) -> None:
        self._sets.append(members)
        self._set_rounds.append(round_)
        index = len(self._sets) - 1
        if len(members) < len(self._sets[self._smallest]):
            self._smallest = index
        self._eliminate(index)

    # --- elimination modulo a prime: proposals --------------------------------------------------------------

    def _begin(self) -> None:
        """Begin with nothing, and with the next prime."""
        self.strong = StrongLevel(self._users)
        self._form: Echelon | None = Echelon(next(self._primes))
        self._basis: list[int] = []  # sets that raised the rank
        self._dependent: list[int] = []  # sets that did not and were not seen before, still to be proven
        self._seen: set[bytes] = set()
        self._proposed: dict[int, int] = {}  # user: the set that isolated it
        self._isolated: dict[int, IsolatedUser] = {}
        self._search: WeakSearch | None = None
        self._searched = 0  # sets that the search knows of

    def _stop_eliminating(self) -> None:
        self._form = None
        self._proposed.clear()
        self._isolated.clear()
        self._seen.clear()

    def _eliminate(self, index: int) -> None:
        members = self._sets[index]
        if len(members) == 1 and self._single.setdefault(int(members[0]), index) != index:
            return  # a user alone who is known as such changes nothing
        parents, form = self.strong.add(members), self._form
        if form is None:
            return
        if self.strong.classes > MOST_CLASSES:
            self._stop_eliminating()
            return
        for parent in parents.tolist():
            form.add_column(parent if parent >= 0 else None)
        if form.nullity == 0:
            return  # the rank is full: every further set of whole classes is a combination
        if form.add(np.unique(self.strong.class_of[members])):
            self._basis.append(index)
            self._propose(index, form)
        elif members.tobytes() not in self._seen:
            self._dependent.append(index)
        self._seen.add(members.tobytes())

    def _propose(self, index: int, form: Echelon) -> None:
        """Note who is newly isolated modulo the prime; a full rank proves it at once."""
        alone = form.unit_columns()
        alone = alone[self.strong.sizes[alone] == 1]
        if len(alone) <= len(self._proposed):
            return
        users = np.flatnonzero(np.isin(self.strong.class_of, alone))
        proof = FullRank(index + 1, form.prime) if form.nullity == 0 else None
        for user in users.tolist():
            if user not in self._proposed:
                self._proposed[user] = index
                if proof is not None:
                    self._isolated[user] = IsolatedUser(user, self._set_rounds[index], proof)

    @property
    def rank(self) -> int | None:
        """The rank of the learned sets modulo the prime; that over the rationals is no less. None if unknown."""
        return None if self._form is None else self._form.rank

    # --- proofs over the rationals --------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether all sets went into the elimination; if not, only users who are a learned set are isolated."""
        return self._form is not None

    def settle(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Prove who is isolated and since when; return whether all is proven (it is not if `should_stop`)."""
        while True:
            try:
                return self._settle(should_stop)
            except MisleadingPrimeError:
                self._restart()

    def _restart(self) -> None:
        self._begin()
        for index in range(len(self._sets)):
            self._eliminate(index)

    def _settle(self, should_stop: Callable[[], bool]) -> bool:
        if self._form is None:
            return False
        self._prove_ranks()
        for user, index in self._proposed.items():
            if self._single.get(user) == index:
                self._isolated[user] = self._alone(user)
        waiting = [user for user in self._proposed if user not in self._isolated]
        for start in range(0, len(waiting), _AT_ONCE):
            if should_stop():
                return False
            asked = waiting[start : start + _AT_ONCE]
            proofs = self._express(asked)
            if len(proofs) < len(asked):
                raise MisleadingPrimeError
            for user, proof in proofs.items():
                # The rows of the basis are independent, so the last one used is the one that isolated.
                self._isolated[user] = IsolatedUser(user, self._set_rounds[proof.sets[-1]], proof)
        return True

    def _prove_ranks(self) -> None:
        """Prove that the rank modulo the prime is that over the rationals, after every set.

        That is: every set that did not raise the rank is a combination of the sets before it. Then nobody was
        isolated before the round in which elimination modulo the prime says so, for a rational combination
        scaled to integers without a common factor is one modulo the prime.
        """
        if self._form is None or not self._dependent:
            return
        basis = RowBasis(self._rows(self._basis), self._form.pivots)
        last = self._basis[-1]
        late = [index for index in self._dependent if index > last]
        early = [index for index in self._dependent if index < last]
        if len(late) > self._form.nullity:
            if not basis.spans(self._rows(late)):
                raise MisleadingPrimeError
        else:
            early += late
        for index, combination in zip(early, basis.express(self._rows(early)), strict=True):
            if combination is None or any(self._basis[row] > index for row in combination.sets):
                raise MisleadingPrimeError
        self._dependent.clear()

    def _rows(self, indices: list[int]) -> NDArray[np.uint8]:
        """Return learned sets as 0/1 rows at the classes."""
        rows = np.zeros((len(indices), self.strong.classes), dtype=np.uint8)
        for row, index in zip(rows, indices, strict=True):
            row[self.strong.class_of[self._sets[index]]] = 1
        return rows

    def combinations(self, users: list[int]) -> dict[int, Combination]:
        """Return for isolated users the combination of learned sets that isolates each of them."""
        proofs = self._express(users)
        for user in users:
            if user not in proofs:
                raise UsageError(f"user {user} is not isolated by the learned sets; ask for one that is")
        return proofs

    def _express(self, users: list[int]) -> dict[int, Combination]:
        """Return the isolating combinations of those users who have one."""
        if self._form is None:
            return {}
        targets = np.zeros((len(users), self.strong.classes), dtype=np.uint8)
        targets[np.arange(len(users)), self.strong.class_of[users]] = 1
        combinations = RowBasis(self._rows(self._basis), self._form.pivots).express(targets)
        sizes = self.strong.class_sizes()
        return {
            user: self._combination(combination)
            for user, combination in zip(users, combinations, strict=True)
            if combination is not None and sizes[user] == 1
        }

    def _combination(self, of_basis: Combination) -> Combination:
        """Return a combination of the basis as one of the learned sets."""
        return replace(of_basis, sets=tuple(self._basis[row] for row in of_basis.sets))

    @property
    def isolated(self) -> list[IsolatedUser]:
        """The users proven isolated so far, in the order in which they became so."""
        alone = [self._alone(user) for user in self._single]
        first: dict[int, IsolatedUser] = {}
        for each in sorted([*alone, *self._isolated.values()], key=lambda each: (each.round, each.user)):
            first.setdefault(each.user, each)  # of two proofs by the same round, the set alone stands first
        return list(first.values())

    def _alone(self, user: int) -> IsolatedUser:
        """Return a user who is a learned set: the shortest proof that there is."""
        index = self._single[user]
        return IsolatedUser(user, self._set_rounds[index], Combination((index,), (1,), 1))

    # --- the weak level -------------------------------------------------------------------------------------

    @property
    def weak(self) -> Bracket:
        """What is proven of the weak level so far: never below the strong level, never above a set's size."""
        if not self._sets:
            return Bracket(self._users, self._users)
        high, witness = len(self._sets[self._smallest]), Combination((self._smallest,), (1,), 1)
        if self._search is not None and self._search.high < high:
            high, witness = self._search.high, self._combination(self._search.lightest)
        low = self.strong.level
        if self._search is not None and self._searched == len(self._sets):
            low = max(low, self._search.low)
        return Bracket(min(low, high), high, witness)

    def sketch(self) -> Bracket:
        """Narrow the weak level by what is cheap, and return it: without a clock, so the same on every machine."""
        for _ in self.refine():
            pass
        return self.weak

    def refine(self, time_left: TimeLeft | None = None) -> Iterator[Bracket]:
        """Narrow the weak level until it is exact or no time is left; yield it after every piece of work.

        Without a clock, by what is cheap. Where a prime misled, all begins anew with another one.
        """
        while not self.weak.exact and (time_left is None or time_left() > 0):
            try:
                search = self._ready()
                for _ in () if search is None else search.steps(time_left):
                    yield self.weak
            except MisleadingPrimeError:
                self._restart()
            else:
                return

    def _ready(self) -> WeakSearch | None:
        """Return the search of all sets so far, None if they are not eliminated."""
        if self._form is None:
            return None
        self._prove_ranks()
        if self._search is None or self._searched != len(self._sets):
            self._search = WeakSearch(self._rows(self._basis), self._form, self.strong.sizes, self._rng)
            self._searched = len(self._sets)
        return self._search
