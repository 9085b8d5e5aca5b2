"""`coterie run`, used as its user would: real processes, real files, real interruptions, a real browser."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from coterie.cli import main
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.folder import SCALARS, read_record
from support.browser import visit
from support.cli.command import coterie
from support.experiments.tiny import (
    OUTCOMES,
    PRIVACY,
    ROUNDS,
    data,
    new_folder,
    newest_parameters,
    tiny_spec,
    write_spec,
)

__all__ = ["data", "new_folder"]  # fixtures

KEYS = [
    "out", "rounds", "skipped", "lost_batches", "accuracy", "loss", "strong", "cardinality", "fairness_gap",
    "seconds", "weak", "verdict",
]  # fmt: skip


@pytest.fixture(scope="module")
def spec_file(data, tmp_path_factory):
    """The tiny run's spec, with the protocol that is the default."""
    return write_spec(tiny_spec(data, "secagg+"), tmp_path_factory.mktemp("spec") / "spec.toml")


@pytest.fixture(scope="module")
def ended(spec_file, new_folder):
    """A whole run with everything that it can write, and its process."""
    out = new_folder()
    run = coterie("run", spec_file, "--out", out, "--json", "--tensorboard", "--keep-aggregates")
    assert run.returncode == 0, run.stderr
    return out, run


@pytest.fixture
def called(monkeypatch, capsys):
    """Call the command in this process; give its exit code and the lines of its standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["coterie", "run", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err.splitlines()

    return call


def same(one, other):
    """Whether two models are the same to the bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def scalars(out):
    """What TensorBoard reads: for each curve its (round, value) pairs."""
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    return {name: [(each.step, each.value) for each in events.Scalars(name)] for name in events.Tags()["scalars"]}


def check_events(out):
    """TensorBoard has every row of the record once, as it stands there."""
    rows, found = read_record(out / "record.jsonl").rows, scalars(out)
    assert found.keys() == set(SCALARS)
    for name in SCALARS:
        right = [(row.round, getattr(row, name)) for row in rows if getattr(row, name) is not None]
        assert [round_ for round_, _ in found[name]] == [round_ for round_, _ in right]
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in right])


def test_json_is_one_object_with_the_promised_keys(ended):
    """Standard output holds one object and nothing else; progress is on standard error, a line per round here,
    with its number in the ledger."""
    out, run = ended
    summary = json.loads(run.stdout)
    assert list(summary) == KEYS
    assert summary["out"] == str(out)
    assert (summary["rounds"], summary["skipped"], summary["lost_batches"]) == (ROUNDS, 1, 1)
    assert summary["strong"] == PRIVACY
    assert [line.partition(":")[0] for line in run.stderr.splitlines()[1:]] == [
        f"round {row.round}" for row in read_record(out / "record.jsonl").rows
    ]


def test_the_folder_holds_everything_that_was_promised(ended):
    """Record, checkpoints, ledger, devices, figures, page, summary, aggregates and events; no leftovers."""
    out, run = ended
    assert {path.name for path in out.iterdir()} - {"ledger.sqlite-lease"} == {
        "record.jsonl", "checkpoints", "ledger.sqlite", "devices", "figures", "report.html", "summary.json",
        "aggregates", "tensorboard", "run.lock", "ledger.sqlite-phase",
    }  # fmt: skip
    assert json.loads((out / "summary.json").read_text()) == json.loads(run.stdout)
    assert {path.name for path in (out / "checkpoints").iterdir()} == {"000000.npz", f"{ROUNDS:06d}.npz"}
    assert {path.name for path in (out / "figures").iterdir()} == {"training.png", "measures.png"}
    assert [row.outcome for row in read_record(out / "record.jsonl").rows] == OUTCOMES
    assert verify(out).sound


def test_tensorboard_reads_every_round_once(ended):
    """Event files hold all curves of the record."""
    check_events(ended[0])


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_of_a_real_run_is_drawn_quietly(chromium, ended, width):
    """In a browser: plots are drawn, the width is kept, nothing is fetched, nothing complains."""
    page_file = ended[0] / "report.html"
    with visit(chromium, page_file, width) as visited:
        assert visited.page.locator(".area").count() >= 6
        assert visited.page.evaluate("document.documentElement.scrollWidth") == width
        assert visited.requests == [page_file.as_uri()]
        assert visited.complaints == []


def test_ctrl_c_tells_how_to_go_on_and_resuming_ends_at_the_same_model(ended, spec_file, called, new_folder):
    """SIGINT gives exit code 130 and the command that goes on; the end, TensorBoard included, is the same."""
    out = new_folder()
    process = subprocess.Popen(
        [sys.executable, "-m", "coterie", "run", spec_file, "--out", out, "--tensorboard"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    record = out / "record.jsonl"
    process.stderr.readline()  # where the results go: rounds begin
    process.send_signal(signal.SIGINT)
    told, said = process.communicate(timeout=180)
    assert (process.returncode, told) == (130, "")
    *_, stopped, last = said.splitlines()
    assert re.fullmatch(rf"Stopped after \d of 4 rounds; go on with: coterie run --resume {out}", stopped)
    assert last == "coterie: interrupted"
    code, _ = called("--resume", out, "--tensorboard")
    assert code == 0
    assert same(newest_parameters(out), newest_parameters(ended[0]))
    assert [row.step for row in read_record(record).rows] == list(range(1, ROUNDS + 1))
    assert json.loads((out / "summary.json").read_text())["strong"] == PRIVACY
    check_events(out)
    code, _ = called("--resume", out)  # a run that has ended is only told again
    assert code == 0
    assert same(newest_parameters(out), newest_parameters(ended[0]))


@pytest.mark.parametrize("protocol", ["plain", "open"])
def test_numbers_that_are_not_finite_end_the_run_in_one_line(data, called, tmp_path, protocol):
    """A rate that blows up: exit code 2, round and number of users named, the round abandoned, nothing broken."""
    out = tmp_path / "run"
    changes = {"training__learning_rate": 1e30, "training__epochs": 3}
    file = write_spec(tiny_spec(data, protocol, **changes), tmp_path / "spec.toml")
    begin = "coterie: training gave numbers that are not finite after"
    code, lines = called(file, "--out", out)
    assert code == 2
    assert lines[-1].startswith(f"{begin} 0 rounds for all 6 users (user-")
    assert lines[-2] == f"Stopped after 0 of {ROUNDS} rounds; begin a new run with another spec"
    code, lines = called("--resume", out)  # the abandoned round was a step: the next one follows
    assert code == 2
    assert lines[-1].startswith(f"{begin} 1 round for all ")
    assert verify(out).sound
    with Ledger.open(out, read_only=True) as ledger:
        assert [each.state for each in ledger.rounds()] == [State.ABANDONED, State.ABANDONED]
        assert all("users (user-" in each.reason for each in ledger.rounds())
    assert [row.outcome for row in read_record(out / "record.jsonl").rows] == ["abandoned"]


def test_a_loss_that_is_not_finite_is_left_out_of_the_record(data, called, tmp_path):
    """A model that blew up has an accuracy but no loss; the run goes on until training itself gives no numbers."""
    out = tmp_path / "run"
    file = write_spec(tiny_spec(data, "plain", training__learning_rate=1e30), tmp_path / "spec.toml")
    code, lines = called(file, "--out", out)
    assert code == 2
    assert "not finite after 1 round for" in lines[-1]
    (row,) = read_record(out / "record.jsonl").rows
    assert (row.outcome, row.loss) == ("committed", None)
    assert row.accuracy is not None


TINY = ["--users", 12, "--per-round", 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TINY, "--privacy", 7], "privacy T = 7 is above K = 6 users per round"),
        ([*TINY, "--privacy", 13], "privacy 13 is more than the 12 users"),
        ([*TINY, "--privacy", 4], "secagg+ shows no sum of fewer than 8 users (the largest batch and T more)"),
        ([*TINY, "--privacy", 2, "--scheme", "T3"], "--privacy 2 and --scheme T3 both name a scheme"),
        (
            [*TINY, "--scheme", "random"],
            "the scheme random has no batches that could be sealed; choose one such as",
        ),
        ([*TINY, "--scheme", "T2x"], "there is no scheme 'T2x'"),
        (["--privacy", 2, *TINY[:1], 13, *TINY[2:]], "has 12 users, not 13; set data.users to that"),
        ([*TINY, "--privacy", 2, "--model", "lenet"], "the model lenet cannot take examples of 1 × 28 × 28"),
        ([*TINY, "--privacy", 2, "--model", "resnet"], "there is no model 'resnet'; choose one of"),
        ([*TINY, "--privacy", 2, "--learning-rate", -1], "the learning rate is -1.0; give a number above 0"),
        ([*TINY, "--privacy", 2, "--epochs", 0], "the number of local epochs is 0"),
        ([*TINY, "--privacy", 2, "--minibatch", 0], "the minibatch size is 0"),
        ([*TINY, "--privacy", 2, "--device", "gpu7"], "training.device is 'gpu7', which is not here"),
        ([*TINY, "--privacy", 2, "--dropout", "by-lable"], "--dropout is 'by-lable': give a probability (0.3)"),
        ([*TINY, "--privacy", 2, "--partition", "iid"], "--partition has no effect on "),
        ([*TINY, "--aggregation", "plain", "--unsealed"], "--unsealed has no effect with plain aggregation"),
        (["plan.toml", "--privacy", 2], "--scheme and --privacy have no effect on the plan p.json"),
        (["--data", "mnist-small", "--partition", "sharts"], "there is no partition 'sharts'; give iid, shards,"),
        ([*TINY, "--aggregation", "secagg++"], "give one of plain, open, secagg, secagg+"),
        (["--data", "nowhere"], "folder 'nowhere'; give mnist-small, mnist, cifar10, cifar100, or a folder with"),
        (["--data", "empty", "--scheme", "T2"], "empty holds no user's data; put a file NAME.npz there for each"),
        (["typo.toml"], "typo.toml: there is no training.round in a spec; did you mean training.rounds?"),
        (["device.toml"], "training.device is 'gpu7', which is not here"),
        (["missing.toml"], "missing.toml cannot be read: there is no such file"),
        ([*TINY, "--privacy", 2, "--workers", 0], "the number of workers is 0; give an integer of at least 1"),
        (["--seed", -1], "--seed is -1: give a whole number from 0 up"),
        (["--lost", "often"], "'often' is not a valid float. See 'coterie run --help'."),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(data, called, tmp_path, monkeypatch, arguments, message):  # noqa: PLR0917
    """Exit code 2, one line that says what is wrong and what to do; no folder is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "typo.toml").write_text("[training]\nround = 3\n")
    (tmp_path / "plan.toml").write_text("[selection]\nplan = 'p.json'\n")
    (tmp_path / "device.toml").write_text("[training]\ndevice = 'gpu7'\n")
    given = [] if "--data" in arguments or str(arguments[0]).endswith(".toml") else ["--data", data]
    code, lines = called(*arguments, *given, "--out", "out")
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("coterie: ")
    assert message in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [["--seed", 5], ["--epochs", 2, "--rounds", 9], ["--out", "elsewhere"], ["--keep-aggregates"]]
)
def test_a_run_is_resumed_as_it_was_begun(ended, called, options):
    """Options beside --resume, other than --rounds, --tensorboard, --workers and --json, are refused."""
    code, lines = called("--resume", ended[0], *options)
    assert code == 2
    (line,) = lines
    assert line.startswith(
        "coterie: --resume goes on with a run as it was begun; beside it only --rounds (to extend it), "
    )


def test_a_run_is_extended_from_the_command_line(data, called, tmp_path):
    """--resume with --rounds goes on to so many rounds in all, asked once or twice; fewer are refused."""
    out = tmp_path / "run"
    file = write_spec(tiny_spec(data, "plain", training__rounds=1), tmp_path / "spec.toml")
    assert called(file, "--out", out)[0] == 0
    for _ in range(2):
        assert called("--resume", out, "--rounds", 2)[0] == 0
        assert [row.round for row in read_record(out / "record.jsonl").rows] == [0, 1]
    assert json.loads((out / "summary.json").read_text())["rounds"] == 2
    code, lines = called("--resume", out, "--rounds", 1)
    assert code == 2
    assert lines[0].startswith(
        f"coterie: the run in {out} is one of 2 rounds, and 1 are fewer; give more to extend"
    )


def test_a_folder_named_beside_a_spec_says_how_many_users_it_has(data, called, tmp_path):
    """The number of users in a spec that was made for other data does not stand in the way of --data."""
    file = tmp_path / "spec.toml"
    file.write_text("[data]\nusers = 100\n[training]\nrounds = 1\n[aggregation]\nprotocol = 'plain'\n")
    code, _ = called(file, "--data", data, *TINY[2:], "--privacy", 2, "--out", tmp_path / "run")
    assert code == 0
    assert read_record(tmp_path / "run" / "record.jsonl").head["users"] == 12


def test_options_change_the_spec_and_a_folder_says_how_many_users_it_has(data, called, tmp_path):
    """What people vary has an option each; the number of users comes from a folder's files."""
    out = tmp_path / "run"
    options = ["--data", data, "--per-round", 6, "--scheme", "T2", "--aggregation", "plain", "--rounds", 1]
    options += ["--epochs", 2, "--minibatch", 5, "--device", "cpu", "--model", "logistic", "--dropout", "by-label"]
    code, lines = called(*options, "--workers", 2, "--out", out)
    assert code == 0, lines
    spec = read_record(out / "record.jsonl").head["spec"]
    assert (spec["data"]["users"], spec["selection"]["dropout"]) == (12, "by-label")
    changed = {name: spec["training"][name] for name in ("epochs", "minibatch", "device", "model")}
    assert changed == {"epochs": 2, "minibatch": 5, "device": "cpu", "model": "logistic"}


def test_a_folder_that_holds_something_is_not_written_to(ended, spec_file, called, tmp_path):
    """Another run, a run that never began, foreign files: each is named, and stays as it is."""
    foreign, stopped = tmp_path / "foreign", tmp_path / "stopped"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    (stopped / "checkpoints").mkdir(parents=True)
    for folder, message in [
        (
            ended[0],
            f"holds another run; go on with that one (coterie run --resume {ended[0]}), or give another folder",
        ),
        (stopped, "is not empty; give another folder with --out"),
        (foreign, "is not empty; give another folder with --out"),
        (foreign / "thesis.txt", "cannot be written: a part of the path is a file"),
    ]:
        code, lines = called(spec_file, "--out", folder)
        assert code == 2
        assert len(lines) == 1
        assert f"{folder} {message}" in lines[0]
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    code, lines = called("--resume", stopped)
    assert (code, lines) == (
        2,
        [f"coterie: {stopped} has no ledger.sqlite: it was removed, or the run never began"],
    )


def test_the_default_run_learns_and_stays_private(called, new_folder):
    """The shipped data, the default spec, real cryptography: twelve rounds give over 90 % accuracy at level 4."""
    out = new_folder()
    code, _ = called("--rounds", 12, "--out", out)
    assert code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["accuracy"] > 0.9
    assert summary["strong"] == 4
    with Ledger.open(out, read_only=True) as ledger:
        assert {each.protocol for each in ledger.rounds() if each.cohort is not None} == {"secagg+"}
        assert all(each.sealed for each in ledger.rounds() if each.cohort is not None)
