"""`coterie reproduce`, used as its user would: real training, real files, real interruptions."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.lab.paper.outcome import ResultFile
from support.cli.command import coterie
from support.paper.committed import INCOMPLETE, RESULTS
from support.paper.tiny import RUNS, TINY, write_tiny

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
ROW = {"label", "measure", "ours", "spread", "runs", "paper", "difference"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A folder with the committed records alone, and what `reproduce all` said there and drew from them."""
    out = tmp_path_factory.mktemp("everything")
    for path in RESULTS.glob("*.json*"):
        if not path.name.endswith(".figure.json"):
            (out / path.name).write_bytes(path.read_bytes())
    return out, coterie("reproduce", "all", "--out", out, "--json")


def test_all_of_the_committed_records_in_the_contract_s_form(everything):
    """With the committed records everything is there: nothing is run, and the JSON is what the contract says."""
    _, run = everything
    assert run.returncode == 0
    assert {line.partition(":")[0] for line in run.stderr.splitlines()} == INCOMPLETE
    told = json.loads(run.stdout)
    assert told["quick"] is False
    names = [each["name"] for each in told["experiments"]]
    assert names == EXPERIMENTS
    for each in told["experiments"]:
        assert all(row.keys() == ROW for row in each["rows"])
        assert all(claim.keys() == {"claim", "held", "evidence"} for claim in each["claims"])
        assert all(Path(file).is_file() for file in each["files"])
        assert each["rows"]
        if each["name"] not in INCOMPLETE:
            assert (each["missing"], each["obstacle"]) == (0, "")


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "family"])
def test_a_committed_figure_shows_the_committed_records(everything, name):
    """The data beside a figure are made again from the records, and its SVG has every line of them."""
    out, _ = everything
    again, committed = (json.loads((folder / f"{name}.figure.json").read_text()) for folder in (out, RESULTS))
    assert again == committed
    again, committed = ((folder / f"{name}.svg").read_text() for folder in (out, RESULTS))
    assert curves(again) == curves(committed)
    for folder in (out, RESULTS):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def curves(svg):
    """How many points each path of a picture has: letters and sizes differ with a font, these do not."""
    return [path.count("L ") + path.count("L\n") for path in svg.split("<path ")[1:]]


def test_an_experiment_of_ones_own_from_start_to_figure(tmp_path):
    """Trained, tabled, judged and drawn; every file is named; a second call trains nothing."""
    file = write_tiny(tmp_path)
    options = ("--device", "cpu", "--out", tmp_path / "out")
    run = coterie("reproduce", file, *options)
    assert run.returncode == 0, run.stderr
    assert "IID, random" in run.stdout
    assert "held: T = 2 is level with random selection." in run.stdout
    assert f"tiny: shards, T2, seed 1, {RUNS} of {RUNS}" in run.stderr
    assert " left" in run.stderr
    for name in ("tiny.figure.json", "tiny.png", "tiny.svg"):
        assert (tmp_path / "out" / name).is_file()
    shown = run.stdout.replace("\n", "")
    assert f"Wrote: {tmp_path / 'out' / 'tiny.svg'}" in shown
    again = coterie("reproduce", file, *options)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", run.stdout)


def test_quick_says_that_it_is_not_comparable_and_stays_apart(tmp_path):
    """Quick results have a folder of their own, and the output says what they are not."""
    run = coterie(
        "reproduce", write_tiny(tmp_path), "family", "--quick", "--out", tmp_path / "out", "--processes", 1
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("These numbers are not comparable with the paper's.") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"quick"}
    run = coterie("reproduce", "family", "--quick", "--out", tmp_path / "out", "--json")
    assert json.loads(run.stdout)["quick"] is True


def test_what_cannot_be_run_is_said_and_the_rest_goes_on(tmp_path):
    """No network and no data: the training experiment says what is missing, the other one is done, exit code 0."""
    nowhere = {**os.environ, "https_proxy": "http://127.0.0.1:9", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100"}
    command = [sys.executable, "-m", "coterie", "reproduce", "--out", str(tmp_path / "out")]
    options = {"capture_output": True, "text": True, "timeout": 120, "env": nowhere}
    small = ["mnist", "family", "--quick", "--data", str(tmp_path / "data")]
    run = subprocess.run([*command, *small], check=False, **options)
    assert run.returncode == 0, run.stderr
    assert "cannot be fetched" in run.stdout
    assert "91390" in run.stdout
    full = subprocess.run([*command, "mnist"], check=False, **options)
    assert full.returncode == 1
    assert "60 training runs of mnist are missing, and there is no GPU here." in full.stdout
    assert "Traceback" not in run.stderr + full.stderr


def test_ctrl_c_loses_nothing(tmp_path):
    """Interrupted in the middle, the same command goes on with what is done as it was."""
    file, out = write_tiny(tmp_path), tmp_path / "out"
    file.write_text(
        TINY.replace("rounds = 3,", "rounds = 15,").replace("evaluate_every = 1", "evaluate_every = 15")
    )
    command = [sys.executable, "-m", "coterie", "reproduce", file, "--device", "cpu", "--out", out]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not (out / "tiny.jsonl").exists() and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, told
    assert "the same command goes on" in told
    assert "Traceback" not in told
    results = ResultFile(out / "tiny.jsonl")
    before = results.records()
    assert 0 < len(before) < RUNS
    run = coterie("reproduce", file, "--device", "cpu", "--out", out)
    assert run.returncode == 0, run.stderr
    assert {digest: record for digest, record in results.records().items() if digest in before} == before
    assert len(results.records()) == RUNS


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    """Nothing is simulated or trained whose record could not be kept."""
    file = write_tiny(tmp_path)
    for experiment in ("family", file):
        run = coterie("reproduce", experiment, "--device", "cpu", "--out", file / "results")
        assert (run.returncode, run.stdout) == (2, "")
        assert f"{file / 'results'} cannot be written: a part of the path is a file" in run.stderr


def test_the_list_names_every_experiment():
    """--list needs no name and runs nothing."""
    run = coterie("reproduce", "--list")
    assert run.returncode == 0
    assert all(name in run.stdout for name in EXPERIMENTS)


def test_bad_input_is_refused():
    """No name, an unknown one, and a device that there is not end with 2 and a sentence."""
    for arguments, message in (
        ((), "name experiments, or all"),
        (("mnits",), "there is no experiment 'mnits'; known are ablation"),
        (("family", "--device", "tpu"), "--device is 'tpu'"),
    ):
        run = coterie("reproduce", *arguments)
        assert run.returncode == 2
        assert message in run.stderr
