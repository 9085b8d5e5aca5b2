"""The README's table of numbers, made from benchmarks/results; `make bench` puts it there."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def result(name: str) -> dict[str, Any]:
    """Return what a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table() -> str:
    """Return the table in Markdown."""
    choose, direct, strong, startup = map(result, ("choose", "algorithms", "strong", "startup"))
    simulate, seal = result("simulate"), result("seal")
    sizes = ("12 users", "24 users")
    worst = max((choose[key] for key in choose if key.startswith("dropout")), key=lambda run: run["median_s"])
    slowest = max((value for value in strong.values() if isinstance(value, dict) and "level" in value),
                  key=lambda run: run["seconds"])  # fmt: skip
    rows = [
        (
            "choose a cohort of 10 000 among 10 million users, T = 10",
            f"{worst['median_s'] * 1000:.0f} ms, {choose['plan_bytes_per_user']:.1f} bytes per user",
            "100 ms",
        ),
        (
            "a round at N = 120, K = 12, T = 3, against Algorithms 1 and 2 as printed",
            f"{round(direct['times_faster_per_round'], -2):.0f} times faster",
            "",
        ),
        (
            "strong privacy level of 1 million users, 10 000 rounds of 1 000",
            f"{slowest['seconds']:.1f} s, {max(1, slowest['extra_peak_MB']):.0f} MB",
            "10 s",
        ),
        (
            "the paper's simulation: 6 schemes × 200 trials × 200 rounds",
            f"{simulate['seconds']:.0f} s",
            "60 s",
        ),
        *(_seal_row(users, seal[users]) for users in sizes),
        (
            "the same client, against AES-CTR of its masks and one pass of quantisation",
            f"{max(seal[users]['client_over_aes_and_quantisation'] for users in sizes):.1f} times",
            "2 times",
        ),
        ("`coterie --help`", f"{startup['median_s']:.2f} s", "0.5 s"),
    ]
    lines = ["| job | measured | bar |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    machine = choose["machine"]
    lines += ["", f"On {machine['cores']} cores of {machine['processor']}; `make bench` measures again."]
    return "\n".join(lines) + "\n"


def _seal_row(users: str, run: dict[str, Any]) -> tuple[str, str, str]:
    measured = f"{run['client_times_faster']:.0f} times faster ({run['client_s'] * 1000:.0f} ms)"
    return (
        f"seal 1 663 370 values, {users}, T = 6: a client against Flower's SecAgg+",
        f"{measured}, {run['upload_bytes_per_parameter']:.0f} bytes a value",
        f"{run['client_bar']} times",
    )


def write() -> None:
    """Put the table into the README."""
    readme = ROOT / "README.md"
    readme.write_text(BLOCK.sub(lambda found: found[1] + table() + found[2], readme.read_text()))
