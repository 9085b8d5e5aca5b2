"""Makes the golden files anew, for a new version of a format: python tests/golden/make.py. The old ones go."""

import itertools
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from coterie.federation.device_file import DeviceFile  # noqa: E402 - the tests' helpers come after the path is set
from coterie.lab.experiments.folder import (  # noqa: E402
    Checkpoint,
    PendingResult,
    RoundRow,
    RunFolder,
)
from coterie.lab.training.data import write_partition  # noqa: E402
from coterie.leakage.readers import write_log  # noqa: E402
from coterie.selection.plan_file import write_plan  # noqa: E402
from support.golden import (  # noqa: E402
    LOG,
    PARTITION,
    PLAN,
    write_device,
    write_experiment,
    write_flower_checkpoint,
    write_participation,
    write_simulation,
)
from support.ledgers import federation  # noqa: E402

ROW = RoundRow(
    step=1, round=0, outcome="committed", available=9, asked=4, included=4, lost_batches=0, training_loss=1.5,
    accuracy=0.5, loss=2.0, strong=4, fairness_gap=0.0, fairness_gap_completed=0.0, cardinality=4.0, skipped=0,
    seconds=0.1,
)  # fmt: skip


def main() -> None:
    """Write every file."""
    for old in itertools.chain(HERE.glob("*.sqlite"), HERE.glob("*.npz"), HERE.glob("*.jsonl")):
        old.unlink()
    with federation(HERE / "ledger.sqlite") as ledger:
        ledger.bind({"spec": "ab" * 32})
        ledger.expose(0, [[3, 4, 5]], alone=[7])
        ledger.retire([1], "lost in 10 rounds in a row")
        ledger.override([0], "a study ended")
    with (
        DeviceFile.create(HERE / "device.sqlite", identity=bytes(range(32))) as device,
        device.transaction("keyboard") as slot,
    ):
        slot.content = b"the record of a scope"
    folder = RunFolder(HERE)
    folder.record.path.unlink(missing_ok=True)
    folder.record.start(
        {"spec": {"seed": 1}, "seed": 1, "users": 9, "parameters": 3, "aggregation": "plain", "privacy": None}
    )
    folder.record.add(ROW)
    (HERE / "checkpoints").mkdir(exist_ok=True)
    folder.save(Checkpoint(1, {"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}, ROW))
    folder.set_aside(PendingResult(3, np.array([0.5, -0.25]), 1.25))
    write_plan(PLAN, HERE / "files" / "plan.json")
    write_partition(PARTITION, HERE / "files" / "partition.json")
    write_device(HERE / "devices" / "durable")
    write_flower_checkpoint(HERE / "flower")
    write_experiment(HERE / "experiment")
    write_simulation(HERE / "simulation")
    write_participation(HERE / "files" / "flower-log.jsonl")
    for suffix in ("csv", "jsonl", "parquet"):
        write_log(LOG, HERE / "files" / f"log.{suffix}")
    for left in HERE.glob("*-lease"):
        left.unlink()


if __name__ == "__main__":
    main()
