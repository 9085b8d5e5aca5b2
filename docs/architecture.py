"""Draw the layers from the import contract and the way of one round, and write its table and the packages' pages.

A package's page says what the code says: its docstring, the first line of each of its files, the packages it
imports. `files` and `errors` are single modules, and are drawn and described like packages.

python docs/architecture.py
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diagrams import DARK, INK, PAPER, PICTURES, SOFT

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "coterie"
CONTRACTS = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [[name.strip() for name in layer.split("|")] for layer in CONTRACTS[0]["layers"] if layer != "__main__"]
PACKAGES = [name for layer in LAYERS for name in layer]
PURE = {module.removeprefix("coterie.") for module in CONTRACTS[1]["source_modules"]}
"""Whole packages, such as `values`, and single modules of others, such as `leakage.measures`."""
WIDTH, ROW, BOX = 760, 58, 36
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" '
    'font-family="sans-serif" font-size="13" fill="{}">'
)
TIP = f'<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 8 4 0 8z" fill="{SOFT}"/></marker>'


def layers() -> str:
    """Return the layers as SVG, from the top down.

    A package has a thick line if the second contract keeps all of it pure. The note below the layers names the
    files that are not pure in packages of which the contract lists single modules.
    """
    notes = ["thick lines: pure, without clock, file, database or global randomness", *impure_notes()]
    parts = [HEAD.format(WIDTH, ROW * len(LAYERS) + 8 + 16 * len(notes), INK), DARK, TIP]
    for number, packages in enumerate(LAYERS):
        y, gap = 8 + ROW * number, 10
        width = min(150, (WIDTH - 20 - gap * (len(packages) - 1)) / len(packages))
        left = (WIDTH - len(packages) * width - (len(packages) - 1) * gap) / 2
        for place, package in enumerate(packages):
            x, line = left + place * (width + gap), 2.5 if package in PURE else 1
            parts.append(
                f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{BOX}" rx="7" fill="{PAPER}" stroke="{INK}" '
                f'stroke-width="{line}"/>'
            )
            parts.append(f'<text x="{x + width / 2:g}" y="{y + 23}" text-anchor="middle">{package}</text>')
        if number + 1 < len(LAYERS):
            parts.append(
                f'<path d="M{WIDTH / 2:g} {y + BOX}v{ROW - BOX - 2}" stroke="{SOFT}" marker-end="url(#tip)"/>'
            )
    parts += [
        f'<text x="10" y="{ROW * len(LAYERS) + 14 + 16 * line}" font-size="12" fill="{SOFT}">{note}</text>'
        for line, note in enumerate(notes)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def impure_notes() -> Iterator[str]:
    """Yield, for each package that is pure in part, a line with what is not pure in it."""
    for package in PACKAGES:
        if not any(module.startswith(f"{package}.") for module in PURE):
            continue
        modules = {path.relative_to(PACKAGE / package).parts[0].removesuffix(".py") for path in files(package)}
        others = sorted(name for name in modules - {"__init__"} if f"{package}.{name}" not in PURE)
        yield f"{package}: pure except for {', '.join(others)}"


@dataclass(frozen=True)
class Step:
    """One step of a round: from one lane to another, or within one."""

    start: int
    end: int
    words: str


LANES = {"ledger": 120, "server": 380, "users' devices": 640}
ROUND = (
    Step(1, 1, "take up the next step: who is there, which model"),
    Step(1, 1, "choose whole batches"),
    Step(1, 0, "the round is opened: its cohort"),
    Step(1, 2, "a call: round, model, dimension"),
    Step(2, 2, "check the terms, train, quantise; seal, move the chain on"),
    Step(2, 1, "this round's keys; secrets, in shares"),
    Step(2, 1, "vectors, masked for all who shared"),
    Step(1, 1, "add up whole batches; an incomplete one stays noise"),
    Step(2, 1, "one list of users, signed; then shares"),
    Step(1, 1, "take the masks off the sum"),
    Step(1, 1, "set the mean aside on the disk"),
    Step(1, 0, "the round is closed: what was learned"),
    Step(1, 1, "the model moves on; a row with accuracy, T, F and C"),
)
"""The order that privacy rests on: nobody is asked before the cohort is on record, no sum is used before it is."""
STEP = 70

READING = {
    "lab/experiments/spec.py": "what a run is asked for",
    "lab/experiments/setup.py": "strings become objects, a plan, a model, data; who is there, and who drops out",
    "lab/experiments/run.py": "`Run._step` and `_finish`: a step from its beginning to its end",
    "values/plan.py": "batches of users; users of none have -1",
    "federation/coordinator.py": "`run_round`: the order that privacy rests on, from the choice to the commit",
    "selection/selectors.py": "whole batches are chosen",
    "federation/ledger/events.py": "what can happen, as records; of what was asked they name places",
    "federation/ledger/history.py": "what is on record of a round; the rules that refuse a round, or a wrong end",
    "federation/ledger/store.py": "the chain of records, who may add to it, and the SQLite file that holds it",
    "federation/ledger/ledger.py": "a round is opened before anybody is asked, and closed before its sum is used",
    "secagg/crypto/quantiser.py": "how updates become words of the ring, and sums updates",
    "secagg/batch/charter.py": "what a batch has agreed on for good",
    "secagg/wire/messages.py": "the terms of a round, its messages, and who may send which when",
    "secagg/crypto/masking.py": "masks that cancel over a whole batch",
    "secagg/protocols/interface.py": "what a protocol is: the values and the two sides of its rounds",
    "secagg/protocols/__init__.py": "the registry; `secagg+` is `SecAggPlus` of `pairwise.py`",
    "secagg/server.py": "the call that goes out to the members of the batches",
    "federation/aggregation.py": "`drive`: phase after phase, and what counts as learned",
    "secagg/loopback.py": "messages to devices in this process, and back",
    "lab/experiments/users.py": "these devices: what they are shown, how they train, when they drop out",
    "secagg/batch/rules.py": "what a device refuses; of a round, `check_rules` and `check_terms`",
    "secagg/batch/membership.py": "the chain of keys moves on before anything leaves; the rest forms batches",
    "federation/device_file.py": "where it is kept: one durable transaction",
    "secagg/client.py": "a device from the call to its sealed vector, which waits there for its phase",
    "lab/training/trainer.py": "local training, every client on one core",
    "secagg/protocols/agreement/messages.py": "the phases of the protocol, as messages",
    "secagg/protocols/agreement/roster.py": "who is in the round, and who holds whose shares",
    "secagg/protocols/agreement/boxes.py": "shares in boxes, and complaints about them",
    "secagg/protocols/agreement/client.py": "a device's part in the phases: keys, shares, vector, list, opening",
    "secagg/protocols/agreement/server.py": "the server's part in the same phases, and who is included",
    "secagg/crypto/shamir.py": "secrets in shares, and back",
    "secagg/protocols/pairwise.py": "what the last files left to the protocol: its masks, its secrets, its sum",
    "lab/experiments/folder.py": "the mean is set aside before the commit, a checkpoint and a row come after it",
    "leakage/measures.py": "T, F and C after the round",
    "lab/experiments/result.py": "after the last round: what the folder says of it, and the audit's verdict",
    "pages/run.py": "the page that shows them",
}
"""The files of a round with the protocol secagg+, the default, in an order in which each is read once."""

AT_HAND = {
    "selection/availability.py": "draws who is there",
    "secagg/wire/framing.py": "a message as bytes",
    "secagg/protocols/agreement/__init__.py": "makes both sides of a round",
    "secagg/crypto/encoding.py": "fields as bytes, for digests and signatures",
    "secagg/crypto/keys.py": "keys, signatures, seeds",
    "secagg/crypto/ring.py": "sums of words",
    "lab/experiments/plain.py": "notes on how training went",
    "lab/training/settings.py": "rates and minibatches",
    "lab/training/models.py": "a model's parameters as one vector, masks of dropout",
    "lab/training/data.py": "who holds which examples",
    "files.py": "arrays with their digest, files that are written whole or not at all, durable SQLite",
    "values/checks.py": "checks of arguments and of learned sets",
}
"""What a round enters beside them: their names and docstrings say enough."""


def round_() -> str:
    """Return the way of one round as SVG: three lanes, and the steps from the top down."""
    height = 50 + STEP * len(ROUND)
    parts = [HEAD.format(WIDTH, height, INK), DARK, TIP]
    for name, x in LANES.items():
        parts.append(f'<path d="M{x} 40V{height - 8}" stroke="{SOFT}" stroke-dasharray="3 4"/>')
        parts.append(
            f'<rect x="{x - 75}" y="8" width="150" height="32" rx="7" fill="{PAPER}" stroke="{INK}"/>'
            f'<text x="{x}" y="29" text-anchor="middle">{name}</text>'
        )
    places = list(LANES.values())
    for number, step in enumerate(ROUND):
        y, start, end = 80 + STEP * number, places[step.start], places[step.end]
        lines = textwrap.wrap(step.words, 34) if start == end else [step.words]
        middle = (start + end) / 2
        if start == end:
            top, tall = y - 8 - 7 * len(lines), 16 * len(lines) + 10
            parts.append(
                f'<rect x="{start - 115}" y="{top}" width="230" height="{tall}" rx="7" '
                f'fill="{PAPER}" stroke="{SOFT}"/>'
            )
            first = top + 16
        else:
            way = 2 if end < start else -2
            parts.append(f'<path d="M{start} {y}H{end + way}" stroke="{INK}" marker-end="url(#tip)"/>')
            first = y - 7
        parts += [
            f'<text x="{middle:g}" y="{first + 16 * line}" text-anchor="middle">{words}</text>'
            for line, words in enumerate(lines)
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def page() -> str:
    """Return the page on architecture with its table of the files that a round goes through."""
    rows = [f"| `{file}` | {words} |" for file, words in READING.items()]
    table = "\n".join(
        ["<!-- round -->", "", "| file | what happens there |", "| --- | --- |", *rows, "", "<!-- end -->"]
    )
    beside = ", ".join(f"`{file}` ({words})" for file, words in AT_HAND.items())
    table = table.replace(
        "<!-- end -->",
        "\n".join([*textwrap.wrap(f"Beside them a round enters {beside}.", 140), "", "<!-- end -->"]),
    )
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- round -->.*?<!-- end -->", table, text, count=1, flags=re.DOTALL)


def source(package: str) -> Path:
    """Return the file that holds a package's docstring."""
    folder = PACKAGE / package
    return folder / "__init__.py" if folder.is_dir() else PACKAGE / f"{package}.py"


def docstring(path: Path) -> str:
    """Return a file's docstring."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def files(package: str) -> list[Path]:
    """Return the Python files of a package, or the one file of a module."""
    folder = PACKAGE / package
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [source(package)]


def imports(package: str) -> list[str]:
    """Return the packages that a package imports, from the top down."""
    text = "".join(path.read_text(encoding="utf-8") for path in files(package))
    named = set(re.findall(r"^\s*(?:from|import) coterie\.(\w+)", text, flags=re.MULTILINE)) - {package}
    return [name for name in PACKAGES if name in named]


def content(package: str) -> str:
    """Return what a package's page says: its docstring, what goes in and out, its files, and its neighbours."""
    lines = []
    for paragraph in docstring(source(package)).split("\n\n"):
        marked = re.sub(r"^(In|Out):", r"- **\1:**", paragraph, flags=re.MULTILINE)
        lines += [marked, ""]
    below = ", ".join(f"[`{name}`]({name}.md)" for name in imports(package))
    above = ", ".join(
        f"[`{name}`]({name}.md)" for name in PACKAGES if package in imports(name) and name != package
    )
    lines += [f"Imports {below or 'no other package'}. Imported by {above or 'no other package'}.", ""]
    rows = [
        f"| `{path.relative_to(PACKAGE)}` | {first} |"
        for path in files(package)
        if path != source(package) and (first := docstring(path).partition("\n")[0])
    ]
    if rows:
        lines += ["| file | what it holds |", "| --- | --- |", *rows, ""]
    reference = DOCS / "api" / f"{package}.md"
    if reference.exists():
        lines += [f"Its classes and functions: [](../api/{package}.md).", ""]
    return "\n".join(lines)


def index() -> str:
    """Return the page of all packages."""
    lines = [
        "# The packages",
        "",
        "A page for each package, from the top layer down: what goes in, what comes out, which files it has.",
        "`files` and `errors` are single modules.",
        "",
        "| package | what it is for |",
        "| --- | --- |",
    ]
    for package in PACKAGES:
        first = " ".join(docstring(source(package)).split("\n\n")[0].split())
        lines.append(f"| [`{package}`]({package}.md) | {first} |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *PACKAGES, "```", ""])


def written() -> Iterator[tuple[Path, str]]:
    """Yield all that this script writes: the file, and what is in it."""
    yield PICTURES / "layers.svg", layers()
    yield PICTURES / "round.svg", round_()
    yield DOCS / "architecture.md", page()
    yield DOCS / "rooms" / "index.md", index()
    for package in PACKAGES:
        yield DOCS / "rooms" / f"{package}.md", f"# `{package}`\n\n{content(package)}"


def main() -> None:
    """Write everything."""
    (DOCS / "rooms").mkdir(exist_ok=True)
    for path, content in written():
        path.write_text(content, encoding="utf-8", newline="\n")
    print(
        "wrote docs/pictures/layers.svg, docs/pictures/round.svg, the table in docs/architecture.md and docs/rooms"
    )


if __name__ == "__main__":
    main()
