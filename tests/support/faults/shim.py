"""The library that kills a process at one of its writing calls, or records them: compiled once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.faults.disk import read_calls

FAULTS = Path(__file__).parent


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The compiled library, to be preloaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, which faults at chosen system calls need")
    library = tmp_path_factory.mktemp("shim") / "disk_calls.so"
    source = FAULTS / "disk_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def recorded(shim, work, *times):
    """Do work of recorded.py in one process: each time in a folder, a run with its spec; return the calls."""
    records = [folder.with_name(f"{folder.name}.calls") for folder, *_ in times]
    arguments = [
        each
        for (folder, *others), record in zip(times, records, strict=True)
        for each in (folder, record, *others)
    ]
    process = subprocess.run(
        [sys.executable, FAULTS / "recorded.py", work, *arguments],
        capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "LD_PRELOAD": str(shim)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return [read_calls(record) for record in records]
