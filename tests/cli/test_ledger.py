"""`coterie ledger`, run as its user would."""

import csv
import json

import numpy as np
import pytest

from coterie.federation.ledger import Ledger
from coterie.leakage.readers import read_log
from support.cli.command import coterie
from support.ledgers import LEARNED, NAMES, PLAN, cohort_of, cohort_of_users, database, federation
from support.postgres import fresh_ledger


@pytest.fixture
def path(tmp_path):
    """The ledger of a small federation, in a run's folder."""
    federation(tmp_path).close()
    return tmp_path / "ledger.sqlite"


def test_show_tells_a_person_rounds_batches_and_the_head(path):
    """Every round with its end and why; the batches lost most first; the head to keep elsewhere."""
    run = coterie("ledger", "show", path.parent)
    assert (run.returncode, run.stderr) == (0, "")
    assert "12 users, 5 rounds" in run.stdout
    assert "2 committed, 1 abandoned, 1 unfinished, 1 skipped" in run.stdout
    assert "Ended without a report; every batch asked counts as learned by itself: round 4" in run.stdout
    rows = [line.split() for line in run.stdout.splitlines()]
    assert rows[rows.index(["batch", "asked", "included", "lost"]) + 1] == ["1", "2", "0", "2"]
    with Ledger.open(path) as ledger:
        assert ledger.head.hash.hex() in run.stdout


def test_show_tells_that_users_lied(path):
    """A round in which users are proven to have broken the protocol says how many."""
    with Ledger.open(path) as ledger, ledger.claim():
        round_ = ledger.open_round(cohort_of(PLAN, [0]), sealed=True, protocol="secagg+")
        ledger.commit_round(round_, [PLAN.batch(0)], metrics={"liars": 2.0})
    assert "2 users broke the protocol" in " ".join(coterie("ledger", "show", path).stdout.split())


def test_show_as_json_is_one_object(path):
    """Everything that a program needs, with as many rounds as asked for."""
    record = json.loads(coterie("ledger", "show", path, "--json", "--rounds", "all").stdout)
    assert (record["users"], record["steps"], record["assumed_rounds"]) == (12, 4, [4])
    assert record["plan"] == {"number": 1, "privacy": 3, "batches": 4, "sizes": [3, 3], "charters": 2}
    assert [each["state"] for each in record["last"]] == [
        "committed",
        "skipped",
        "committed",
        "abandoned",
        "unfinished",
    ]
    assert record["last"][0]["metrics"] == {"loss": 0.5, "accuracy": 0.75}
    assert record["last"][0]["opened"] == "2023-11-14T22:13:24.000+00:00"
    assert record["batches"][1] == {"batch": 1, "asked": 2, "included": 0, "lost": 2}
    few = json.loads(coterie("ledger", "show", path, "--json", "--rounds", "2").stdout)
    assert [each["round"] for each in few["last"]] == [3, 4]


def test_verify_is_silent_about_a_sound_ledger_and_names_what_is_wrong(path):
    """Exit 0 and the head; after an edit exit 1 and the record; a head kept elsewhere must be there."""
    sound = coterie("ledger", "verify", path)
    assert sound.returncode == 0
    head = sound.stdout.split()[-1]
    assert sound.stdout == f"Sound: 14 records, head {head}\n"
    kept = coterie("ledger", "verify", path, "--head", head)
    assert (kept.returncode, "0 records came after it" in kept.stdout) == (0, True)
    other = coterie("ledger", "verify", path, "--head", "ab" * 32)
    assert (other.returncode, "no record has the hash abab" in other.stdout) == (1, True)
    with database(str(path)) as run:
        run("UPDATE record SET time = time + 1 WHERE seq = 7")
        run("UPDATE record SET kind = ? WHERE seq = 9", "\x1b[2J")
    wrong = coterie("ledger", "verify", path)
    assert wrong.returncode == 1
    assert "record 7 (skipped): the hash does not fit the content and the hash of 6\n" in wrong.stdout
    assert "\x1b" not in wrong.stdout
    record = json.loads(coterie("ledger", "verify", path, "--json").stdout)
    assert (record["sound"], record["findings"][0]["seq"], record["later"]) == (False, 7, None)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_export_writes_the_log_that_the_ledger_gives(path, tmp_path, form):
    """What was learned or must be assumed, by name; JSON lines keep users and rounds that the others cannot."""
    out = tmp_path / f"log.{form}"
    run = coterie("ledger", "export", path, "--out", out)
    assert run.returncode == 0
    assert run.stdout.splitlines() == [
        f"6 learned sets of 5 rounds are in {out}.",
        "Ended without a report; every batch asked counts as learned by itself: round 4.",
    ]
    log = read_log(out).log
    found = {
        round_: [[log.names[user] for user in users] for users in sets] for round_, sets in log.by_round() if sets
    }
    told = {round_: [[NAMES[user] for user in users] for users in sets] for round_, sets in LEARNED.items()}
    assert {r: [sorted(u) for u in sets] for r, sets in found.items()} == {
        r: [sorted(u) for u in sets] for r, sets in told.items()
    }
    if form == "jsonl":
        with Ledger.open(path) as ledger:
            assert log == ledger.log()
    if form == "csv":
        rows = list(csv.reader(out.read_text().splitlines()))
        assert rows[:2] == [["round", "set", "user"], ["0", "0", "user 0"]]


def test_export_never_says_less_than_may_be_known(tmp_path):
    """Of an unfinished unsealed round and of a plain one every user is a set of its own, and that is told."""
    with Ledger.create(tmp_path / "l") as ledger:
        ledger.enrol(["ana", "bob"])
        with ledger.claim():
            ledger.open_round(cohort_of_users([0, 1]), sealed=False, protocol="secagg")
        with ledger.claim():
            ledger.open_round(cohort_of_users([0, 1]), sealed=False, protocol="plain")
            ledger.commit_round(1, [], alone=[0, 1])
    run = coterie("ledger", "export", tmp_path / "l", "--out", tmp_path / "log.jsonl")
    assert run.returncode == 0
    assert "Plain: the server saw every user's update by itself: round 1." in run.stdout
    assert "Not known what was learned, and unsealed; every user counts as learned alone: round 0." in run.stdout
    assert [users.tolist() for _, users in read_log(tmp_path / "log.jsonl").log.sets()] == [[0], [1]] * 2


def test_odd_texts_do_not_steer_the_terminal(tmp_path):
    """Names and reasons with control characters are shown harmlessly, and exactly in JSON."""
    with Ledger.create(tmp_path / "l") as ledger:
        ledger.enrol(["ana\x1b[2J"])
        with ledger.claim():
            ledger.skip_round("\x1b]0;title\x07 [bold]x[/bold]")
    shown = coterie("ledger", "show", tmp_path / "l").stdout
    assert "\x1b" not in shown
    assert "[bold]x[/bold]" in shown
    record = json.loads(coterie("ledger", "show", tmp_path / "l", "--json").stdout)
    assert record["last"][0]["reason"] == "\x1b]0;title\x07 [bold]x[/bold]"


def test_metrics_that_are_not_numbers_are_null_in_json(tmp_path):
    """JSON has no NaN."""
    with Ledger.create(tmp_path / "l") as ledger:
        ledger.enrol(["ana"])
        with ledger.claim():
            ledger.skip_round("")
        ledger.note(0, {"loss": np.nan})
    record = json.loads(coterie("ledger", "show", tmp_path / "l", "--json").stdout, parse_constant=pytest.fail)
    assert record["last"][0]["metrics"] == {"loss": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "missing"], "there is no such file"),
        (["show", "{folder}", "--rounds", "-1"], "--rounds is '-1'"),
        (["show", "{folder}", "--rounds", "few"], "--rounds is 'few'"),
        (["verify", "{folder}", "--head", "abc"], "--head is 'abc'"),
        (["verify", "postgresql://ana:s3cret@127.0.0.1:1/x"], "the server cannot be reached"),
        (["export", "{folder}"], "say which file to write"),
        (["export", "{folder}", "--out", "{folder}/log.txt"], "must end in .csv or .parquet or .jsonl"),
        (["export", "{folder}", "--out", "{folder}/missing/log.csv"], "its folder does not exist"),
        (["show"], "say which ledger"),
        (["mend", "{folder}"], "No such command"),
    ],
)
def test_bad_input_ends_in_one_line_and_exit_code_2(path, arguments, message):
    """The line says what to do; no traceback, no password."""
    run = coterie("ledger", *(argument.format(folder=path.parent) for argument in arguments))
    assert (run.returncode, run.stdout) == (2, "")
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
    assert "s3cret" not in run.stderr


def test_a_ledger_in_postgresql(postgres, tmp_path):
    """The same commands take a URL."""
    url = fresh_ledger(postgres)
    federation(url).close()
    assert "12 users, 5 rounds" in coterie("ledger", "show", url).stdout
    assert coterie("ledger", "verify", url).stdout.startswith("Sound: 14 records")
    assert coterie("ledger", "export", url, "--out", tmp_path / "log.jsonl").returncode == 0


def test_no_command_changes_the_ledger(path):
    """Show, verify and export leave every byte as it is."""
    before = path.read_bytes()
    coterie("ledger", "show", path)
    coterie("ledger", "verify", path)
    coterie("ledger", "export", path, "--out", path.with_name("log.csv"))
    assert path.read_bytes() == before
