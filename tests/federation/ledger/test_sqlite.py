"""A ledger in a file: other files, full and read-only disks, cut-off appends."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from coterie import UsageError
from coterie.federation.ledger import DamagedError, Ledger
from coterie.federation.ledger.ledger import verify
from support.ledgers import federation, known


def script(code, *arguments, prefix=()):
    """Run Python code of ours in a process of its own, which must succeed; return the lines it printed."""
    command = [*prefix, sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines()


def edit(path, *statements):
    """Change the file behind the ledger's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def path(tmp_path):
    """The file of a small federation."""
    path = tmp_path / "ledger.sqlite"
    federation(path).close()
    return path


def test_a_folder_stands_for_the_ledger_in_it(tmp_path):
    """A run's folder can be given for its `ledger.sqlite`, to create and to open."""
    with Ledger.create(tmp_path) as ledger:
        assert ledger.place == str(tmp_path / "ledger.sqlite")
    with Ledger.open(tmp_path) as ledger, Ledger.open(tmp_path / "ledger.sqlite") as same:
        assert ledger.id == same.id


def test_after_an_append_all_is_in_one_file(path, tmp_path):
    """A copy of the file alone is the whole ledger."""
    copy = tmp_path / "copy.sqlite"
    with Ledger.open(path) as ledger:
        ledger.enrol(["new"])
        copy.write_bytes(path.read_bytes())
        with Ledger.open(copy, read_only=True) as other:
            assert known(other) == known(ledger)
    assert {entry.name for entry in tmp_path.iterdir()} == {"copy.sqlite", "ledger.sqlite", "ledger.sqlite-lease"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"", "is empty, and a ledger never is"),
        (b"round,user\n" * 5000, "is not a ledger, or its beginning is damaged"),
    ],
)
def test_what_is_not_a_ledger_is_refused(tmp_path, content, message):
    """Nothing is made of a file that is not there, nor of one that is something else."""
    path = tmp_path / "other"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Ledger.open(path)
    assert path.exists() == (content is not None)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA application_id = 0", "is not a ledger; check the path"),
        ("PRAGMA user_version = 0", "has the version 0"),
        ("PRAGMA journal_mode = WAL", "another program changed its journal mode"),
        ("DROP TABLE head", "is damaged: its tables are not those of a ledger"),
        ("DELETE FROM head", "does not say where it ends"),
        ("UPDATE head SET count = 'x'", "does not say where it ends"),
        ("UPDATE record SET body = CAST(body AS TEXT) WHERE seq = 5", "record 5 is not the one that was written"),
        ("UPDATE record SET kind = CAST(x'ff' AS TEXT) WHERE seq = 5", "record 5 is not the one that was written"),
    ],
)
def test_a_file_that_was_changed_is_refused(path, statement, message):
    """Another kind of file, missing tables and values of wrong types are named."""
    edit(path, statement)
    with pytest.raises(UsageError, match=message):
        Ledger.open(path)


def test_files_under_two_names_and_folders_are_refused(path):
    """The journal goes by the name: under another one, a cut-off append would not be seen."""
    os.link(path, path.with_name("second"))
    with pytest.raises(UsageError, match=r"has 2 names \(hard links\)"):
        Ledger.open(path)
    path.with_name("second").unlink()
    path.with_name("folder").mkdir()
    with pytest.raises(UsageError, match="there is no such file"):
        Ledger.open(path.with_name("folder"))


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_new_ledger_is_its_owners(path):
    """It tells who took part when: others see it only when its owner lets them."""
    assert path.stat().st_mode & 0o777 == 0o600


def test_reading_only_never_appends(path):
    """A ledger that is open for reading refuses every operation, and can be read beside one that writes."""
    with Ledger.open(path, read_only=True) as reader, Ledger.open(path) as writer:
        with pytest.raises(UsageError, match="is read-only"):
            reader.enrol(["new"])
        writer.enrol(["new"])
        reader.refresh()
        assert known(reader) == known(writer)


def test_a_file_that_may_not_be_written_can_be_read(path, monkeypatch):
    """Without the right to write, reading goes on; writing is refused with what to do."""
    monkeypatch.setattr(os, "access", lambda *_: False)  # a test that runs as root may write anywhere
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.users == 12
    with pytest.raises(UsageError, match="cannot be written: it, its folder or the disk is read-only"):
        Ledger.open(path)


def test_a_ledger_in_use_says_so(path, monkeypatch):
    """While another program holds the file an append waits, then says that, and can be tried again."""
    monkeypatch.setattr("coterie.federation.ledger.store._WAIT", 0.05)
    with Ledger.open(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UsageError, match="is in use"):
            ledger.enrol(["new"])
        other.execute("ROLLBACK")
        assert ledger.enrol(["new"]) == range(12, 13)


def test_a_ledger_belongs_to_the_process_that_opened_it(path):
    """A forked child cannot use it: two processes on one connection would break each other's locks."""
    with Ledger.open(path) as ledger:
        child = os.fork()
        if child == 0:
            try:
                ledger.enrol(["new"])
            except UsageError as error:
                os._exit(7 if "opened in another process" in str(error) else 1)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ledger.enrol(["new"]) == range(12, 13)


def test_a_closed_ledger_says_so(path):
    """Using a ledger after closing it is refused; closing twice is the same as once."""
    ledger = Ledger.open(path)
    ledger.close()
    ledger.close()
    with pytest.raises(UsageError, match="was closed; open it again"):
        ledger.enrol(["new"])


CUT_OFF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.executescript("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; DELETE FROM head;")
connection.execute("INSERT INTO record SELECT seq + 100, time, kind, hash, zeroblob(2000000) FROM record")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_append_that_was_cut_off_is_undone_by_whoever_comes_next(path):
    """Killed in the middle of writing: a reader that may write undoes it; one that may not says what to do."""
    before = path.read_bytes()
    run = subprocess.run([sys.executable, "-c", CUT_OFF, path], check=False, timeout=60)
    assert run.returncode == -signal.SIGKILL
    journal = path.with_name("ledger.sqlite-journal")
    assert (journal.exists(), path.read_bytes() == before) == (True, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(UsageError, match="the last append was cut off and must be undone first"):
            Ledger.open(path, read_only=True)
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.users == 12
    assert not journal.exists()
    assert verify(path).sound


FULL = """
import random, resource, sys
from coterie.errors import UsageError
from coterie.federation.ledger import DamagedError, Ledger

path, limit = sys.argv[1], int(sys.argv[2])
ledger = Ledger.create(path)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
count = 0
try:
    while True:
        ledger.enrol([f"{count}"], [random.Random(count).randbytes(20_000)])
        count += 1
except UsageError as error:
    print(error)
assert ledger.users == count > 3
with ledger.claim():
    ledger.skip_round("a small record still fits")
with Ledger.open(path) as again:
    assert again.users == count and again.next_round == 1
    assert again.head == ledger.head
ledger.close()
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
    """An append without room is refused with what to do; the ledger is what it was, and goes on."""
    (line,) = script(FULL, tmp_path / "ledger.sqlite", 0, prefix=mounted(tmp_path, "size=600k"))
    assert "cannot be written: the disk is full; make room" in line


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
def test_a_limit_on_files_changes_nothing(tmp_path):
    """The same where the system refuses long files, as a quota does."""
    (line,) = script(FULL, tmp_path / "ledger.sqlite", 400_000)
    assert "the system reports an error" in line
    assert verify(tmp_path / "ledger.sqlite").sound


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from coterie.errors import UsageError
from coterie.federation.ledger import DamagedError, Ledger

path = Path(sys.argv[1])
Ledger.create(path).close()
subprocess.run(["mount", "-o", "remount,ro", path.parent], check=True)
try:
    Ledger.open(path)
except UsageError as error:
    print(error)
with Ledger.open(path, read_only=True) as ledger:
    try:
        ledger.enrol(["new"])
    except UsageError as error:
        print(error)
subprocess.run(["mount", "-o", "remount,rw", path.parent], check=True)
with Ledger.open(path) as ledger:
    ledger.enrol(["new"])
"""


def test_a_read_only_disk_can_be_read_and_not_written(tmp_path):
    """Opening for writing, and appending, are refused; reading works, and writing when the disk permits it."""
    lines = script(READ_ONLY, tmp_path / "ledger.sqlite", prefix=mounted(tmp_path, "size=1m"))
    assert len(lines) == 2
    assert all("read-only" in line for line in lines)


def test_damage_in_the_middle_of_the_file_is_found(path):
    """Bytes overwritten anywhere are refused by opening, and found by verifying, never taken for content."""
    data = path.read_bytes()
    harmed = 0
    for at in range(0, len(data), 211):
        path.write_bytes(data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 40]) + data[at + 40 :])
        try:
            with Ledger.open(path, read_only=True) as ledger:
                assert ledger.users == 12
        except UsageError:
            harmed += 1
            try:
                assert not verify(path).sound
            except UsageError:
                continue
    assert harmed > 10
    path.write_bytes(data)
    assert verify(path).sound


ENDLESS = """
DROP TABLE record;
CREATE VIEW record AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i AS seq, 0 AS time, 'x' AS kind, x'00' AS hash, x'00' AS body FROM n
"""


@pytest.mark.parametrize(
    "change",
    [
        ENDLESS,
        "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record; END",
        "CREATE TABLE more (x)",
        "ALTER TABLE head ADD COLUMN more",
    ],
    ids=["an endless view", "a trigger", "another table", "another column"],
)
def test_tables_that_no_ledger_made_are_refused_unread(path, change):
    """The schema is checked before a row is read: nothing hangs, nothing runs."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(change)
    for use in (Ledger.open, verify):
        with pytest.raises(DamagedError, match="its tables are not those of a ledger"):
            use(path)


HOSTILE = """
import resource, sys, zlib
from coterie.errors import UsageError
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.events import LARGEST
from coterie.federation.ledger.store import Record
from coterie.federation.ledger.store import open_store
from coterie.federation.ledger.ledger import verify

Ledger.create(sys.argv[1]).close()
store = open_store(sys.argv[1], read_only=False)
for kind, content in (
    ("skipped", b" " * (LARGEST * 4)),
    ("exposed", b'{"alone":[[%d,1]],"learned":[[0,1],[0,1]],"round":0}\\n' % 60_000_000 + b"\\1" * 60_000_000),
    ("planned", b'{"batches":[[1,1],[1,4]],"privacy":1,"users":2147483647}\\n\\1\\0\\0\\0\\0'),
):
    head = store.head()
    body = zlib.compress(content, 9)
    assert len(body) < 1_000_000
    store.append([Record.after(head.hash, head.count + 1, 0, kind, body)], head)
store.close()
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
print(*(finding.seq for finding in verify(sys.argv[1]).findings))
try:
    Ledger.open(sys.argv[1])
except UsageError as error:
    print(error)
"""


def test_a_small_file_cannot_take_much_memory(tmp_path):
    """Records that would unpack to gigabytes, or claim two billion users, are refused within two gigabytes."""
    found, refused = script(HOSTILE, tmp_path / "ledger")
    assert found == "2 3 4"
    assert "record 2 (skipped): it has more than the 134217728 bytes" in refused
