"""Run the default spec plainly and with every inner protocol, and keep what came out.

    python experiments/default_run.py

The real path of `coterie run` each time, 60 rounds on the shipped data: README's accuracy of the default run comes
from the record, experiments/results/default-run.jsonl. Protocols that have a record are not run again.
"""

import platform
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from coterie import __version__
from coterie.lab.experiments.result import read_run
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.outcome import ExperimentRecord, ResultFile

RESULTS = ResultFile(Path(__file__).parent / "results" / "default-run.jsonl")
PROTOCOLS = ("plain", "open", "secagg", "secagg+", "lightsecagg")
KEYS = (
    "rounds",
    "skipped",
    "lost_batches",
    "accuracy",
    "loss",
    "strong",
    "cardinality",
    "fairness_gap",
    "seconds",
)


def record_of(protocol: str) -> ExperimentRecord:
    """Run the default spec with a protocol to its end, and return what came out."""
    spec = Spec().changed({"aggregation.protocol": protocol, "training.device": "cpu"})
    with TemporaryDirectory() as folder, Run.start(spec, Path(folder) / "run") as run:
        curve = {row.step: round(100 * row.accuracy, 2) for row in run.steps() if row.accuracy is not None}
        summary = read_run(run.folder.path).summary()
    made_with = {
        "coterie": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return {"run": protocol, **{key: summary[key] for key in KEYS}, "curve": curve, "made_with": made_with}


def main() -> None:
    """Run what has no record yet."""
    for protocol in PROTOCOLS:
        if protocol not in RESULTS.records():
            RESULTS.add(record_of(protocol))
        print(f"{protocol}: {RESULTS.records()[protocol]['accuracy']:.2%}")


if __name__ == "__main__":
    main()
