"""The tables of numbers in README and docs, made from benchmarks/results; `make bench` puts them there."""

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


SHORT = (
    "choose a cohort",
    "the paper's simulation",
    "strong privacy level",
    "isolated users",
    "sealed open, 1 663",
    "sealed secagg+, 1 663",
    "sealed secagg+, 12 and",
    "a ledger of",
    "a round of 12 clients, the paper's CNN",
)
"""How the jobs begin that the README shows."""


def table() -> str:
    """Return the table of all jobs in Markdown."""
    return _table((*_selection(), *_audit(), *_secagg(), *_scaling(), *_ledger(), *_dashboard(), *_training()))


def short_table() -> str:
    """Return the README's table: the jobs that matter most."""
    rows = (*_selection(), *_audit(), *_secagg(), *_scaling(), *_ledger(), *_dashboard(), *_training())
    return _table(tuple(row for row in rows if row[0].startswith(SHORT)))


def _table(rows: tuple[Row, ...]) -> str:
    lines = ["| job | measured | bar |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    machine, gpu = result("choose")["machine"], result("train")["gpu"]
    origin = f"On {machine['cores']} cores of {machine['processor']}; `make bench` measures again. "
    origin += f"Training: on one {gpu}, with `python benchmarks/run.py train`."
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
        yield job, measured, _bar(small["client_bar"], missed=small["client_times_faster"] < small["client_bar"])
        faster = [run["server_times_faster"] for run in runs]
        yield (
            f"{kind}, 12 and 24 users, 0 and 2 lost: the server against Flower's",
            f"{min(faster):.1f} to {max(faster):.1f} times faster",
            _bar(small["server_bar"], missed=min(faster) < small["server_bar"]),
        )
        over = [run["client_over_aes_and_quantisation"] for run in runs]
        yield (
            f"{kind}: a client against AES-CTR of its masks and one pass of quantisation",
            f"{min(over):.2f} to {max(over):.2f} times",
            _bar(small["limit_bar"], missed=max(over) > small["limit_bar"]),
        )


def _bar(times: float, *, missed: bool) -> str:
    return f"{times} times{', missed' if missed else ''}"


def _scaling() -> Iterator[Row]:
    light, pairs = (result("scaling")[f"{inner}, 100 users, 30% lost"] for inner in ("lightsecagg", "secagg"))
    share = light["server_s"] / pairs["server_s"]
    job = "sealed lightsecagg, 100 users, 30 lost, 100 000 values: the server's time, of that of secagg's"
    yield job, f"{share:.2f} ({light['server_s'] * 1000:.0f} ms)", f"a third{', missed' if share > 1 / 3 else ''}"


def _ledger() -> Iterator[Row]:
    run = result("ledger")["batches"]
    measured = f"{run['size_MB']:.0f} MB; its log in {run['open_s'] + run['log_s']:.0f} s; an append "
    measured += f"{run['append_over_plain']:.1f} times a plain durable one"
    job = "a ledger of 1 million users in batches and 10 000 rounds of 1 000"
    yield job, measured, f"{run['size_bar_MB']} MB"


def _dashboard() -> Iterator[Row]:
    run = result("dashboard")
    look, page, idle = run["look_after_a_round_s"], run["page"], run["look_where_nothing_happened"]
    job = "a dashboard over a ledger of 1 million users and 2 000 rounds: a look after a round; its page"
    measured = (
        f"{look:.1f} s ({1000 * idle['median_s']:.0f} ms where nothing happened); {1000 * page['median_s']:.0f} ms"
    )
    yield job, f"{measured}, {page['bytes'] / 1e6:.1f} MB", f"{run['bar_s']:g} s"


def _training() -> Iterator[Row]:
    train = result("train")
    for name, words in MODELS.items():
        run = train[name]
        stacked = f"{run['stacked']['times_faster']:.0f} times faster ({run['stacked']['median_s'] * 1000:.0f} ms)"
        yield f"a round of 12 clients, {words}, against one client after another", stacked, f"{run['bar']} times"
    after = result("train_after")
    for name, words in MODELS.items():
        before, since = (_share(run[name]["stacked_compiled_bfloat16"]) for run in (train, after))
        compiled = _share(train[name]["stacked_compiled"])
        measured = f"{compiled}; in bfloat16 {before}, and {since} after the work on kernels"
        yield f"the same, {words}, compiled: the share of TF32's peak by data sheet", measured, ""


def _share(run: dict[str, Any]) -> str:
    return f"{100 * run['share_of_TF32_peak']:.2g} %"


def training_table() -> str:
    """Return how long a round takes in every way to train it, and its share of the peak, in Markdown."""
    ways = {"one_by_one": "one by one", "stacked": "stacked", "stacked_compiled": "compiled"}
    ways["stacked_compiled_bfloat16"] = "compiled, bfloat16"
    before, after = result("train"), result("train_after")
    since = {"stacked": "stacked, since", "stacked_compiled_bfloat16": "compiled, bfloat16, since"}
    heads = [*ways.values(), *since.values(), "several runs at a time, since"]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for name, words in MODELS.items():
        together = after[name]["runs_side_by_side"]
        runs = [*(before[name][way] for way in ways), *(after[name][way] for way in since), together]
        cells = [f"{run['median_s'] * 1000:.1f} ms ({_share(run)})" for run in runs]
        lines.append(f"| {words} | {' | '.join(cells)}, {together['runs']} runs |")
    return "\n".join(lines) + "\n"


def scaling_table() -> str:
    """Return what sealed rounds cost by protocol, users and losses, in Markdown."""
    lines = [
        "| protocol | users | T | values | lost | a client | the server | up | down | messages to a user |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for job, run in result("scaling").items():
        if not isinstance(run, dict) or "lost" not in run:
            continue
        size = f"{job.partition(',')[0]} | {run['users']} | {run['privacy']} | {run['dimension']} | {run['lost']}"
        up, down = (f"{run[f'client_bytes_{way}'] / 1000:.0f} kB" for way in ("up", "down"))
        times = f"{run['client_s'] * 1000:.1f} ms | {run['server_s']:.3f} s"
        lines.append(f"| {size} | {times} | {up} | {down} | {run['messages']} |")
    return "\n".join(lines) + "\n"


def flower_table() -> str:
    """Return what rounds cost in a Flower deployment, and among many virtual nodes, in Markdown."""
    record = result("flower_rounds")
    lines = [
        "| way to add up | messages a round | bytes a round | seconds a round | until the first round has ended |",
        "| --- | --- | --- | --- | --- |",
    ]
    for way, run in record.items():
        if not isinstance(run, dict) or "bytes_per_round" not in run:
            continue
        messages, seconds = run["messages_until_first_round_ended"], run["seconds_until_first_round_ended"]
        size = f"{run['bytes_per_round'] / 1e6:.1f} MB, {run['bytes_over_plain']:.1f} times plain"
        cost = f"{run['messages_per_round']:.0f} | {size} | {run['seconds_per_round']:.0f}"
        lines.append(f"| {way} | {cost} | {messages} messages, {seconds:.0f} s |")
    load = sorted((record["load_average_before"], record["load_average_after"]))
    origin = f"{record['what']}; messages count both ways. On {record['machine']['cores']} cores at a load of "
    origin += f"{load[0]:.0f} to {load[1]:.0f}: seconds can be compared with one another, and with nothing else."
    return "\n".join([*lines, "", origin, "", _virtual_nodes()]) + "\n"


def _virtual_nodes() -> str:
    many = result("flower_simulation")
    load = sorted((many["load_average_before"], many["load_average_after"]))
    text = f"In simulation, {many['what']}: {many['messages_per_round']:.0f} messages and "
    text += f"{many['seconds_per_round']:.0f} s a round on {many['machine']['cores']} cores at a load of "
    text += f"{load[0]:.0f} to {load[1]:.0f}; {many['rounds_with_a_sum']} rounds gave a sum, and the audit of the "
    return f"{text}ledger gives T = {many['strong_level']}."


def tables() -> dict[str, str]:
    """Return each document that has a table, and the table."""
    return {
        "README.md": short_table(),
        "docs/benchmarks.md": table(),
        "docs/protocol.md": scaling_table(),
        "docs/training-local.md": training_table(),
        "docs/flower.md": flower_table(),
    }


def write() -> None:
    """Put the tables into the README and the documents."""
    for name, content in tables().items():
        text = (ROOT / name).read_text()
        (ROOT / name).write_text(BLOCK.sub(lambda found, new=content: found[1] + new + found[2], text))
