"""The dashboard as a command and a server: what it answers, to whom, and what it refuses."""

import json
import os
import subprocess
import sys
import threading
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coterie import Ledger
from support.cli.command import coterie
from support.dashboard.serving import read, served, state
from support.ledgers import PLAN, cohort_of, federation


@pytest.fixture
def folder(tmp_path):
    """A folder with a ledger that has a round of each kind."""
    federation(tmp_path).close()
    return tmp_path


def test_page_json_and_prometheus_tell_the_same_to_this_machine_only(folder):
    """The level, the rounds by their ends and the alerts; the page has no secret route and writes nothing.

    Only this machine's own names are answered, so that a page of another name that points here reads nothing, and
    only GET; the port is taken for a second dashboard.
    """
    before = sorted((file.name, file.stat().st_mtime_ns) for file in folder.iterdir())
    with served(folder) as url:
        known, page = state(url), read(url)
        families = {family.name: family for family in text_string_to_metric_families(read(f"{url}/metrics"))}
        assert json.loads(read(f"{url}/health")) == {"trouble": ""}
        with pytest.raises(HTTPError, match="400"):
            urlopen(Request(url, headers={"Host": "rebinding.example"}))  # noqa: S310 - our own server
        with pytest.raises(HTTPError, match="405"):
            urlopen(Request(url, data=b"x", method="POST"))  # noqa: S310 - our own server
        with pytest.raises(HTTPError, match="404"):
            read(f"{url}/ledger.sqlite")
        taken = coterie("dashboard", folder, "--port", url.rpartition(":")[2])
        assert taken.returncode == 2
        assert "choose another --port" in taken.stderr
    rounds = {sample.labels["state"]: sample.value for sample in families["coterie_rounds"].samples}
    assert rounds == known["rounds"]
    assert known["rounds"] == {"open": 0, "committed": 2, "abandoned": 1, "unfinished": 1, "skipped": 1}
    assert families["coterie_privacy_level"].samples[0].value == known["strong"] == 2
    assert families["coterie_privacy_level_required"].samples[0].value == known["required"] == 3
    warnings = [alert for alert in known["alerts"] if alert["tone"] == "warning"]
    assert {sample.labels["tone"]: sample.value for sample in families["coterie_alerts"].samples} == {
        "warning": len(warnings), "plain": len(known["alerts"]) - len(warnings),
    }  # fmt: skip
    for text in (known["verdict"]["headline"].removesuffix("."), *(alert["name"] for alert in known["alerts"])):
        assert text in page
    assert sorted((file.name, file.stat().st_mtime_ns) for file in folder.iterdir()) == before
    once = coterie("dashboard", folder, "--json")
    assert json.loads(once.stdout) | {"changed": 0, "trouble": ""} == known | {"changed": 0}


def test_a_change_is_streamed(folder):
    """Whoever listens is told of the present state, and of every change after it."""
    with served(folder) as url:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        heard = []

        def listen():
            while len(heard) < 2:
                line = answer.fp.readline().decode()
                if line.startswith("data: "):
                    heard.append(json.loads(line.removeprefix("data: "))["version"])
                    first.set()

        first, thread = threading.Event(), threading.Thread(target=listen)
        thread.start()
        assert first.wait(60)
        before = state(url)["head"]["count"]
        with Ledger.open(folder) as ledger, ledger.claim():
            number = ledger.open_round(cohort_of(PLAN, [0]), sealed=True, protocol="open")
            ledger.commit_round(number, [range(3)])
        thread.join(60)
        assert heard[1] > heard[0]
        connection.close()
        assert state(url)["head"]["count"] == before + 2


def test_bad_input_is_refused_in_one_line(folder, tmp_path):
    """No ledger, another URL, a demand below one, a wrong port or host: exit code 2."""
    for arguments, words in (
        ((tmp_path / "nothing",), "nothing"),
        (("http://host/ledger",), "http:// begins no ledger's URL; write it as postgresql://"),
        ((folder, "--require", "0"), "--require is 0"),
        ((folder, "--port", "70000"), "--port is 70000"),
        ((folder, "--host", "192.0.2.1", "--port", "0"), "give an address of this machine as --host"),
        ((), "say which ledger"),
    ):
        refused = coterie("dashboard", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_a_missing_package_is_named_before_anything_is_served(folder):
    """Every package that the page takes, also the one of its pictures: one line with the pip command."""
    argv = ["coterie", "dashboard", str(folder), "--port", "0"]
    code = f"import sys; sys.modules['PIL'] = None; sys.argv = {argv}; import coterie.__main__"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "coterie: coterie dashboard needs PIL: pip install 'coterie[dashboard]'\n"


def test_a_ledger_that_is_damaged_while_it_is_watched_is_told(folder):
    """The last state stays, and the trouble is said: in the JSON, and by the answer for monitors."""
    with served(folder) as url:
        file = folder / "ledger.sqlite"
        os.truncate(file, file.stat().st_size // 2)
        for _ in range(600):
            known = state(url)
            if known["trouble"]:
                break
            threading.Event().wait(0.1)
        assert "ledger.sqlite" in known["trouble"]
        assert known["rounds"]["committed"] == 2
        with pytest.raises(HTTPError, match="503"):
            read(f"{url}/health")
