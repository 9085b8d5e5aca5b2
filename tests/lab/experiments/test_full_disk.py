"""A disk that fills up stops a run and spoils nothing: with room again, it ends at the same model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.experiments.tiny import ROUNDS, tiny_spec, write_spec

SIZES = {"plain": [60, 200, 440], "open": [950]}
"""In KiB: at the start, as a result is set aside, at a checkpoint; in the middle of the devices."""


def on_a_small_disk(folder, *command):
    """Run a command with a disk of its own at the folder, or skip; return its lines."""
    mount = f'mount -t tmpfs tmpfs "{folder}" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets us mount nothing")
    run = subprocess.run([*prefix, *command], check=False, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("protocol", SIZES)
def test_a_run_goes_on_when_there_is_room_again(data, tmp_path, protocol):
    """Wherever the room ends: exit code 2, a line that says so, a sound ledger; resumed, the same model."""
    disk, file = tmp_path / "disk", write_spec(tiny_spec(data, protocol), tmp_path / "spec.toml")
    disk.mkdir()
    script = [
        sys.executable,
        Path(__file__).parents[2] / "support" / "experiments" / "full_disk.py",
        disk,
        file,
        *SIZES[protocol],
    ]
    whole, *lines = map(json.loads, on_a_small_disk(disk, *map(str, script)))
    assert len(lines) == len(SIZES[protocol])
    for tried in lines:
        assert tried["code"] == 2
        assert "the disk is full; make room" in tried["said"]
        assert tried["sound"]
        assert tried["again"] == 0
        assert (tried["rows"], tried["digest"]) == (ROUNDS, whole)
