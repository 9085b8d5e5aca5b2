"""Following the tutorial: its scripts written down and its commands typed, one after the other in one folder."""

import re
from pathlib import Path

from support.cli.command import typed

ROOT = Path(__file__).parents[2]
OWN_DATA = "\n## 5. Bring your own data\n"
"""Begins the part of the tutorial that uses nothing of what stands before it: two tests follow the halves."""


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
    lines = [line for block in blocks for line in block.splitlines()]
    for line in lines:
        run = typed(line, folder)
        assert run.returncode == 0, (line, run.stderr)
    return len(lines)
