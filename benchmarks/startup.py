"""`coterie --help` against an interpreter that does nothing."""

import subprocess
import sys

from measure import seconds


def run() -> dict[str, object]:
    """Time both in processes of their own."""
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True), repeats=10)
    command = [sys.executable, "-m", "coterie", "--help"]
    helping = seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), repeats=10)
    return {
        "what": "coterie --help",
        **helping,
        "bar_s": 0.5,
        "times_bare_python": helping["median_s"] / bare["median_s"],
    }
