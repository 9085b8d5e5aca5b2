"""One trial of one scheme: round after round, and the three measures after each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from coterie.audit import IsolatedUsers, RunningMeasures
from coterie.selection import BatchSelector, Selector, join, leave
from coterie.simulation.setting import Scheme, Simulation
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray, LogBuilder, ParticipationLog

MOST_USERS_FOR_ISOLATION = 500
"""Beyond this many users the isolated share is not measured: elimination costs N² for every round."""


@dataclass(frozen=True)
class Trial:
    """The measures of one scheme in one trial, after every round."""

    strong: FloatArray
    isolated_share: FloatArray
    """NaN where it is not measured."""
    fairness_gap: FloatArray
    fairness_gap_completed: FloatArray
    cardinality: FloatArray
    skipped: FloatArray
    """Share of the rounds so far that were skipped."""


MEASURES = tuple(field.name for field in fields(Trial))


def trial_log(simulation: Simulation, scheme: int, trial: int = 0) -> ParticipationLog:
    """Return the participation log of one trial, as `run_trial` meets it."""
    log = LogBuilder(simulation.availability.users)
    run_trial(simulation, scheme, trial, log_builder=log)
    return log.build()


def run_trial(
    simulation: Simulation,
    scheme: int,
    trial: int,
    stopped: Callable[[], bool] = lambda: False,
    log_builder: LogBuilder | None = None,
) -> Trial:
    """Run one trial of one scheme.

    Randomness is a function of (seed, trial) for who is available, is lost, comes and goes, and of (seed,
    trial, scheme) for the selection: schemes meet the same world, and no trial depends on another. Once
    `stopped` says so, the trial ends with a KeyboardInterrupt. `log_builder` is given every round's learned sets.
    """
    world = np.random.default_rng((simulation.seed, trial, 0))
    online = simulation.availability.rounds(np.random.default_rng((simulation.seed, trial, 1)))
    rng = np.random.default_rng((simulation.seed, trial, 2 + scheme))
    population = _Population(simulation, simulation.schemes[scheme])
    measures = RunningMeasures(simulation.availability.users)
    isolation = _Isolation(simulation.availability.users)
    table = np.empty((len(MEASURES), simulation.rounds))
    for round_ in range(simulation.rounds):
        if stopped():
            raise KeyboardInterrupt
        population.turn_over(world)
        cohort = population.choose(next(online), measures.participation, rng)
        survives = world.random(simulation.availability.users) >= simulation.lost if simulation.lost else None
        learned = population.learned(cohort, survives)
        measures.add_round(learned)
        if log_builder is not None:
            log_builder.append(*learned)
        isolation.pending.extend(learned)
        now = measures.now
        gap = population.gap(measures.participation) / (round_ + 1) if population.changes else now.fairness_gap
        table[:, round_] = (
            now.strong,
            isolation.share(now.strong),
            gap,
            gap * (round_ + 1) / max(measures.completed, 1),
            now.cardinality,
            now.skipped / (round_ + 1),
        )
    return Trial(*table)


class _Population:
    """Who is there, in which batches, during one trial."""

    def __init__(self, simulation: Simulation, scheme: Scheme) -> None:
        self._simulation = simulation
        self._scheme = scheme
        self._selector: Selector | None = scheme.selector
        self._plan: BatchPlan | None = None
        self._present = np.arange(simulation.availability.users) < simulation.users
        self._stayed = self._present.copy()
        self._arrived = simulation.users
        self.changes = bool(simulation.leaving or simulation.joining)

    def turn_over(self, world: np.random.Generator) -> None:
        """Let users come and go before a round: newcomers wait until whole batches of them are there."""
        if not self.changes:
            return
        capacity = len(self._present)
        newcomers = min(int(world.poisson(self._simulation.joining)), capacity - self._arrived)
        self._present[self._arrived : self._arrived + newcomers] = True
        self._arrived += newcomers
        leaving = np.flatnonzero(self._present & (world.random(capacity) < self._simulation.leaving))
        self._present[leaving] = False
        self._stayed[leaving] = False
        if isinstance(self._scheme.selector, BatchSelector) and (newcomers or len(leaving)):
            self._regroup(self._scheme.selector)

    def _regroup(self, first: BatchSelector) -> None:
        plan = first.plan if self._plan is None else self._plan
        ready = (self._arrived - plan.users) // plan.privacy * plan.privacy
        if ready:
            plan = join(plan, ready)
        plan = leave(plan, np.flatnonzero(~self._present[: plan.users]))
        self._plan = plan
        # A plan whose batches have all retired can choose nobody until newcomers form new ones.
        self._selector = replace(first, plan=plan) if len(plan) else None

    def choose(self, online: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return the cohort of a round."""
        available = online & self._present if self.changes else online
        if isinstance(self._selector, BatchSelector):
            users = self._selector.plan.users
            return self._selector.choose(available[:users], counts[:users], rng)
        return None if self._selector is None else self._selector.choose(available, counts, rng)

    def learned(self, cohort: Cohort | None, survives: BoolArray | None) -> list[IntArray]:
        """Return the sets that the server learns: one, or none."""
        if cohort is None:
            return []
        if survives is None:
            return [cohort.users]
        if self._scheme.sealed and isinstance(self._selector, BatchSelector):
            plan = self._selector.plan
            complete = np.intersect1d(cohort.batches, plan.whole(survives[: plan.users]))
            users = plan.users_of(complete)
        else:
            users = cohort.users[survives[cohort.users]]
        return [users] if len(users) else []

    def gap(self, counts: IntArray) -> int:
        """Return the gap in rounds between two users who were there from the first round on."""
        stayed = counts[self._stayed]
        return int(np.ptp(stayed)) if len(stayed) else 0


class _Isolation:
    """The share of isolated users, computed only once the strong level allows any."""

    def __init__(self, users: int) -> None:
        self._users = users
        self._isolated = IsolatedUsers(users) if users <= MOST_USERS_FOR_ISOLATION else None
        self.pending: list[IntArray] = []

    def share(self, strong: int) -> float:
        # The weak level is at least the strong one: with two or more, nobody is isolated.
        if strong > 1:
            return 0.0
        if self._isolated is None:
            self.pending.clear()
            return math.nan
        if self._isolated.rank < self._users:
            for members in self.pending:
                self._isolated.add(members)
        self.pending.clear()
        return len(self._isolated.users) / self._users
