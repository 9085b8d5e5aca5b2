"""The command line: one file per command; this one puts them together and turns errors into exit codes."""

import sys
from typing import Annotated

import click
import typer

from coterie import __version__
from coterie.cli import plan, simulate
from coterie.errors import CoterieError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    help="Federated learning that stays private over many rounds.\n\n"
    "Users are put into fixed batches of at least T that take part whole or not at all. Then no combination of "
    "any number of rounds' sums tells the server anything about fewer than T users.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("plan")(plan.plan)
app.command("simulate")(simulate.simulate)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Run the command line: bad input ends in one line on standard error and exit code 2, never a traceback."""
    try:
        code = app(prog_name="coterie", standalone_mode=False)
    except CoterieError as error:
        typer.echo(f"coterie: {error}", err=True)
        code = EXIT_BAD_INPUT
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        code = EXIT_BAD_INPUT
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "coterie"
        typer.echo(f"coterie: {error.format_message()} See '{command} --help'.", err=True)
        code = error.exit_code
    except click.Abort:
        typer.echo("coterie: interrupted", err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code)
