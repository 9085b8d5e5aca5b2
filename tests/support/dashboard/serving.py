"""The dashboard as its user starts it: the real command, in a process of its own, on a free port."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen


@contextmanager
def served(location, *options, port=0):
    """Serve a ledger; give the address of its page, and end the command with Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "coterie", "dashboard", str(location), "--port", str(port), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("The dashboard is at http://"), line
        yield line.split()[4].rstrip("/")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read(url):
    """What an address answers."""
    with urlopen(url, timeout=60) as answer:  # noqa: S310 - our own server
        return answer.read().decode()


def state(url):
    """What the dashboard knows."""
    return json.loads(read(f"{url}/state.json"))
