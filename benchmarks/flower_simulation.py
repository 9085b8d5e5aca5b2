"""Sealed rounds of a hundred virtual nodes in Flower's simulation engine, and the audit of their ledger."""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import flwr
from flower_rounds import costs, read_marks, write_app

import coterie
from support.flower.superlink import superlink

NODES, PRIVACY, PER_ROUND, ROUNDS, DIMENSION = 100, 10, 50, 20, 10_000


def run() -> dict[str, object]:
    """Run the rounds and audit them."""
    before = os.getloadavg()[0]
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "marks": str(folder / "marks.jsonl"), "database": "", "nodes": NODES, "rounds": ROUNDS,
            "dimension": DIMENSION, "privacy": PRIVACY, "per-round": PER_ROUND,
            "ledger": str(folder / "ledger.sqlite"), "protocol": "secagg+",
        }  # fmt: skip
        begin = time.time()
        with superlink(folder, "--simulation") as link:
            nodes = f"num-supernodes={NODES} client-resources-num-cpus=1"
            link.run(write_app(folder, "sealed", config), "--federation-config", nodes, seconds=7200)
        seconds = time.time() - begin
        verdict = coterie.audit(folder / "ledger.sqlite")
        measured = costs(read_marks(folder / "marks.jsonl"), begin)
    return {
        "what": f"flwr {flwr.__version__}: {NODES} virtual nodes, {PER_ROUND} in a round, T={PRIVACY}, secagg+, "
        f"{DIMENSION} float32, {ROUNDS} rounds",
        "load_average_before": before,
        "load_average_after": os.getloadavg()[0],
        **{key: value for key, value in measured.items() if not key.startswith("bytes")},
        "seconds": seconds,
        "rounds_with_a_sum": len({round_ for round_, _ in verdict.log.sets()}),
        "strong_level": verdict.strong,
    }
