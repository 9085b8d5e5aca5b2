"""A fetched file is the published one or none; what was cut off goes on where it stopped."""

import hashlib
import random
import socket
import threading

import pytest

from coterie import UsageError
from coterie.lab.training.published import Download, fetch
from support.training.file_server import serving

DATA = random.Random(1).randbytes(1_000_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def server():
    with serving() as files:
        files.files["/a.bin"] = DATA
        yield files


def wanted(server, digest=DIGEST):
    """What the tests fetch."""
    return Download(f"{server.address}/a.bin", "sub/a.bin", digest)


def names(folder):
    """All files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_with_its_progress(server, tmp_path):
    """The file is there, whole and alone; progress rises to the total; a second call asks for nothing."""
    seen = []
    fetch(wanted(server), tmp_path, lambda *state: seen.append(state))
    assert (tmp_path / "sub" / "a.bin").read_bytes() == DATA
    assert names(tmp_path) == ["sub/a.bin"]
    assert [name for name, _, _ in seen] == ["a.bin"] * len(seen)
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert seen[-1][1:] == (len(DATA), len(DATA))
    assert {total for _, _, total in seen} == {len(DATA)}
    fetch(wanted(server), tmp_path)
    assert server.ranges == [None]


def test_a_connection_that_breaks_again_and_again_still_brings_the_file(server, tmp_path):
    """Every new connection asks for the rest only, while each brings something."""
    server.cut = 400_000
    fetch(wanted(server), tmp_path)
    assert (tmp_path / "sub" / "a.bin").read_bytes() == DATA
    assert server.ranges == [None, "bytes=400000-", "bytes=800000-"]


def test_an_interrupted_fetch_goes_on_in_the_next_call(server, tmp_path):
    """What one call got is kept beside the file's place; the next asks for the rest and finishes."""
    server.cut = 400_000

    def interrupt(_name, done, _total):
        if done == 400_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(wanted(server), tmp_path, interrupt)
    assert names(tmp_path) == ["sub/a.bin.part"]
    assert (tmp_path / "sub" / "a.bin.part").read_bytes() == DATA[:400_000]
    server.cut = None
    fetch(wanted(server), tmp_path)
    assert server.ranges == [None, "bytes=400000-"]
    assert (tmp_path / "sub" / "a.bin").read_bytes() == DATA
    assert names(tmp_path) == ["sub/a.bin"]


def test_a_server_that_stops_sending_is_given_up(server, tmp_path):
    """A connection without a byte ends the attempt; what is there is kept for the next."""
    server.cut = 0
    with pytest.raises(UsageError, match=r"stopped after 0 of 1000000 bytes; .*run again to go on"):
        fetch(wanted(server), tmp_path)
    part = tmp_path / "sub" / "a.bin.part"
    part.write_bytes(DATA[:300])
    with pytest.raises(UsageError, match="stopped after 300 of 1000000 bytes"):
        fetch(wanted(server), tmp_path)
    assert part.read_bytes() == DATA[:300]


@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("shift", [0, 10])
@pytest.mark.parametrize("kept", [DATA[:1234], DATA, b"x" * 1234, DATA + b"x", b"x" * len(DATA)])
def test_whatever_was_left_lying_the_file_becomes_right(server, tmp_path, kept, resumes, shift):
    """A true start, all of it, another file's start or too much: the result is the published file.

    So also with a server that ignores what was asked, or that answers from another byte on.
    """
    server.resumes, server.shift = resumes, shift
    part = tmp_path / "sub" / "a.bin.part"
    part.parent.mkdir()
    part.write_bytes(kept)
    fetch(wanted(server), tmp_path)
    assert (tmp_path / "sub" / "a.bin").read_bytes() == DATA
    assert names(tmp_path) == ["sub/a.bin"]


def test_an_unknown_length_is_no_obstacle(server, tmp_path):
    """Without a length the end of the answer is the end of the file."""
    server.tells_length = False
    totals = set()
    fetch(wanted(server), tmp_path, lambda _name, _done, total: totals.add(total))
    assert totals == {None}
    assert (tmp_path / "sub" / "a.bin").read_bytes() == DATA


def test_another_file_is_refused_and_leaves_nothing(server, tmp_path):
    """Bytes with another digest never get the file's name, and are not kept to go on from."""
    with pytest.raises(UsageError, match=r"a.bin gave is not the published file: .* md5:00; .*put it at .*a\.bin"):
        fetch(wanted(server, digest="md5:00"), tmp_path)
    assert names(tmp_path) == []


def test_what_is_not_there_is_said(server, tmp_path):
    """The server's answer is in the message."""
    with pytest.raises(UsageError, match="none cannot be fetched: the server answers 404 Not Found"):
        fetch(Download(f"{server.address}/none", "a.bin", DIGEST), tmp_path)


def test_without_a_network_the_reason_is_said(tmp_path):
    """A refused connection is explained, not raised as it is."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with pytest.raises(UsageError, match=f"http://127.0.0.1:{port}/a cannot be fetched: .*refused"):
        fetch(Download(f"http://127.0.0.1:{port}/a", "a", DIGEST), tmp_path)


def test_a_server_that_speaks_no_http_is_explained(tmp_path):
    """An answer that is not HTTP is a reason, too."""
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer():
            connection, _ = plain.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"hello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UsageError, match="cannot be fetched: hello"):
            fetch(Download(f"http://127.0.0.1:{plain.getsockname()[1]}/a", "a", DIGEST), tmp_path)
        thread.join()


def test_a_place_that_cannot_be_written_is_said(server, tmp_path):
    """A file where a folder must be is named before anything is fetched."""
    (tmp_path / "sub").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        fetch(wanted(server), tmp_path)
    assert server.ranges == []
