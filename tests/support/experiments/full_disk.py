"""Runs on a small disk of their own: first of a size at which it fills up, then with room, resumed.

Called with the disk's folder, a spec's file, and sizes in KiB. Prints a JSON line with where the uninterrupted run
ends, then one for each size: what `coterie run` said and how it ended, whether the ledger was sound then, and
where the run ended at last.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from coterie.cli import main
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.result import read_run
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec
from coterie.pages.run import write_run_report

ROOM = 64 * 1024


def resized(disk, kib):
    """Give the disk another size."""
    subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)


def coterie(log, *arguments):
    """Run the command in a child; return its exit code and what it said."""
    child = os.fork()
    if child == 0:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv = ["coterie", *map(str, arguments)]
        try:
            main()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(99)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.read_text().splitlines()


def digest(folder):
    """A digest of the newest model in a run's folder."""
    found = hashlib.sha256()
    with np.load(max((folder / "checkpoints").glob("*.npz"))) as file:
        for name in sorted(name for name in file.files if not name.startswith("/")):
            found.update(name.encode() + np.ascontiguousarray(file[name]).tobytes())
    return found.hexdigest()


def uninterrupted(disk, spec):
    """Run with room, in this process: so all that its children need is loaded once."""
    run = Run.start(Spec.read(spec), disk / "whole")
    for _ in run.steps():
        pass
    run.close()
    write_run_report(read_run(run.folder.path), "today")
    found = digest(run.folder.path)
    shutil.rmtree(run.folder.path)
    return found


def can_be_resumed(out):
    """Whether a run's ledger is bound to its files."""
    with Ledger.open(out, read_only=True) as ledger:
        return bool(ledger.files)


def tried(disk, spec, log, kib):
    """Run on a disk of this size, then with room."""
    out = disk / "run"
    resized(disk, kib)
    code, said = coterie(log, "run", spec, "--out", out)
    begun = (out / "ledger.sqlite").exists() and can_be_resumed(out)
    sound = not begun or verify(out).sound
    resized(disk, ROOM)
    if not begun:
        shutil.rmtree(out, ignore_errors=True)
    again, _ = coterie(log, "run", *(("--resume", out) if begun else (spec, "--out", out)))
    rows = len((out / "record.jsonl").read_text().splitlines()) - 1
    result = {"kib": kib, "code": code, "said": said[-1], "begun": begun, "sound": sound, "again": again}
    result |= {"rows": rows, "digest": digest(out)}
    shutil.rmtree(out)
    return result


if __name__ == "__main__":
    folder, file = map(Path, sys.argv[1:3])
    results = [uninterrupted(folder, file)]
    results += [tried(folder, file, file.with_suffix(".log"), int(size)) for size in sys.argv[3:]]
    sys.stdout.write("".join(json.dumps(result) + "\n" for result in results))
