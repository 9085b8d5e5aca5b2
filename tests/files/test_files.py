"""Writing whole or not at all, and explaining what the system refused."""

import errno
import os
import stat

import pytest

from coterie.errors import UsageError
from coterie.files import atomic_write, check_writable, reading, writing


def test_the_file_appears_whole(tmp_path):
    """The target is not there before the end of the block, and has all its content after."""
    target = tmp_path / "note.txt"
    with atomic_write(target) as file:
        file.write(b"one ")
        file.write(b"two")
        assert not target.exists()
    assert target.read_bytes() == b"one two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, UsageError])
def test_after_a_failure_all_is_as_before(tmp_path, error):
    """Any exception leaves the old content, and no temporary file."""
    target = tmp_path / "note.txt"
    target.write_bytes(b"old")
    with pytest.raises(error), atomic_write(target) as file:  # noqa: PT012 - what fails is the end of the block
        file.write(b"new")
        raise error("stop")
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_explained(tmp_path, monkeypatch, call):
    """If the system fails at the end, the old content stays and the message says what to do."""

    def fail(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "note.txt"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(UsageError, match=r"note.txt cannot be written: the disk is full"), atomic_write(target):
        pass
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]


def test_permissions(tmp_path):
    """A new file gets the usual permissions; a replaced one keeps its own."""
    plain, mine, kept = tmp_path / "plain", tmp_path / "mine", tmp_path / "kept"
    plain.touch()
    kept.touch()
    kept.chmod(0o640)
    for target in (mine, kept):
        with atomic_write(target) as file:
            file.write(b"x")
    assert mine.stat().st_mode == plain.stat().st_mode
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    """Writing through a link changes the file it leads to, and the link stays."""
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "file")
    with atomic_write(link) as file:
        file.write(b"x")
    assert link.is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"x"


def test_a_long_name_is_possible(tmp_path):
    """The longest name that the system allows can be written."""
    target = tmp_path / ("x" * 255)
    with atomic_write(target) as file:
        file.write(b"x")
    assert target.exists()
    with pytest.raises(UsageError, match="too long"), atomic_write(tmp_path / ("x" * 256)):
        pass


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing/note.txt", "its folder does not exist; create it first"),
        ("folder", "there is a folder of this name"),
        ("file/note.txt", "a part of the path is a file"),
        ("/dev/null", "it is a device or a pipe"),
    ],
)
@pytest.mark.parametrize("write", [check_writable, lambda path: atomic_write(path).__enter__()])
def test_impossible_targets_are_refused(tmp_path, path, message, write):
    """A target that cannot be is refused before anything is written, by the check as by the writing."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        write(tmp_path / path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
    check_writable(tmp_path / "new.txt")
    check_writable(tmp_path / "file")


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    """A folder that may not be written to is refused by the check."""
    monkeypatch.setattr(os, "access", lambda *_: False)  # a test that runs as root may write anywhere
    with pytest.raises(UsageError, match="no permission to write there"):
        check_writable(tmp_path / "note.txt")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOENT, "there is no such file"),
        (errno.EISDIR, "it is a folder"),
        (errno.EACCES, "no permission to read"),
        (errno.ENOTDIR, "a part of the path is a file"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_reading_is_explained(number, message):
    """Whatever the system refuses, the message names the file and the reason."""
    with pytest.raises(UsageError, match=f"log.csv cannot be read: .*{message}"), reading("log.csv"):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_writing_is_explained(number):
    """The same for writing; and the cause is kept."""
    message = "log.csv cannot be written: .*choose another folder"
    with pytest.raises(UsageError, match=message) as caught, writing("log.csv"):
        raise OSError(number, os.strerror(number))
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_without_a_number_is_shown_as_it_is():
    """An OSError that some library made up is shown in its own words."""
    with pytest.raises(UsageError, match="cannot be read: strange"), reading("log.csv"):
        raise OSError("strange")
