"""Schemes × trials × rounds: the three measures of selection schemes under any availability."""

import math
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from coterie.audit import IsolatedUsers, RunningMeasures
from coterie.errors import CoterieError, UsageError
from coterie.selection import AvailabilityModel, BatchSelector, Selector, join, leave
from coterie.values import (
    BatchPlan,
    BoolArray,
    Cohort,
    FloatArray,
    IntArray,
    LogBuilder,
    ParticipationLog,
)
from coterie.values.checks import check_count, check_parameters, check_probability

MOST_USERS_FOR_ISOLATION = 500
"""Beyond this many users the isolated share is not measured: elimination costs N² for every round."""


@dataclass(frozen=True)
class Scheme:
    """A selector under a name; `sealed` says what the server learns when a chosen user is lost mid-round.

    Sealed, an incomplete batch is left out as a whole. Unsealed (and in schemes without batches), the sum of
    the survivors comes out, which splits the batch.
    """

    name: str
    selector: Selector
    sealed: bool = True


@dataclass(frozen=True)
class Simulation:
    """What to simulate. `availability` may know more users than take part at first: they join later."""

    users: int
    per_round: int
    rounds: int
    schemes: tuple[Scheme, ...]
    availability: AvailabilityModel
    seed: int = 0
    lost: float = 0.0
    """Probability that a chosen user is lost before the round ends."""
    leaving: float = 0.0
    """Probability that a user leaves for good, per round."""
    joining: float = 0.0
    """Newcomers per round, on average."""

    def __post_init__(self) -> None:
        check_parameters(self.users, self.per_round)
        check_count(self.rounds, "the number of rounds")
        check_probability(self.lost, "the probability to be lost mid-round")
        check_probability(self.leaving, "the probability to leave")
        room_for_newcomers(self.joining, self.rounds)
        if self.availability.users < self.users:
            raise UsageError(
                f"availability is known for {self.availability.users} users, fewer than the {self.users} users"
            )
        if not self.schemes:
            raise UsageError("no scheme was given to simulate")
        names = [scheme.name for scheme in self.schemes]
        if len(set(names)) != len(names):
            raise UsageError(f"a scheme is given twice: {', '.join(names)}")


def room_for_newcomers(joining: float, rounds: int) -> int:
    """Return how many newcomers a simulation should be ready for: twice as many as are expected."""
    if not (joining >= 0 and math.isfinite(joining)):
        raise UsageError(f"newcomers per round are {joining}; give a number from 0 up")
    return round(2 * joining * rounds)


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
    run_trial(simulation, scheme, trial, heard=log)
    return log.build()


def run_trial(
    simulation: Simulation,
    scheme: int,
    trial: int,
    stopped: Callable[[], bool] = lambda: False,
    heard: LogBuilder | None = None,
) -> Trial:
    """Run one trial of one scheme.

    Randomness is a function of (seed, trial) for who is available, is lost, comes and goes, and of (seed,
    trial, scheme) for the selection: schemes meet the same world, and no trial depends on another. Once
    `stopped` says so, the trial ends with a KeyboardInterrupt. `heard` is given every round's learned sets.
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
        if heard is not None:
            heard.append(*learned)
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
        gone = np.flatnonzero(self._present & (world.random(capacity) < self._simulation.leaving))
        self._present[gone] = False
        self._stayed[gone] = False
        if isinstance(self._scheme.selector, BatchSelector) and (newcomers or len(gone)):
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


def run_trials(simulation: Simulation, trials: int, processes: int) -> Iterator[list[Trial]]:
    """Yield trial after trial, each with the result of every scheme; the same whatever the number of processes."""
    check_count(trials, "the number of trials")
    check_count(processes, "the number of processes")
    tasks = ((scheme, trial) for trial in range(trials) for scheme in range(len(simulation.schemes)))
    if processes == 1:
        yield from _by_trial((run_trial(simulation, *task) for task in tasks), len(simulation.schemes))
    else:
        yield from _by_trial(_in_processes(simulation, tasks, processes), len(simulation.schemes))


def _in_processes(simulation: Simulation, tasks: Iterator[tuple[int, int]], processes: int) -> Iterator[Trial]:
    """Yield the tasks' trials in order; a few are under way ahead of the one that is waited for."""
    context = get_context("forkserver")
    stop = context.Event()
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(simulation, stop)
    )
    try:
        under_way = deque(pool.submit(_work, *task) for task in islice(tasks, 4 * processes))
        while under_way:
            yield under_way.popleft().result()
            under_way.extend(pool.submit(_work, *task) for task in islice(tasks, 1))
    except BrokenProcessPool:
        raise CoterieError(
            "a worker process died, perhaps for want of memory; try again with fewer processes"
        ) from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _by_trial(results: Iterator[Trial], schemes: int) -> Iterator[list[Trial]]:
    while batch := list(islice(results, schemes)):
        yield batch


_simulation: Simulation
_stopped: Callable[[], bool]


def _start_worker(simulation: Simulation, stop: Event) -> None:
    """Keep the simulation in a worker process; only the main process answers to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _simulation, _stopped
    _simulation, _stopped = simulation, stop.is_set


def _work(scheme: int, trial: int) -> Trial:
    return run_trial(_simulation, scheme, trial, _stopped)


class Summary:
    """Means over trials, round by round, gathered as the trials come in.

    Trials are added in order, so sums round the same way whatever computed them.
    """

    def __init__(self, rounds: int) -> None:
        self.trials = 0
        self._sums = np.zeros((len(MEASURES), rounds))
        self._squares = np.zeros((len(MEASURES), rounds))
        self._lowest_strong = np.full(rounds, np.inf)

    def add(self, trial: Trial) -> None:
        """Take in one more trial."""
        table = np.array([getattr(trial, name) for name in MEASURES])
        self.trials += 1
        self._sums += table
        self._squares += table**2
        self._lowest_strong = np.minimum(self._lowest_strong, trial.strong)

    def mean(self, measure: str) -> FloatArray:
        """Return a measure's mean over trials, after every round."""
        return np.asarray(self._sums[MEASURES.index(measure)] / self.trials)

    @property
    def lowest_strong(self) -> FloatArray:
        """The strong level of the worst trial, after every round."""
        return self._lowest_strong

    def interval(self, measure: str) -> tuple[FloatArray, FloatArray]:
        """Return the 95 % confidence interval of a measure's mean (Student's t), after every round."""
        from scipy.special import stdtrit

        mean = self.mean(measure)
        if self.trials == 1:
            return mean, mean
        index = MEASURES.index(measure)
        spread = np.maximum(self._squares[index] / self.trials - mean**2, 0.0) / (self.trials - 1)
        reach = float(stdtrit(self.trials - 1, 0.975)) * np.sqrt(spread)
        return mean - reach, mean + reach


def record(simulation: Simulation, summaries: list[Summary]) -> dict[str, Any]:
    """Return the result as plain data: for each scheme its values after the last round, and its curves."""
    return {
        "users": simulation.users,
        "per_round": simulation.per_round,
        "rounds": simulation.rounds,
        "trials": summaries[0].trials,
        "seed": simulation.seed,
        "lost": simulation.lost,
        "leaving": simulation.leaving,
        "joining": simulation.joining,
        "schemes": [
            {"scheme": scheme.name, **_final(summary), "curves": _curves(summary)}
            for scheme, summary in zip(simulation.schemes, summaries, strict=True)
        ],
    }


def _final(summary: Summary) -> dict[str, Any]:
    means = {name: _number(summary.mean(name)[-1]) for name in MEASURES if name != "strong"}
    intervals = {f"{name}_interval": _ends(summary, name) for name in ("fairness_gap", "cardinality")}
    strong = {"low": int(summary.lowest_strong[-1]), "mean": float(summary.mean("strong")[-1])}
    return {"strong": {**strong, "interval": _ends(summary, "strong")}, **means, **intervals}


def _ends(summary: Summary, measure: str) -> list[float]:
    """Return the 95 % interval of a measure after the last round."""
    return [float(bound[-1]) for bound in summary.interval(measure)]


def _curves(summary: Summary) -> dict[str, list[float | None]]:
    low, high = summary.interval("cardinality")
    curves = {name: summary.mean(name) for name in MEASURES}
    curves |= {"strong_low": summary.lowest_strong, "cardinality_low": low, "cardinality_high": high}
    return {name: [_number(value) for value in curve] for name, curve in curves.items()}


def _number(value: float) -> float | None:
    """JSON has no NaN: what was not measured is null."""
    return None if math.isnan(value) else round(float(value), 9)
