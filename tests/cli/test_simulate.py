"""`coterie simulate`, used as its user would: real processes, real files, real interruptions."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from coterie import ParticipationLog
from coterie.leakage.readers import write_log
from coterie.pages.figures import key_metrics
from support.cli.command import coterie

PAPER = ["simulate", "--users", 120, "--per-round", 12, "--dropout", "0.1,0.2,0.3,0.4,0.5"]


def test_the_folder_holds_record_rows_and_pictures(tmp_path):
    """--out gets the record, a row per scheme and round, and the figure, which the record alone draws again."""
    out = tmp_path / "measures"
    run = coterie(*PAPER, "--rounds", 30, "--trials", 3, "--out", out)
    assert run.returncode == 0, run.stderr
    assert "partition" in run.stdout
    assert "record.json, rows.csv, rows.parquet, measures.png, measures.svg." in run.stdout
    names = {"record.json", "rows.csv", "rows.parquet", "measures.png", "measures.svg"}
    assert {path.name for path in out.iterdir()} == names
    record = json.loads((out / "record.json").read_text())
    with (out / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 30
    assert float(rows[-1]["cardinality"]) == record["schemes"][-1]["cardinality"]
    key_metrics(record, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (out / "measures.svg").read_bytes()


@pytest.mark.parametrize(
    ("users", "per_round", "levels"), [(100, 15, ["T5"]), (12, 3, ["T3"]), (101, 10, ["T5", "T3", "T2"])]
)
def test_default_schemes_have_batches_whatever_divides(users, per_round, levels):
    """Where few T divide N and K, or none, there are still batches to compare with."""
    run = coterie(
        "simulate", "--users", users, "--per-round", per_round, "--dropout", 0.1, "--rounds", 5, "--trials", 1,
        "--processes", 1, "--json",
    )  # fmt: skip
    record = json.loads(run.stdout)
    assert [scheme["scheme"] for scheme in record["schemes"]][3:] == levels


def test_json_is_one_object_with_the_promised_fields():
    """--json prints one object to standard output and nothing else, with the six schemes of the paper."""
    run = coterie(*PAPER, "--rounds", 40, "--trials", 4, "--json")
    record = json.loads(run.stdout)
    assert (record["users"], record["per_round"], record["rounds"], record["trials"]) == (120, 12, 40, 4)
    assert [scheme["scheme"] for scheme in record["schemes"]] == [
        "random", "weighted", "partition", "T6", "T4", "T3",
    ]  # fmt: skip
    for scheme in record["schemes"]:
        assert scheme.keys() == {
            "scheme", "strong", "isolated_share", "fairness_gap", "fairness_gap_completed", "cardinality",
            "cardinality_interval", "fairness_gap_interval", "skipped", "weak",
        }  # fmt: skip
        assert scheme["strong"]["low"] <= scheme["weak"]["low"] <= scheme["weak"]["high"]
        assert scheme["strong"].keys() == {"low", "mean", "interval"}
        low, high = scheme["cardinality_interval"]
        assert low <= scheme["cardinality"] <= high


def test_the_same_seed_gives_the_same_output_with_any_number_of_processes():
    """Seed decides everything; processes decide nothing."""
    small = ["--users", 24, "--per-round", 6, "--dropout", "0.1,0.4", "--rounds", 20, "--trials", 4, "--json"]
    one, two, other = (
        coterie("simulate", *small, "--seed", seed, "--processes", processes).stdout
        for seed, processes in ((1, 1), (1, 2), (2, 1))
    )
    assert one == two
    assert one != other


@pytest.mark.parametrize("pattern", ["daily", "markov", "groups"])
def test_every_pattern_runs(pattern):
    """Each availability pattern simulates, with every kind of scheme."""
    run = coterie(
        "simulate", "--users", 24, "--per-round", 6, "--dropout", "0.2,0.3", "--pattern", pattern, "--rounds", 30,
        "--trials", 2, "--schemes", "random,bernoulli,weighted,partition,T3,T3-text,T3-uniform,T3-sorted,T5",
        "--processes", 1, "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert len(json.loads(run.stdout)["schemes"]) == 9


def test_losses_are_shown_sealed_and_unsealed_side_by_side():
    """--lost doubles every batch scheme: the seal holds T, the split loses it."""
    run = coterie(
        "simulate", "--users", 24, "--per-round", 12, "--dropout", "0.1", "--lost", "0.1", "--rounds", 60,
        "--trials", 2, "--schemes", "random,T3", "--json",
    )  # fmt: skip
    levels = {scheme["scheme"]: scheme["strong"]["low"] for scheme in json.loads(run.stdout)["schemes"]}
    assert levels == {"random": 1, "T3": 3, "T3 unsealed": 1}


def test_users_may_come_and_go():
    """--leaving and --joining run to the end with the level kept."""
    run = coterie(
        "simulate", "--users", 24, "--per-round", 6, "--dropout", "0.1", "--leaving", "0.005", "--joining", "0.2",
        "--rounds", 80, "--trials", 2, "--schemes", "weighted,T3", "--json",
    )  # fmt: skip
    levels = {scheme["scheme"]: scheme["strong"]["low"] for scheme in json.loads(run.stdout)["schemes"]}
    assert levels["T3"] >= 3


def test_a_recorded_log_is_replayed(tmp_path):
    """--availability replays who was online: everybody always there means nothing skipped."""
    write_log(ParticipationLog.from_dense(np.ones((5, 12), dtype=int)), tmp_path / "online.csv")
    run = coterie(
        "simulate", "--per-round", 6, "--availability", tmp_path / "online.csv", "--schemes", "T3", "--rounds", 12,
        "--trials", 1, "--json",
    )  # fmt: skip
    assert json.loads(run.stdout)["schemes"][0]["skipped"] == 0


def test_a_plan_that_coterie_plan_wrote_is_simulated(tmp_path):
    """The plan's file is read and its batches hold their level."""
    described = ["--users", 24, "--per-round", 6, "--dropout", "0.1,0.4"]
    file = tmp_path / "plan.json"
    assert coterie("plan", *described, "--privacy", 3, "--out", file).returncode == 0
    for known in (described, described[2:]):  # the plan says how many users there are
        run = coterie(
            "simulate", *known, "--plan", file, "--schemes", "random", "--rounds", 30, "--trials", 2, "--json"
        )
        levels = {scheme["scheme"]: scheme["strong"]["low"] for scheme in json.loads(run.stdout)["schemes"]}
        assert levels == {"random": 1, "plan": 3}


def test_ctrl_c_keeps_the_finished_trials(tmp_path):
    """Interrupting a long simulation writes what is finished, says so, and exits with 130."""
    out = tmp_path / "measures"
    command = [sys.executable, "-m", "coterie", *map(str, PAPER), "--trials", "100000", "--rounds", "20"]
    with subprocess.Popen(
        [*command, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(6)
        os.killpg(process.pid, signal.SIGINT)
        try:
            shown, said = process.communicate(timeout=180)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "trials, which are kept" in said
    assert "Traceback" not in said
    assert "T6" in shown
    record = json.loads((out / "record.json").read_text())
    assert 0 < record["trials"] < record["trials_wanted"] == 100000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*PAPER, "--schemes", "rendom"], "did you mean random?"),
        ([*PAPER, "--schemes", "T13"], "T = 13 is above K = 12"),
        ([*PAPER, "--schemes", "T0"], "privacy is 0"),
        ([*PAPER, "--schemes", "random,random"], "given twice"),
        ([*PAPER, "--schemes", "T6-sorted", "--redraw"], "leave out --redraw"),
        ([*PAPER, "--plan", "missing.json"], "no such file"),
        ([*PAPER, "--plan", "gap.csv"], "gap.csv"),
        ([*PAPER, "--plan", "small.json"], "the plan is one of 4 users, not of 120"),
        (
            [*PAPER, "--zones", 3],
            "--zones has no effect with --pattern independent; leave it out, or use --pattern daily",
        ),
        ([*PAPER, "--pattern", "daily", "--outage", 0.1], "--outage has no effect with --pattern daily"),
        ([*PAPER[:-1], "0.3", "--redraw"], "--redraw has no effect with one probability"),
        ([*PAPER, "--trials", 0], "trials is 0"),
        ([*PAPER, "--rounds", 0], "rounds is 0"),
        ([*PAPER, "--processes", 0], "processes is 0"),
        ([*PAPER, "--lost", 2], "lost mid-round is 2"),
        ([*PAPER, "--joining", -1], "newcomers per round are -1"),
        ([*PAPER, "--pattern", "weekly"], "'weekly'"),
        ([*PAPER, "--pattern", "groups", "--outage", 0.2], "lower the outage"),
        ([*PAPER, "--pattern", "daily", "--zones", 0], "--zones is 0"),
        (["simulate", "--users", 120, "--per-round", 12], "--dropout 0.3"),
        (["simulate", "--users", 120, "--dropout", "0.3"], "--per-round 12"),
        (["simulate", "--per-round", 2, "--availability", "gap.csv"], "no row for round 1"),
        (["simulate", "--per-round", 2, "--availability", "gap.csv", "--pattern", "daily"], "replayed as it is"),
        ([*PAPER, "--out", "missing/folder"], "missing/folder"),
        ([*PAPER, "--out", "used"], "holds an earlier simulation"),
        ([*PAPER, "--out", "/proc/self/measures"], "/proc/self/measures"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path):
    """Bad input gives a message with the value and what to do, exit code 2, and no traceback."""
    (tmp_path / "gap.csv").write_text("round,user\n0,ann\n0,bob\n2,ann\n")
    (tmp_path / "small.json").write_text(
        '{"format": "coterie plan", "version": 1, "users": 4, "privacy": 2, "batches": [[0,1],[2,3]]}'
    )
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "record.json").write_text("{}")
    run = coterie(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) == 1


def test_too_many_users_are_refused_before_they_take_memory():
    """A thousand million users end in one line that says what to do, not in a process that is killed."""
    run = coterie("simulate", "--users", 10**9, "--per-round", 1000, "--dropout", "0.1")
    assert run.returncode == 2
    assert "1000000000 users are more than the 2000000 that are simulated at once; simulate a part" in run.stderr
