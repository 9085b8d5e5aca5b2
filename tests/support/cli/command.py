"""Running the command line in a process of its own, as its user would, without loading it anew every time."""

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_LIMIT = 300  # seconds


@cache
def _warm():
    """The process that the commands of this one are forked from; it ends with this one."""
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("warm.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def coterie(*arguments, cwd=None):
    """Run `coterie` with the arguments and return the finished process.

    It is a process of its own: its memory, folder, environment and output are nobody else's. Only its imports are
    those of the process that it was forked from; what starting costs is tested in cli/test_startup.py.
    """
    texts = [str(argument) for argument in arguments]
    with TemporaryDirectory() as folder:
        outputs = [Path(folder) / name for name in ("stdout", "stderr")]
        for file in outputs:
            file.touch()
        request = {
            "arguments": texts,
            "folder": str(cwd or Path.cwd()),
            "environment": {**os.environ, "COLUMNS": "100"},
            "outputs": [str(file) for file in outputs],
        }
        server = _warm()
        server.stdin.write(json.dumps(request).encode() + b"\n")
        child = int(server.stdout.readline())
        if not select.select([server.stdout], [], [], _LIMIT)[0]:
            os.kill(child, signal.SIGKILL)
            server.stdout.readline()
            raise subprocess.TimeoutExpired(["coterie", *texts], _LIMIT, *(file.read_text() for file in outputs))
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(["coterie", *texts], code, *(file.read_text() for file in outputs))


def typed(line, folder):
    """Run a line that the documents have their readers type, `coterie …` or `python …`, in a folder."""
    program, *arguments = shlex.split(line)
    if program == "coterie":
        return coterie(*arguments, cwd=folder)
    assert program == "python", line
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=_LIMIT, check=False, cwd=folder
    )
