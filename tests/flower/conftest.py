"""What the tests of the package for Flower have in common."""

import shutil

import pytest
from flwr.serverapp import strategy as flower

from support.flower.app import sealed, start
from support.flower.nodes import federation, in_a_task


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    in_a_task(monkeypatch)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The folder of a federation after one honest round, to be copied: its ledger, its model, its devices."""
    folder = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        in_a_task(patch)
        start(sealed(folder, flower.FedAvg()), federation(folder), rounds=1)
    return folder


@pytest.fixture
def begun(honest, tmp_path):
    """This test's own folder, with a federation in it that has had one round."""
    return shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
