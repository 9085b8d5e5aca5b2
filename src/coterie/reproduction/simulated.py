"""Experiments without training: closed forms, and the measures of simulated selection."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coterie.experiment.spec import Spec
from coterie.reproduction.definition import Experiment
from coterie.selection import RedrawnDropout, selector_named
from coterie.simulation import Scheme, Simulation, Summary, run_trials
from coterie.theory import (
    bernoulli_exposure_bound,
    bernoulli_exposure_probability,
    cardinality,
    family_size,
    uniform_exposure_probability,
)

Record = dict[str, Any]
Report = Callable[[str, int, int], None]


def simulate(experiment: Experiment, *, processes: int, report: Report) -> Record:
    """Return the record of an experiment that trains nothing: values by setting and scheme, and curves."""
    return _KINDS[experiment.kind](experiment, processes, report)


def _measures(experiment: Experiment, processes: int, report: Report) -> Record:
    """T, F and C over the rounds, averaged over trials that each draw the users' dropouts anew."""
    spec = Spec.from_tables(experiment.spec, experiment.name)
    selectors = {name: name for name in experiment.schemes}
    summaries = _summaries(experiment, spec, selectors, processes, report)
    names = [setting.name for setting in experiment.settings]
    return {
        "values": {
            measure: {scheme: _with_spread(summary, measure) for scheme, summary in summaries.items()}
            for measure in names
        },
        "curves": {
            measure: {scheme: np.round(summary.mean(measure), 5).tolist() for scheme, summary in summaries.items()}
            for measure in names
        },
    }


def _summaries(
    experiment: Experiment, spec: Spec, selectors: Mapping[str, str], processes: int, report: Report
) -> dict[str, Summary]:
    """Simulate schemes under dropouts that every trial draws anew; `selectors` says how each is selected."""
    users, per_round = spec.data.users, spec.selection.per_round
    schemes = tuple(
        Scheme(name, selector_named(selector, users, per_round, None)) for name, selector in selectors.items()
    )
    availability = RedrawnDropout(_drawn(spec), users)
    simulation = Simulation(users, per_round, spec.training.rounds, schemes, availability, spec.seed)
    summaries = [Summary(simulation.rounds) for _ in schemes]
    for trial in run_trials(simulation, experiment.trials, processes):
        for summary, result in zip(summaries, trial, strict=True):
            summary.add(result)
        report("trial", summaries[0].trials, experiment.trials)
    return dict(zip(experiment.schemes, summaries, strict=True))


def _with_spread(summary: Summary, measure: str) -> dict[str, float]:
    """Return a measure after the last round, and half of its 95 % interval."""
    low, high = summary.interval(measure)
    mean = float(summary.mean(measure)[-1])
    return {"value": round(mean, 6), "spread": round(float(high[-1] - low[-1]) / 2, 6), "trials": summary.trials}


def _family(experiment: Experiment, processes: int, report: Report) -> Record:
    """The sizes of the families that schemes choose from."""
    del processes, report
    spec = Spec.from_tables(experiment.spec, experiment.name)
    users, per_round = spec.data.users, spec.selection.per_round
    levels = {"random": 1, "weighted": 1, "partition": per_round}
    sizes = {
        scheme: family_size(users, per_round, levels.get(scheme) or int(scheme.removeprefix("T")))
        for scheme in experiment.schemes
    }
    (setting,) = experiment.settings
    return {"values": {setting.name: {scheme: {"value": size, "spread": 0.0} for scheme, size in sizes.items()}}}


def _tradeoff(experiment: Experiment, processes: int, report: Report) -> Record:
    """C over T: Theorem 1 for equal dropouts, and simulated for drawn ones."""
    spec = Spec.from_tables(experiment.spec, experiment.name)
    users, per_round = spec.data.users, spec.selection.per_round
    analytic = {
        f"p = {dropout:g}": {
            scheme: {"value": cardinality(users, per_round, int(scheme.removeprefix("T")), dropout), "spread": 0.0}
            for scheme in experiment.schemes
        }
        for dropout in _drawn(spec)
    }
    selectors = {name: "random" if name == "T1" else name for name in experiment.schemes}
    summaries = _summaries(experiment, spec, selectors, processes, report)
    drawn = {scheme: _with_spread(summary, "cardinality") for scheme, summary in summaries.items()}
    return {"values": {**analytic, "drawn dropouts": drawn}}


def _threshold(experiment: Experiment, processes: int, report: Report) -> Record:
    """How probably random selection has exposed everyone after a number of rounds."""
    del processes
    spec = Spec.from_tables(experiment.spec, experiment.name)
    users, per_round = spec.data.users, spec.selection.per_round
    rounds = sorted({*range(users - 10, users + 41, 5), *range(users - 3, users + 4)})
    chances: dict[str, dict[str, dict[str, float]]] = {name: {} for name in experiment.schemes}
    rng = np.random.default_rng(spec.seed)
    for done, count in enumerate(rounds, start=1):
        for scheme in experiment.schemes:
            measured = _EXPOSURE[scheme](users, per_round, count, experiment.trials, rng)
            half = (measured.high - measured.low) / 2
            chances[scheme][f"{count} rounds"] = {
                "value": measured.value,
                "spread": half,
                "trials": experiment.trials,
            }
        report("number of rounds", done, len(rounds))
    bound = bernoulli_exposure_bound(users, per_round)
    values = {
        f"{count} rounds": {scheme: chances[scheme][f"{count} rounds"] for scheme in experiment.schemes}
        for count in rounds
    }
    return {"values": values, "bound": {"bernoulli": bound}}


_EXPOSURE = {"random": uniform_exposure_probability, "bernoulli": bernoulli_exposure_probability}
_KINDS: Mapping[str, Callable[[Experiment, int, Report], Record]] = {
    "measures": _measures,
    "family": _family,
    "tradeoff": _tradeoff,
    "threshold": _threshold,
}


def _drawn(spec: Spec) -> tuple[float, ...]:
    dropout = spec.selection.dropout
    return dropout if isinstance(dropout, tuple) else ()
