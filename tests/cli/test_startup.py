"""Starting is cheap: nothing heavy is imported before it is needed."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from coterie import __version__
from support.cli.command import coterie

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


@pytest.mark.parametrize("arguments", [[], ["device"], ["ledger"]])
def test_a_group_without_a_command_shows_its_help(arguments):
    """`coterie`, `coterie device` and `coterie ledger` alone teach what can follow, and exit with 2."""
    run = coterie(*arguments)
    assert run.returncode == 2
    assert "Commands" in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'. See 'coterie --help'."),
        (["plan", "--bogus"], "See 'coterie plan --help'."),
        (["plan", "--users", "many"], "--users"),
    ],
)
def test_wrong_usage_is_one_line(arguments, message):
    """What typer refuses is one line on standard error that points to the help, with exit code 2."""
    run = coterie(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert message in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["run"], ["init"], ["report", "first"]])
def test_without_pytorch_a_command_says_what_to_install(arguments):
    """Where PyTorch is missing, a command about runs is one line with the pip command, not a traceback."""
    argv = ["coterie", *arguments]
    code = f"import sys; sys.modules['torch'] = None; sys.argv = {argv}; import coterie.__main__"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 2
    assert "pip install 'coterie[torch,report]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_the_version_has_one_source():
    """The package's metadata, the command and the citation give the version that the package names."""
    assert importlib.metadata.version("coterie") == __version__
    assert coterie("--version").stdout == f"coterie {__version__}\n"
    assert f"\nversion: {__version__}\n" in (Path(__file__).parents[2] / "CITATION.cff").read_text()
