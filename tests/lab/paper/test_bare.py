"""`python -m coterie.lab.paper` needs numpy and torch and nothing else: it runs on a bare GPU machine."""

import subprocess
import sys

from coterie.lab.paper.outcome import ResultFile
from support.paper.tiny import RUNS, write_tiny

BARE = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions

# The second line is what torch itself asks for when it is installed.
ALLOWED = {"coterie", "numpy", "torch", "torchgen", "functorch"}
ALLOWED |= {"filelock", "fsspec", "mpmath", "networkx", "setuptools", "sympy", "typing_extensions"}
MISSING = packages_distributions().keys() - ALLOWED

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in MISSING else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
from coterie.lab.paper import __main__

code = __main__.main()
assert not {"scipy", "msgspec", "cryptography", "rich", "typer", "matplotlib"} & set(sys.modules)
sys.exit(code)
"""


def bare(*arguments):
    """Run the module where everything but numpy and torch is missing."""
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_training_runs_with_numpy_and_torch_alone(tmp_path):
    """All runs of an experiment are run and written, and are not run a second time."""
    arguments = (write_tiny(tmp_path), "--out", tmp_path / "out", "--device", "cpu")
    first = bare(*arguments)
    assert first.returncode == 0, first.stderr
    assert f"({RUNS} of {RUNS})" in first.stdout
    assert len(ResultFile(tmp_path / "out" / "tiny.jsonl").records()) == RUNS
    again = bare(*arguments)
    assert (again.returncode, again.stdout) == (0, "")


def test_what_it_cannot_run_is_refused():
    """An unknown name, and an experiment that trains nothing."""
    for name, message in (("mnits", "there is no experiment 'mnits'; known are "), ("family", "trains nothing")):
        run = bare(name)
        assert run.returncode == 2
        assert message in run.stderr
