"""Following the tutorial: its scripts written down and its commands typed, one after the other in one folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN_DATA = "\n## 5. Bring your own data\n"
"""Begins the part of the tutorial that uses nothing of what stands before it: two tests follow the halves."""
PROGRAMS = {"coterie": [sys.executable, "-m", "coterie"], "python": [sys.executable]}


def halves():
    """Return the tutorial until its readers bring their own data, and from there on."""
    before, heading, after = (ROOT / "docs" / "tutorial.md").read_text().partition(OWN_DATA)
    assert heading
    return before, after


def follow(text, folder):
    """Type a text's commands in a folder beside its scripts and the examples; all succeed; return how many."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for name, script in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL):
        (folder / name).write_text(script)
    blocks = re.findall(r"```shell\n(.*?)```", text, flags=re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    for program, *arguments in commands:
        run = subprocess.run(
            [*PROGRAMS[program], *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=folder,
        )
        assert run.returncode == 0, (arguments, run.stderr)
    return len(commands)
