"""Flower's simulation engine with twelve virtual nodes: their devices are folders, any worker takes a message."""

import json
import subprocess
import sys

import numpy as np
import pytest

import coterie
from coterie.federation.device_file import DeviceFile
from coterie.flower.node import MEMORY
from support.flower.app import START, averaged
from support.flower.superlink import environment

NODES = 12
PROGRAM = """
import json, sys
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from support.flower.app import BOUNDS, app, mod, model, sealed
from flwr.app import ConfigRecord

folder, server = Path(sys.argv[1]), ServerApp()


@server.main()
def main(grid, context):
    strategy = sealed(folder, FedAvg(), protocol="secagg+", users=12, train_metrics=BOUNDS, wait=120.0)
    config = ConfigRecord({"lr": 0.5})
    result = strategy.start(grid, model(), num_rounds=2, timeout=120.0, train_config=config)
    weights = result.arrays["weights"].numpy().tolist()
    (folder / "result.json").write_text(json.dumps({"weights": weights}))


run_simulation(server, app(mod(folder)), num_supernodes=12, backend_config={"client_resources": {"num_cpus": 1}})
"""


def test_twelve_virtual_nodes(tmp_path):
    """Two rounds of the default protocol give plain FedAvg's model; nobody's device was made twice."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    weights = np.array(json.loads((tmp_path / "result.json").read_text())["weights"])
    expected = averaged(averaged(START["weights"], range(NODES)).astype(np.float32), range(NODES))
    assert weights == pytest.approx(expected, abs=1e-4)
    verdict = coterie.audit(tmp_path / "ledger.sqlite")
    assert verdict.strong == NODES  # all took part in both rounds; their batches of two were never shown
    devices = sorted((tmp_path / "devices").iterdir())
    assert len(devices) == NODES
    assert all(DeviceFile.open(device / MEMORY).scopes == ("test",) for device in devices)
