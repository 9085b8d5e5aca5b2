"""Runs that are killed at chosen calls of the operating system: each is resumed, and must end at the same model.

Called under the preloaded disk_calls.c with a folder, how many calls to choose (0: every one), and specs' files.
For each spec it prints a JSON line with the number of calls and where the uninterrupted run ends, then one for
each kill, all with the name of the spec's file.
"""

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec

SECOND_READER = Path(__file__).parents[3] / "docs" / "verify_ledger.py"
SHIM = ctypes.CDLL(None)


def finish(spec, folder):
    """Begin a run, or take it up, and go to its end."""
    with Run.resume(folder) if begun(folder) else Run.start(spec, folder) as run:
        for _ in run.steps():
            pass


def begun(folder):
    """Whether a run can be resumed: its ledger is bound to its files."""
    if not (folder / "ledger.sqlite").exists():
        return False
    with Ledger.open(folder, read_only=True) as ledger:
        return bool(ledger.files)


def in_a_child(work):
    """Do work in a process of its own; return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a child must not go on as its parent
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def model(folder):
    """A digest of the newest model."""
    found = hashlib.sha256()
    with np.load(max((folder / "checkpoints").glob("*.npz"))) as file:
        for name in sorted(name for name in file.files if not name.startswith("/")):
            found.update(name.encode() + np.ascontiguousarray(file[name]).tobytes())
    return found.hexdigest()


def killed_at(call, spec, folder):
    """Kill a run at a call, and take it up; return what was found."""

    def dying():
        SHIM.kill_at(call)
        finish(spec, folder)

    died = in_a_child(dying)
    sound = not (folder / "ledger.sqlite").exists() or verify(folder).sound
    if not begun(folder):
        folder = folder.with_name(f"{folder.name}-again")
    ended = in_a_child(lambda: finish(spec, folder))
    second = subprocess.run(
        [sys.executable, SECOND_READER, folder / "ledger.sqlite"],
        check=False,
        capture_output=True,
        env={**os.environ, "LD_PRELOAD": ""},
    )
    rows = len((folder / "record.jsonl").read_text().splitlines()) - 1
    return {
        "call": call, "killed": died == -signal.SIGKILL, "sound": sound, "ended": ended, "rows": rows,
        "second": second.returncode, "model": model(folder),
    }  # fmt: skip


def main(base, wanted, file):
    """Count the calls of a whole run, then die at some of them."""
    spec = Spec.read(file)

    def tell(**found):
        sys.stdout.write(json.dumps({"spec": file.stem, **found}) + "\n")

    def whole():
        SHIM.kill_at(0)
        finish(spec, base / "whole")
        (base / "calls").write_text(str(SHIM.calls()))

    base.mkdir()
    finish(spec, base / "loading")  # all that a run needs is loaded here once, and not in each child
    if in_a_child(whole) != 0:
        raise SystemExit(1)
    count = int((base / "calls").read_text())
    tell(calls=count, model=model(base / "whole"))
    chosen = range(1, count + 1) if wanted == 0 else np.linspace(1, count, wanted).astype(int).tolist()
    for call in chosen:
        tell(**killed_at(int(call), spec, base / f"run-{call}"))


if __name__ == "__main__":
    folder, number, *files = sys.argv[1:]
    for each in map(Path, files):
        main(Path(folder) / each.stem, int(number), each)
