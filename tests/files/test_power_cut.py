"""Power cuts: whatever was not synced may be lost or torn, and what anybody counted on is there all the same.

The disk is made again from a record of real calls, at every call, as several cuts may leave it. Covered are the
primitives that everything durable here is made of: `atomic_write`, a device's file, a ledger's, and a
run's record.
"""

import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from coterie.errors import UsageError
from coterie.federation.device_file import DeviceFile
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify
from coterie.lab.experiments.folder import RecordFile, read_record
from support.faults.disk import Disk, Fate, fates
from support.faults.recorded import content, row
from support.faults.shim import recorded, shim

__all__ = ["shim"]  # a fixture
SECOND_READER = Path(__file__).parents[2] / "docs" / "verify_ledger.py"
MEMORY = Path("/dev/shm")  # noqa: S108 - every folder in it has a name of its own
SEEDS = 1
"""How many times every call is torn in different ways; with `--kills` above 100, ten times as many."""


@pytest.fixture
def memory():
    """A folder in memory, where the system offers it: hundreds of disks are made, and opening one syncs it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def cuts(shim, memory, request):
    """Give, for some work, every disk that a cut may leave: its folder, and the marks that came before."""

    def every(work, *, syncing=True):
        folder = memory / work
        [calls] = recorded(shim, work, [folder])
        check_complete(calls, folder)
        calls = [call for call in calls if syncing or call[0] != "S"]
        for seed in range(SEEDS * (10 if request.config.getoption("--kills") > 100 else 1)):
            disk, marks, rng = Disk(folder), [], random.Random(seed)
            for number, call in enumerate(calls):
                disk.apply(call)
                if call[0] == "N":
                    marks.append(call[1])
                for which, fate in enumerate(fates(rng)):
                    if seed and which < 2:
                        continue  # the plain fates are the same for every seed
                    target = memory / f"{work}-{seed}-{number}-{which}"
                    disk.write(target, fate)
                    yield target, list(marks)
                    shutil.rmtree(target)

    return every


def check_complete(calls, folder):
    """All calls together give the folder that is there, byte for byte: none was missed."""
    disk = Disk(folder)
    for call in calls:
        disk.apply(call)
    disk.write(folder.with_name("all"), Fate(random.Random(0), 1.0))
    found, expected = (
        {p.name: p.read_bytes() for p in each.iterdir()} for each in (folder.with_name("all"), folder)
    )
    assert found == expected


def test_a_file_is_the_old_one_or_the_new_one(cuts, record_property):
    """At every call of `atomic_write`: never a part, and never older than what it returned for."""
    tried = 0
    for folder, marks in cuts("files"):
        least = len(marks)
        path = folder / "file"
        assert (path.read_bytes() if path.exists() else b"") in (
            content(least) if least else b"",
            content(least + 1),
        )
        tried += 1
    record_property("faults", tried)
    assert tried > 80


def check_unborn(error, marks):
    """Nothing but the making of a file may leave it unusable, and before anybody has seen it."""
    assert marks == []
    assert "no such file" in str(error) or "names (hard links)" in str(error)


def test_a_device_never_forgets_what_it_stored(cuts, record_property):
    """At every call: the record that was stored last or the one under way, so that no round is sealed twice."""
    tried = refused = 0
    for folder, marks in cuts("device"):
        tried += 1
        try:
            with DeviceFile.open(folder / "device") as device, device.transaction("photos") as slot:
                found = slot.content
        except UsageError as error:
            check_unborn(error, marks)
            refused += 1
            continue
        stored = max(len(marks) - 1, 0)
        assert found in (content(stored) if stored else None, content(stored + 1)), folder
    record_property("faults", tried)
    assert tried - refused > 100


def test_a_record_has_every_row_that_was_added(cuts, record_property):
    """At every call: the rows that were added, perhaps the one under way, and none in part."""
    tried = 0
    for folder, marks in cuts("record"):
        if not marks:
            continue
        file = RecordFile(folder / "record.jsonl")
        before = read_record(file.path).rows
        file.repair()
        assert read_record(file.path).rows == before
        assert file.path.read_bytes().count(b"\n") == len(before) + 1
        assert before in (tuple(map(row, range(1, len(marks) + more))) for more in (0, 1)), folder
        tried += 1
    record_property("faults", tried)
    assert tried > 30


def test_a_ledger_holds_every_head_that_it_gave(cuts, record_property):
    """At every call: it opens, both readers find it sound, and the last head that was given is in it."""
    tried = refused = 0
    for folder, marks in cuts("ledger"):
        tried += 1
        try:
            with Ledger.open(folder) as ledger:
                head = ledger.head
        except UsageError as error:
            check_unborn(error, marks)
            refused += 1
            continue
        kept = bytes.fromhex(marks[-1].split()[1]) if marks else None
        verdict = verify(folder, kept)
        assert (verdict.findings, verdict.head) == ((), head), folder
        assert verdict.later is None if kept is None else verdict.later <= 1
        assert second_reader(folder / "ledger.sqlite", kept), folder
    record_property("faults", tried)
    assert tried - refused > 100


def second_reader(path, kept):
    """Whether the independent reader finds a ledger sound; in this process, hundreds of times."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("verify_ledger", SECOND_READER)
    reader = module_from_spec(spec)
    spec.loader.exec_module(reader)
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = database.execute("SELECT seq, time, kind, body, hash FROM record ORDER BY seq").fetchall()
        _, hashes = reader.chain(rows)
        ends = database.execute("SELECT count, hash FROM head").fetchall() == [(len(hashes), hashes[-1])]
    finally:
        database.close()
    return ends and (kept is None or kept in hashes)


def test_without_syncs_the_same_cuts_do_lose_records(cuts):
    """The cuts are real: with the syncs left out of the record, a device forgets what it stored, or is damaged."""
    lost = 0
    for folder, marks in cuts("device", syncing=False):
        try:
            with DeviceFile.open(folder / "device") as device, device.transaction("photos") as slot:
                lost += len(marks) > 1 and slot.content not in (content(len(marks) - 1), content(len(marks)))
        except UsageError:
            lost += bool(marks)
        if lost > 10:
            return
    pytest.fail("no cut lost anything")
