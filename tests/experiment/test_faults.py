"""Faults, short but real: kills at calls of the operating system, and two processes in one folder with pauses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.cli.command import coterie
from support.experiment.tiny import ROUNDS, tiny_spec, write_spec

FAULTS = Path(__file__).parents[1] / "support" / "faults"


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library that kills a process at its n-th writing call."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, which kills at chosen system calls need")
    library = tmp_path_factory.mktemp("shim") / "kill_at.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, FAULTS / "kill_at.c", "-ldl"], check=True)
    return library


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
