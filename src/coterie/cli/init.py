"""`coterie init`: write a spec with every field, its default and what it means, to begin an experiment from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import check_torch
from coterie.errors import UsageError
from coterie.files import write_file


def init(
    spec_file: Annotated[
        Path,
        typer.Argument(metavar="[SPEC.toml]", help="The new file (spec.toml unless given).", show_default=False),
    ] = Path("spec.toml"),
) -> None:
    """Write a spec for `coterie run`, with every field explained.

    Every field has its default and a sentence about it. Change what you like and delete the rest: what a spec
    leaves out has its default. A file that exists is never overwritten.

    Examples:

      coterie init

      coterie init experiments/mine.toml
    """
    check_torch("init")
    from coterie.lab.experiments.spec import Spec, commented_spec

    if spec_file.exists():
        raise UsageError(f"{spec_file} exists already; give another name, or remove it")
    write_file(spec_file, commented_spec(Spec()).encode())
    typer.echo(f"Wrote {spec_file}; change it, then: coterie run {spec_file}")
