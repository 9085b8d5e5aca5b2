"""Train the run that bfloat16 is judged by: CIFAR-100, VGG-11, random selection, in float32 on a processor.

    python experiments/float32_run.py --data data --out runs/float32

Everything but the arithmetic is that of the run `rate 0.1` of the experiment cifar100-rates, which was trained on
a GPU with products in bfloat16: the same seed draws the same cohorts, minibatches and dropout. A round takes some
fifteen seconds on two cores, so a thousand take hours; Ctrl-C loses nothing, the same command goes on. When all
rounds are done, experiments/results/cifar100-float32.jsonl is written.
"""

import argparse
import sys
from pathlib import Path

from coterie.lab.experiments.run import Run
from coterie.lab.paper.definition import known_experiments
from coterie.lab.paper.outcome import ResultFile
from coterie.lab.paper.reconstruction import made_with

RESULTS = ResultFile(Path(__file__).parent / "results" / "cifar100-float32.jsonl")
NAME = "float32"


def main() -> None:
    """Begin the run, or go on with it, and write down its accuracy so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data", help="the folder with CIFAR-100")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run; one that is there goes on")
    given = parser.parse_args()
    twin = next(run for run in known_experiments()["cifar100-rates"].runs() if run.setting == "rate 0.1")
    changes = {"training.precision": "tf32", "training.compiled": False, "training.device": "cpu"}
    spec = twin.spec.changed({**changes, "data.folder": given.data})
    with Run.resume(given.out) if given.out.exists() else Run.start(spec, given.out) as run:
        try:
            for row in run.steps():
                if row.accuracy is not None:
                    print(f"round {row.step}: {row.accuracy:.2%}", flush=True)
        except KeyboardInterrupt:
            sys.exit(f"Stopped after {len(run.rows)} of {spec.training.rounds} rounds; the same command goes on")
        curve = {row.step: round(100 * row.accuracy, 2) for row in run.rows if row.accuracy is not None}
        seconds = round(sum(row.seconds for row in run.rows))
        record = {"run": NAME, "beside": twin.digest, "rounds": len(run.rows), "curve": curve, "seconds": seconds}
        RESULTS.path.unlink(missing_ok=True)
        RESULTS.add({**record, "made_with": made_with(run.setup)})


if __name__ == "__main__":
    main()
