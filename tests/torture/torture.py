"""Faults for as long as one likes, kind by kind; what they gave is written to results.json beside this file.

`python tests/torture/torture.py --scale 10` tries ten times as much as the least. Every kind is a call of pytest,
each of whose tests tells how many faults it tried.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SEED = 1


class Kind(NamedTuple):
    """One kind of fault: its tests, which of them, and the option that says how much, with the least of it."""

    name: str
    path: str
    which: str
    option: str
    least: int


KINDS = [
    Kind("power cuts of files, devices, ledgers, records", "tests/files/test_power_cut.py", "", "--kills", 8),
    Kind("power cuts of runs, torn at blocks", "tests/lab/experiments/test_faults.py", "power_cut", "--kills", 16),
    Kind("ledger bodies mutated", "tests/federation/ledger/test_events.py", "whatever_bytes", "--fuzz", 200_000),
    Kind("PostgreSQL cut off, crashed, restarted", "tests/federation/ledger/test_nemesis.py", "", "--kills", 16),
    Kind("coordinators killed at random instants", "tests/contracts/test_ledger_kill.py", "", "--kills", 8),
    Kind("messages mutated", "tests/secagg/test_fuzz.py", "no_bytes", "--fuzz", 50_000),
    Kind("runs killed at a writing call", "tests/lab/experiments/test_faults.py", "killed_at", "--kills", 8),
    Kind("runs killed at random instants", "tests/lab/experiments/test_resume.py", "killed_again", "--kills", 8),
]


def tried(kind, scale, report):
    """Try one kind of fault; return what came of it."""
    amount = kind.least * scale
    command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    command += [kind.option, str(amount), "--fuzz-seed", str(SEED), kind.path]
    started = time.monotonic()
    run = subprocess.run([*command, *(["-k", kind.which] if kind.which else [])], check=False, cwd=ROOT)
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - pytest's own file
    faults = sum(int(each.get("value")) for each in suite.iter("property") if each.get("name") == "faults")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    return {
        "kind": kind.name, "faults": faults, **counts, "passed": run.returncode == 0,
        "command": f"pytest {kind.option} {amount} {kind.path}{f' -k {kind.which}' * bool(kind.which)}",
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip


def main():
    """Try all kinds, and write down what they gave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=10, help="how much more than the least: 10 unless told")
    scale = parser.parse_args().scale
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT)
    started, kinds = datetime.now(UTC), []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            kinds += [tried(kind, scale, Path(folder) / "report.xml")]
            results = {
                "commit": commit.stdout.strip(), "started": started.isoformat(timespec="seconds"), "scale": scale,
                "fuzz_seed": SEED, "seconds": sum(each["seconds"] for each in kinds), "cores": os.cpu_count(),
                "python": platform.python_version(), "kinds": kinds,
                "not_reached": [each.name for each in KINDS[len(kinds) :]],
            }  # fmt: skip
            (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(kind["passed"] for kind in kinds) else 1


if __name__ == "__main__":
    sys.exit(main())
