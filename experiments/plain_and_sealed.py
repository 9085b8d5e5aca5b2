"""The default run, plain and sealed: cryptography must not change what is learned.

python experiments/plain_and_sealed.py [SEEDS]
"""

import json
import sys
import tempfile
from pathlib import Path

from coterie.experiment.run import Run
from coterie.experiment.spec import Spec

RESULTS = Path(__file__).parent / "results" / "plain_and_sealed.jsonl"
PROTOCOLS = ("plain", "open", "secagg+")


def main(seeds: int) -> None:
    """Run the default spec with every protocol and seed; write a line for each."""
    with RESULTS.open("w") as results:
        for seed in range(seeds):
            for protocol in PROTOCOLS:
                spec = Spec().changed({"seed": seed, "aggregation.protocol": protocol, "evaluate_every": 60})
                with tempfile.TemporaryDirectory() as folder:
                    run = Run.start(spec, Path(folder) / "run")
                    for _ in run.steps():
                        pass
                    kept = ("accuracy", "loss", "strong", "skipped", "lost_batches", "cardinality")
                    summary = run.summary()
                    line = {"protocol": protocol, "seed": seed, **{key: summary[key] for key in kept}}
                print(json.dumps(line), file=results, flush=True)
                print(line)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1)
