"""Run all benchmarks, or those named on the command line, and keep their results."""

import importlib
import json
import subprocess
import sys

import summary
from measure import machine

NAMES = (
    "startup", "choose", "algorithms", "strong", "simulate", "beside_flower", "pairwise_losses", "ledger", "audit",
    "dashboard", "scaling", "flower_rounds", "flower_simulation",
)  # fmt: skip
"""`train` and `kernels` are not among them: they need a GPU, and are run there by name."""


def main(names: list[str]) -> None:
    """Print each result and write it to results/NAME.json."""
    summary.RESULTS.mkdir(exist_ok=True)
    for name in names or NAMES:
        # A process of its own: peak memory counts one benchmark only.
        run = subprocess.run([sys.executable, __file__, "--one", name], check=True, capture_output=True, text=True)
        result = json.loads(run.stdout)
        (summary.RESULTS / f"{name}.json").write_text(
            json.dumps({"machine": machine(), **result}, indent=2) + "\n"
        )
        print(f"{name}: {result.pop('what')}")
        for key, value in result.items():
            print(f"  {key}: {_readable(value)}")
    summary.write()


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(entry)}" for key, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        json.dump(importlib.import_module(sys.argv[2]).run(), sys.stdout)
    else:
        main(sys.argv[1:])
