"""The dashboard in a real browser, while a real run writes the ledger: it follows, and outlives the run."""

import subprocess
import sys

import pytest

from coterie import BatchPlan, Ledger
from support.browser import until, visit
from support.dashboard.serving import served, state
from support.ledgers import cohort_of
from support.pages import DRAWN, FAINT

ROUNDS = 6
LIVE = "document.getElementById('live').textContent === 'Live'"
HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<b>bea</b>", "n" * 500)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has just begun: its folder, and its process."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    options = ("--rounds", str(ROUNDS), "--users", "24", "--per-round", "12", "--out", str(folder))
    process = subprocess.Popen([sys.executable, "-m", "coterie", "run", *options], stdout=subprocess.DEVNULL)
    while not (folder / "ledger.sqlite").exists():
        assert process.poll() is None
    yield folder, process
    process.kill()
    process.wait()


def test_the_page_follows_a_run_and_outlives_it(chromium, run):
    """Rounds appear without a reload until the run is over, and the page stays."""
    folder, process = run
    with served(folder) as url, visit(chromium, url) as visited:
        page = visited.page
        page.evaluate("window.unloaded = 'the page was never loaded again'")
        until(page, LIVE)
        seen = page.locator(".kind").inner_text()
        assert process.wait(timeout=300) == 0
        until(page, f"document.querySelector('.kind').textContent.includes('{ROUNDS} rounds')")
        assert page.locator(".kind").inner_text() != seen
        headline = "Users hide in groups of at least 4, and their own keys keep it so."
        assert page.locator("h1").inner_text() == headline
        assert page.evaluate("window.unloaded")
        assert all(page.evaluate(DRAWN))
        tiles = page.locator(".tile").all_inner_texts()
        assert any(tile.startswith("Accuracy") for tile in tiles)
        known = state(url)
        assert {address.removeprefix(url) for address in visited.requests} == {"/", "/events"}
        assert visited.complaints == []
    assert len(known["history"]) == ROUNDS
    assert known["strong"] == 4


def test_a_page_that_stays_open_finds_its_server_again(chromium, run):
    """While the server is away the page keeps what it had, and says so; afterwards it is live again."""
    folder, _ = run
    with served(folder) as url:
        port = url.rpartition(":")[2]
        context = visit(chromium, url)
        visited = context.__enter__()
        until(visited.page, LIVE)
    until(visited.page, "document.getElementById('live').classList.contains('silent')")
    assert visited.page.locator("h1").inner_text() != ""
    with served(folder, port=port):
        until(visited.page, LIVE)
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The address of a dashboard over a ledger whose users have hostile names, with alerts."""
    folder = tmp_path_factory.mktemp("hostile")
    names = [*HOSTILE, *(f"user-{user}" for user in range(len(HOSTILE), 8))]
    with Ledger.create(folder) as ledger:
        ledger.enrol(names)
        plan = BatchPlan.from_batches(8, 2, [[0, 1], [2, 3], [4, 5], [6, 7]])
        ledger.publish_plan(plan)
        with ledger.claim():
            for _ in range(6):
                number = ledger.open_round(cohort_of(plan, [0, 1, 2]), sealed=True, protocol="open")
                lost = {0: f"{names[0]}, {names[1]} did not answer"}
                ledger.commit_round(number, [[2, 3], [4, 5]], lost, {"accuracy": 0.5, "loss": 0.7})
            ledger.open_round(cohort_of(plan, [0, 3]), sealed=True, protocol="open")
    with served(folder) as url:
        yield url


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_the_page_fits_and_can_be_read(chromium, hostile, width, scheme):
    """Hostile names are text; nothing scrolls sideways; all text has contrast; alerts stand on top."""
    with visit(chromium, hostile, width, scheme) as visited:
        page = visited.page
        until(page, LIVE)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        seen, faint = page.evaluate(FAINT)
        assert seen > 60
        assert faint == []
        assert page.locator("main img, main b").count() == 0
        headings = page.locator(".points dt").all_inner_texts()
        assert {"Close to being retired", "A round was cut off"} <= set(headings)
        assert HOSTILE[0] in page.locator("main").inner_text()
        assert visited.complaints == []
