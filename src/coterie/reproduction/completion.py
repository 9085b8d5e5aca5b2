"""One experiment from what is there to its outcome: runs what is missing, or says what keeps it from being run.

Experiments without training are closed forms and the measures of simulated selection; `training_runs` has the
others.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from coterie import __version__
from coterie.errors import UsageError
from coterie.experiment.spec import Spec
from coterie.experiment.world import World, drawn_dropout
from coterie.files import make_folder_of
from coterie.reproduction.definition import Experiment, ReportProgress
from coterie.reproduction.outcome import (
    ExperimentRecord,
    Outcome,
    ResultFile,
    outcome_so_far,
    record_path,
    write_simulated,
)
from coterie.reproduction.training_runs import Machine, run_missing
from coterie.selection import (
    AvailabilityModel,
    RedrawnDropout,
    Selector,
    knows_users,
    privacy_of,
    selector_named,
)
from coterie.selection.simulation import (
    Scheme,
    Simulation,
    Summary,
    Trial,
    run_trial,
    run_trials,
    selector_name,
)
from coterie.selection.theory import (
    bernoulli_exposure_bound,
    bernoulli_exposure_probability,
    cardinality,
    family_size,
    uniform_exposure_probability,
)


def complete(
    experiment: Experiment, folder: Path, machine: Machine, report: ReportProgress, *, quick: bool
) -> Outcome:
    """Run what an experiment lacks in a folder of results, and return its outcome.

    What cannot be run here is named in the outcome as its obstacle. Training at full size asks for a GPU, unless
    the machine's device is set to something else than auto.
    """
    so_far, path = outcome_so_far(experiment, folder), record_path(experiment, folder)
    if not so_far.missing:
        return so_far
    if not experiment.trains:
        make_folder_of(path)
        spec = Spec.from_tables(experiment.spec, experiment.name)
        record = _SIMULATE[experiment.kind](experiment, spec, machine.processes or 1, report)
        made_with = {"coterie": __version__, "numpy": np.__version__, "python": platform.python_version()}
        write_simulated(path, {**record, "made_with": made_with}, experiment.digest)
        return outcome_so_far(experiment, folder)
    if machine.device == "auto" and not quick and not torch.cuda.is_available():
        return replace(so_far, obstacle=_NO_GPU.format(so_far.missing, experiment.name))
    make_folder_of(path)
    obstacle = ""
    try:
        run_missing(experiment, ResultFile(path), machine, report)
    except UsageError as error:
        obstacle = str(error)
    return replace(outcome_so_far(experiment, folder), obstacle=obstacle)


_NO_GPU = (
    "{} training runs of {} are missing, and there is no GPU here. Run the command on a machine with one, "
    "add --quick for a small version, or --device cpu to train at full size on the processor, which takes hours "
    "or days."
)


def _measures(experiment: Experiment, spec: Spec, processes: int, report: ReportProgress) -> ExperimentRecord:
    """T, F and C over the rounds, averaged over trials that each draw the users' dropouts anew."""
    summaries = _summaries(experiment, spec, processes, report)
    values, curves = {}, {}
    for measure in (setting.name for setting in experiment.settings):
        values[measure] = {scheme: _with_spread(summary, measure) for scheme, summary in summaries.items()}
        means = {scheme: summary.mean(measure) for scheme, summary in summaries.items()}
        curves[measure] = {scheme: np.round(mean, 5).tolist() for scheme, mean in means.items()}
    return {"values": values, "curves": curves}


def _summaries(experiment: Experiment, spec: Spec, processes: int, report: ReportProgress) -> dict[str, Summary]:
    """Simulate schemes under dropouts that every trial draws anew."""
    summaries = [Summary(spec.training.rounds) for _ in experiment.schemes]
    for trial in _trials(experiment, spec, processes):
        for summary, result in zip(summaries, trial, strict=True):
            summary.add(result)
        report("trial", summaries[0].trials, experiment.trials)
    return dict(zip(experiment.schemes, summaries, strict=True))


def _trials(experiment: Experiment, spec: Spec, processes: int) -> Iterator[list[Trial]]:
    """Yield trial after trial, each with the result of every scheme."""
    users, per_round, rounds_per_day = spec.data.users, spec.selection.per_round, spec.selection.rounds_per_day
    if not rounds_per_day and not any(knows_users(selector_name(scheme)) for scheme in experiment.schemes):
        rng = np.random.default_rng(spec.seed)
        selector_of = partial(selector_named, users=users, per_round=per_round, dropout=None, rng=rng)
        simulation = _simulation(experiment, spec, selector_of, RedrawnDropout(_dropouts(spec), users))
        yield from run_trials(simulation, experiment.trials, processes)
        return
    for trial in range(experiment.trials):
        world = World(trial, drawn_dropout(trial, _dropouts(spec), users), spec.selection.lost, rounds_per_day)
        simulation = _simulation(experiment, spec, partial(world.selector, per_round=per_round), world.model)
        yield [run_trial(simulation, scheme, trial) for scheme in range(len(experiment.schemes))]


def _simulation(
    experiment: Experiment, spec: Spec, selector_of: Callable[[str], Selector], availability: AvailabilityModel
) -> Simulation:
    """Return what is simulated; batches of one are random selection."""
    schemes = tuple(
        Scheme.named(scheme, lambda name: selector_of("random" if name == "T1" else name))
        for scheme in experiment.schemes
    )
    return Simulation(
        spec.data.users,
        spec.selection.per_round,
        spec.training.rounds,
        schemes,
        availability,
        spec.seed,
        spec.selection.lost,
    )


def _with_spread(summary: Summary, measure: str) -> dict[str, float]:
    """Return a measure after the last round, and half of its 95 % interval."""
    low, high = summary.interval(measure)
    mean = float(summary.mean(measure)[-1])
    return {"value": round(mean, 6), "spread": round(float(high[-1] - low[-1]) / 2, 6), "trials": summary.trials}


def _family(experiment: Experiment, spec: Spec, _processes: int, _report: ReportProgress) -> ExperimentRecord:
    """The sizes of the families that schemes choose from."""
    users, per_round = spec.data.users, spec.selection.per_round
    sizes = {scheme: family_size(users, per_round, privacy_of(scheme, per_round)) for scheme in experiment.schemes}
    (setting,) = experiment.settings
    return {"values": {setting.name: {scheme: {"value": size, "spread": 0.0} for scheme, size in sizes.items()}}}


def _tradeoff(experiment: Experiment, spec: Spec, processes: int, report: ReportProgress) -> ExperimentRecord:
    """C over T: Theorem 1 for equal dropouts, and simulated for drawn ones."""
    users, per_round = spec.data.users, spec.selection.per_round
    analytic = {
        f"p = {dropout:g}": {
            scheme: {"value": cardinality(users, per_round, privacy_of(scheme, per_round), dropout), "spread": 0.0}
            for scheme in experiment.schemes
        }
        for dropout in _dropouts(spec)
    }
    summaries = _summaries(experiment, spec, processes, report)
    drawn = {scheme: _with_spread(summary, "cardinality") for scheme, summary in summaries.items()}
    return {"values": {**analytic, "drawn dropouts": drawn}}


def _threshold(experiment: Experiment, spec: Spec, _processes: int, report: ReportProgress) -> ExperimentRecord:
    """How probably random selection has exposed everyone after a number of rounds."""
    users, per_round = spec.data.users, spec.selection.per_round
    rounds = sorted({*range(users - 10, users + 41, 5), *range(users - 3, users + 4)})
    values: dict[str, dict[str, dict[str, float]]] = {}
    rng = np.random.default_rng(spec.seed)
    for done, count in enumerate(rounds, start=1):
        cells = values[f"{count} rounds"] = {}
        for scheme in experiment.schemes:
            chance = _EXPOSURE[scheme](users, per_round, count, experiment.trials, rng)
            half = (chance.high - chance.low) / 2
            cells[scheme] = {"value": chance.value, "spread": half, "trials": experiment.trials}
        report("number of rounds", done, len(rounds))
    return {"values": values, "bound": {"bernoulli": bernoulli_exposure_bound(users, per_round)}}


_EXPOSURE = {"random": uniform_exposure_probability, "bernoulli": bernoulli_exposure_probability}
_SIMULATE: Mapping[str, Callable[[Experiment, Spec, int, ReportProgress], ExperimentRecord]] = {
    "measures": _measures,
    "family": _family,
    "tradeoff": _tradeoff,
    "threshold": _threshold,
}


def _dropouts(spec: Spec) -> tuple[float, ...]:
    dropout = spec.selection.dropout
    return dropout if isinstance(dropout, tuple) else ()
