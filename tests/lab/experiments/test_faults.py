"""Faults, short but real: kills at system calls, power cuts, and two processes in one folder with pauses."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.run import Run
from support.cli.command import coterie
from support.experiments.tiny import ROUNDS, finished, tiny_spec, told, write_spec
from support.faults.disk import Disk, fates
from support.faults.recorded import mark_seals
from support.faults.shim import FAULTS, recorded, shim

__all__ = ["shim"]  # a fixture
SECOND_READER = Path(__file__).parents[3] / "docs" / "verify_ledger.py"


@pytest.mark.parametrize("protocol", ["plain", "open"])
def test_a_run_killed_at_any_writing_call_ends_at_the_same_model(data, new_folder, shim, protocol, request):
    """Before any write, sync, rename or removal: the ledger is sound, for both readers, and resuming ends alike.

    Half of `--kills` are tried, spread over the run; with 0 every call there is.
    """
    base = new_folder()
    base.mkdir()
    file = write_spec(tiny_spec(data, protocol), base / "spec.toml")
    run = subprocess.run(
        [sys.executable, FAULTS / "killed_runs.py", file, base, str(request.config.getoption("--kills") // 2)],
        capture_output=True, text=True, check=False, timeout=3000, env={**os.environ, "LD_PRELOAD": str(shim)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    whole, *kills = map(json.loads, run.stdout.splitlines())
    assert whole["calls"] > 100
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
        assert kill == {"call": kill["call"], **expected}, run.stderr


@pytest.mark.parametrize("protocol", ["plain", "open", "secagg+"])
def test_a_power_cut_at_any_call_changes_nothing(data, new_folder, shim, protocol, request):
    """Whatever was not synced is lost or torn: the run is taken up, and ends at the same model.

    The ledger has every head that a step left behind, for both readers, and no device seals a round twice, with
    those that it sealed before the cut. Half of `--kills` cuts are tried; with 0, one at every call.
    """
    base = new_folder().parent
    spec = tiny_spec(data, protocol)
    whole = finished(spec, base / "whole")
    whole.close()
    calls = recorded(shim, "run", base / "recorded", write_spec(spec, base / "spec.toml"))
    begun = next(number for number, call in enumerate(calls) if call[0] == "N" and call[1].startswith("head"))
    rng = random.Random(protocol)
    chosen = sorted(
        rng.sample(range(begun, len(calls)), request.config.getoption("--kills") // 2 or len(calls) - begun)
    )
    request.node.user_properties.append(("faults", len(chosen)))
    disk, marks = Disk(base / "recorded"), []
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


def test_a_second_process_is_refused_while_the_first_is_paused(data, new_folder):
    """Stopped in the middle of its rounds, the first still holds the folder; it goes on when it is let."""
    out = new_folder()
    file = write_spec(tiny_spec(data, "plain", training__rounds=30), out.with_name("spec.toml"))
    first = subprocess.Popen(
        [sys.executable, "-m", "coterie", "run", file, "--out", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    record = out / "record.jsonl"
    while first.poll() is None and not (record.exists() and record.read_text().count("\n") > 2):
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    before = record.read_bytes()
    second = coterie("run", "--resume", out)
    assert second.returncode == 2
    assert f"is in use by process {first.pid} on " in second.stderr
    assert record.read_bytes() == before
    first.send_signal(signal.SIGCONT)
    _, said = first.communicate(timeout=180)
    assert first.returncode == 0, said
    assert record.read_text().count("\n") == 31
    assert coterie("run", "--resume", out).returncode == 0
