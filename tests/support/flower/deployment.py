"""A deployment of Flower on loopback: a SuperLink, and SuperNodes that can be killed and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.flower.superlink import PROGRAMS, TESTS, SuperLink, environment, free_port, superlink

APP = TESTS / "flower" / "app"
SUPERNODE = """
import sys

from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection

heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = 10
from flwr.supernode.cli import flower_supernode

sys.argv[0] = "flower-supernode"
flower_supernode()
"""
"""Flower's SuperNode, which has no option for its heartbeat: as often as a SuperLink lets it promise one.

A SuperLink gives a node up that has missed two, so this is how long the tests wait for one that is dead.
"""


class Deployment:
    """SuperNodes by their partition, each with a device of its own in the folder."""

    def __init__(self, folder: Path, link: SuperLink, partitions: int) -> None:
        self.folder, self._link, self._partitions = folder, link, partitions
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._runs: list[Run] = []

    def device(self, partition: int) -> Path:
        """The folder of a node's device."""
        return self.folder / f"device-{partition}"

    def stall(self, partition: int) -> Path:
        """The file that, while it is there, keeps a node's training from ending."""
        return self.folder / f"stall-{partition}"

    def start(self, partition: int) -> None:
        """Start a SuperNode, or start it again."""
        config = (
            f"partition-id={partition} num-partitions={self._partitions} "
            f'coterie-device="{self.device(partition)}" stall="{self.stall(partition)}"'
        )
        address = ("--insecure", "--superlink", f"127.0.0.1:{self._link.port}", "--port", str(free_port()))
        with (self.folder / f"node-{partition}.log").open("ab", buffering=0) as log:
            self._nodes[partition] = subprocess.Popen(
                [sys.executable, "-c", SUPERNODE, *address, "--node-config", config],
                env=environment(self._link.home),
                cwd=self._link.home,
                stdout=log,
                stderr=log,
            )

    def kill(self, *partitions: int) -> None:
        """End SuperNodes at once; the processes that they started end with them."""
        for partition in partitions:
            self._nodes[partition].kill()
        for partition in partitions:
            self._nodes.pop(partition).wait()

    def end(self) -> None:
        """End all SuperNodes, and the commands that follow runs."""
        self.kill(*self._nodes)
        for run in self._runs:
            run.stop_following()

    def begin(self, **config: object) -> "Run":
        """Start a run of the app, with entries of its configuration."""
        entries = {"folder": str(self.folder), **config}
        text = " ".join(f"{name}={json.dumps(value)}" for name, value in entries.items())
        log = self.folder / f"run-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PROGRAMS / "flwr", "run", APP, "test", "--stream", "--run-config", text],
                env=environment(self._link.home),
                stdout=output,
                stderr=output,
            )
        self._runs.append(Run(process, log))
        return self._runs[-1]

    def server_apps(self) -> list[int]:
        """The process ids of the ServerApps that this deployment's SuperLink has started."""
        home = f"FLWR_HOME={self._link.home / 'flwr'}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                ours = (
                    home in (entry / "environ").read_bytes() and b"serverapp" in (entry / "cmdline").read_bytes()
                )
            except OSError:  # no process, or one that has just ended
                continue
            if ours:
                found.append(int(entry.name))
        return found

    def kill_server_app(self) -> None:
        """End the ServerApp of the present run at once."""
        for process in self.server_apps():
            os.kill(process, signal.SIGKILL)


class Run:
    """A run of the app that goes on beside the test."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def log(self) -> str:
        """What was printed so far."""
        return self._log.read_text(errors="replace")

    def wait(self, seconds: float = 900) -> str:
        """Wait for the end, and return what was printed."""
        self._process.wait(seconds)
        return self.log

    def stop_following(self) -> None:
        """End the command that prints the log; the run is the SuperLink's."""
        self._process.kill()
        self._process.wait()


def until(holds, seconds: float = 900) -> None:
    """Wait until something holds; the time is a limit for what hangs, not a measure."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.2)


@contextmanager
def deployment(folder: Path, nodes: int) -> Iterator[Deployment]:
    """Run a SuperLink and SuperNodes until the block ends."""
    with superlink(folder) as link:
        deployed = Deployment(folder, link, nodes)
        try:
            for partition in range(nodes):
                deployed.start(partition)
            yield deployed
        finally:
            deployed.end()
