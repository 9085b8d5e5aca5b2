"""One experiment from what is there to its outcome: runs what is missing, or says what keeps it from being run.

The runs of a training experiment train models in the open, as fast as the machine can, with no ledger. Several are
trained at a time, and each result is written down as it comes. Experiments without training are closed forms and
the measures of simulated selection.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from coterie import __version__
from coterie.errors import UsageError
from coterie.files import make_folder_of
from coterie.lab.experiments.plain import PlainAggregation
from coterie.lab.experiments.setup import World, drawn_dropout, prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.definition import Experiment, PlannedRun, ReportProgress
from coterie.lab.paper.outcome import (
    ExperimentRecord,
    Outcome,
    ResultFile,
    outcome_so_far,
    record_path,
    write_simulated,
)
from coterie.lab.paper.reconstruction import attack_windows, made_with
from coterie.lab.training.models import flatten
from coterie.lab.training.published import DATASETS, load
from coterie.lab.training.trainer import evaluate
from coterie.leakage.measures import RunningMeasures
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
from coterie.selection.workers import CheckStop, never_stop, worker_processes
from coterie.values.checks import check_count

PROCESSES_ON_A_GPU = 4
"""Runs side by side on one GPU: small models leave most of it idle."""


def train(spec: Spec, check_stop: CheckStop = never_stop) -> ExperimentRecord:
    """Train a model as a spec says, adding updates up plainly, and return what came out as a record.

    The cohorts, losses and updates are those of `coterie run` with the same spec and plain aggregation.
    """
    started = time.perf_counter()
    setup = prepare(spec)
    parameters = flatten(setup.model).to(setup.trainer.device)
    counts, nobody = np.zeros(setup.user_data.users, dtype=np.int64), np.zeros(0, dtype=np.int64)
    measures = RunningMeasures(setup.user_data.users)
    curve: dict[int, float] = {}
    ready = time.perf_counter()
    for step, available in zip(range(spec.training.rounds), setup.world.available(0), strict=False):
        cohort = setup.selector.choose(available, counts, np.random.default_rng([spec.seed, step]))
        aggregation = PlainAggregation(setup, parameters, step)
        users = nobody if cohort is None else aggregation.survivors(cohort)[0]
        if len(users):
            parameters = parameters + aggregation.mean(users).to(parameters)
            counts[users] += 1
        measures.add_round((users,) if len(users) else ())
        if (step + 1) % spec.evaluate_every == 0 or step + 1 == spec.training.rounds:
            tested = evaluate(setup.model, parameters, setup.user_data, workers=setup.trainer.workers)
            curve[step + 1] = round(100 * tested.accuracy, 2)
        check_stop()
    now = measures.now
    return {
        "curve": curve,
        "strong": now.strong,
        "fairness_gap": round(now.fairness_gap, 6),
        "fairness_gap_completed": round(now.fairness_gap_completed, 6),
        "cardinality": round(now.cardinality, 4),
        "skipped": now.skipped,
        "seconds": round(time.perf_counter() - ready, 2),
        "preparation_seconds": round(ready - started, 2),
        "made_with": made_with(setup),
    }


@dataclass(frozen=True)
class Machine:
    """What there is to run experiments with."""

    data: str = "data"
    """The folder with the data sets, or where they are fetched to."""
    device: str = "auto"
    """Where to train: auto (a GPU), cpu or cuda."""
    processes: int | None = None
    """Runs or trials side by side; unless given, what suits the machine."""


def run_missing(experiment: Experiment, results: ResultFile, machine: Machine, report: ReportProgress) -> None:
    """Run every run of a training experiment that has no record yet."""
    if machine.processes is not None:
        check_count(machine.processes, "the number of processes")
    planned = {run.digest: run for run in experiment.runs(machine.data, machine.device)}
    known = results.records()
    missing = [run for digest, run in planned.items() if digest not in known]
    # Once and in this process: several that fetch the same files would stand in each other's way.
    for source in sorted({run.spec.data.source for run in missing} & DATASETS.keys()):
        load(DATASETS[source], machine.data)
    runs = len(planned)
    done = runs - len(missing)
    on_a_gpu = torch.cuda.is_available() and machine.device != "cpu"
    side_by_side = machine.processes or (PROCESSES_ON_A_GPU if on_a_gpu else 1)
    for run, record in _outcomes(missing, min(side_by_side, max(len(missing), 1))):
        head = {"run": run.digest, "setting": run.setting, "scheme": run.scheme, "seed": run.seed}
        results.add({**head, "rounds": run.spec.training.rounds, **record})
        done += 1
        report(str(run), done, runs)


def _outcomes(runs: list[PlannedRun], processes: int) -> Iterator[tuple[PlannedRun, ExperimentRecord]]:
    """Yield the runs with their records, as they end."""
    if processes == 1:
        yield from ((run, _result(run)) for run in runs)
        return
    # A new interpreter for each: a GPU cannot be shared through a fork.
    with worker_processes(_result, processes, "spawn") as submit:
        waiting = {submit(run): run for run in runs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _result(run: PlannedRun, check_stop: CheckStop = never_stop) -> ExperimentRecord:
    """Train a run's model, and attack it if that is planned."""
    if run.windows is None:
        return train(run.spec, check_stop)
    return attack_windows(run.spec, run.windows, check_stop)


# --- what is missing


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
