"""`coterie run`: train a model over users that never show their updates, end to end."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from coterie.cli.options import Json, check_seed, check_torch, dropout_choices, seed_list
from coterie.errors import CoterieError, UsageError

if TYPE_CHECKING:
    from coterie.cli.run_view import LiveView
    from coterie.lab.experiments.result import RunResult
    from coterie.lab.experiments.run import Run
    from coterie.lab.experiments.spec import Spec

PREPARING = "Preparing data, devices and batches"


class RunCommand(TyperCommand):
    """`coterie run`, whose help ends with the inner protocols: they are loaded for it, and not before."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as click has it
        """Write what the server sees in each protocol, and the numbers that follow from γ and δ."""
        from coterie.secagg import PROTOCOLS, Parameters

        parameters, rows = Parameters(), []
        for name, protocol in PROTOCOLS.items():
            lines = [protocol.server_sees]
            for users in (12, 100):
                numbers = protocol.thresholds(users, parameters)
                text = ", ".join(f"{number} {what}" for what, number in numbers.items())
                lines += [f"Of {users} users: {text}."] if numbers else []
            rows.append((name, " ".join(lines)))
        shares = f"γ = {parameters.colluders / 1000:g} may collude, δ = {parameters.losses / 1000:g} may be lost"
        with formatter.section(f"Protocols for --aggregation ({shares})"):
            formatter.write_dl(rows)


def run(
    spec_file: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC.toml]", help="A spec; options change it. Unless given, the default."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="mnist-small (shipped), mnist, cifar10, cifar100, or a folder with a file per user."),
    ] = None,
    users: Annotated[int | None, typer.Option(help="N, the number of users; of a folder, its files.")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="Who holds what: iid, shards, shards-shared, dirichlet, or a saved partition's file."),
    ] = None,
    per_round: Annotated[int | None, typer.Option(help="K, the most users in one round.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="T4 (batches of 4, or any T), random, weighted, partition, bernoulli, T4-sorted …"),
    ] = None,
    privacy: Annotated[
        int | None, typer.Option(help="Batch size T; --privacy 4 is short for --scheme T4.")
    ] = None,
    dropout: Annotated[
        str | None,
        typer.Option(help="Probability to be away: one for all (0.3), several to draw from, or by-label."),
    ] = None,
    lost: Annotated[
        float | None, typer.Option(help="Probability that a user is lost in the middle of a round.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="small-cnn, mnist-cnn, lenet, vgg-11, authors-vgg-11, mlp, logistic, or yours: my_module:build."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes of each user over its data in a round.")] = None,
    minibatch: Annotated[int | None, typer.Option(help="Examples in one step of the local training.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of the local training.")] = None,
    aggregation: Annotated[
        str | None,
        typer.Option(
            help="How sums are taken: plain (without cryptography), or one of the protocols listed below."
        ),
    ] = None,
    unsealed: Annotated[
        bool, typer.Option("--unsealed", help="Without the seal, for comparison: losing a user splits its batch.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(help="The number of rounds (J).")] = None,
    device: Annotated[str | None, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed for everything that is drawn.", callback=check_seed)
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="One run per seed (0-4 or 0,3,7), each in a folder inside --out, compared.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the run; unless given, runs/ and the time.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; --rounds extends it.")
    ] = None,
    keep_aggregates: Annotated[
        bool | None, typer.Option("--keep-aggregates", help="Keep every round's mean update, to try attacks on.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files into the folder.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Clients that train side by side on a CPU, one core each; all cores unless given. It "
            "decides no result."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Train a model over users that never show their updates.

    Every round: who is available, a cohort of whole batches, local training, secure aggregation sealed by the
    users' own keys, the ledger, the measures. The folder then holds the record, checkpoints, the ledger, figures
    and report.html, a page for a browser.

    Ctrl-C, a crash or a power cut lose nothing: `--resume` goes on to the same final model.

    Examples:

      coterie run

      coterie run --privacy 4 --aggregation open --rounds 30 --out first

      coterie run experiment.toml --seed 7 --out runs/seed-7

      coterie run --resume runs/seed-7

      coterie run --resume runs/seed-7 --rounds 200

      coterie run --seeds 0-4 --out five
    """
    given = locals()  # those named in OPTIONS are fields of the spec
    check_torch("run")
    from coterie.cli.run_view import LiveView, print_result
    from coterie.lab.experiments.run import Run
    from coterie.lab.experiments.spec import OPTIONS
    from coterie.pages.run import unnamed_folder

    options = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
    if dropout not in {None, "by-label"}:
        options["dropout"] = dropout_choices(str(dropout))
    if unsealed:
        options["sealed"] = False
    folder = out or unnamed_folder()
    if seeds is not None and resume is None:
        numbers = seed_list(seeds, seed)
        _run_series(_spec(spec_file, options), numbers, folder, workers, tensorboard=tensorboard, json_=json_)
        return
    if resume is not None and (options.keys() - {"rounds"} or spec_file or out or seeds is not None):
        raise UsageError(
            "--resume goes on with a run as it was begun; beside it only --rounds (to extend it), --tensorboard, "
            "--workers and --json are allowed"
        )
    with LiveView() as view:
        if resume is None:
            spec = _spec(spec_file, options)
            with view.waiting(PREPARING):
                job = Run.start(spec, folder, view.fetching, workers=workers)
        else:
            with view.waiting(f"Taking up {resume}"):
                job = Run.resume(resume, view.fetching, workers=workers, rounds=rounds)
        result, written = _complete(job, view, tensorboard=tensorboard)
    if json_:
        typer.echo(json.dumps(result.summary()))
    else:
        print_result(result, written)


def _run_series(
    spec: Spec, seeds: list[int], series: Path, workers: int | None, *, tensorboard: bool, json_: bool
) -> None:
    """Run a spec once per seed, going on with what is there, then compare the runs on one page."""
    from coterie.cli.report import PAGE, report_comparison
    from coterie.cli.run_view import LiveView
    from coterie.lab.experiments.run import start_or_resume

    results = []
    for place, seed in enumerate(seeds, start=1):
        with LiveView() as view:
            view.say(f"Seed {seed}, run {place} of {len(seeds)}; the same command goes on if it is stopped")
            with view.waiting(PREPARING):
                seeded, folder = spec.changed({"seed": seed}), series / f"seed-{seed}"
                job = start_or_resume(seeded, folder, view.fetching, workers=workers)
            results.append(_complete(job, view, tensorboard=tensorboard)[0])
    report_comparison(tuple(results), series / PAGE, json_=json_)


def _complete(job: Run, view: LiveView, *, tensorboard: bool) -> tuple[RunResult, list[Path]]:
    """Run what is left of a run and write its report and summary; return the result and the files."""
    from coterie.cli.terminal import today
    from coterie.lab.experiments.folder import EventFiles
    from coterie.lab.experiments.result import read_run
    from coterie.pages.run import write_run_report

    with job, ExitStack() as stack:
        try:
            view.begin(job)
            events = stack.enter_context(closing(EventFiles(job.folder.events, job.rows))) if tensorboard else None
            for row in job.steps():
                view.show(row)
                if events is not None:
                    events.add(row)
            with view.waiting("Writing the report"):
                result = read_run(job.folder.path)
                written = write_run_report(result, today())
        except (KeyboardInterrupt, CoterieError) as error:
            view.say(_stop_message(job, error))
            raise
    return result, written


def _stop_message(job: Run, error: BaseException) -> str:
    """Say how far a run came, and what to do: to go on as before, unless that is of no use."""
    from coterie.federation.ledger import BusyError
    from coterie.lab.training.trainer import DivergedError

    done = f"Stopped after {len(job.rows)} of {job.spec.training.rounds} rounds"
    if isinstance(error, DivergedError):
        return f"{done}; begin a new run with another spec"
    if isinstance(error, BusyError):
        return f"{done}: another process goes on with this run; wait for it, or stop it"
    return f"{done}; go on with: coterie run --resume {job.folder.path}"


def _spec(path: Path | None, options: dict[str, Any]) -> Spec:
    from coterie.lab.experiments.spec import Spec, with_options

    return with_options(Spec() if path is None else Spec.read(path), options)
