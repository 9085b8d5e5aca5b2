"""Installs the wheel into fresh environments and uses it there: the newest and the lowest versions that it allows.

`python .ci/install_check.py` tries the base wheel and all extras, each with both; `--quick` only the base wheel
with the newest, in under a minute. Nothing is left behind. PyTorch is the version of constraints.txt throughout.
The lowest versions are tried without Flower, which pins newer ones of what we share with it.
"""

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (
    ["--version"],
    ["plan", "--users", "120", "--per-round", "12", "--dropout", "0.1,0.3"],
    ["audit", str(ROOT / "examples" / "participation.csv")],
    ["simulate", "--users", "24", "--per-round", "6", "--dropout", "0.2", "--rounds", "20", "--trials", "2"],
)
COMMANDS_ALL = (
    ["plan", "--users", "24", "--per-round", "6", "--dropout", "0.2", "--out", "plan.json", "--plot", "plan.svg"],
    ["audit", str(ROOT / "examples" / "participation.csv"), "--html", "audit.html"],
    ["simulate", "--users", "24", "--per-round", "6", "--dropout", "0.2", "--trials", "2", "--out", "measures"],
    ["reproduce", "family", "tradeoff", "--quick"],
    [
        "run",
        "--users",
        "20",
        "--per-round",
        "4",
        "--privacy",
        "2",
        "--rounds",
        "2",
        "--out",
        "run",
        "--tensorboard",
    ],
)
TESTS = (
    "values",
    "files",
    "selection",
    "leakage",
    "secagg/crypto",
    "federation/ledger/test_sqlite.py",
)
"""Tests that the lowest versions must pass as well; others need further tools of development."""


def main() -> None:
    """Build the wheel and try it in each environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the base wheel with the newest versions only")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions only")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT))
        wheel = next(Path(folder).glob("coterie-*.whl"))
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        without_flower = sorted(extras.keys() - {"all", "flower"})
        if not arguments.lowest:
            check(wheel, [], lowest=False)
        if not (arguments.lowest or arguments.quick):
            check(wheel, ["all"], lowest=False)
        if not arguments.quick:
            check(wheel, [], lowest=True)
            check(wheel, without_flower, lowest=True)
    print("The wheel installs and works.")


def check(wheel: Path, extras: list[str], *, lowest: bool) -> None:
    """Install the wheel into a new environment and run commands, and tests where the versions are the lowest."""
    package = f"coterie[{','.join(extras)}]" if extras else "coterie"
    print(f"{package} with the {'lowest' if lowest else 'newest'} versions ...", flush=True)
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        torch = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        pins = [torch[0]] if torch else []
        pins += floors(extras) if lowest else []
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(pins) + "\n")
        install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
        run(*install, f"{package} @ {wheel.as_uri()}")
        for command in (*COMMANDS, *(COMMANDS_ALL if extras else ())):
            run(python, "-m", "coterie", *command, folder=folder)
        if lowest and extras:
            run(*install, "pytest", "hypothesis", "playwright")
            # Old packages warn of new ones that they meet; such warnings are not ours.
            quiet = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings="]
            run(python, "-m", "pytest", *quiet, *(str(ROOT / "tests" / name) for name in TESTS))


def floors(extras: list[str]) -> list[str]:
    """Return the lowest versions that pyproject.toml allows, as pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + [p for name in extras for p in project["optional-dependencies"][name]]
    pins = [re.sub(r"\[.*\]", "", package).replace(">=", "==") for package in needed]
    return [pin for pin in pins if not pin.startswith("torch==")]


def run(*command: str, folder: str | None = None) -> None:
    """Run a command; where it fails, show what it said and end."""
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


if __name__ == "__main__":
    main()
