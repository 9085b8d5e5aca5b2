"""`python -m coterie.reproduction NAME…`: the training runs alone, where only numpy and torch are installed."""

import argparse
import sys
from pathlib import Path

from coterie.errors import CoterieError, UsageError
from coterie.reproduction.definition import known_experiments
from coterie.reproduction.execution import ResultFile, run_missing


def main() -> int:
    """Run what is missing of the named experiments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--data", default="data", help="the folder with the data sets")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"), help="where the records go")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--processes", type=int, default=None, help="runs side by side")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rounds")
    asked = parser.parse_args()
    known = known_experiments()
    try:
        for name in asked.names:
            if name not in known:
                raise UsageError(f"there is no experiment {name!r}; known are {', '.join(known)}")
            experiment = known[name].made_quick() if asked.quick else known[name]
            run_missing(
                experiment,
                ResultFile(asked.out / f"{name}.jsonl"),
                folder=asked.data,
                device=asked.device,
                processes=asked.processes,
                report=lambda run, done, runs, name=name: print(f"{name}: {run} ({done} of {runs})", flush=True),  # type: ignore[misc]  # noqa: T201
            )
    except CoterieError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
