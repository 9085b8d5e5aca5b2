"""Resume equality: wherever a run is cut off, it ends at the same model, with every step in its record once."""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from multiprocessing import forkserver

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.folder import STEP_STATES, RecordFile, RunFolder, read_record
from coterie.lab.experiments.result import read_run
from coterie.lab.experiments.run import Run
from coterie.leakage import strong_level
from support.cli.command import coterie
from support.experiments.tiny import PRIVACY, PROTOCOLS, ROUNDS, finished, tiny_spec, told, write_spec


class Crash(BaseException):
    """The process dies here: nobody catches it."""


def before(method, real):
    """Die before a method did anything."""
    del method, real
    raise Crash


def after(method, real):
    """Die when a method has done its work."""
    method(*real[0], **real[1])
    raise Crash


BOUNDARIES = [
    (Ledger, "open_round", before),
    (Ledger, "open_round", after),
    (RunFolder, "set_aside", before),
    (RunFolder, "set_aside", after),
    (Ledger, "commit_round", after),
    (RunFolder, "keep_aggregate", after),
    (RunFolder, "save", before),
    (RunFolder, "save", after),
    (Ledger, "note", before),
    (Ledger, "note", after),
    (RecordFile, "add", before),
    (RecordFile, "add", after),
    (RunFolder, "tidy", after),
]
INSIDE = {("open_round", "after"), ("set_aside", "before"), ("set_aside", "after")}
"""The boundaries at which the round is open: it ends unfinished, and is tried again."""


@pytest.fixture(scope="module")
def whole(data, new_folder):
    """The uninterrupted run of every protocol."""
    return {
        protocol: finished(tiny_spec(data, protocol, keep_aggregates=True), new_folder()) for protocol in PROTOCOLS
    }


def dying(monkeypatch, where, name, how, calls):
    """Let one call of a method, counted from 1, be the last thing that happens."""
    method, count = getattr(where, name), iter(range(1, 1_000_000))

    def replaced(*arguments, **named):
        if next(count) == calls:
            return how(method, (arguments, named))
        return method(*arguments, **named)

    monkeypatch.setattr(where, name, replaced)


def ended(run):
    """Go to the end, or to the crash; a process that dies lets go of the folder."""
    with run:
        try:
            for _ in run.steps():
                pass
        except Crash:
            return False
    return True


def check_same(folder, run, cut_off):
    """The folder's run is the uninterrupted one: its model's bits, its rows, its measures; its ledger is sound.

    `cut_off` rounds died open. Sealed, they count as the worst that can have been, which is still T.
    """
    with Run.resume(folder) as again:
        check_same_run(folder, again, run, cut_off)


def check_same_run(folder, again, run, cut_off):
    assert again.done
    assert torch.equal(again.parameters, run.parameters)
    assert told(again.rows) == told(run.rows)
    assert told(read_record(again.folder.record.path).rows) == told(run.rows)
    assert again.measures.now == run.measures.now
    assert again.measures.participation.tolist() == run.measures.participation.tolist()
    assert verify(again.folder.ledger).sound
    states = [each.state for each in again.ledger.rounds()]
    assert states.count(State.UNFINISHED) == cut_off
    assert again.rows[-1].strong == run.rows[-1].strong
    level = 1 if run.spec.aggregation.protocol == "plain" else PRIVACY
    assert strong_level(again.ledger.log()) == level
    assert all(
        {"model", "row"} <= each.files.keys() for each in again.ledger.rounds() if each.state in STEP_STATES
    )
    assert not list(folder.glob("pending*"))
    assert not list(folder.rglob(".coterie-*"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda where: f"{where[2].__name__} {where[1]}")
def test_a_crash_at_any_boundary_changes_nothing(new_folder, whole, monkeypatch, protocol, boundary):
    """Die there in the first round, again when it is tried anew or in the next one, then run to the end."""
    where, name, how = boundary
    folder = new_folder()
    run = Run.start(whole[protocol].spec, folder)
    for _ in range(2):
        with monkeypatch.context() as patched:
            dying(patched, where, name, how, calls=1)
            assert not ended(run)
        run = Run.resume(folder)
    assert ended(run)
    check_same(folder, whole[protocol], cut_off=2 if (name, how.__name__) in INSIDE else 0)
    kept = {path.name: np.load(path)["mean"] for path in run.folder.aggregates.iterdir()}
    right = {path.name: np.load(path)["mean"] for path in whole[protocol].folder.aggregates.iterdir()}
    assert kept.keys() == right.keys()
    assert all(np.array_equal(kept[name], right[name]) for name in right)


def test_a_crash_while_the_cut_off_step_is_finished_changes_nothing(data, new_folder, whole, monkeypatch):
    """`resume` itself can die: after the commit, in the middle of catching up, and once more."""
    folder = new_folder()
    run = Run.start(tiny_spec(data, "plain"), folder)
    with monkeypatch.context() as patched:
        dying(patched, Ledger, "commit_round", after, calls=2)
        assert not ended(run)
    for where, name, how in [(RunFolder, "save", before), (RunFolder, "save", after), (RecordFile, "add", before)]:
        with monkeypatch.context() as patched:
            dying(patched, where, name, how, calls=1)
            with pytest.raises(Crash):
                Run.resume(folder)
    assert ended(Run.resume(folder))
    check_same(folder, whole["plain"], cut_off=0)


LOADED = [
    "coterie.cli.run_view",
    "coterie.lab.experiments.run",
    "coterie.lab.experiments.users",
    "coterie.pages.run",
    "matplotlib.figure",
    "PIL.Image",
    "scipy.sparse.linalg",
    "torch._inductor.config",
]
"""What the command needs is loaded once: it shall die in its rounds, and not in its imports."""


@pytest.fixture(scope="module")
def processes():
    """Processes that have it loaded: from a server of their own, as another that runs takes no list any more."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload(LOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "connect_to_new_process", server.connect_to_new_process)
        yield multiprocessing.get_context("forkserver")
    server._stop()  # noqa: SLF001 - otherwise it stays until all tests are over


def command(*arguments):
    """Be the command `coterie` with these arguments."""
    sys.argv = ["coterie", *arguments]
    from coterie.cli import main

    main()


def wait_for_progress(process, record, size):
    """Wait until a record is longer than it was."""
    while process.is_alive() and not (record.exists() and record.stat().st_size > size):
        time.sleep(0.002)


def begun(folder):
    """Whether a run can be resumed: its ledger is bound to its files."""
    if not (folder / "ledger.sqlite").exists():
        return False
    with Ledger.open(folder, read_only=True) as ledger:
        return bool(ledger.files)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_process_that_is_killed_again_and_again_ends_at_the_same_model(
    new_folder, whole, processes, protocol, request
):
    """`coterie run`, a real process, gets SIGKILL at random instants; --resume goes on, to the same end."""
    folder = new_folder()
    file = write_spec(whole[protocol].spec, folder.with_name("spec.toml"))
    chance = random.Random(protocol)
    killed, kills = 0, request.config.getoption("--kills") // 2
    request.node.user_properties.append(("faults", kills))
    while True:
        started = begun(folder)
        if not started:
            shutil.rmtree(folder, ignore_errors=True)
        arguments = ("--resume", str(folder)) if started else (str(file), "--out", str(folder))
        process = processes.Process(target=command, args=("run", *arguments))
        size = (folder / "record.jsonl").stat().st_size if started else 0
        process.start()
        if killed == kills:
            process.join()
            assert process.exitcode == 0
            break
        if chance.random() < 0.7:  # otherwise the kill may come before the process did anything
            wait_for_progress(process, folder / "record.jsonl", size)
        process.join(chance.uniform(0.0, 0.2))
        process.kill()
        process.join()
        killed += 1
    with Ledger.open(folder, read_only=True) as ledger:
        cut_off = [each.state for each in ledger.rounds()].count(State.UNFINISHED)
    check_same(folder, whole[protocol], cut_off)
    assert (folder / "report.html").exists()


def test_a_second_process_is_refused_while_the_first_is_paused(data, new_folder, processes):
    """Stopped in the middle of its rounds, the first still holds the folder; it goes on when it is let."""
    out = new_folder()
    file = write_spec(tiny_spec(data, "plain", training__rounds=30), out.with_name("spec.toml"))
    first = processes.Process(target=command, args=("run", str(file), "--out", str(out)))
    first.start()
    record = out / "record.jsonl"
    while first.is_alive() and not (record.exists() and record.read_text().count("\n") > 2):
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGSTOP)
    before = record.read_bytes()
    second = coterie("run", "--resume", out)
    assert second.returncode == 2
    assert f"is in use by process {first.pid} on " in second.stderr
    assert record.read_bytes() == before
    os.kill(first.pid, signal.SIGCONT)
    first.join(180)
    assert first.exitcode == 0
    assert record.read_text().count("\n") == 31
    assert coterie("run", "--resume", out).returncode == 0


def test_a_folder_of_which_a_file_was_changed_is_refused(data, new_folder, whole):
    """Resume and report name the file: the spec, a row, a checkpoint, one of another run, none, or the data."""
    folder = new_folder()
    finished(tiny_spec(data, "plain", keep_aggregates=True), folder)
    newest, record = folder / "checkpoints" / f"{ROUNDS:06d}.npz", folder / "record.jsonl"
    other = whole["open"].folder.path / "checkpoints" / newest.name
    lines = record.read_text().splitlines(keepends=True)
    changes = {
        newest: [newest.read_bytes()[:-100], other.read_bytes()],
        newest.with_name("000000.npz"): [newest.read_bytes()],
        folder / "aggregates" / "000001.npz": [newest.read_bytes()],
        record: [
            "".join([lines[0].replace('"learning_rate": 0.1', '"learning_rate": 0.2'), *lines[1:]]).encode(),
            "".join([lines[0].replace('"seed": 28', '"seed": 29'), *lines[1:]]).encode(),
            "".join([*lines[:2], lines[2].replace('"accuracy": 0', '"accuracy": 1'), *lines[3:]]).encode(),
            "".join([*lines, lines[-1]]).encode(),
        ],
    }
    for path, contents in changes.items():
        sound = path.read_bytes()
        for content in contents:
            assert content != sound
            path.write_bytes(content)
            for use in (Run.resume, read_run):
                with pytest.raises(UsageError, match=f"{path.name}.* was changed since it was written"):
                    use(folder)
        path.write_bytes(sound)
    newest.rename(folder / "aside")
    with pytest.raises(UsageError, match=r"000004\.npz was removed; put it back, or start the run anew"):
        Run.resume(folder)
    (folder / "aside").rename(newest)
    record.rename(folder / "aside")
    for use in (Run.resume, read_run):
        with pytest.raises(UsageError, match=r"record\.jsonl was removed; put it back: the ledger has a run of 4"):
            use(folder)
    with pytest.raises(UsageError, match="holds another run"):
        Run.start(tiny_spec(data, "plain"), folder)
    (folder / "aside").rename(record)
    with Run.resume(folder) as run:
        assert torch.equal(run.parameters, whole["plain"].parameters)


def test_data_that_were_changed_between_are_noticed(data, new_folder, tmp_path):
    """A user's labels that differ by one stop a run that is taken up, and the data are named."""
    copy = shutil.copytree(data, tmp_path / "data")
    folder = new_folder()
    Run.start(tiny_spec(copy, "plain"), folder).close()
    with np.load(copy / "user-03.npz") as file:
        arrays = dict(file)
    arrays["labels"][0] = (arrays["labels"][0] + 1) % 10
    np.savez(copy / "user-03.npz", **arrays)
    with pytest.raises(UsageError, match="data are not those that the run in"):
        Run.resume(folder)


def test_a_ledger_put_back_to_an_older_copy_is_noticed(data, new_folder):
    """The devices have sealed rounds that it does not know: the run stops and says so."""
    folder = new_folder()
    run = Run.start(tiny_spec(data, "open"), folder)
    old = (folder / "ledger.sqlite").read_bytes()
    next(run.steps())
    run.close()
    (folder / "ledger.sqlite").write_bytes(old)
    (folder / "record.jsonl").write_text((folder / "record.jsonl").read_text().splitlines(keepends=True)[0])
    with pytest.raises(UsageError, match="has sealed round 0, and the ledger knows only rounds below 0"):
        Run.resume(folder)


def test_a_device_put_back_to_an_older_copy_is_noticed(data, new_folder):
    """Its update is in a round that it does not remember: the run stops and names the user."""
    folder = new_folder()
    run = Run.start(tiny_spec(data, "open"), folder)
    old = {path: path.read_bytes() for path in (folder / "devices").iterdir()}
    row = next(run.steps())
    assert row.included
    run.close()
    for path, content in old.items():
        path.write_bytes(content)
    with pytest.raises(UsageError, match="its file was put back to an older copy, which could seal a round twice"):
        Run.resume(folder)


def test_one_process_at_a_time_runs_in_a_folder(data, new_folder):
    """A second one is told who is there, and disturbs nothing; reading goes on; death lets go of the folder."""
    folder = new_folder()
    with Run.start(tiny_spec(data, "plain"), folder) as run:
        (folder / ".coterie-unfinished.tmp").touch()
        with pytest.raises(UsageError, match=rf"in use by process {os.getpid()} on .*, since 20.*; wait for it"):
            Run.resume(folder)
        assert (folder / ".coterie-unfinished.tmp").exists()
        assert read_run(folder).record.rows == ()
        next(run.steps())
    Run.resume(folder).close()
    assert not (folder / ".coterie-unfinished.tmp").exists()


def test_a_result_that_was_removed_is_missed(data, new_folder, monkeypatch):
    """A committed round without its checkpoint needs what was set aside, unchanged; if not, it is named."""
    folder = new_folder()
    run = Run.start(tiny_spec(data, "plain"), folder)
    with monkeypatch.context() as patched:
        dying(patched, Ledger, "commit_round", after, calls=1)
        assert not ended(run)
    sound = (folder / "pending.npz").read_bytes()
    (folder / "pending.npz").write_bytes(sound[:-1] + b"x")
    with pytest.raises(UsageError, match=r"pending\.npz was changed"):
        Run.resume(folder)
    (folder / "pending.npz").unlink()
    with pytest.raises(UsageError, match="lacks the result of round 0"):
        Run.resume(folder)


def test_a_folder_without_a_run_is_refused(data, new_folder, tmp_path, monkeypatch):
    """Neither an empty folder, nor one without a ledger, nor one whose run never began can be resumed."""
    with pytest.raises(UsageError, match=r"is not the folder of a run: it has no ledger\.sqlite"):
        Run.resume(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match=r"has no ledger\.sqlite: it was removed, or the run never began"):
        Run.resume(tmp_path)
    folder = new_folder()
    with monkeypatch.context() as patched:
        dying(patched, Ledger, "bind", before, calls=1)
        with pytest.raises(Crash):
            Run.start(tiny_spec(data, "plain"), folder)
    with pytest.raises(UsageError, match="stopped before its first round; begin it anew in another folder"):
        Run.resume(folder)


@pytest.mark.parametrize("protocol", ["plain", "secagg+"])
def test_a_run_that_is_extended_is_the_one_begun_with_more_rounds(data, new_folder, whole, protocol):
    """The model to the bit, the rows and the record's spec; its page can be made, and it is resumed once more."""
    folder = new_folder()
    finished(tiny_spec(data, protocol, keep_aggregates=True, training__rounds=2), folder)
    with Run.resume(folder, rounds=ROUNDS) as run:
        assert not run.done
        for _ in run.steps():
            pass
    check_same(folder, whole[protocol], cut_off=0)
    assert read_run(folder).record.head["spec"] == whole[protocol].spec.tables()


@pytest.mark.parametrize("how", [before, after])
def test_a_crash_while_a_run_is_extended_changes_nothing(data, new_folder, whole, monkeypatch, how):
    """Before or after the record has its new head, the same call extends the run; a false head is refused."""
    folder = new_folder()
    finished(tiny_spec(data, "plain", keep_aggregates=True, training__rounds=2), folder)
    with monkeypatch.context() as patched:
        dying(patched, RecordFile, "replace_head", how, calls=1)
        with pytest.raises(Crash):
            Run.resume(folder, rounds=ROUNDS)
    with Run.resume(folder, rounds=ROUNDS) as run:
        for _ in run.steps():
            pass
    check_same(folder, whole["plain"], cut_off=0)
    record = folder / "record.jsonl"
    record.write_text(record.read_text().replace('"rounds": 4', '"rounds": 3', 1))
    with pytest.raises(UsageError, match="line 1, was changed since it was written"):
        Run.resume(folder)
