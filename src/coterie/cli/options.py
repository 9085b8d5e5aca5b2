"""Options that several commands read in the same way."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coterie.values import AvailabilityLog

EXIT_INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def check_seed(seed: int | None) -> int | None:
    """Refuse a seed that the generators do not take."""
    if seed is not None and seed < 0:
        raise UsageError(f"--seed is {seed}: give a whole number from 0 up")
    return seed


PerRound = Annotated[int | None, typer.Option(help="K, the most users that take part in one round (required).")]
Users = Annotated[int | None, typer.Option(help="N, the number of users; an availability log names them itself.")]
Dropout = Annotated[
    str | None,
    typer.Option(
        help="Probability that a user is away: one for all (0.3), or several (0.1,0.2,0.3) from which each "
        "user's is drawn."
    ),
]
RoundColumn = Annotated[
    str | None, typer.Option(help="The log's column of rounds: its name, or its number from 1.")
]
UserColumn = Annotated[str | None, typer.Option(help="The log's column of users: its name, or its number from 1.")]
Delimiter = Annotated[str | None, typer.Option(help="What separates the fields of a CSV log.")]
SeedOption = Annotated[
    int,
    typer.Option(
        help="Seed for everything that is drawn (0 unless given).", callback=check_seed, show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def dropout_choices(text: str) -> list[float]:
    """Return the probabilities of --dropout: one, or several with commas."""
    from coterie.values.checks import check_probabilities

    try:
        choices = [float(value) for value in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--dropout is {text!r}: give a probability (0.3) or several with commas (0.1,0.2,0.3)"
        ) from None
    check_probabilities(choices, "--dropout")
    return choices


def check_one_source(users: int | None, dropout: str | None, availability: Path | None) -> None:
    """Refuse options that describe the users' availability not at all, or twice."""
    from coterie.values.checks import check_parameters

    if (dropout is None) == (availability is None):
        raise UsageError(
            "say how often users are away, in one way: --dropout 0.3, --dropout 0.1,0.2,0.3 or "
            "--availability log.csv"
        )
    if users is not None and users < 1:
        raise UsageError(f"--users is {users}: a federation needs at least one user")
    if users is not None:
        check_parameters(users, 1)
    if users is None and availability is None:
        raise UsageError("say how many users there are: --users 120")


def read_online(
    path: Path | None, users: int | None, round_column: str | None, user_column: str | None, delimiter: str | None
) -> AvailabilityLog | None:
    """Read the record of --availability, if there is one, and say on standard error how it was understood."""
    if path is None:
        if round_column is not None or user_column is not None or delimiter is not None:
            raise UsageError(
                "--round-column, --user-column and --delimiter say how a log is read; add --availability"
            )
        return None
    from coterie.leakage.readers import online_record, read_log

    with waiting(f"Reading {path}"):
        read = read_log(path, users=users, round_column=round_column, user_column=user_column, delimiter=delimiter)
        online = online_record(read)
    for line in () if read.understanding.exact else read.understanding.sentences():
        typer.echo(f"{path}: {line}", err=True)
    for warning in read.understanding.warnings:
        typer.echo(f"coterie: warning: {warning}", err=True)
    return online


def seed_list(text: str, seed: int | None) -> list[int]:
    """Return the seeds of --seeds: whole numbers and spans, with commas; `seed` is that of --seed, if given.

    >>> seed_list("0-2,7", None)
    [0, 1, 2, 7]
    """
    if seed is not None:
        raise UsageError(f"--seeds {text} and --seed {seed} both name seeds; give one of them")
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
            raise UsageError(f"--seeds is {text!r}: give whole numbers (0,3,7) or a span (0-4)")
        seeds += range(int(first), int(last or first) + 1)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds is {text!r}: it names a seed twice")
    return seeds


def check_distinct(*paths: tuple[str, Path | None]) -> None:
    """Refuse two options that name one file: the later would destroy the earlier."""
    seen: dict[Path, str] = {}
    for option, path in paths:
        if path is None:
            continue
        place = path.resolve()
        if place in seen:
            raise UsageError(f"{seen[place]} and {option} both name {path}; give each a file of its own")
        seen[place] = option


def check_torch(command: str) -> None:
    """Refuse a command about training where PyTorch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UsageError(
            f"coterie {command} needs PyTorch, which is not installed: pip install 'coterie[torch,report]' "
            "(without a GPU, first install the far smaller CPU build: pytorch.org, Get Started, CPU)"
        )


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group of commands that was called without naming one of them, and exit with 2."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on standard error, where a person watches, that something takes its time."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{what} …")):
        yield
