"""The example apps for Flower, as they stand, and the plain app that one of them is compared with."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import coterie
from support.flower.superlink import superlink

EXAMPLES = Path(__file__).parents[2] / "examples" / "flower"
NODES = ("--federation-config", "num-supernodes=8 client-resources-num-cpus=1")


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """A SuperLink for simulations, whose user's home is a folder of this test's."""
    with superlink(tmp_path_factory.mktemp("flower"), "--simulation") as running:
        yield running


@pytest.fixture
def plain(tmp_path):
    """The MNIST app without the lines that its README shows as added."""
    diff = re.findall(r"```diff\n(.*?)```", (EXAMPLES / "mnist" / "README.md").read_text(), flags=re.DOTALL)
    app = shutil.copytree(EXAMPLES / "mnist", tmp_path / "plain")
    subprocess.run(["git", "apply", "--reverse", "-"], input=diff[0], text=True, cwd=app, check=True)
    return app


def test_the_diff_in_the_readme_is_all_that_makes_the_plain_app_private(plain):
    """Without the lines shown, nothing of Coterie is left but its data; they are less than twenty."""
    sources = "".join(path.read_text() for path in plain.rglob("*.py"))
    assert re.findall(r".*coterie.*", sources) == [
        'DATA = files("coterie") / "lab" / "training" / "shipped" / "mnist-small"'
    ]
    changed = re.findall(r"^\+(?!\+\+).*", (EXAMPLES / "mnist" / "README.md").read_text(), flags=re.MULTILINE)
    assert 0 < len(changed) < 20


def test_the_plain_app_can_be_recorded_and_audited(link, plain, tmp_path):
    """One call around the strategy of the plain app writes the log that an audit reads."""
    server, log = plain / "mnist_app" / "server_app.py", tmp_path / "log.jsonl"
    source = server.read_text().replace(
        "FedAvg()", f'record_participation(FedAvg(fraction_train=0.5, fraction_evaluate=0.5), "{log}")'
    )
    server.write_text("from coterie.flower import record_participation\n" + source)
    link.run(plain, *NODES, "--run-config", "num-server-rounds=2")
    assert [len(json.loads(line)["users"]) for line in log.read_text().splitlines()] == [4, 4]
    verdict = coterie.audit(log)
    assert verdict.log.rounds == 2
    assert verdict.strong <= 4


def test_the_app_in_pytorch_runs_and_its_ledger_has_the_level_it_promises(link):
    """A round of training and one of evaluation in simulation: both batches of four, in one sum."""
    said = link.run(EXAMPLES / "mnist", *NODES, "--run-config", "num-server-rounds=1")
    assert accuracies(said)[-1] > accuracies(said)[0]
    verdict = coterie.audit(link.home / "coterie-mnist" / "ledger.sqlite", require=4)
    assert verdict.met
    assert {len(users) for _, users in verdict.log.sets()} == {8}


def test_the_app_in_numpy_runs_without_pytorch(tmp_path):
    """Where torch cannot be imported the small app learns all the same, with one message each way."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "torch.py").write_text("raise ImportError('there is no PyTorch here')\n")
    with superlink(tmp_path, "--simulation") as link:
        said = link.run(EXAMPLES / "numpy", *NODES, "--run-config", "num-server-rounds=2")
    assert accuracies(said)[-1] > 0.85
    verdict = coterie.audit(tmp_path / "coterie-digits" / "ledger.sqlite", require=4)
    assert verdict.met
    assert {len(users) for _, users in verdict.log.sets()} == {4}


def accuracies(said):
    """The accuracies that a run printed, in their order."""
    return [float(number) for number in re.findall(r"'accuracy': ([0-9.]+)", said)]
