"""The plain path needs numpy and torch and nothing else: it runs on a bare GPU machine."""

import json
import subprocess
import sys

from support.experiments.tiny import OUTCOMES, tiny_spec, write_spec

BARE = """
import json
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

# The second line is what torch itself asks for when it is installed.
ALLOWED = {"coterie", "numpy", "torch", "torchgen", "functorch"}
ALLOWED |= {"filelock", "fsspec", "mpmath", "networkx", "setuptools", "sympy", "typing_extensions"}
MISSING = packages_distributions().keys() - ALLOWED

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in MISSING else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
from coterie.errors import UsageError
from coterie.lab.experiments.folder import read_record
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec

try:
    Run.start(Spec(), Path(sys.argv[2]))
except UsageError as error:
    refusal = str(error)
spec = Spec().changed({"aggregation.protocol": "plain", "training.rounds": 2, "aggregation.word_bits": 16})
assert Spec.from_tables(spec.tables()) == spec
run = Run.start(Spec.read(Path(sys.argv[1])), Path(sys.argv[2]))
for _ in run.steps():
    pass
run.close()
run = Run.resume(Path(sys.argv[2]))
outcomes = [row.outcome for row in read_record(run.folder.record.path).rows]
found = {"outcomes": outcomes, "strong": run.rows[-1].strong, "missing": sorted(MISSING), "refusal": refusal}
print(json.dumps(found))
"""
OTHERS = {
    "scipy", "msgspec", "cryptography", "flint", "rich", "typer", "click", "jinja2", "PIL", "matplotlib",
    "pyarrow", "psycopg", "tensorboard",
}  # fmt: skip


def test_the_plain_path_runs_with_numpy_and_torch_alone(data, new_folder, tmp_path):
    """Every other package is missing: a plain run is started, run, recorded and resumed, any other refused."""
    file = write_spec(tiny_spec(data, "plain"), tmp_path / "spec.toml")
    run = subprocess.run(
        [sys.executable, "-c", BARE, file, new_folder()], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["outcomes"] == OUTCOMES
    assert told["strong"] == 1
    assert set(told["missing"]) >= OTHERS
    assert told["refusal"].startswith("the protocol secagg+ needs the package ")
