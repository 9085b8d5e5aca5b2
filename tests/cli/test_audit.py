"""`coterie audit`, used as its user would: real processes, real files."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flint import fmpz_mat

from coterie import BatchPlan, LogBuilder, ParticipationLog, __version__
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.store import is_postgres_url
from coterie.leakage import strong_level
from coterie.leakage.readers import write_log
from coterie.selection.plan_file import write_plan
from support.cli.command import coterie
from support.leakage import rational
from support.ledgers import LEARNED, NAMES, PLAN, cohort_of, federation
from support.postgres import fresh_ledger

EXAMPLE = Path(__file__).parents[2] / "examples" / "participation.csv"
PROMISED = {
    "users", "rounds", "strong", "weak", "isolated", "fairness_gap", "cardinality", "required", "met",
    "log_sha256", "version", "assumptions",
}  # fmt: skip


def audited(*arguments, **options):
    """The JSON record of an audit."""
    run = coterie("audit", *arguments, "--json", **options)
    assert run.returncode in (0, 1), run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


@pytest.fixture
def batches(tmp_path):
    """A log of four batches of three that take part whole, under names."""
    rng, log = np.random.default_rng(0), LogBuilder(12, names=[f"u{index:02d}" for index in range(12)])
    for _ in range(30):
        log.append((rng.choice(4, size=2, replace=False)[:, None] * 3 + np.arange(3)).ravel())
    path = tmp_path / "batches.csv"
    write_log(log.build(), path)
    return path


def test_json_is_one_object_whose_proofs_hold():
    """--json prints one object with the promised fields; each combination isolates its user, by other code."""
    record = audited(EXAMPLE)
    assert record.keys() >= PROMISED
    assert (record["users"], record["rounds"], record["version"]) == (40, 42, __version__)
    assert record["log_sha256"] == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert (record["strong"]["level"], record["weak"]["low"], record["weak"]["high"]) == (1, 1, 1)
    assert record["weak"]["exact"]
    assert (record["required"], record["met"]) == (None, None)
    assert len(record["isolated"]) == 40
    pairs = [line.split(",") for line in EXAMPLE.read_text().split()[1:]]
    names = sorted({name for _, name in pairs})
    rows = [[int([str(round_), name] in pairs) for name in names] for round_ in range(42)]
    proven = [found for found in record["isolated"] if found["combination"] is not None]
    assert len(proven) == 20
    for found in [*proven, {"user": record["weak"]["witness"]["users"][0]["user"], **record["weak"]["witness"]}]:
        combination = found["combination"]
        total = [0] * len(names)
        for term in combination["terms"]:
            assert term["set"] == 0
            total = [a + int(term["numerator"]) * b for a, b in zip(total, rows[term["round"]], strict=True)]
        expected = [int(combination["denominator"]) * int(name == found["user"]) for name in names]
        assert total == expected
    assert {found["round"] for found in record["isolated"]} == {39}
    units = np.eye(40, dtype=int).tolist()
    assert fmpz_mat(rows[:39]).rank() == 39
    assert all(fmpz_mat([*rows[:39], unit]).rank() == 40 for unit in units)  # a round before, nobody was


def test_everyones_combination_on_request():
    """With --all-combinations no user is left with the proof by rank alone."""
    assert all(found["combination"] for found in audited(EXAMPLE, "--all-combinations")["isolated"])


def test_the_summary_says_what_matters():
    """Levels, isolated users and what it all rests on are told in words."""
    run = coterie("audit", EXAMPLE)
    assert run.returncode == 0, run.stderr
    for said in (
        "The server can compute the update of every user who took part.",
        "40 of 40",
        "user-00",
        "exactly",
        "rests on",
        "sha256 ",
    ):
        assert said in run.stdout
    assert run.stderr == ""


def test_required_levels_decide_the_exit_code(batches):
    """0 if the strong level is as high as required, 1 if not; colluders count."""
    assert coterie("audit", batches, "--require", 3).returncode == 0
    below = coterie("audit", batches, "--require", 4)
    assert below.returncode == 1
    assert below.stdout.startswith("The required level of 4 is not met")
    assert coterie("audit", batches, "--require", 3, "--colluders", 1).returncode == 1
    record = audited(batches, "--require", 2, "--colluders", 1)
    assert (record["required"], record["met"], record["colluders"]["strong"]) == (2, True, 2)
    assert "always came together" in coterie("audit", batches).stdout


def test_named_colluders_are_subtracted(batches):
    """Two of a batch of three tell: the third is alone in its sums, unless nobody isolates the batch."""
    record = audited(batches, "--colluders", "u00,u01")
    assert record["users"] == 10
    assert record["strong"]["level"] == 1
    assert [found["user"] for found in record["isolated"]] == ["u02"]
    assert audited(batches, "--colluders", "u00,")["strong"]["level"] == 2


def test_users_rounds_and_windows(batches):
    """--users and --rounds count in F and C; --window gives the worst stretch of rounds."""
    record = audited(batches, "--users", 24, "--rounds", 60, "--window", 1)
    assert (record["users"], record["rounds"]) == (24, 60)
    assert record["cardinality"] == pytest.approx(3.0)
    assert record["window"] == {"width": 1, "level": 6, "first_round": 0, "complete": True}
    assert record["strong"]["level"] == 3


def test_a_plan_is_held_against_the_log(tmp_path):
    """Rounds that split a batch are named, with who was missing; users by the log's names."""
    plan, log = tmp_path / "plan.json", tmp_path / "log.csv"
    names = ["ann", "bob", "cas", "dee"]
    write_plan(BatchPlan.from_batches(users=4, privacy=2, batches=[[0, 1], [2, 3]], names=names), plan)
    log.write_text("round,user\n0,ann\n0,bob\n1,ann\n1,cas\n1,dee\n2,eve\n")
    record = audited(log, "--plan", plan)
    assert record["breaches"] == [
        {"round": 1, "batch": 0, "present": ["ann"], "missing": ["bob"]},
        {"round": 2, "batch": None, "present": ["eve"], "missing": []},
    ]
    assert "Round 1 split batch 0: ann without bob" in coterie("audit", log, "--plan", plan).stdout


def test_all_forms_of_a_log_say_the_same(tmp_path):
    """The same log as long and wide CSV, as Parquet and as JSON lines gives the same verdict."""
    rows = [[1, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 1]]
    log = ParticipationLog.from_dense(rows, names=["ann", "bob", "cas", "dee"])
    for form in ("csv", "parquet", "jsonl"):
        write_log(log, tmp_path / f"log.{form}")
    wide = "".join(f"{round_},{','.join(map(str, row))}\n" for round_, row in enumerate(rows))
    (tmp_path / "wide.csv").write_text("round,ann,bob,cas,dee\n" + wide)
    records = [audited(tmp_path / name) for name in ("log.csv", "log.parquet", "log.jsonl", "wide.csv")]
    for record in records:
        del record["log_sha256"]
    assert records[0] == records[1] == records[2] == records[3]
    assert records[0]["strong"]["level"] == 1
    assert records[0]["weak"]["high"] == rational.weak_level(rows)


def test_what_was_understood_is_printed_and_can_be_said(tmp_path):
    """Another platform's log is read, the reading is printed, and options say what a guess cannot."""
    (tmp_path / "log.csv").write_text("server_round;cid;peer\n1;bob;x\n1;ann;y\n2;bob;x\n2;ann;x\n")
    text = " ".join(coterie("audit", "log.csv", cwd=tmp_path).stdout.split())
    assert "The log was read as CSV with semicolons" in text
    assert "users from 'cid'" in text
    options = ("--round-column", "server_round", "--user-column", "peer", "--delimiter", ";")
    record = json.loads(coterie("audit", "log.csv", *options, "--json", cwd=tmp_path).stdout)
    assert (record["users"], record["strong"]["level"]) == (2, 1)
    piped = subprocess.run(
        [sys.executable, "-m", "coterie", "audit", "-", "--json"],
        input=(tmp_path / "log.csv").read_bytes(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(piped.stdout) == audited("log.csv", cwd=tmp_path)


def test_hostile_names_do_no_harm(tmp_path):
    """Markup, escapes and formulas in names are shown as they are, with nothing that a terminal obeys."""
    names = ["[red]x[/red]", "\x1b[31mred", ":fox_face:", "=1+1", "<script>", "line\nbreak", "\u202eevil", "🦊"]
    log = LogBuilder(8, names=names)
    log.append([0, 1, 3])
    for user in range(8):
        log.append([user])
    write_log(log.build(), tmp_path / "log.csv")
    run = coterie("audit", "log.csv", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "[red]x[/red]" in run.stdout
    assert ":fox_face:" in run.stdout
    assert "\\x1b[31mred" in run.stdout
    assert not {"\x1b", "\u202e"} & set(run.stdout)
    listed = {found["user"] for found in audited("log.csv", cwd=tmp_path)["isolated"]}
    assert listed == set(names)


def test_claims_cost_nothing(tmp_path):
    """A file that claims two thousand million users, or rounds far apart, is audited at once."""
    (tmp_path / "claim.jsonl").write_text(
        '{"format":"coterie log","version":1,"first":0,"rounds":100000000,"users":2147483647}\n'
        '{"round":0,"users":[7,2147483646]}\n{"round":99999999,"users":[7]}\n'
    )
    record = audited("claim.jsonl", cwd=tmp_path)
    assert (record["users"], record["rounds"]) == (2**31 - 1, 10**8)
    assert [found["user"] for found in record["isolated"]] == ["7", "2147483646"]
    assert audited("claim.jsonl", "--colluders", "7,", cwd=tmp_path)["users"] == 2**31 - 2
    (tmp_path / "far.csv").write_text("round,user\n0,ann\n10000000,ann\n10000000,bob\n")
    assert audited("far.csv", "--users", 2**31, cwd=tmp_path)["strong"]["level"] == 1


def processor_seconds(process):
    """How long a process has computed so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks up in /proc how far the audit is")
def test_control_c_ends_with_what_is_proven(tmp_path):
    """Ctrl-C in a long search prints the best bracket so far and exits with 130."""
    log, rng = LogBuilder(120), np.random.default_rng(0)
    for _ in range(60):
        log.append(rng.choice(120, 12, replace=False))
    write_log(log.build(), tmp_path / "log.csv")
    command = [sys.executable, "-m", "coterie", "audit", "log.csv", "--budget", "100", "--json"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and processor_seconds(running) < 4:  # well into the search
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    record = json.loads(out)
    assert 2 <= record["weak"]["low"] < record["weak"]["high"] <= 12
    assert not record["weak"]["exact"]


BAD = [
    (["missing.csv"], "no such file"),
    (["log.csv", "--users", 1], "the number of users is 1, but the log has 2"),
    (["log.csv", "--users", 0], "--users is 0"),
    (["log.csv", "--rounds", 1], "2 rounds, more than the 1 given"),
    (["log.csv", "--window", 0], "--window is 0"),
    (["log.csv", "--require", -1], "--require is -1"),
    (["log.csv", "--budget", "-1"], "--budget is -1"),
    (["log.csv", "--budget", "nan"], "--budget is nan"),
    (["log.csv", "--seed", -1], "--seed is -1"),
    (["log.csv", "--colluders", "zoe"], "'zoe' is to collude but is not in the log"),
    (["log.csv", "--colluders", "ann,bob"], "the colluders are everyone in the log"),
    (["log.csv", "--colluders", 2], "2 of 2 users cannot collude"),
    (["log.csv", "--colluders", -1], "'-1' is to collude but is not in the log"),
    (["log.csv", "--plan", "log.csv"], "is not JSON"),
    (["log.csv", "--plan", "plan.json"], "no user of the log is in the plan"),
    (["wide.csv"], "line 3: the column 'bob' has '2'; write 0 or 1"),
    (["columns.csv"], "no column is known to hold the user"),
    (["log.csv", "--round-column", "when"], "there is no column 'when'"),
    (["."], "is not a run's folder: it has no ledger.sqlite"),
    (["http://ann:secret@host/log.csv"], "http:// cannot be read; fetch the log and give its file"),
    ([], "say which log"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path):
    """Bad input gives a message with the value and what to do, exit code 2, and no traceback."""
    (tmp_path / "log.csv").write_text("round,user\n0,ann\n1,bob\n")
    (tmp_path / "wide.csv").write_text("round,ann,bob\n0,1,1\n1,0,2\n")
    (tmp_path / "columns.csv").write_text("round,when,where\n0,ann,up\n")
    write_plan(BatchPlan.from_batches(users=2, privacy=2, batches=[[0, 1]]), tmp_path / "plan.json")
    run = coterie("audit", *arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) <= 2


@pytest.fixture(params=["file", "folder", "postgres"])
def ledger_place(request, tmp_path):
    """Where a small ledger is: its file, the folder it lies in, or a PostgreSQL database."""
    place = {"file": str(tmp_path / "any.name"), "folder": str(tmp_path)}.get(request.param)
    if place is None:
        place = fresh_ledger(request.getfixturevalue("postgres"))
    federation(place).close()
    return place


def test_a_ledger_is_audited_by_its_place(ledger_place, tmp_path):
    """The sets that a ledger must be taken to have learned are judged, and held against its own plan."""
    page = tmp_path / "page.html"
    run = coterie("audit", ledger_place, "--require", "3", "--html", page, "--json")
    assert run.stderr == f"Wrote {page}\n"
    found = json.loads(run.stdout)
    assert (found["users"], found["rounds"]) == (12, 5)
    log = LogBuilder(12, NAMES)
    for round_ in range(5):
        log.append(*LEARNED.get(round_, []))
    assert found["strong"]["level"] == strong_level(log.build()) == 2
    assert found["met"] is False
    assert [breach["round"] for breach in found["breaches"]] == [2]
    assert any("1 sealed round was cut off" in said for said in found["assumptions"])
    assert page.stat().st_size > 0


def test_a_password_is_never_shown(postgres, tmp_path):
    """Neither the terminal nor the page tells the password in a PostgreSQL URL."""
    place = fresh_ledger(postgres)
    federation(place).close()
    assert is_postgres_url(place)
    secret = place + ("&" if "?" in place else "?") + "password=s3cret"
    run = coterie("audit", secret, "--html", tmp_path / "page.html")
    assert run.returncode == 0
    assert "s3cret" not in run.stdout + run.stderr + (tmp_path / "page.html").read_text()


def test_nothing_is_promised_where_the_server_saw_every_update(tmp_path):
    """Plain rounds of a ledger isolate everyone who took part, in the console, the JSON and the page alike."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=False, protocol="plain")
            ledger.commit_round(0, [], alone=range(6))
    page = tmp_path / "page.html"
    run = coterie("audit", tmp_path, "--require", 2, "--html", page)
    assert run.returncode == 1
    headline = "The required level of 2 is not met: the server saw every update by itself in the only round."
    assert " ".join(run.stdout.split()).startswith(headline)
    assert f"Wrote {page}" in run.stdout
    assert headline in page.read_text()
    record = audited(tmp_path, "--require", 2)
    assert (record["headline"], record["plain_rounds"]) == (headline, [0])
    assert (record["strong"]["level"], record["weak"]["low"], record["weak"]["high"]) == (1, 1, 1)
    assert [each["user"] for each in record["isolated"]] == NAMES[:6]
    assert record["breaches"] == []


def test_a_sealed_ledger_is_forecast_by_its_plan(tmp_path):
    """However few its rounds, a sealed ledger keeps its level; nothing is called random."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=True, protocol="secagg+")
            ledger.commit_round(0, [range(6)])
    record = audited(tmp_path)
    assert (record["strong"]["level"], record["forecast"]["policy"], record["forecast"]["floor"]) == (
        6,
        "sealed",
        3,
    )
    assert record["forecast"]["falls_below_level"]["median"] is None
    assert "the strong level stays at least 3" in " ".join(coterie("audit", tmp_path).stdout.split())


def test_rounds_on_no_record_meet_no_requirement(tmp_path):
    """A round without a seal that was cut off leaves its users as alone, for every output."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=False, protocol="secagg")
            ledger.commit_round(0, [range(6)])
            ledger.open_round(cohort_of(PLAN, [1, 2]), sealed=False, protocol="secagg")
    record = audited(tmp_path, "--require", 2)
    assert (record["met"], record["strong"]["level"], record["weak"]["low"]) == (False, 1, 1)
    assert (record["unknown_rounds"], record["strong_before_unknown"]) == ([1], 6)
    assert record["maybe_isolated"] == NAMES[3:9]


def test_names_that_may_be_one_user_are_warned_of(tmp_path):
    """Names that differ in case, space or Unicode form only count as two users; standard error says so."""
    path = tmp_path / "log.csv"
    path.write_text("round,user\n0,ann\n0,Ann\n0,bob\n")
    run = coterie("audit", path)
    assert run.returncode == 0
    assert run.stderr.startswith("coterie: warning: 'Ann' and 'ann' count as two users")
