"""Every example runs as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example):
    """The script ends without an error and prints something."""
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_sealing_vectors_takes_at_most_forty_lines():
    """The example of sealing vectors among users in one process stays short."""
    lines = (EXAMPLES[0].parent / "seal_vectors.py").read_text().splitlines()
    assert len(lines) <= 40
