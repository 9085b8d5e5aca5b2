"""The README's table of numbers, made from benchmarks/results; `make bench` puts it there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MODELS = {"lenet": "LeNet", "mnist-cnn": "the paper's CNN", "vgg-11": "VGG-11"}
BLOCK = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- end -->)", flags=re.DOTALL)

Row = tuple[str, str, str]
"""What was done, what was measured, the bar."""


def result(name: str) -> dict[str, Any]:
    """Return what a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table() -> str:
    """Return the table in Markdown."""
    rows = (*_selection(), *_audit(), *_secagg(), *_ledger(), *_training())
    lines = ["| job | measured | bar |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    machine, gpu = result("choose")["machine"], result("train")["gpu"]
    origin = f"On {machine['cores']} cores of {machine['processor']}; `make bench` measures again. "
    origin += f"Training: on one {gpu}, with `python benchmarks/train.py`."
    return "\n".join([*lines, "", origin]) + "\n"


def _selection() -> Iterator[Row]:
    choose, direct, simulate = result("choose"), result("algorithms"), result("simulate")
    worst = max((choose[key] for key in choose if key.startswith("dropout")), key=lambda run: run["median_s"])
    chosen = f"{worst['median_s'] * 1000:.0f} ms, {choose['plan_bytes_per_user']:.1f} bytes per user"
    yield "choose a cohort of 10 000 among 10 million users, T = 10", chosen, "100 ms"
    faster = f"{round(direct['times_faster_per_round'], -2):.0f} times faster"
    yield "a round at N = 120, K = 12, T = 3, against Algorithms 1 and 2 as printed", faster, ""
    paper = "the paper's simulation: 6 schemes × 200 trials × 200 rounds"
    yield paper, f"{simulate['seconds']:.0f} s", "60 s"
    yield "`coterie --help`", f"{result('startup')['median_s']:.2f} s", "0.5 s"


def _audit() -> Iterator[Row]:
    strong, audit = result("strong"), result("audit")
    runs = [value for value in strong.values() if isinstance(value, dict) and "level" in value]
    slowest = max(runs, key=lambda run: run["seconds"])
    levels = f"{slowest['seconds']:.1f} s, {max(1, slowest['extra_peak_MB']):.0f} MB"
    yield "strong privacy level of 1 million users, 10 000 rounds of 1 000", levels, "10 s"
    read = audit["strong level from Parquet"]
    yield "the same, read from a Parquet file", f"{read['seconds']:.1f} s, {read['peak_MB']:.0f} MB", "10 s, 2 GB"
    found = audit["isolated"]
    proven = f"{found['seconds']:.1f} s; with 20 combinations {found['seconds_with_combinations']:.0f} s"
    yield "isolated users among 1 000 over 1 500 rounds, proven", proven, "20 s"


def _secagg() -> Iterator[Row]:
    sizes = {size: run for size, run in result("beside_flower").items() if "dropped" in size}
    for kind in ("sealed open", "sealed secagg+", "unsealed secagg+", "unsealed secagg"):
        runs = [run[kind] for run in sizes.values() if kind in run]
        small = sizes["12 users, 0 dropped"][kind]
        measured = f"{small['client_times_faster']:.1f} times faster ({small['client_s'] * 1000:.1f} ms), "
        measured += f"{small['upload_bytes_per_parameter']:.1f} bytes a value"
        job = f"{kind}, 1 663 370 values, 12 users, T = 6: a client against Flower's SecAgg+"
        yield job, measured, f"{small['client_bar']} times"
        faster = [run["server_times_faster"] for run in runs]
        yield (
            f"{kind}, 12 and 24 users, 0 and 2 lost: the server against Flower's",
            f"{min(faster):.0f} to {max(faster):.0f} times faster",
            f"{small['server_bar']} times",
        )
        over = [run["client_over_aes_and_quantisation"] for run in runs]
        yield (
            f"{kind}: a client against AES-CTR of its masks and one pass of quantisation",
            f"{min(over):.2f} to {max(over):.2f} times",
            f"{small['limit_bar']} times",
        )


def _ledger() -> Iterator[Row]:
    run = result("ledger")["batches"]
    measured = f"{run['size_MB']:.0f} MB; its log in {run['open_s'] + run['log_s']:.0f} s; an append "
    measured += f"{run['append_over_plain']:.1f} times a plain durable one"
    job = "a ledger of 1 million users in batches and 10 000 rounds of 1 000"
    yield job, measured, f"{run['size_bar_MB']} MB"


def _training() -> Iterator[Row]:
    train = result("train")
    for name, words in MODELS.items():
        run = train[name]
        stacked = f"{run['stacked']['times_faster']:.0f} times faster ({run['stacked']['median_s'] * 1000:.0f} ms)"
        yield f"a round of 12 clients, {words}, against one client after another", stacked, f"{run['bar']} times"


def scaling_table() -> str:
    """Return what sealed rounds cost by protocol, users and losses, in Markdown."""
    lines = [
        "| round | a client | the server | up | down | messages to a user |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for job, run in result("scaling").items():
        if not isinstance(run, dict) or "lost" not in run:
            continue
        if "no_sum" in run:
            lines.append(f"| {job} | no sum: {run['no_sum']} | | | | |")
            continue
        up, down = (f"{run[f'client_bytes_{way}'] / 1000:.0f} kB" for way in ("up", "down"))
        times = f"{run['client_s'] * 1000:.1f} ms | {run['server_s']:.3f} s"
        lines.append(f"| {job} | {times} | {up} | {down} | {run['messages']} |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """Put the tables into the README and the protocol's document."""
    for document, content in ((ROOT / "README.md", table()), (ROOT / "docs" / "protocol.md", scaling_table())):
        text = document.read_text()
        document.write_text(BLOCK.sub(lambda found, new=content: found[1] + new + found[2], text))
