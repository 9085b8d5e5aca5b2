"""Pictures from sums: the record of CIFAR-10 can be made again by its script, and says what it was made from."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.lab.attacks.inversion import Inversion

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script():
    """The script that makes the record of fig:recon_MSE_PSNR."""
    spec = importlib.util.spec_from_file_location("inversion", ROOT / "experiments" / "inversion.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_of_the_pictures_writes_their_record(script, tmp_path):
    """On the shipped data and with a short search: every scheme's images and scores, and what they come from."""
    spec = script.SPEC.changed({"data.source": "mnist-small", "training.model": "mlp"})
    settings = replace(script.SETTINGS, rate=1e-4, count=2, search=Inversion(steps=100, restarts=1))
    script.write_pictures(spec, settings, tmp_path / "inversion.json")
    record = json.loads((tmp_path / "inversion.json").read_text())
    assert list(record["schemes"]) == ["random", "T2", "T4"]
    assert record["users"] == [0, 20]
    random, pairs, fours = (record["schemes"][scheme] for scheme in script.SCHEMES)
    for own, pair, four in zip(random["psnr"], pairs["psnr"], fours["psnr"], strict=True):
        assert own > max(pair, four)
    assert (random["users_found"], pairs["users_found"], fours["users_found"]) == (40, 0, 0)
    assert record["spec"]["training"]["model"] == "mlp"
    assert record["settings"]["search"]["steps"] == 100
    assert {"device", "coterie", "torch"} <= record["made_with"].keys()
