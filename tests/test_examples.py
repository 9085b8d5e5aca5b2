"""Every example runs as it stands, says what it promises, and stands in the documentation."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie import LogBuilder, simulate, write_log

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
PROMISES = {
    "attack_own_run.py": (0, "random: of 20 users the attack finds 20;.*T4: of 20 users the attack finds 0;"),
    "audit_gate.py": (1, "The required level of 4 is not met.*40 sums give {'user-00': '1'}"),
    "own_model.py": (0, r"accuracy after round 25: 0\.[89].*The required level of 3 is met"),
    "own_selector.py": (0, r"random +1 +100%.*fastest users +1 .*fastest batches +4 +0%"),
    "plan_from_log.py": (0, "Recommended: T = 4, plan by-co-availability.*random +T = 1, 100%.*plan +T = 4, 0%"),
    "sample_logs.py": (0, "wrote .*participation.csv.*wrote .*availability.csv"),
    "seal_vectors.py": (0, "12 users in the sum: .*one batch left out: user-05 did not answer"),
}
"""The exit code of each example, and what its output has."""


def run(command, folder):
    """Run a command in a folder that also holds what it leaves behind."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=folder, env=environment
    )


def test_every_example_has_a_promise():
    """No script is left out of the tests below."""
    assert {path.name for path in FOLDER.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_says_what_it_promises(name, tmp_path):
    """The script ends with its exit code, and its output has the words that the documentation speaks of."""
    code, words = PROMISES[name]
    given = [tmp_path] if name == "sample_logs.py" else []
    said = run([sys.executable, FOLDER / name, *given], tmp_path)
    assert said.returncode == code, said.stderr
    assert re.search(words, said.stdout, flags=re.DOTALL), said.stdout


def test_the_batches_of_the_own_selector_are_sealed(capsys):
    """Whoever copies the selector and lets users be lost on the way keeps T: its batches are left out whole."""
    example = runpy.run_path(str(FOLDER / "own_selector.py"))
    capsys.readouterr()
    result = simulate(
        users=60, per_round=12, dropout=0.1, rounds=60, trials=2, lost=0.05, schemes=example["schemes"]
    )
    assert dict(zip(result.schemes, result.columns["strong_low"], strict=True))["fastest batches"] == 4


@pytest.mark.parametrize("log", ["participation.csv", "availability.csv"])
def test_the_sample_logs_are_what_their_script_makes(log, tmp_path):
    """The logs in examples/ are made again, byte for byte."""
    run([sys.executable, FOLDER / "sample_logs.py", tmp_path], tmp_path)
    assert (tmp_path / log).read_bytes() == (FOLDER / log).read_bytes()


@pytest.mark.parametrize("path", sorted([*FOLDER.glob("*.py"), *FOLDER.glob("flower/*/*/*.py")]), ids=str)
def test_an_example_is_short(path):
    """No script has more than sixty lines."""
    assert len(path.read_text().splitlines()) <= 60


def test_the_page_of_examples_has_every_one():
    """docs/examples.md includes each script and the workflow literally."""
    page = (ROOT / "docs" / "examples.md").read_text()
    included = set(re.findall(r"\{literalinclude\} \.\./examples/(\S+)", page))
    assert included >= {*(set(PROMISES) - {"sample_logs.py"}), "audit-gate.yml"}
    assert all((FOLDER / name).is_file() for name in included)


def test_the_readme_shows_the_flower_app_as_it_is():
    """Its two snippets stand, letter by letter, in the app that the Flower tests run."""
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("### Flower")[2].partition("\n## ")[0]
    snippets = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    app = "".join(path.read_text() for path in (FOLDER / "flower" / "numpy").rglob("*.py"))
    unindented = re.sub(r"^ {4}", "", app, flags=re.MULTILINE)
    assert len(snippets) == 2
    assert all(snippet in app or snippet in unindented for snippet in snippets)


@pytest.mark.parametrize(("whole", "code"), [(True, 0), (False, 1)])
def test_the_step_of_the_workflow_is_a_gate(whole, code, tmp_path):
    """Its command, as it stands there, passes a log of whole batches of four and fails one that splits a batch."""
    (command,) = re.findall(r"run: coterie (audit .*)", (FOLDER / "audit-gate.yml").read_text())
    rng, log = np.random.default_rng(0), LogBuilder(12)
    for _ in range(12):
        log.append((rng.choice(3, size=2, replace=False)[:, None] * 4 + np.arange(4)).ravel())
    log.append([0, 1, 2, 3] if whole else [0, 1, 2])
    write_log(log.build(), tmp_path / "participation.csv")
    said = run([sys.executable, "-m", "coterie", *shlex.split(command)], tmp_path)
    assert said.returncode == code, said.stderr
    assert "<h1" in (tmp_path / "audit.html").read_text()
