"""The order that privacy over many rounds rests on: choose → open → gather → commit or abandon.

The ledger knows a cohort before anybody is asked, and what was learned before anybody uses it. A round that dies
in between is counted by the next coordinator as the worst that it can have been. Messages of rounds that are over
are still looked at: what the server could open since is added to the ledger. There is no clock, no network and no
storage here: the ledger and the aggregation are passed in.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.federation.ledger import Ledger, Round, State
from coterie.federation.ledger.history import NOBODY, exposed_sets
from coterie.selection.selectors import Selector
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray

if TYPE_CHECKING:  # plain rounds run where the cryptography is not installed
    from coterie.secagg.protocols.interface import Exposure, ServerRound
    from coterie.secagg.wire.framing import Data

RETIRE_AFTER = 10
"""Rounds in a row in which a batch may be lost before it is asked no more."""

MOST_REMEMBERED = 16
"""Rounds that have ended whose late messages are still counted; those of older rounds are refused only."""

LIARS = "liars"
"""The metric of a committed round that counts the users who are proven to have broken the protocol."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """How a round ended: committed (with a mean), abandoned or skipped (with a reason)."""

    round: int
    state: State
    cohort: Cohort | None = None
    learned: tuple[IntArray, ...] = ()
    """The sets of users whose sum the server could open, whether or not it did."""
    alone: IntArray = field(default_factory=lambda: NOBODY)
    """Users of whom the server saw, or may know, the update by itself."""
    included: IntArray = field(default_factory=lambda: NOBODY)
    """The users whose updates are in the mean."""
    mean: FloatArray | None = None
    """The weighted mean of the updates of the included users."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Batches of the cohort that gave nothing, and why."""
    silent: tuple[frozenset[str], ...] = ()
    """For each phase, the users that were asked and did not answer in time."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Users whose messages broke a rule, and the rule."""
    liars: Mapping[str, str] = field(default_factory=dict)
    """Users who broke the protocol in a way that is proven, and how; the round went on without what they sent."""
    reason: str = ""
    """Why there is no mean, if there is none."""

    @property
    def exposure(self) -> tuple[IntArray, ...]:
        """Every set whose sum must be taken as known."""
        return exposed_sets(self.learned, self.alone)

    @classmethod
    def on_record(cls, each: Round, mean: FloatArray | None) -> "RoundOutcome":
        """Return how a round ended that the ledger has, with the mean that was kept of it."""
        same = ("state", "cohort", "learned", "alone", "included", "lost", "reason")
        return cls(each.number, mean=mean, **{name: getattr(each, name) for name in same})

    @classmethod
    def abandoned(cls, round_: int, cohort: Cohort, reason: str) -> "RoundOutcome":
        """Return the outcome of a round in which nothing was learned."""
        return cls(round_, State.ABANDONED, cohort, reason=reason)


@dataclass
class _PastRound:
    server: "ServerRound"
    number: Mapping[str, int]
    exposure: "Exposure"


class EndedRounds:
    """The last rounds of a coordinator, whose exposure can still grow.

    A server that has once sent its messages cannot help receiving the answers, however late; a sum that they
    complete lies open to it, and counts from then on. A round that is over refuses a late message, and counts it
    all the same (`ServerRound.receive`); users of whom it then knows too much are `unknown` there, `alone` here.
    """

    def __init__(self, ledger: Ledger, most: int = MOST_REMEMBERED) -> None:
        self._ledger = ledger
        self._rounds: deque[_PastRound] = deque(maxlen=most)

    def add(self, server: "ServerRound", number: Mapping[str, int], exposure: "Exposure") -> None:
        """Remember a round that is over, its users' numbers, and what the ledger was told of it."""
        self._rounds.append(_PastRound(server, number, exposure))

    def take(self, user: str, data: "Data") -> None:
        """Offer a message that the present round refused to those before it, and record what it opens."""
        for past in reversed(self._rounds):
            if user not in past.number:
                continue
            try:
                past.server.receive(user, data)
            except PeerError:  # always, as the round is over; its exposure says what the message opened
                exposure = past.server.exposure()
                if exposure != past.exposure:
                    self._record(past, exposure)
                    return

    def _record(self, past: _PastRound, exposure: "Exposure") -> None:
        learned = [each for each in exposure.learned if each not in past.exposure.learned]
        alone = [user for user in exposure.unknown if user not in past.exposure.unknown]
        past.exposure = exposure
        if learned or alone:
            sets = [numbers_of(each, past.number) for each in learned]
            self._ledger.expose(past.server.round, sets, numbers_of(alone, past.number))


def numbers_of(users: tuple[str, ...] | list[str], number: Mapping[str, int]) -> IntArray:
    """Return users, given by name, as sorted numbers."""
    return np.array(sorted(number[user] for user in users), dtype=np.int64)


class Aggregation(Protocol):
    """How the sum over a cohort is taken: plainly, or with one of the protocols of `secagg`."""

    name: str
    sealed: bool
    """Whether an incomplete batch stays hidden whatever the server does."""
    terms_digest: bytes
    """The digest of all that the users are shown (`Terms.digest`); empty where they are shown nothing."""

    def ready(self, plan: BatchPlan | None) -> BoolArray | None:
        """Return who can be asked at all (members of sealed batches that are formed), or None for everybody."""
        ...

    def gather(self, round_: int, cohort: Cohort, ended: EndedRounds) -> RoundOutcome:
        """Ask the cohort, and return a round that is committed or abandoned.

        Messages that belong to none of its own phases go to the rounds that have `ended`. Raises
        TooFewUsersError if nothing could be learned, UsageError if nothing may be asked.
        """
        ...


class Coordinator:
    """Runs rounds over a ledger, one at a time, also beside other coordinators of the same ledger.

    `selector_for` makes the selector for the plan in force (None if the ledger has no plan). All chance comes from
    `seed` and the step, so that a coordinator which starts again goes on as if it had never stopped. A batch that
    was lost in `retire_after` rounds in a row is retired, of which the ledger knows the reason; rounds in which no
    batch at all came through do not count against any.

    >>> import tempfile
    >>> from coterie.selection import BatchSelector, consecutive
    >>> class Everybody:
    ...     name, sealed, terms_digest = "plain", False, b""
    ...     def ready(self, plan): return None
    ...     def gather(self, round_, cohort, ended):
    ...         users = cohort.users
    ...         return RoundOutcome(round_, State.COMMITTED, cohort, alone=users, included=users, mean=np.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.create(folder) as ledger:
    ...     _ = ledger.enrol([f"user-{i}" for i in range(8)])
    ...     ledger.publish_plan(consecutive(users=8, privacy=2))
    ...     coordinator = Coordinator(ledger, lambda plan: BatchSelector(plan, per_round=4), seed=1)
    ...     outcome = coordinator.run_round(np.ones(8, dtype=bool), Everybody())
    ...     str(outcome.state), len(outcome.included), coordinator.step
    ('committed', 4, 1)
    """

    def __init__(
        self,
        ledger: Ledger,
        selector_for: Callable[[BatchPlan | None], Selector],
        seed: int,
        retire_after: int = RETIRE_AFTER,
    ) -> None:
        self.ledger = ledger
        self._selector_for = selector_for
        self._seed = seed
        self._retire_after = retire_after
        self._ended = EndedRounds(ledger)
        self._selector: tuple[BatchPlan | None, Selector] | None = None

    @property
    def step(self) -> int:
        """How many rounds have come to an end; one that died is tried again and does not count."""
        return self.ledger.steps

    def run_round(
        self,
        available: BoolArray,
        aggregation: Aggregation,
        before_commit: Callable[[RoundOutcome], Mapping[str, str]] = lambda _: {},
        step: int | None = None,
    ) -> RoundOutcome:
        """Run the next round among the available users.

        `step` is the step that the aggregation was made for, if it was made for one: if another coordinator has
        gone on meanwhile, nobody is asked. `before_commit` gets a result before the ledger commits it, for callers
        that must still have it if they die right after the commit, and returns the digests of the files it wrote.

        Raises `BusyError` while another coordinator is in a round, and what the aggregation raises as UsageError,
        after the round was abandoned. After any other exception the round stays open, and the next call counts it
        as the worst that it can have been.
        """
        with self.ledger.claim():
            if step is not None and step != self.step:
                raise UsageError(
                    f"another process has gone on with {self.ledger.place}: it is at step {self.step}, not at "
                    f"{step}; wait for it, or stop it"
                )
            cohort = self.choose(available, aggregation.ready(self.ledger.plan))
            if cohort is None:
                reason = "the available users do not fill a cohort"
                return RoundOutcome(self.ledger.skip_round(reason), State.SKIPPED, reason=reason)
            round_ = self.ledger.open_round(
                cohort, sealed=aggregation.sealed, protocol=aggregation.name, terms_digest=aggregation.terms_digest
            )
            try:
                outcome = aggregation.gather(round_, cohort, self._ended)
            except TooFewUsersError as error:
                outcome = RoundOutcome.abandoned(round_, cohort, str(error))
            except UsageError as error:
                self._close(RoundOutcome.abandoned(round_, cohort, str(error)), {})
                raise
            # If `before_commit` fails, the round stays open: its sums are learned, and must be counted.
            self._close(outcome, before_commit(outcome) if outcome.state is State.COMMITTED else {})
            self._retire()
            return outcome

    def _close(self, outcome: RoundOutcome, files: Mapping[str, str]) -> None:
        learned, lost = outcome.learned, outcome.lost
        if outcome.state is State.COMMITTED:
            metrics = {LIARS: float(len(outcome.liars))} if outcome.liars else {}
            self.ledger.commit_round(outcome.round, learned, lost, metrics, alone=outcome.alone, files=files)
        else:
            self.ledger.abandon_round(outcome.round, outcome.reason, learned, lost, alone=outcome.alone)

    def _retire(self) -> None:
        """Retire the batches that were lost too often in a row: their members would wait for nothing."""
        failing = np.flatnonzero((self.ledger.failures >= self._retire_after) & ~self.ledger.retired)
        if len(failing):
            self.ledger.retire(failing.tolist(), f"lost in {self._retire_after} rounds in a row")

    def choose(self, available: BoolArray, ready: BoolArray | None = None) -> Cohort | None:
        """Return the cohort of the next round, always the same for one step.

        Users beyond the end of `available`, whom another process enrolled meanwhile, count as away.
        """
        plan = self.ledger.plan
        if self._selector is None or self._selector[0] is not plan:
            self._selector = (plan, self._selector_for(plan))
        known = self.ledger.users if plan is None else plan.users  # newcomers wait for a plan that has them
        reachable = np.zeros(known, dtype=np.bool_)
        reachable[: len(available)] = available[:known]
        if ready is not None:
            reachable &= ready
        if plan is not None:
            retired = np.append(self.ledger.retired, [True])  # the last entry speaks for users of no batch, in -1
            reachable &= ~retired[plan.batch_of]
        rng = np.random.default_rng([self._seed, self.step])
        return self._selector[1].choose(reachable, self.ledger.counts[:known], rng)
