"""Simulate selection schemes over many rounds and trials, under any availability.

A `Simulation` says what to simulate: schemes, users, rounds, and who drops out, leaves and joins. Trials run in
one process or in several. The result has each scheme's T, F, C, isolated users and skipped rounds, with their
spread.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.leakage import Audit, IsolatedUsers, RunningMeasures
from coterie.selection import (
    AvailabilityModel,
    BatchSelector,
    IndependentDropout,
    PlanSelector,
    Replay,
    Selector,
    draw_dropout,
    join,
    leave,
    selector_named,
)
from coterie.selection.workers import CheckStop, never_stop, worker_processes
from coterie.values import (
    AvailabilityLog,
    BatchPlan,
    BoolArray,
    Cohort,
    FloatArray,
    IntArray,
    LogBuilder,
    ParticipationLog,
)
from coterie.values.checks import check_count, check_parameters, check_probability
from coterie.values.text import counted

_UNSEALED = " unsealed"
"""Ends the name of a scheme that has no seal."""


def selector_name(scheme: str) -> str:
    """Return the name of a scheme's selector, which is the same with and without the seal."""
    return scheme.removesuffix(_UNSEALED)


@dataclass(frozen=True)
class Scheme:
    """A selector under a name; `sealed` says what the server learns when a chosen user is lost mid-round.

    Sealed, an incomplete batch is left out as a whole. Unsealed (and in schemes without batches), the sum of
    the survivors comes out, which splits the batch.
    """

    name: str
    selector: Selector
    sealed: bool = True

    @classmethod
    def named(cls, name: str, selector_of: Callable[[str], Selector]) -> "Scheme":
        """Return a scheme by its name, such as "T6" or "T6 unsealed"; `selector_of` gives the selector of "T6".

        >>> from coterie.selection import RandomSelector
        >>> Scheme.named("random unsealed", lambda name: RandomSelector(per_round=len(name)))
        Scheme(name='random unsealed', selector=RandomSelector(per_round=6), sealed=False)
        """
        return cls(name, selector_of(selector_name(name)), sealed=not name.endswith(_UNSEALED))

    def unsealed(self) -> "Scheme":
        """Return the same scheme without the seal, under a name that says so."""
        return Scheme(f"{self.name}{_UNSEALED}", self.selector, sealed=False)


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


MOST_LEVELS = 3


def default_names(users: int, per_round: int) -> list[str]:
    """Return the schemes to compare unless others are named: three without batches, and the largest three T.

    T divides N and K where such a T exists (T = K is what `partition` does already); else K/2, K/3 and K/4,
    or K itself.

    >>> default_names(120, 12), default_names(100, 15), default_names(101, 10)
    (['random', 'weighted', 'partition', 'T6', 'T4', 'T3'], ['random', 'weighted', 'partition', 'T5'], \
['random', 'weighted', 'partition', 'T5', 'T3', 'T2'])
    """
    check_parameters(users, per_round)
    common = math.gcd(users, per_round)
    levels = [level for level in range(min(common, per_round - 1), 1, -1) if common % level == 0]
    levels = levels or sorted({per_round // parts for parts in (2, 3, 4)} - {0, 1}, reverse=True)
    levels = levels or [level for level in (per_round,) if level > 1]
    return ["random", "weighted", "partition", *(f"T{level}" for level in levels[:MOST_LEVELS])]


def schemes_of(
    selectors: Iterable[tuple[str, Selector]], plan: BatchPlan | None, users: int, per_round: int, lost: float
) -> tuple[Scheme, ...]:
    """Return the schemes of selectors by name, and of a plan, which must be one of these users.

    Where users can be lost, those with batches come sealed and unsealed.
    """
    if plan is not None and plan.users != users:
        raise UsageError(f"the plan is one of {plan.users} users, not of {users}; give its number of users")
    of_plan = [] if plan is None else [("plan", BatchSelector(plan, per_round))]
    schemes = []
    for name, selector in (*selectors, *of_plan):
        schemes.append(Scheme(name, selector))
        if lost > 0 and isinstance(selector, PlanSelector):
            schemes.append(schemes[-1].unsealed())
    return tuple(schemes)


# --- trials

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


# --- results


class Summary:
    """Means over trials, round by round, as the trials come in.

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
        margin = float(stdtrit(self.trials - 1, 0.975)) * np.sqrt(spread)
        return mean - margin, mean + margin


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


@dataclass(eq=False)
class SimulationResult:
    """The measures of every scheme over the trials so far; in a notebook it shows itself as a table.

    It grows while a simulation goes on, trial by trial; `simulate` returns it complete.
    """

    simulation: Simulation
    availability: str
    trials_wanted: int
    summaries: tuple[Summary, ...]
    weak: list[dict[str, Any]] = field(default_factory=list)
    """What is proven of each scheme's weak level after the first trial, once all trials are done."""

    @property
    def trials(self) -> int:
        """How many trials are done."""
        return self.summaries[0].trials

    @property
    def schemes(self) -> tuple[str, ...]:
        """The names of the schemes."""
        return tuple(scheme.name for scheme in self.simulation.schemes)

    def curve(self, scheme: str, measure: str) -> FloatArray:
        """Return a measure's mean over the trials, after every round."""
        for what, name, known in (("scheme", scheme, self.schemes), ("measure", measure, MEASURES)):
            if name not in known:
                raise UsageError(f"there is no {what} {name!r}; known are {', '.join(known)}")
        return self.summaries[self.schemes.index(scheme)].mean(measure)

    @property
    def columns(self) -> dict[str, Any]:
        """The values after the last round as columns: an array for each measure, a row for each scheme."""
        columns: dict[str, Any] = {"scheme": np.array(self.schemes)}
        columns["strong_low"] = np.array([int(each.lowest_strong[-1]) for each in self.summaries])
        for name in MEASURES:
            columns[name] = np.array([each.mean(name)[-1] for each in self.summaries])
        return columns

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, as it stands in record.json."""
        simulation = self.simulation
        schemes = [
            {"scheme": scheme, **_final(summary), "curves": _curves(summary)}
            for scheme, summary in zip(self.schemes, self.summaries, strict=True)
        ]
        for each, weak in zip(schemes, self.weak, strict=False):
            each["weak"] = weak
        return {
            "users": simulation.users,
            "per_round": simulation.per_round,
            "rounds": simulation.rounds,
            "trials": self.trials,
            "seed": simulation.seed,
            "lost": simulation.lost,
            "leaving": simulation.leaving,
            "joining": simulation.joining,
            "schemes": schemes,
            "availability": self.availability,
            "trials_wanted": self.trials_wanted,
        }

    def __repr__(self) -> str:
        rounds, trials = counted(self.simulation.rounds, "round"), counted(self.trials, "trial")
        return f"SimulationResult({', '.join(self.schemes)}: {rounds}, {trials})"

    def _repr_html_(self) -> str:
        columns = self.columns
        measures = ("strong_low", "isolated_share", "fairness_gap", "cardinality", "skipped")
        head = "".join(f"<th>{name}" for name in ("scheme", "T (worst trial)", "isolated", "F", "C", "skipped"))
        rows = "".join(
            f"<tr><td>{escape(name)}{''.join(f'<td>{columns[measure][index]:.4g}' for measure in measures)}</tr>"
            for index, name in enumerate(self.schemes)
        )
        return f"<table><tr>{head}</tr>{rows}</table>"


MOST_USERS = 2_000_000
"""Of more users the schemes would not fit into the memory of a small machine side by side."""


def check_size(users: int | None) -> None:
    """Refuse more users than are simulated at once."""
    if users is not None and users > MOST_USERS:
        raise UsageError(
            f"{users} users are more than the {MOST_USERS} that are simulated at once; simulate a part of "
            "them, with the same T and K"
        )


def simulate(
    *,
    per_round: int,
    users: int | None = None,
    schemes: Sequence[str | Scheme] | None = None,
    plan: BatchPlan | str | os.PathLike[str] | None = None,
    rounds: int = 200,
    trials: int = 100,
    dropout: float | Sequence[float] | None = None,
    availability: AvailabilityLog | AvailabilityModel | str | os.PathLike[str] | None = None,
    lost: float = 0.0,
    leaving: float = 0.0,
    joining: float = 0.0,
    seed: int = 0,
    processes: int = 1,
    progress: Callable[[SimulationResult], None] = lambda _result: None,
) -> SimulationResult:
    """Simulate selection schemes, and measure what they give away and what they cost.

    Schemes are named as `coterie simulate --help` lists them, or are a selector of your own as `Scheme(name,
    selector)`; a `plan` (or its file) is one more, and with `dropout` says how many users there are, unless
    `users` does. Users are away with the probability `dropout` (one for all, or several from which each user's is
    drawn with `seed`), as a record of `availability` says (a log, or its file), or as a model of
    `coterie.selection` does. A chosen user is `lost` mid-round with that probability; users leave for good and
    join at a rate per round. `progress` is given the growing result after every trial.

    >>> result = simulate(users=12, per_round=6, schemes=["random", "T3"], dropout=0.1, rounds=30, trials=2)
    >>> result
    SimulationResult(random, T3: 30 rounds, 2 trials)
    >>> result.columns["strong_low"].tolist()
    [1, 3]
    >>> result.curve("T3", "cardinality").shape
    (30,)
    """
    check_count(rounds, "the number of rounds")
    if plan is not None and not isinstance(plan, BatchPlan):
        from coterie.selection.plan_file import read_plan

        plan = read_plan(plan)
    if users is None and plan is not None and dropout is not None:
        users = plan.users
    check_size(users)
    room = room_for_newcomers(joining, rounds)
    model, present, shares, description = _availability(users, dropout, availability, room, seed)
    wanted = default_names(present, per_round) if schemes is None else list(schemes)
    record = model.log if isinstance(model, Replay) else None
    selectors = [
        (name, selector_named(name, present, per_round, shares, rng=np.random.default_rng(seed), record=record))
        for name in wanted
        if isinstance(name, str)
    ]
    own = (each for each in wanted if isinstance(each, Scheme))
    all_schemes = (*schemes_of(selectors, plan, present, per_round, lost), *own)
    simulation = Simulation(present, per_round, rounds, all_schemes, model, seed, lost, leaving, joining)
    result = SimulationResult(simulation, description, trials, tuple(Summary(rounds) for _ in all_schemes))
    for finished in run_trials(simulation, trials, processes):
        for summary, trial in zip(result.summaries, finished, strict=True):
            summary.add(trial)
        progress(result)
    if model.users <= MOST_USERS_FOR_ISOLATION:
        result.weak = [_weak_level(simulation, index) for index in range(len(all_schemes))]
    return result


def _availability(
    users: int | None,
    dropout: float | Sequence[float] | None,
    availability: AvailabilityLog | AvailabilityModel | str | os.PathLike[str] | None,
    newcomers: int,
    seed: int,
) -> tuple[AvailabilityModel, int, FloatArray | None, str]:
    """Return who is available when, the number of users, their shares of absence, and a description."""
    if (dropout is None) == (availability is None):
        raise UsageError("say how often users are away, in one way: by dropout, or by availability")
    if dropout is not None:
        if users is None:
            raise UsageError("say how many users there are")
        probabilities = draw_dropout(dropout, users + newcomers, np.random.default_rng(seed))
        description = f"dropout {','.join(f'{choice:g}' for choice in np.atleast_1d(dropout))}, independent"
        return IndependentDropout(probabilities), users, probabilities[:users], description
    description = "availability as in a record"
    if isinstance(availability, str | os.PathLike):
        from coterie.leakage.readers import read_availability

        description = f"availability as in {Path(availability)}"
        availability = read_availability(availability, users)
    if isinstance(availability, AvailabilityLog):
        if users not in {None, availability.users}:
            raise UsageError(f"the record is of {availability.users} users, not of {users}; leave users out")
        return Replay(availability), availability.users, availability.dropout, description
    assert availability is not None  # noqa: S101 - one of the two is given
    present = availability.users if users is None else users
    shares = getattr(availability, "dropout", None)
    return availability, present, None if shares is None else shares[:present], type(availability).__name__


def _weak_level(simulation: Simulation, scheme: int) -> dict[str, Any]:
    """Return a bracket of the weak level of the first trial; an audit narrows it further."""
    weak = Audit.of(trial_log(simulation, scheme), np.random.default_rng(0)).sketch()
    return {"low": weak.low, "high": weak.high, "exact": weak.exact}
