"""Faults, short but real: kills at system calls, and power cuts."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.run import Run
from support.experiments.tiny import ROUNDS, finished, tiny_spec, told, write_spec
from support.faults.disk import Disk, fates
from support.faults.recorded import mark_seals
from support.faults.shim import FAULTS, recorded, shim

__all__ = ["shim"]  # a fixture
SECOND_READER = Path(__file__).parents[3] / "docs" / "verify_ledger.py"


KILLED = ["plain", "open"]
CUT = ["plain", "open", "secagg+"]


@pytest.fixture(scope="module")
def killed(data, new_folder, shim, request):
    """What killed_runs.py found, by protocol: about the whole run, then about each kill."""
    base = new_folder().parent
    files = [write_spec(tiny_spec(data, protocol), base / f"{protocol}.toml") for protocol in KILLED]
    run = subprocess.run(
        [sys.executable, FAULTS / "killed_runs.py", base, str(request.config.getoption("--kills") // 2), *files],
        capture_output=True, text=True, check=False, timeout=6000, env={**os.environ, "LD_PRELOAD": str(shim)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = {protocol: [] for protocol in KILLED}
    for line in run.stdout.splitlines():
        about = json.loads(line)
        found[about.pop("spec")].append(about)
    return found


@pytest.mark.parametrize("protocol", KILLED)
def test_a_run_killed_at_any_writing_call_ends_at_the_same_model(killed, protocol, request):
    """Before any write, sync, rename or removal: the ledger is sound, for both readers, and resuming ends alike.

    Half of `--kills` are tried, spread over the run; with 0 every call there is.
    """
    whole, *kills = killed[protocol]
    assert whole["calls"] > 100
    assert len(kills) == (request.config.getoption("--kills") // 2 or whole["calls"])
    request.node.user_properties.append(("faults", len(kills)))
    for kill in kills:
        expected = {
            "killed": True,
            "sound": True,
            "ended": 0,
            "second": 0,
            "rows": ROUNDS,
            "model": whole["model"],
        }
        assert kill == {"call": kill["call"], **expected}


@pytest.fixture(scope="module")
def recordings(data, new_folder, shim):
    """The folder that a whole run was recorded in, and its calls, by protocol."""
    base = new_folder().parent
    times = [
        (base / protocol, write_spec(tiny_spec(data, protocol), base / f"{protocol}.toml")) for protocol in CUT
    ]
    calls = recorded(shim, "run", *times)
    return {protocol: (folder, each) for protocol, (folder, _), each in zip(CUT, times, calls, strict=True)}


@pytest.mark.parametrize("protocol", CUT)
def test_a_power_cut_at_any_call_changes_nothing(data, new_folder, recordings, protocol, request):
    """Whatever was not synced is lost or torn: the run is taken up, and ends at the same model.

    The ledger has every head that a step left behind, for both readers, and no device seals a round twice, with
    those that it sealed before the cut. Half of `--kills` cuts are tried; with 0, one at every call.
    """
    base = new_folder().parent
    whole = finished(tiny_spec(data, protocol), base / "whole")
    folder, calls = recordings[protocol]
    begun = next(number for number, call in enumerate(calls) if call[0] == "N" and call[1].startswith("head"))
    rng = random.Random(protocol)
    chosen = sorted(
        rng.sample(range(begun, len(calls)), request.config.getoption("--kills") // 2 or len(calls) - begun)
    )
    request.node.user_properties.append(("faults", len(chosen)))
    disk, marks = Disk(folder), []
    for number, call in enumerate(calls):
        disk.apply(call)
        if call[0] == "N":
            marks.append(call[1].split())
        if number in chosen:
            fate = rng.choice(list(fates(rng)))
            disk.write(base / "cut", fate)
            check_taken_up(base / "cut" / "run", whole, marks)
            shutil.rmtree(base / "cut")


def check_taken_up(folder, whole, marks):
    """Take a run up after a power cut, to its end."""
    sealed = [(user, int(round_)) for kind, *about in marks if kind == "sealed" for user, round_ in [about]]
    heads = [about[0] for kind, *about in marks if kind == "head"]
    undo = mark_seals(lambda user, round_: sealed.append((user, round_)))
    try:
        with Run.resume(folder, workers=1) as run:
            for _ in run.steps():
                pass
            assert torch.equal(run.parameters, whole.parameters)
            assert told(run.rows) == told(whole.rows)
    finally:
        undo()
    assert len(sealed) == len(set(sealed))
    assert verify(folder, bytes.fromhex(heads[-1])).sound
    second = subprocess.run(
        [sys.executable, SECOND_READER, folder / "ledger.sqlite", heads[-1]], check=False, capture_output=True
    )
    assert second.returncode == 0, second.stderr
    with Ledger.open(folder, read_only=True) as ledger:
        assert sum(each.state.value in ("committed", "skipped") for each in ledger.rounds()) == ROUNDS
