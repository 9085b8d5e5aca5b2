"""`coterie plan`, used as its user would: real processes, real files."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from coterie import ParticipationLog
from coterie.leakage.readers import write_log
from coterie.selection.plan_file import read_plan
from coterie.selection.theory import cardinality
from support.cli.command import coterie


@pytest.fixture
def online(tmp_path):
    """An availability log of 24 users in two shifts over 40 rounds."""
    rng = np.random.default_rng(0)
    shift = np.arange(24) % 2
    matrix = (np.arange(40)[:, None] % 2 == shift) & (rng.random((40, 24)) < 0.95)
    path = tmp_path / "online.csv"
    write_log(ParticipationLog.from_dense(matrix.astype(int)), path)
    return path


def test_the_table_recommends_and_explains():
    """The table shows every T with both kinds of plan, names the recommendation and states its rule."""
    run = coterie("plan", "--users", 120, "--per-round", 12, "--dropout", "0.1,0.2,0.3,0.4,0.5")
    assert run.returncode == 0, run.stderr
    assert "by-availability" in run.stdout
    assert "20 of 6" in run.stdout
    assert "91390" in run.stdout
    assert "Recommended: T = " in run.stdout
    assert "Rule: the largest T" in run.stdout
    assert run.stderr == ""


def test_json_is_one_object_with_the_promised_fields():
    """--json prints one object to standard output, nothing else, with Theorem 1's C for equal dropout."""
    run = coterie("plan", "--users", 120, "--per-round", 12, "--dropout", "0.2", "--json")
    record = json.loads(run.stdout)
    assert (record["users"], record["per_round"]) == (120, 12)
    promised = {
        "privacy",
        "plan",
        "batches",
        "family_size",
        "cardinality",
        "skipped",
        "fairness_gap",
        "rounds_factor",
    }
    for option in record["options"]:
        assert promised <= option.keys()
    assert {option["privacy"] for option in record["options"]} >= {1, 2, 3, 4, 6, 12}
    for option in record["options"]:
        if option["privacy"] in (1, 2, 3, 4, 6, 12):
            assert option["cardinality"] == pytest.approx(cardinality(120, 12, option["privacy"], 0.2))
    sizes = {option["privacy"]: option["family_size"] for option in record["options"]}
    assert (sizes[6], sizes[4], sizes[3]) == (190, 4060, 91390)
    assert record["recommended"] in record["options"]


def test_the_same_seed_gives_the_same_answer_and_another_one_does_not():
    """Everything that is drawn hangs on --seed."""
    first, again, other = (
        coterie("plan", "--users", 60, "--per-round", 12, "--dropout", "0.1,0.5", "--seed", seed, "--json").stdout
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_log_makes_co_availability_plans_and_files(online, tmp_path):
    """From a log of two shifts the co-availability plan wins; the plan and both kinds of picture are written."""
    out, png, svg = tmp_path / "plan.json", tmp_path / "p.png", tmp_path / "p.svg"
    run = coterie("plan", "--per-round", 6, "--availability", online, "--out", out, "--plot", png, "--json")
    record = json.loads(run.stdout)
    best = {option["plan"]: option["cardinality"] for option in record["options"] if option["privacy"] == 3}
    assert best["by-co-availability"] > best["consecutive"] + 1
    plan = read_plan(out)
    assert plan.privacy == record["recommended"]["privacy"]
    assert plan.names == tuple(str(user) for user in range(24))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert coterie("plan", "--per-round", 6, "--availability", online, "--plot", svg).returncode == 0
    assert "<svg" in svg.read_text()


def test_a_record_of_another_form_is_read_and_explained(tmp_path):
    """Columns can be named; how the record was understood is said on standard error."""
    rows = [f"{hour}\tp{user}\t{user % 3}" for hour in range(8) for user in range(6) if (hour + user) % 4]
    (tmp_path / "online.tsv").write_text("hour\tphone\tkind\n" + "\n".join(rows) + "\n")
    described = ["plan", "--per-round", 4, "--availability", tmp_path / "online.tsv", "--json"]
    run = coterie(*described, "--round-column", "hour", "--user-column", "phone")
    assert json.loads(run.stdout)["users"] == 6
    assert "CSV with tabs, a row for each user and round: rounds from the column 'hour'" in run.stderr
    assert "--round-column" in coterie(*described).stderr


def test_one_level_churn_and_mixing():
    """--privacy looks at one level only; --churn and --mixing add what they promise."""
    run = coterie(
        "plan", "--users", 100, "--per-round", 20, "--privacy", 7, "--dropout", "0.1,0.3", "--churn", 0.2,
        "--mixing", 0.3, "--json",
    )  # fmt: skip
    record = json.loads(run.stdout)
    assert {option["privacy"] for option in record["options"]} == {7}
    assert {option["plan"] for option in record["options"]} == {"consecutive", "by-availability", "mixed"}
    assert record["options"][0]["cohort_sizes"] == [14, 16]
    assert 0 < record["options"][0]["churn"]["retired_batches"] < 1


def test_the_recommended_row_is_marked_and_empty_rows_are_folded():
    """An arrow stands before the recommended T; levels at which every round is skipped are one line."""
    run = coterie("plan", "--users", 60, "--per-round", 12, "--dropout", "0.5")
    marked = [line for line in run.stdout.splitlines() if line.startswith("→")]
    assert len(marked) == 1
    assert f"T = {marked[0].split()[1]}, plan consecutive." in run.stdout
    assert "Plans by availability give the same" in run.stdout
    rare = coterie("plan", "--users", 40, "--per-round", 20, "--dropout", "0.6").stdout
    assert "(nearly) every round is skipped." in rare


def test_nothing_is_recommended_that_skips_every_round(tmp_path):
    """Where no T of 2 or more completes a round, that is said, and no plan is written."""
    never = ["plan", "--users", 60, "--per-round", 30, "--dropout", "0.97", "--out", tmp_path / "plan.json"]
    run = coterie(*never)
    assert run.returncode == 0, run.stderr
    assert "No plan with T of 2 or more completes a round" in run.stdout
    assert "No plan was written to" in run.stdout
    record = json.loads(coterie(*never, "--json").stdout)
    assert (record["recommended"], record["files"]) == (None, [])
    assert list(tmp_path.iterdir()) == []


def test_sixty_columns_hold_every_line():
    """At 60 columns no line of the table is broken."""
    command = [
        sys.executable,
        "-m",
        "coterie",
        "plan",
        "--users",
        "120",
        "--per-round",
        "12",
        "--dropout",
        "0.1,0.5",
    ]
    environment = {**os.environ, "COLUMNS": "60"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert all(len(line) <= 60 for line in run.stdout.splitlines())
    assert "Plan by-availability" in run.stdout
    assert sum("20 of 6" in line and len(line.rstrip()) > 40 for line in run.stdout.splitlines()) == 2


BASE = ["plan", "--users", 120, "--per-round", 12, "--dropout", "0.3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*BASE, "--privacy", 0], "T is 0"),
        ([*BASE, "--privacy", 13], "T = 13 is above K = 12"),
        (
            ["plan", "--users", 10, "--per-round", 12, "--dropout", "0.3"],
            "K = 12 users per round is above N = 10",
        ),
        (["plan", "--users", 0, "--per-round", 12, "--dropout", "0.3"], "--users is 0"),
        (["plan", "--users", 120, "--per-round", 12, "--dropout", "-0.3"], "-0.3"),
        (["plan", "--users", 120, "--per-round", 12, "--dropout", "nan"], "nan"),
        (["plan", "--users", 120, "--per-round", 12, "--dropout", "0.3,x"], "'0.3,x'"),
        (["plan", "--users", 120, "--per-round", 12], "--dropout 0.3"),
        (["plan", "--per-round", 12, "--dropout", "0.3"], "--users 120"),
        (["plan", "--users", "many", "--per-round", 12, "--dropout", "0.3"], "many"),
        ([*BASE, "--availability", "log.csv"], "in one way"),
        ([*BASE, "--churn", 2], "churn"),
        ([*BASE, "--user-column", "phone"], "say how a log is read; add --availability"),
        (["plan", "--users", 20, "--per-round", 4, "--dropout", "0.1,0.3", "--mixing", -1], "mixing is -1"),
        ([*BASE, "--mixing", 0.2], "it changes nothing; leave it out"),
        (["plan", "--users", 10**9, "--per-round", 1000, "--dropout", "0.1"], "plan for a part of them"),
        ([*BASE, "--plot", "p.gif"], "neither a .png nor a .svg"),
        ([*BASE, "--out", "missing/plan.json"], "folder does not exist"),
        ([*BASE, "--plot", "missing/p.png"], "folder does not exist"),
        (["plan", "--per-round", 2, "--availability", "missing.csv"], "no such file"),
        (["plan", "--per-round", 2, "--availability", "empty.csv"], "empty.csv"),
        (["plan", "--per-round", 2, "--availability", "header.csv"], "holds no rows"),
        (["plan", "--per-round", 2, "--availability", "truncated.csv"], "truncated.csv"),
        (["plan", "--per-round", 2, "--users", 2, "--availability", "three.csv"], "3"),
        (["plan", "--per-round", 2, "--availability", "columns.csv"], "no column is known to hold the round"),
        (["plan", "--per-round", 2, "--availability", "far.csv"], "from round 0 to round 99999999"),
        (["plan", "--per-round", 2, "--availability", "three.csv", "--out", "three.csv"], "both name three.csv"),
        ([*BASE, "--out", "x.svg", "--plot", "x.svg"], "both name x.svg"),
        ([*BASE, "--seed", -1], "--seed is -1"),
        (["plan", "--users", 10**30, "--per-round", 12, "--dropout", "0.3"], "more than 2147483647"),
        (["plant"], "plant"),
        ([*BASE, "--frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path):
    """Bad input gives a message with the value and what to do, exit code 2, and no traceback."""
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("round,user\n")
    (tmp_path / "truncated.csv").write_text("round,user\n0,ann\n0,bob\n1")
    (tmp_path / "three.csv").write_text("round,user\n0,ann\n0,bob\n1,cas\n")
    (tmp_path / "far.csv").write_text("round,user\n0,ann\n99999999,bob\n")
    (tmp_path / "columns.csv").write_text("when,user\nnoon,ann\n")
    run = coterie(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) <= 2


def test_an_unwritable_folder_is_named_before_the_work():
    """A folder in which nothing can be written is refused, with its name."""
    run = coterie(*BASE, "--out", "/proc/self/plan.json")
    assert run.returncode == 2
    assert "/proc/self/plan.json" in run.stderr
    assert run.stdout == ""


def test_odd_terminals_and_full_outputs_end_in_no_traceback(tmp_path):
    """ASCII-only output, markup in a file's name, a full device and a closed pipe are survived."""
    (tmp_path / "m[").mkdir()
    (tmp_path / "m[" / "x].csv").write_text("round,user\n0,ann\n0,bob\n1,ann\n1,bob\n")
    odd = coterie("plan", "--per-round", 2, "--availability", "m[/x].csv", cwd=tmp_path)
    assert odd.returncode == 0, odd.stderr
    assert "m[/x].csv" in odd.stdout
    plain = " ".join(map(str, [sys.executable, "-m", "coterie", *BASE]))
    for command in (f"PYTHONIOENCODING=ascii {plain}", f"{plain} > /dev/full", f"{plain} | head -c 1"):
        run = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert "Traceback" not in run.stderr, command
    full = subprocess.run(
        ["/bin/bash", "-c", f"{plain} > /dev/full"], capture_output=True, check=False, timeout=60
    )
    assert full.returncode == 2


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_numbers_are_never_cut_off(columns):
    """Whatever the width, the table's numbers are whole."""
    run = subprocess.run(
        [sys.executable, "-m", "coterie", *map(str, BASE)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "COLUMNS": columns},
    )
    assert "…" not in run.stdout.replace("0 … ", "")
