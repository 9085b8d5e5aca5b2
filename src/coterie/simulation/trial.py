"""One trial of one scheme, round after round, and many of them, in one process or in several."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice

import numpy as np

from coterie.leakage import IsolatedUsers, RunningMeasures
from coterie.selection import PlanSelector, Selector, join, leave
from coterie.simulation.processes import CheckStop, never_stop, worker_processes
from coterie.simulation.setting import Scheme, Simulation
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray, LogBuilder, ParticipationLog
from coterie.values.checks import check_count

MOST_USERS_FOR_ISOLATION = 500
"""Beyond this many users the isolated share is not measured: elimination costs N² for every round."""


@dataclass(frozen=True)
class Trial:
    """The measures of one scheme in one trial, after every round."""

    strong: FloatArray
    isolated_share: FloatArray
    """Of all users who have come so far; NaN where it is not measured."""
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
    check_stop: CheckStop = never_stop,
    log_builder: LogBuilder | None = None,
) -> Trial:
    """Run one trial of one scheme.

    Randomness is a function of (seed, trial) for who is available, is lost, comes and goes, and of (seed,
    trial, scheme) for the selection: schemes meet the same world, and no trial depends on another. `check_stop`
    is called before every round. `log_builder` is given every round's learned sets.
    """
    world = np.random.default_rng((simulation.seed, trial, 0))
    online = simulation.availability.rounds(np.random.default_rng((simulation.seed, trial, 1)))
    rng = np.random.default_rng((simulation.seed, trial, 2 + scheme))
    population = _Population(simulation, simulation.schemes[scheme])
    measures = RunningMeasures(simulation.availability.users)
    isolation = _Isolation(simulation.availability.users)
    table = np.empty((len(MEASURES), simulation.rounds))
    for round_ in range(simulation.rounds):
        check_stop()
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
            isolation.share(now.strong, population.arrivals),
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
        if isinstance(scheme.selector, PlanSelector):
            self._plan = replace(scheme.selector.plan, names=None)  # newcomers have none
        self._present = np.arange(simulation.availability.users) < simulation.users
        self._from_start = self._present.copy()
        self.arrivals = simulation.users
        """How many users have been there so far, those who left included."""
        self.changes = bool(simulation.leaving or simulation.joining) or not self._present.all()

    def turn_over(self, world: np.random.Generator) -> None:
        """Let users come and go before a round: newcomers wait until whole batches of them are there."""
        if not self.changes:
            return
        capacity = len(self._present)
        newcomers = min(int(world.poisson(self._simulation.joining)), capacity - self.arrivals)
        self._present[self.arrivals : self.arrivals + newcomers] = True
        self.arrivals += newcomers
        leaving = np.flatnonzero(self._present & (world.random(capacity) < self._simulation.leaving))
        self._present[leaving] = False
        self._from_start[leaving] = False
        selector = self._scheme.selector
        if self._plan is not None and isinstance(selector, PlanSelector) and (newcomers or len(leaving)):
            self._regroup(selector, self._plan)

    def _regroup(self, first: PlanSelector, plan: BatchPlan) -> None:
        ready = (self.arrivals - plan.users) // plan.privacy * plan.privacy
        if ready:
            plan = join(plan, ready)
        plan = leave(plan, np.flatnonzero(~self._present[: plan.users]))
        self._plan = plan
        # A plan whose batches have all retired can choose nobody until newcomers form new ones.
        self._selector = first.over(plan) if len(plan) else None

    def choose(self, online: BoolArray, counts: IntArray, rng: np.random.Generator) -> Cohort | None:
        """Return the cohort of a round."""
        available = online & self._present if self.changes else online
        if self._selector is None:
            return None
        users = len(available) if self._plan is None else self._plan.users
        return self._selector.choose(available[:users], counts[:users], rng)

    def learned(self, cohort: Cohort | None, survives: BoolArray | None) -> list[IntArray]:
        """Return the sets that the server learns: one, or none."""
        if cohort is None:
            return []
        if survives is None:
            return [cohort.users]
        users = cohort.survivors(survives, self._plan if self._scheme.sealed else None)
        return [users] if len(users) else []

    def gap(self, counts: IntArray) -> int:
        """Return the gap in rounds between two users who were there from the first round on."""
        rounds = counts[self._from_start]
        return int(np.ptp(rounds)) if len(rounds) else 0


class _Isolation:
    """The share of isolated users, computed only once the strong level allows any."""

    def __init__(self, users: int) -> None:
        self._users = users
        self._isolated = IsolatedUsers(users) if users <= MOST_USERS_FOR_ISOLATION else None
        self.pending: list[IntArray] = []

    def share(self, strong: int, users: int) -> float:
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
        return len(self._isolated.users) / users


def run_trials(simulation: Simulation, trials: int, processes: int) -> Iterator[list[Trial]]:
    """Yield trial after trial, each with the result of every scheme; the same whatever the number of processes."""
    check_count(trials, "the number of trials")
    check_count(processes, "the number of processes")
    tasks = ((scheme, trial) for trial in range(trials) for scheme in range(len(simulation.schemes)))
    alone = (run_trial(simulation, *task) for task in tasks)
    results = alone if processes == 1 else _in_processes(simulation, tasks, processes)
    while trial := list(islice(results, len(simulation.schemes))):
        yield trial


def _in_processes(simulation: Simulation, tasks: Iterator[tuple[int, int]], processes: int) -> Iterator[Trial]:
    """Yield the tasks' trials in order; a few are under way ahead of the one that is waited for."""
    with worker_processes(partial(run_trial, simulation), processes, "forkserver") as submit:
        under_way = deque(submit(*task) for task in islice(tasks, 4 * processes))
        while under_way:
            yield under_way.popleft().result()
            under_way.extend(submit(*task) for task in islice(tasks, 1))
