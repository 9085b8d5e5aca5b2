"""The measures of schemes over trials: their means, and the call that simulates."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.leakage import Audit
from coterie.selection import AvailabilityModel, IndependentDropout, Replay, draw_dropout, selector_named
from coterie.simulation.setting import Scheme, Simulation, default_names, room_for_newcomers, schemes_of
from coterie.simulation.trial import MEASURES, MOST_USERS_FOR_ISOLATION, Trial, run_trials, trial_log
from coterie.values import AvailabilityLog, BatchPlan, FloatArray
from coterie.values.checks import check_count
from coterie.values.text import counted


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
