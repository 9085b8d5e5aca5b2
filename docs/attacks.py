"""Write docs/attacks.md and draw its pictures from the record of `coterie attack --demo`.

The words are in attacks.md.jinja; every number in them comes from here. With `--again` the demonstration is run
first, which takes some minutes, and its record put beside the pictures.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jinja2

from coterie.lab.attacks.score import FOUND
from coterie.pages.attack import scheme_words
from coterie.pages.deviation import DeviationTable
from coterie.pages.figures import deviation, reconstruction_grid, reconstruction_histogram

DOCS = Path(__file__).parent
PAGE = DOCS / "attacks.md"
PICTURES = DOCS / "pictures"
RECORD = PICTURES / "attack.json"


def markdown_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rounded_up(value: float) -> float:
    """Return the least number of one digit that is not smaller: for sentences that say "at most"."""
    power = 10.0 ** math.floor(math.log10(value))
    return math.ceil(value / power) * power


def scheme_facts(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page says of servers that look at many rounds."""
    rows = [
        (
            scheme_words(each["scheme"], each["privacy"]),
            f"{each['users_found']} of {each['users']}",
            str(each["found_by_chance"]),
            f"{each['error']['median']:.2g}",
            f"{each['error']['least']:.2g}",
            f"{each['psnr']:.1f}",
        )
        for each in record["schemes"]
    ]
    columns = ("who takes part", "users found", "by chance", "median error", "least error", "images, PSNR in dB")
    first = record["schemes"][0]
    exposed = [
        f"{each['users_found']} of {each['users']} users are found with T = {each['privacy']}"
        for each in record["schemes"]
        if each["privacy"] and each["users_found"]
    ]
    return {
        "found": f"{FOUND:g}",
        "schemes_table": markdown_table(columns, rows),
        "federation": first["users"],
        "window": first["window"]["rounds"],
        "found_in_batches": " and ".join(exposed),
    }


def deviation_facts(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page says of the server that cheats."""
    table = DeviationTable(record)
    by_outcome: dict[str, list[dict[str, Any]]] = {}
    for attempt in record["attempts"]:
        by_outcome.setdefault(attempt["outcome"], []).append(attempt)
    noise = [abs(attempt["correlation"]) for attempt in by_outcome["noise"]]
    return {
        "users": record["users"],
        "privacy": record["privacy"],
        "deviation_table": markdown_table(("a server that", *table.columns), list(table.rows())),
        "worst_recovered": f"{rounded_up(max(attempt['error'] for attempt in by_outcome['recovered'])):.0e}",
        "largest_correlation": f"{rounded_up(max(noise)):g}",
        "refusals": "\n".join(f"- *{attack}*: “{reason}”" for attack, reason in table.refusals().items()),
    }


def make_again() -> None:
    """Run the demonstration, and put its record beside the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "coterie", "attack", "--demo", "--out", folder], check=True)
        record = json.loads((Path(folder) / "attack.json").read_text())
    del record["out"]
    RECORD.write_text(json.dumps(record) + "\n")


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    template = jinja2.Template(
        (DOCS / "attacks.md.jinja").read_text(), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return template.render(scheme_facts(record) | deviation_facts(record["deviation"]))


def main() -> None:
    """Write the page and its pictures."""
    if "--again" in sys.argv[1:]:
        make_again()
    record = json.loads(RECORD.read_text())
    reconstruction_histogram(record, PICTURES / "attack-errors.svg")
    reconstruction_grid(record, PICTURES / "attack-images.png")
    deviation(record["deviation"], PICTURES / "attack-deviation.png")
    PAGE.write_text(page(record))
    print("wrote docs/attacks.md and its pictures")


if __name__ == "__main__":
    main()
