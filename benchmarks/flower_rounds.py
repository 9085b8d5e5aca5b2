"""Rounds of a real Flower deployment on loopback: plain, SecAgg+ of Flower, sealed."""

import json
import os
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flwr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.flower.superlink import SuperLink, superlink, supernode

APP = Path(__file__).parent / "flower_app"
NODES, PRIVACY, ROUNDS, DIMENSION = 8, 2, 3, 100_000
WAYS = {
    "plain FedAvg": ("plain", {}),
    "Flower's SecAgg+": ("secaggplus", {}),
    "sealed open": ("sealed", {"protocol": "open"}),
    "sealed secagg+": ("sealed", {"protocol": "secagg+"}),
}
"""The module of each way to add up, and its configuration."""
PROJECT = """
[project]
name = "bench-{name}"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "coterie"
[tool.flwr.app.components]
serverapp = "bench_app.{module}:server"
clientapp = "bench_app.{module}:client"
[tool.flwr.app.config]
"""


def write_app(folder: Path, module: str, config: dict[str, Any]) -> Path:
    """Write the app of one way to add up, with its configuration; each way has a data scope of its own."""
    app = shutil.copytree(APP, folder / "app")
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    text = PROJECT.format(name=folder.name, module=module) + "\n".join(lines) + "\n"
    (app / "pyproject.toml").write_text(text, encoding="utf-8")
    (app / "bench_app" / "scope.py").write_text(f'SCOPE = "{folder.name}"\n', encoding="utf-8")
    return app


def read_marks(path: Path) -> list[dict[str, float]]:
    """Return what the meter wrote after every round."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def costs(marks: list[dict[str, float]], begin: float) -> dict[str, float]:
    """Return what a round costs, and what it takes until the first has ended: start, enrolment, charters."""
    first, last = marks[1], marks[-1]
    rounds = len(marks) - 2
    times = [after["time"] - before["time"] for before, after in pairwise(marks[1:])]
    return {
        "messages_per_round": (last["messages"] - first["messages"]) / rounds,
        "bytes_per_round": (last["bytes"] - first["bytes"]) / rounds,
        "seconds_per_round": statistics.median(times),
        "slowest_round_s": max(times),
        "messages_until_first_round_ended": first["messages"],
        "bytes_until_first_round_ended": first["bytes"],
        "seconds_until_first_round_ended": first["time"] - begin,
    }


def deployed(link: SuperLink, name: str) -> dict[str, float]:
    """Run one way in the deployment that is up."""
    module, options = WAYS[name]
    place = link.home / "".join(filter(str.isalnum, name))
    place.mkdir()
    config = {
        "marks": str(place / "marks.jsonl"), "database": str(link.home / "link.db"), "nodes": NODES,
        "rounds": ROUNDS, "dimension": DIMENSION, "privacy": PRIVACY, "per-round": NODES,
        "ledger": str(place / "ledger.sqlite"), "protocol": "", **options,
    }  # fmt: skip
    begin = time.time()
    link.run(write_app(place, module, config), seconds=3600)
    return costs(read_marks(place / "marks.jsonl"), begin)


def deployment(folder: Path) -> dict[str, Any]:
    """Measure every way, one after the other, over the same SuperLink and SuperNodes."""
    with ExitStack() as stack:
        link = stack.enter_context(superlink(folder, "--database", str(folder / "link.db")))
        for node in range(NODES):
            device = folder / f"device-{node}"
            options = {"partition-id": node, "num-partitions": NODES, "coterie-device": str(device)}
            stack.enter_context(supernode(link, folder / f"node-{node}.log", options))
        results: dict[str, Any] = {name: deployed(link, name) for name in WAYS}
    plain = results["plain FedAvg"]
    for result in results.values():
        for key in ("messages", "bytes", "seconds"):
            result[f"{key}_over_plain"] = result[f"{key}_per_round"] / plain[f"{key}_per_round"]
    return results


def run() -> dict[str, object]:
    """Measure everything."""
    with TemporaryDirectory() as name:
        return {
            "what": f"flwr {flwr.__version__}: {NODES} SuperNodes as processes on loopback, T={PRIVACY}, "
            f"{DIMENSION} float32, {ROUNDS} rounds of which the first is counted apart",
            "load_average_before": os.getloadavg()[0],
            **deployment(Path(name)),
            "load_average_after": os.getloadavg()[0],
        }
