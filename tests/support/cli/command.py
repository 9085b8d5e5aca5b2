"""Running the command line in a process of its own, as its user would."""

import os
import subprocess
import sys


def coterie(*arguments, **options):
    """Run `coterie` with the arguments and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "coterie", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
        **options,
    )
