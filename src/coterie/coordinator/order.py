"""The order that privacy over many rounds rests on: choose → open → collect → commit or abandon → resume.

The ledger knows a cohort before anybody is asked, and what was learned before anybody uses it. A round that dies
in between is counted by the next coordinator as the worst that it can have been. There is no clock, no network and
no storage here: the ledger and the aggregation are passed in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from coterie.errors import TooFewUsers, UsageError
from coterie.ledger import Ledger
from coterie.selection.selectors import Selector
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Gathered:
    """What an aggregation brought home from a cohort."""

    learned: tuple[IntArray, ...]
    """The sets of users whose sums the server learned; none if nobody's update came through."""
    mean: FloatArray | None
    """The weighted mean of the updates of all these users."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Batches of the cohort that gave nothing, and why."""
    silent: tuple[frozenset[str], ...] = ()
    """For each phase, the users that were asked and did not answer in time."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Users whose messages broke a rule, and the rule."""
    reason: str = "nobody's update came through"
    """Why there is no mean, if there is none."""


class Aggregation(Protocol):
    """How the sum over a cohort is taken: plainly, or with one of the protocols of `secagg`."""

    name: str
    sealed: bool
    """Whether an incomplete batch stays hidden whatever the server does."""
    terms: bytes
    """What fixes everything that the users are shown; empty where they are shown nothing."""

    def ready(self, plan: BatchPlan | None) -> BoolArray | None:
        """Return who can be asked at all (members of sealed batches that are formed), or None for everybody."""
        ...

    def gather(self, round_: int, cohort: Cohort) -> Gathered:
        """Ask the cohort. Raises TooFewUsers if nothing could be learned, UsageError if nothing may be asked."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a round ended: committed (with a mean), abandoned or skipped (with a reason)."""

    round: int
    kind: str
    reason: str = ""
    cohort: Cohort | None = None
    gathered: Gathered = field(default_factory=lambda: Gathered((), None))

    @property
    def mean(self) -> FloatArray | None:
        """The weighted mean of the updates, if there is a result."""
        return self.gathered.mean if self.kind == "committed" else None

    @property
    def included(self) -> int:
        """How many users are in the result."""
        return sum(map(len, self.gathered.learned)) if self.kind == "committed" else 0


def _keep_nothing(round_: int, gathered: Gathered) -> None:
    del round_, gathered


class Coordinator:
    """Runs rounds over a ledger, one at a time, also beside other coordinators of the same ledger.

    `selector_for` makes the selector for the plan in force (None if the ledger has no plan). All chance comes from
    `seed` and the step, so that a coordinator which starts again goes on as if it had never stopped.

    >>> import tempfile
    >>> from coterie.selection import BatchSelector, consecutive
    >>> class Everybody:
    ...     name, sealed, terms = "plain", False, b""
    ...     def ready(self, plan): return None
    ...     def gather(self, round_, cohort): return Gathered((cohort.users,), np.ones(3))
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.create(folder) as ledger:
    ...     _ = ledger.enrol([f"user-{i}" for i in range(8)])
    ...     ledger.publish_plan(consecutive(users=8, privacy=2))
    ...     coordinator = Coordinator(ledger, lambda plan: BatchSelector(plan, per_round=4), seed=1)
    ...     outcome = coordinator.run_round(np.ones(8, dtype=bool), Everybody())
    ...     outcome.kind, outcome.included, coordinator.step
    ('committed', 4, 1)
    """

    def __init__(self, ledger: Ledger, selector_for: Callable[[BatchPlan | None], Selector], seed: int) -> None:
        self.ledger = ledger
        self._selector_for = selector_for
        self._seed = seed
        self._selector: tuple[BatchPlan | None, Selector] | None = None

    @property
    def step(self) -> int:
        """How many rounds have come to an end; one that died is tried again and does not count."""
        return self.ledger.steps

    def run_round(
        self,
        available: BoolArray,
        aggregation: Aggregation,
        keep: Callable[[int, Gathered], None] = _keep_nothing,
        step: int | None = None,
    ) -> Outcome:
        """Run the next round among the available users.

        `step` is the step that the aggregation was made for, if it was made for one: if another coordinator has
        gone on meanwhile, nobody is asked. `keep` gets a round's number and result before the ledger commits it,
        for a caller that must still have the result if it dies right after the commit.

        Raises `Busy` while another coordinator is in a round, and what the aggregation raises as UsageError, after
        the round was abandoned. After any other exception the round stays open, and the next call counts it as
        the worst that it can have been.
        """
        with self.ledger.claim():
            if step is not None and step != self.step:
                raise UsageError(
                    f"{self.ledger.place} is at step {self.step}, not at {step}: another process goes on with it"
                )
            cohort = self.choose(available, aggregation.ready(self.ledger.plan))
            if cohort is None:
                reason = "the available users do not fill a cohort"
                return Outcome(self.ledger.skip_round(reason), "skipped", reason)
            round_ = self.ledger.open_round(
                cohort, sealed=aggregation.sealed, protocol=aggregation.name, terms=aggregation.terms
            )
            try:
                gathered = aggregation.gather(round_, cohort)
            except TooFewUsers as error:
                return self._abandoned(round_, cohort, Gathered((), None), str(error))
            except UsageError as error:
                self._abandoned(round_, cohort, Gathered((), None), str(error))
                raise
            if gathered.mean is None:
                return self._abandoned(round_, cohort, gathered, gathered.reason)
            keep(round_, gathered)  # if it fails, the round stays open: its sums are learned, and must be counted
            self.ledger.commit_round(round_, gathered.learned, gathered.lost)
            return Outcome(round_, "committed", cohort=cohort, gathered=gathered)

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
        rng = np.random.default_rng([self._seed, self.step])
        return self._selector[1].choose(reachable, self.ledger.counts[:known], rng)

    def _abandoned(self, round_: int, cohort: Cohort, gathered: Gathered, reason: str) -> Outcome:
        self.ledger.abandon_round(round_, reason, gathered.learned)
        return Outcome(round_, "abandoned", reason, cohort, gathered)
