"""`python -m coterie.lab.paper NAME…`: the training runs alone, where only numpy and torch are installed."""

import argparse
import sys
from functools import partial
from pathlib import Path

from coterie.errors import CoterieError, UsageError
from coterie.files import make_folder_of
from coterie.lab.paper.definition import experiments_named
from coterie.lab.paper.outcome import ResultFile, record_path
from coterie.lab.paper.runs import Machine, run_missing


def _report(name: str, run: str, done: int, runs: int) -> None:
    sys.stdout.write(f"{name}: {run} ({done} of {runs})\n")
    sys.stdout.flush()


def main() -> int:
    """Run what is missing of the named experiments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--data", default="data", help="the folder with the data sets")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"), help="where the records go")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--processes", type=int, default=None, help="runs side by side")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rounds")
    arguments = parser.parse_args()
    machine = Machine(arguments.data, arguments.device, arguments.processes)
    try:
        for each in experiments_named(arguments.names):
            if not each.trains:
                raise UsageError(f"{each.name} trains nothing; run it with: coterie reproduce {each.name}")
            results = ResultFile(record_path(each, arguments.out))
            make_folder_of(results.path)
            wanted = each.quick_version() if arguments.quick else each
            run_missing(wanted, results, machine, partial(_report, each.name))
    except CoterieError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
