"""Photograph pages with Debian's Chromium, as a reader sees them: docs/pictures/NAME.png.

python docs/screenshots.py            all pages, from a fresh default run (a minute)
python docs/screenshots.py report --run FOLDER     one page, from a run that is there

A further page is a function that yields its address, and an entry of PAGES.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

import coterie

PICTURES = Path(__file__).parent / "pictures"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


@dataclass(frozen=True)
class Photograph:
    """A page, given the folder of a run, and the size of the window that it is seen in."""

    address: Callable[[Path], AbstractContextManager[str]]
    width: int
    height: int


@contextmanager
def report(run: Path) -> Iterator[str]:
    """Give the address of a run's report."""
    yield (run / "report.html").resolve().as_uri()


@contextmanager
def audit(_run: Path) -> Iterator[str]:
    """Give the address of the page of an audit: of the sample log, whose users were drawn at random."""
    log = Path(__file__).parents[1] / "examples" / "participation.csv"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "audit.html"
        command = [sys.executable, "-m", "coterie", "audit", log, "--html", page]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield page.as_uri()


@contextmanager
def dashboard(run: Path) -> Iterator[str]:
    """Give the address of the dashboard over a run's ledger."""
    command = [sys.executable, "-m", "coterie", "dashboard", run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - it was asked for
        yield server.stdout.readline().split()[4]
        server.terminate()


PAGES = {
    "report": Photograph(report, 1120, 730),
    "audit": Photograph(audit, 1120, 690),
    "dashboard": Photograph(dashboard, 1120, 1180),
}


def take(names: list[str], run: Path) -> None:
    """Photograph pages in light colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name in names:
            shot = PAGES[name]
            size = {"width": shot.width, "height": shot.height}
            page = browser.new_page(viewport=size, color_scheme="light")
            with shot.address(run) as address:
                page.goto(address)
                page.wait_for_timeout(500)
                page.screenshot(path=PICTURES / f"{name}.png")
            page.close()
            print(f"took docs/pictures/{name}.png")
        browser.close()


def main() -> None:
    """Make a run where none is given, and photograph."""
    parser = argparse.ArgumentParser(description="Photograph pages for the documentation.")
    parser.add_argument("names", nargs="*", choices=[[], *PAGES], help="pages; all unless given")
    parser.add_argument("--run", type=Path, help="the folder of a run; a new one unless given")
    arguments = parser.parse_args()
    names = arguments.names or list(PAGES)
    if arguments.run is not None:
        take(names, arguments.run)
        return
    with tempfile.TemporaryDirectory() as folder:
        take(names, coterie.run(out=Path(folder) / "first").path)


if __name__ == "__main__":
    main()
