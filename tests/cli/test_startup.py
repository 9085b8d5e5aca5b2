"""Starting is cheap: nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

HEAVY = {"flint", "matplotlib", "msgspec", "pyarrow", "rich", "scipy", "torch", "flwr", "typer"}


def modules_after(statement):
    """Run a statement in a fresh interpreter and return the top-level modules it loaded."""
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_importing_the_package_loads_no_heavy_module():
    """`import coterie` brings numpy and the standard library, nothing else."""
    assert modules_after("import coterie") & HEAVY == set()


def test_the_command_line_loads_only_what_parsing_needs():
    """Everything that `coterie --help` needs is typer; the commands import the rest when they run."""
    assert modules_after("import coterie.cli") & HEAVY <= {"typer"}


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_teaches_and_succeeds(arguments):
    """Help and version print to standard output and exit with 0; the help of a command shows examples."""
    run = subprocess.run(
        [sys.executable, "-m", "coterie", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0
    assert "coterie" in run.stdout
    if arguments[0] == "plan":
        assert "coterie plan --users 120" in run.stdout
