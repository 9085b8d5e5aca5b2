"""The command line: one file per command; `__init__` puts them together and turns errors into exit codes.

In: what a person types.
Out: a call of the package that does it, its answer as text or JSON, and an exit code.
"""

import io
import os
import sys
from typing import Annotated

import typer

from coterie import __version__
from coterie.cli import attack, audit, dashboard, device, init, ledger, plan, report, reproduce, run, simulate
from coterie.cli.options import EXIT_INTERRUPTED, help_without_command
from coterie.errors import CoterieError

EXIT_BAD_INPUT = 2
# Every way of using a command wrongly; typer has no public name for it, only for this one kind.
BAD_USAGE: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    help="Federated learning that stays private over many rounds.\n\n"
    "Users are put into fixed batches of at least T that take part whole or not at all. Then no combination of "
    "any number of rounds' sums tells the server anything about fewer than T users.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(device.app, name="device")
app.add_typer(ledger.app, name="ledger")
app.command("attack")(attack.attack)
app.command("audit")(audit.audit)
app.command("dashboard")(dashboard.dashboard)
app.command("init")(init.init)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("run", cls=run.RunCommand)(run.run)
app.command("simulate")(simulate.simulate)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    help_without_command(context)


def main() -> None:
    """Run the command line: bad input ends in one line on standard error and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character shows another one instead of ending the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = _run()
    if code == EXIT_INTERRUPTED:
        typer.echo("coterie: interrupted", err=True)
    sys.exit(code)


def _run() -> int:
    """Run the command and return the exit code."""
    try:
        code = app(prog_name="coterie", standalone_mode=False)
        sys.stdout.flush()
    except (CoterieError, BAD_USAGE, MemoryError) as error:
        return _complain(_explanation(error))
    except OSError as error:
        # Nothing more can be written there, not even by the interpreter as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if isinstance(error, BrokenPipeError) else _complain(f"cannot write the output: {error.strerror}")
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _explanation(error: Exception) -> str:
    if isinstance(error, BAD_USAGE):
        # getattr: their type has no public name.
        context: typer.Context | None = getattr(error, "ctx", None)
        message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        return f"{message}. See '{context.command_path if context else 'coterie'} --help'."
    if isinstance(error, MemoryError):
        return "there is not enough memory for this many users or rounds; ask for fewer"
    return str(error)


def _complain(message: str) -> int:
    """Say in one line on standard error what is wrong."""
    typer.echo("coterie: " + " ".join(message.splitlines()), err=True)
    return EXIT_BAD_INPUT
