"""Flower for real: SuperLinks and SuperNodes as processes on free ports, in a home of their own, offline."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
SOURCE = Path(__file__).parents[3] / "src"
TESTS = Path(__file__).parents[2]


def environment(home: Path) -> dict[str, str]:
    """Return the environment of every process: our sources and tests, a home of its own, no network.

    Modules in the home's folder `python` go before all others.
    """
    return {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "PYTHONPATH": f"{home / 'python'}:{SOURCE}:{TESTS}",
        "FLWR_HOME": str(home / "flwr"),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink that runs, and the home of the user who knows it as "test"."""

    home: Path
    port: int

    def run(self, app: Path, *options: str, seconds: int = 600) -> str:
        """Run an app to its end, and return what it printed; it must succeed."""
        run = subprocess.run(
            [PROGRAMS / "flwr", "run", app, "test", "--stream", *options],
            env=environment(self.home),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert self.runs()[0]["status"] == "finished:completed", run.stdout + run.stderr
        return run.stdout

    def runs(self) -> list[dict[str, object]]:
        """Return what the SuperLink says of its runs, the last one first."""
        listing = subprocess.run(
            [PROGRAMS / "flwr", "ls", "test", "--format", "json"],
            env=environment(self.home),
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return json.loads(listing.stdout)["runs"]


@contextmanager
def running(command: list[str | Path], home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; its output goes into a log."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment(home), stdout=output, stderr=output, cwd=home)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def superlink(folder: Path, *options: str) -> Iterator[SuperLink]:
    """Run a SuperLink until the block ends; the folder is its home, and that of all that it starts."""
    port = free_port()
    (folder / "flwr").mkdir(parents=True, exist_ok=True)
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "test"\n[superlink.test]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    command = [PROGRAMS / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port), *options]
    with running(command, folder, folder / "superlink.log") as process:
        wait_for(port, process)
        yield SuperLink(folder, port)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a program listens, or say that it ended."""
    for _ in range(600):
        assert process.poll() is None, f"it ended with exit code {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens at port {port}")


@contextmanager
def supernode(link: SuperLink, log: Path, config: dict[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a SuperNode until the block ends; the configuration is its owner's word."""
    port = free_port()
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    command = [
        PROGRAMS / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link.port}", "--port", str(port),
        "--max-wait-time", "300", "--node-config", words,
    ]  # fmt: skip
    with running(command, link.home, log) as process:
        wait_for(port, process)
        yield process
