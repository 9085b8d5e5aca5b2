"""A device's memory: whatever dies, races or breaks, it is never forgotten, replayed or misread."""

import contextlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace

import pytest

from coterie.errors import UsageError
from coterie.federation import device_file as device_room
from coterie.federation.device_file import DeviceFile

IDENTITY = bytes(range(32))
RECORDS = {"photos": b"chain keys at round 7", "words": bytes(range(256)) * 200}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The bytes of a device's file that holds RECORDS, and pages that a longer record left."""
    path = tmp_path_factory.mktemp("written") / "device"
    with DeviceFile.create(path, IDENTITY) as device:
        for scope, content in [("photos", bytes(100_000)), *RECORDS.items()]:
            store(device, scope, content)
    return path.read_bytes()


@pytest.fixture
def path(written, tmp_path):
    """A device's file that holds RECORDS."""
    path = tmp_path / "device"
    path.touch(0o600)
    path.write_bytes(written)
    return path


@pytest.fixture
def careless(monkeypatch):
    """For thousands of transactions whose durability is not the question: nothing is synced."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    careless = replace(device_room._KIND, settings="PRAGMA synchronous = OFF; PRAGMA secure_delete = ON;")  # noqa: SLF001
    monkeypatch.setattr(device_room, "_KIND", careless)


def store(device, scope, content):
    with device.transaction(scope) as slot:
        slot.content = content


def load(device, scope):
    with device.transaction(scope) as slot:
        return slot.content


def edit(path, *statements):
    """Change the file behind the device's back, as SQLite's own tool would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def script(code, *arguments, prefix=()):
    """Start Python code of ours in a process of its own."""
    command = [*prefix, sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, **pipes, text=True)


def output(process):
    """Wait for a process, which must succeed, and return the lines it printed."""
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


# What holds in peace.


def test_what_was_stored_is_there_after_opening_again(path):
    """Identity and every scope's record come back, byte for byte; a scope never stored has None."""
    with DeviceFile.open(path) as device:
        assert device.identity == IDENTITY
        assert {scope: load(device, scope) for scope in RECORDS} == RECORDS
        assert load(device, "other") is None


@pytest.mark.parametrize("content", [b"", b"\0", bytes(range(256)) * 26_000], ids=len)
def test_content_of_every_size_replaces_and_is_replaced(path, content):
    """A record can be empty, which is not None, or some megabytes; other scopes do not change."""
    with DeviceFile.open(path) as device:
        for following in (content, b"short", content):
            store(device, "photos", following)
            assert load(device, "photos") == following
    with DeviceFile.open(path) as device:
        assert (load(device, "photos"), load(device, "words")) == (content, RECORDS["words"])


@pytest.mark.parametrize("scope", ["", "a'b\"; --", "снимки", "x" * 10_000, "photos\0"])
def test_any_text_is_a_scope(path, scope):
    """Scopes are told apart by all their bytes, whatever these are."""
    with DeviceFile.open(path) as device:
        store(device, scope, b"mine")
        assert (load(device, scope), load(device, "photos")) == (b"mine", RECORDS["photos"])
        with pytest.raises(UsageError, match="not valid text"):
            load(device, scope + "\ud800")


def test_a_transaction_sees_what_another_device_file_stored(path):
    """Nothing is kept from one transaction to the next: two open files of one path agree."""
    with DeviceFile.open(path) as one, DeviceFile.open(path) as two:
        for number in range(5):
            store(one, "photos", b"one %d" % number)
            assert load(two, "photos") == b"one %d" % number
            store(two, "photos", b"two %d" % number)
            assert load(one, "photos") == b"two %d" % number


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, sqlite3.DatabaseError, OSError])
def test_an_exception_leaves_the_record_as_it_was(path, error):
    """Any exception from the block comes out as it is; the record stays, and the file is free again."""
    before = path.read_bytes()
    with DeviceFile.open(path, wait=0) as device:
        for scope in ("photos", "new"):
            with pytest.raises(error, match="stop"), device.transaction(scope) as slot:  # noqa: PT012 - the block
                slot.content = b"never"
                raise error("stop")
        assert (load(device, "photos"), load(device, "new")) == (RECORDS["photos"], None)
    assert path.read_bytes() == before


def test_reading_writes_nothing(path):
    """A transaction that assigns nothing, or the same bytes, leaves the file as it is."""
    before = path.read_bytes()
    with DeviceFile.open(path) as device:
        assert load(device, "photos") == RECORDS["photos"]
        store(device, "photos", bytes(bytearray(RECORDS["photos"])))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [None, "text", bytearray(b"x"), 7, bytes(2**29 + 1)], ids=lambda content: type(content).__name__
)
def test_only_bytes_can_follow(path, content):
    """A record cannot be removed, or replaced by anything but bytes; the message does not show it."""
    with DeviceFile.open(path) as device:
        with pytest.raises(UsageError, match=r"must be bytes, at most 536870912 of them, not \w+$"):
            store(device, "photos", content)
        assert load(device, "photos") == RECORDS["photos"]


def test_closing(path):
    """A closed file gives nothing any more; closing twice is the same; what is under way can end."""
    device = DeviceFile.open(path)
    with device.transaction("photos") as slot:
        device.close()
        slot.content = b"last"
    device.close()
    for use in (lambda: device.identity, lambda: load(device, "photos")):
        with pytest.raises(UsageError, match="was closed; open it again"):
            use()
    with DeviceFile.open(path) as device:
        assert load(device, "photos") == b"last"


def test_nothing_of_a_replaced_record_stays(path):
    """Old content is in no file of the folder after the commit, however long it was."""
    secret = b"an old chain key"
    with DeviceFile.open(path) as device:
        for long, short in [(secret, b"x"), (secret * 5000, b"x"), (secret * 5000, bytes(200_000))]:
            store(device, "photos", long)
            assert secret in path.read_bytes()
            store(device, "photos", short)
            assert [entry for entry in path.parent.iterdir() if secret in entry.read_bytes()] == []
    assert list(path.parent.iterdir()) == [path]


def test_secrets_are_not_shown(path):
    """Neither a file nor a slot shows what it holds."""
    with DeviceFile.open(path) as device, device.transaction("photos") as slot:
        assert "chain" not in repr(slot) + str(vars(type(slot)))
        assert repr(IDENTITY) not in repr(device)


def test_a_transaction_may_end_in_another_thread(path):
    """Asynchronous code may go on in another thread than it began in."""
    with DeviceFile.open(path) as device:
        stack = contextlib.ExitStack()
        thread = threading.Thread(target=lambda: stack.enter_context(device.transaction("photos")))
        thread.start()
        thread.join()
        stack.close()
        assert load(device, "photos") == RECORDS["photos"]


def test_the_folder_is_synced_before_anything_is_given(path, monkeypatch):
    """What a process stored before it was killed is durable, names too, before another one acts on it."""
    synced, real = [], os.fsync

    def spy(descriptor):
        synced.append(os.path.samestat(os.fstat(descriptor), path.parent.stat()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    with DeviceFile.open(path) as device, device.transaction("photos"):
        assert synced == [True, True]
    DeviceFile.create(path.with_name("new"), IDENTITY)
    assert synced == [True] * 4  # the new name, and its first opening


# Creating.


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_new_file_is_its_owners_from_the_first_byte(tmp_path, monkeypatch):
    """With no umask at all, the one file that is made gets the mode 0600 as it is made, and keeps it."""
    made, real_open, real_link = [], os.open, os.link

    def spy_open(name, flags, mode=0o777, **options):
        if flags & os.O_CREAT:
            made.append((mode, flags & os.O_EXCL))
        return real_open(name, flags, mode, **options)

    def spy_link(source, target):
        assert list(tmp_path.iterdir()) == [source]
        assert stat.S_IMODE(source.stat().st_mode) == 0o600
        real_link(source, target)

    monkeypatch.setattr(os, "open", spy_open)
    monkeypatch.setattr(os, "link", spy_link)
    umask = os.umask(0)
    try:
        with DeviceFile.create(tmp_path / "device", IDENTITY) as device:
            store(device, "photos", b"x")
    finally:
        os.umask(umask)
    assert made == [(0o600, os.O_EXCL)]
    assert stat.S_IMODE((tmp_path / "device").stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["device"]


def test_an_existing_file_is_never_replaced(path):
    """Whatever is at the path stays as it is, and nothing is left beside it."""
    for target, content in [
        (path, path.read_bytes()),
        (path.with_name("note"), b"mine"),
        (path.with_name("no"), b""),
    ]:
        target.write_bytes(content)
        with pytest.raises(UsageError, match="exists already, and a device's memory is never replaced"):
            DeviceFile.create(target, IDENTITY)
        assert target.read_bytes() == content
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["device", "no", "note"]


@pytest.mark.parametrize(
    ("name", "identity", "message"),
    [
        ("missing/device", IDENTITY, "its folder does not exist; create it first"),
        ("file/device", IDENTITY, "a part of the path is a file"),
        ("device", b"", "must not be empty"),
        ("x" * 256, IDENTITY, "the name is too long"),
    ],
)
def test_what_cannot_be_created_is_refused(tmp_path, name, identity, message):
    """The message says why, and nothing is left behind."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        DeviceFile.create(tmp_path / name, identity)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_odd_names_and_links(tmp_path):
    """Characters that mean something in an address are part of a name; a symbolic link is followed."""
    (tmp_path / "link").symlink_to(tmp_path / "made through a link")
    DeviceFile.create(tmp_path / "link", IDENTITY).close()
    for name in ("a b?mode=memory#x%41", "ü", "x" * 240, os.fsdecode(b"\xff")):
        DeviceFile.create(tmp_path / name, IDENTITY).close()
        assert (tmp_path / name).is_file()
    target = tmp_path / "made through a link"
    with DeviceFile.open(tmp_path / "link") as link, DeviceFile.open(target) as device:
        store(link, "photos", b"x")
        assert load(device, "photos") == b"x"


# Opening what is not, or no longer, a device's file.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: there is no such file"),
        (b"", "is empty, and a device's file never is"),
        (b"round,user\n" * 5000, "is not a device's file, or its beginning is damaged"),
        (bytes(32768), "is not a device's file, or its beginning is damaged"),
    ],
)
def test_a_missing_an_empty_and_a_foreign_file_are_refused(tmp_path, content, message):
    """Nothing is made of a file that is not there, nor of one that is something else."""
    path = tmp_path / "device"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(UsageError, match=message):
        DeviceFile.open(path)
    assert path.exists() == (content is not None)
    with pytest.raises(UsageError, match="is a folder"):
        DeviceFile.open(tmp_path)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["PRAGMA application_id = 0"], "is not a device's file"),
        (
            ["PRAGMA user_version = 1"],
            "has the version 1; this Coterie reads version 2: use the one that wrote it",
        ),
        (["PRAGMA journal_mode = WAL"], "is damaged: another program changed its journal mode"),
        (["DELETE FROM record WHERE scope = CAST('photos' AS BLOB)"], "are not those that were stored last"),
        (["DELETE FROM record"], "are not those that were stored last"),
        (["INSERT INTO record SELECT * FROM record"], "are not those that were stored last"),
        (["INSERT INTO record VALUES (x'61', x'62', x'63')"], "are not those that were stored last"),
        (["UPDATE record SET scope = 7"], "a value of a wrong type"),
        (["UPDATE record SET scope = CAST(scope || 'a' AS BLOB)"], "are not those that were stored last"),
        (["UPDATE record SET content = x'61'"], "the record of 'photos' is not the one that was stored"),
        (["UPDATE record SET content = 7"], "the record of 'photos' is not the one that was stored"),
        (["UPDATE record SET digest = 7"], "a value of a wrong type"),
        (["DELETE FROM device"], "are not those that were stored last"),
        (["INSERT INTO device SELECT * FROM device"], "are not those that were stored last"),
        (["UPDATE device SET identity = x'61'"], "are not those that were stored last"),
        (["UPDATE device SET checksum = identity"], "are not those that were stored last"),
        (["DROP TABLE record"], "its tables are not those of a device"),
        (["CREATE TABLE note (text)"], "its tables are not those of a device"),
        (
            ["CREATE TRIGGER forget AFTER UPDATE ON record BEGIN DELETE FROM record; END"],
            "its tables are not those of a device",
        ),
    ],
)
def test_a_file_changed_behind_our_back_is_refused(path, statements, message):
    """A deleted, doubled, renamed or changed row, another table, version or mode: refused, open or opening."""
    with DeviceFile.open(path) as device:
        edit(path, *statements)
        with pytest.raises(UsageError, match=message):
            load(device, "photos")
    with pytest.raises(UsageError, match=message):
        DeviceFile.open(path)


@pytest.mark.parametrize("table", ["device", "record"])
def test_a_table_put_back_to_an_older_state_is_refused(path, table):
    """Each row of the older state was once right, and still it does not fit the rest."""
    old = path.with_name("old")
    old.write_bytes(path.read_bytes())
    with DeviceFile.open(path) as device:
        store(device, "photos", b"chain keys at round 8")
        edit(
            path,
            f"ATTACH '{old}' AS old",
            f"DELETE FROM main.{table}",  # noqa: S608 - our own names
            f"INSERT INTO main.{table} SELECT * FROM old.{table}",  # noqa: S608 - our own names
        )
        with pytest.raises(
            UsageError, match="not those that were stored last; do not put an old copy in its place"
        ):
            load(device, "photos")


def test_content_that_changes_under_a_right_list_is_refused(path):
    """The list of digests fits, and still each record is compared with its own before it is given."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"round 7", b"round 6"))
    with pytest.raises(UsageError, match="is damaged: the record of 'photos' is not the one that was stored"):
        DeviceFile.open(path)


def test_the_message_about_damage_quotes_nothing(path):
    """SQLite's own words can hold bytes of the file, even such that Python cannot decode; ours do not."""
    data = path.read_bytes()
    for name in (b"sEcret", b"\xffecret"):
        path.write_bytes(data.replace(b"TABLE record", b"TABLE " + name))
        with pytest.raises(UsageError, match="is damaged: SQLite says SQLITE_") as caught:
            DeviceFile.open(path)
        assert "ecret" not in str(caught.value)
        assert caught.value.__suppress_context__


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o777])
def test_a_file_that_others_can_open_is_refused(path, mode):
    """A bit for the group or for others is enough, at opening and at every transaction."""
    with DeviceFile.open(path) as device:
        path.chmod(mode)
        with pytest.raises(UsageError, match=f"its mode {mode:04o} lets other users"):
            load(device, "photos")
    with pytest.raises(UsageError, match="then set its mode to 0600"):
        DeviceFile.open(path)


def test_a_file_of_two_names_is_refused(path):
    """SQLite would look for the journal of a dead process by the wrong name."""
    other = path.with_name("other")
    other.hardlink_to(path)
    with pytest.raises(UsageError, match="has 2 names"):
        DeviceFile.open(path)
    other.unlink()
    DeviceFile.open(path).close()


def test_a_file_that_goes_or_is_replaced_while_open_is_refused(path):
    """Neither a missing file nor another device's takes the place of the one that was opened."""
    kept = path.with_name("kept")
    with DeviceFile.open(path) as device:
        path.rename(kept)
        with pytest.raises(UsageError, match="there is no such file"):
            load(device, "photos")
        DeviceFile.create(path, IDENTITY[::-1]).close()
        with pytest.raises(UsageError, match="is another device's file now"):
            load(device, "photos")
        kept.replace(path)
        assert load(device, "photos") == RECORDS["photos"]


def test_a_file_that_is_moved_during_a_transaction_is_not_written(path):
    """What would be stored where nobody looks for it is refused, and the record is as before."""
    kept = path.with_name("kept")
    with DeviceFile.open(path) as device:
        with pytest.raises(UsageError, match="or it was moved"), device.transaction("photos") as slot:  # noqa: PT012 - the block
            slot.content = b"lost"
            path.rename(kept)
        kept.rename(path)
        assert load(device, "photos") == RECORDS["photos"]


# Damage: what is given is what was stored, or nothing is.


def damages(data, rng):
    """Yield damaged versions of a file: many with one byte changed, some with whole stretches."""
    for position in range(100):  # SQLite's own header, where every byte counts
        for flip in (0x01, 0x03, 0x80, 0xFF):
            yield changed(data, position, bytes([data[position] ^ flip]))
    page = 16_384
    edges = [
        start + offset for start in range(0, len(data), page) for offset in (*range(16), *range(page - 300, page))
    ]
    for _ in range(350):
        position = rng.choice([rng.choice(edges), rng.randrange(len(data))])
        yield changed(data, position, bytes([data[position] ^ rng.randrange(1, 256)]))
    for _ in range(100):
        start = rng.choice([rng.randrange(0, len(data), page), rng.randrange(len(data))])
        size = rng.choice([2, 16, 512, page])
        source = rng.choice([bytes(size), rng.randbytes(size), data[rng.randrange(0, len(data), page) :][:size]])
        yield changed(data, start, source)[: len(data)]
    for _ in range(50):
        yield data[: rng.choice([rng.randrange(1, len(data)), rng.randrange(page, len(data), page)])]


def changed(data, position, piece):
    return data[:position] + piece + data[position + len(piece) :]


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("already_open", [False, True])
def test_damage_anywhere_is_refused_or_does_no_harm(path, already_open):
    """Bytes changed, overwritten or cut off: a UsageError, or exactly what was stored; after storing too."""
    data = path.read_bytes()
    outcomes = Counter()
    with DeviceFile.open(path) as opened:
        for damaged in damages(data, random.Random(already_open)):
            path.write_bytes(damaged)
            records = dict(RECORDS)
            try:
                device = opened if already_open else DeviceFile.open(path)
                for scope, content in records.items():
                    assert load(device, scope) == content
                assert load(device, "new") is None
                store(device, "photos", b"chain keys at round 8")
                records["photos"] = b"chain keys at round 8"
                for scope, content in records.items():
                    assert load(device, scope) == content
            except UsageError:
                outcomes["refused"] += 1
            else:
                outcomes["no harm"] += 1
            for leftover in path.parent.glob("device-*"):
                leftover.unlink()
    assert min(outcomes["refused"], outcomes["no harm"]) > 20, outcomes


def test_damage_beside_the_records_is_seen_at_opening(path):
    """All of the file is checked: also the list of free pages, from which the next record would be written."""
    data = path.read_bytes()
    path.write_bytes(changed(data, 39, bytes([data[39] ^ 1])))
    with pytest.raises(UsageError, match="is damaged: SQLite's integrity check fails"):
        DeviceFile.open(path)


# Races.


def race(devices, times):
    """Count up in one record, from a thread for each device; return the values that each thread stored."""
    seen = [[] for _ in devices]

    def count(device, values):
        for _ in range(times):
            with device.transaction("counter") as slot:
                value = int(slot.content or b"0") + 1
                slot.content = b"%d" % value
            values.append(value)

    threads = [threading.Thread(target=count, args=pair) for pair in zip(devices, seen, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


@pytest.mark.parametrize("shared", [True, False])
def test_threads_that_race(path, shared):
    """Threads with one DeviceFile, or one each, never store one value twice and lose none."""
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(DeviceFile.open(path)) for _ in range(1 if shared else 4)]
        seen = race(devices * 4 if shared else devices, times=25)
    assert sorted(value for values in seen for value in values) == list(range(1, 101))
    assert all(values == sorted(values) for values in seen)


RACE = """
import sys
from coterie.federation.device_file import DeviceFile

with DeviceFile.open(sys.argv[1]) as device:
    print("ready", flush=True)
    sys.stdin.readline()
    value = 0
    while value < 150:
        with device.transaction("counter") as slot:
            value = int(slot.content or b"0") + 1
            slot.content = b"%d" % value
        print(value)
"""


def test_processes_that_race(path):
    """The same for two processes; each of them got its turns."""
    processes = [script(RACE, path) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    one, two = [[int(line) for line in output(process)] for process in processes]
    assert sorted(one + two) == list(range(1, 152))
    assert min(len(one), len(two)) > 1


def test_a_file_in_use_is_refused_after_a_while(path):
    """Opening, another thread, an enclosing transaction: each waits as long as it was told; the holder goes on."""
    with DeviceFile.open(path, wait=0.05) as device:
        refusals = []

        def try_it(*uses):
            for use in uses:
                with pytest.raises(
                    UsageError, match=r"is in use: .* for all of 0.05 seconds; let that end"
                ) as caught:
                    use()
                refusals.append(caught.value)

        with device.transaction("photos") as slot:
            uses = (lambda: load(device, "words"), lambda: DeviceFile.open(path, wait=0.05))
            try_it(*uses)
            thread = threading.Thread(target=try_it, args=uses)
            thread.start()
            thread.join()
            slot.content = b"held"
        assert len(refusals) == 4
        assert load(device, "photos") == b"held"


def test_another_program_that_reads_keeps_a_transaction_waiting(path):
    """A reader's lock counts too, and the wait ends when it does."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM device").fetchall()
        with pytest.raises(UsageError, match="is in use"):
            DeviceFile.open(path, wait=0.02)
        timer = threading.Timer(0.1, reader.execute, ["COMMIT"])
        timer.start()
        with DeviceFile.open(path) as device:
            assert load(device, "photos") == RECORDS["photos"]
        timer.join()


FORK = """
import os, sys
from coterie.federation.device_file import DeviceFile
from coterie.errors import UsageError

device = DeviceFile.open(sys.argv[1])
try:
    with device.transaction("photos") as slot:
        child = os.fork()
        slot.content = b"parent" if child else b"child"
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            sys.stdin.readline()
except UsageError as error:
    print(error, flush=True)
    os._exit(3)
"""


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_the_fork_of_a_process_cannot_end_its_transaction(path):
    """A child that leaves the block is refused; its parent still holds the file, and stores."""
    process = script(FORK, path)
    with process:
        assert "must end in the process that began it" in process.stdout.readline()
        assert process.stdout.readline() == "3\n"
        with pytest.raises(UsageError, match="is in use"):
            DeviceFile.open(path, wait=0.02)
        assert output(process) == []
    with DeviceFile.open(path) as device:
        assert load(device, "photos") == b"parent"


# Death at any instant.

KILLS = """
import os, random, signal, stat, sys, time
from coterie.federation.device_file import DeviceFile

path, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)

def content(count):  # several pages, each of them telling the count
    return count.to_bytes(8, "little") * 8000

def count_up(announce):
    device = DeviceFile.open(path, wait=30)
    while True:
        with device.transaction("counter") as slot:
            count = int.from_bytes(slot.content[:8], "little") + 1
            assert slot.content == content(count - 1)
            slot.content = content(count)
        os.write(announce, count.to_bytes(8, "little"))

with DeviceFile.open(path) as device:
    start = time.monotonic()
    for count in range(-10, 1):
        with device.transaction("counter") as slot:
            slot.content = content(abs(count))
    pace = min((time.monotonic() - start) / 2, 0.05)  # a few transactions
announced, journals = set(), 0
for _ in range(kills // 2):
    listen, announce = os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            try:
                count_up(announce)
            finally:
                os._exit(1)
        children.append(child)
    os.close(announce)
    for child in children:
        time.sleep(rng.uniform(0, pace))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with os.fdopen(listen, "rb") as pipe:
        data = pipe.read()
    for start in range(0, len(data), 8):
        count = int.from_bytes(data[start : start + 8], "little")
        assert count not in announced, "announced twice"
        announced.add(count)
    if os.path.exists(path + "-journal"):
        journals += 1
        assert stat.S_IMODE(os.stat(path + "-journal").st_mode) == 0o600
    with DeviceFile.open(path) as device, device.transaction("counter") as slot:
        stored = int.from_bytes(slot.content[:8], "little")
        assert slot.content == content(stored)
        assert stored >= max(announced, default=0), "forgotten"
print(len(announced), journals)
"""


@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_kill_at_random_instants(path):
    """Over 120 kills of two racing processes nothing announced is forgotten, and no value is announced twice.

    A value is announced only after its transaction was left. Some kills must hit the midst of a commit: they
    leave a journal, which is rolled back (and which nobody else could read).
    """
    (line,) = output(script(KILLS, path, 120, 1))
    announced, journals = map(int, line.split())
    assert announced > 10
    assert journals > 0


# Disks that are full or read-only.

FULL = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from coterie.federation.device_file import DeviceFile
from coterie.errors import UsageError

path, limit = Path(sys.argv[1]), int(sys.argv[2])
device = DeviceFile.create(path, b"identity")
with device.transaction("photos") as slot:
    slot.content = b"before" * 10_000
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for size in (600_000, 2_000_000):
    for scope in ("photos", "words"):
        try:
            with device.transaction(scope) as slot:
                slot.content = bytes([size % 251]) * size
        except UsageError as error:
            print(error)
with DeviceFile.open(path) as again, again.transaction("photos") as slot:
    assert slot.content == b"before" * 10_000
    slot.content = b"after"
with device.transaction("words") as slot:
    assert slot.content is None
with device.transaction("photos") as slot:
    assert slot.content == b"after"
assert list(path.parent.iterdir()) == [path]

if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limit))
else:
    path.with_name("filler").write_bytes(bytes(600_000))
try:
    DeviceFile.create(path.with_name("new"), b"identity")
except UsageError as error:
    print(error)
path.with_name("filler").unlink(missing_ok=True)
assert list(path.parent.iterdir()) == [path]
"""


def mounted(folder, options):
    """Return what to put before a command so that a small disk of its own is at the folder, or skip."""
    mount = f'mount -t tmpfs -o {options} tmpfs "{folder}" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lets us mount nothing")
    return prefix


def test_a_full_disk_changes_nothing(tmp_path):
    """On a disk without room a record is refused and stays as it was; after that all goes on."""
    lines = output(script(FULL, tmp_path / "device", 0, prefix=mounted(tmp_path, "size=700k")))
    assert [line for line in lines if "cannot be written: the disk is full; make room" not in line] == []
    assert len(lines) == 5


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
def test_a_limit_on_files_changes_nothing(tmp_path):
    """The same where the system refuses long files, as a quota does."""
    lines = output(script(FULL, tmp_path / "device", 300_000))
    assert [line for line in lines if "cannot be read or written: the system reports an error" not in line] == []
    assert len(lines) == 5


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from coterie.federation.device_file import DeviceFile
from coterie.errors import UsageError

path = Path(sys.argv[1])
device = DeviceFile.create(path, b"identity")
for use in (lambda: device.transaction("photos").__enter__(), lambda: DeviceFile.open(path)):
    subprocess.run(["mount", "-o", "remount,ro", path.parent], check=True)
    try:
        use()
    except UsageError as error:
        print(error)
    subprocess.run(["mount", "-o", "remount,rw", path.parent], check=True)
    use()
"""


def test_a_read_only_disk_is_refused(tmp_path):
    """A device that could not store must not even read: what it then sends would not be remembered."""
    lines = output(script(READ_ONLY, tmp_path / "device", prefix=mounted(tmp_path, "size=1m")))
    assert [line for line in lines if "the disk is read-only" not in line] == []
    assert len(lines) == 2


@pytest.mark.parametrize("refused", ["file", "folder"])
def test_a_file_without_permission_is_refused(path, monkeypatch, refused):
    """The file and its folder, where the journal goes, must both be open to writing."""
    denied = path if refused == "file" else path.parent
    monkeypatch.setattr(
        os, "access", lambda name, _: name != denied
    )  # a test that runs as root may write anywhere
    with pytest.raises(UsageError, match="cannot be written: it, its folder or the disk is read-only"):
        DeviceFile.open(path)


def test_a_journal_that_cannot_be_made_is_explained(path):
    """If something is in the journal's place nothing is stored, and the record stays."""
    with DeviceFile.open(path) as device:
        message = "cannot be opened, or its journal beside it cannot"
        with pytest.raises(UsageError, match=message), device.transaction("photos") as slot:  # noqa: PT012 - the block
            path.with_name("device-journal").mkdir()
            slot.content = b"x"
        path.with_name("device-journal").rmdir()
        assert load(device, "photos") == RECORDS["photos"]


class Counter8:
    """A monotonic counter in memory, as a secure element would keep it."""

    def __init__(self):
        self.value = 0

    def read(self):
        return self.value

    def advance(self, value):
        self.value = max(self.value, value)


def test_an_older_copy_is_refused_by_a_counter(tmp_path):
    """A file that was put back is behind its counter: refused when it is opened, and if it is open already."""
    path, counter = tmp_path / "device", Counter8()
    with DeviceFile.create(path, b"id", counter) as device:
        store(device, "photos", b"round 1")
        old = path.read_bytes()
        store(device, "photos", b"round 2")
        assert counter.value == 2
        path.write_bytes(old)
        with pytest.raises(UsageError, match="is an older copy: it was stored 1 times, its counter says 2"):
            store(device, "photos", b"round 2 again")
    with pytest.raises(UsageError, match="is an older copy"):
        DeviceFile.open(path, counter=counter)


def test_a_device_that_died_before_its_counter_moved_goes_on(tmp_path):
    """What was stored is one ahead of the counter then, and the counter follows before anything is done."""
    path, counter = tmp_path / "device", Counter8()
    with DeviceFile.create(path, b"id", counter) as device:
        store(device, "photos", b"round 1")
    with DeviceFile.open(path) as device:  # as if the process had died between the commit and the counter
        store(device, "photos", b"round 2")
    with DeviceFile.open(path, counter=counter) as device:
        assert (load(device, "photos"), counter.value) == (b"round 2", 2)
