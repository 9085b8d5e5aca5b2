"""A real browser for tests of pages: Debian's Chromium without a window, driven through Playwright."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",  # Chromium refuses to run as root with it, and opens nothing but our own files here
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Start the browser once; without it, skip and say why, but in CI fail."""
    if not CHROMIUM.exists():
        reason = f"{CHROMIUM} is missing; run tests/packages.sh as root (apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """An opened page, and what it did that a page must not do."""

    page: Page
    requests: list[str] = field(default_factory=list)
    refused: dict[str, str | None] = field(default_factory=dict)
    """Requests that failed, and why."""
    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings, exceptions, dialogs."""


def until(page: Page, condition: str) -> None:
    """Wait until something holds in a page (Playwright's own way needs `eval`, which our pages forbid)."""
    page.evaluate(f"""async () => {{
      const start = performance.now();
      while (!({condition})) {{
        if (performance.now() - start > 20000) throw new Error('still not: ' + {condition!r});
        await new Promise(requestAnimationFrame);
      }}
    }}""")


@contextmanager
def visit(browser: Browser, place: Path | str, width: int = 1400, scheme: str = "light") -> Iterator[Visit]:
    """Open a file, or an address, at a width, in a colour scheme."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    visited = Visit(page)
    page.on("request", lambda request: visited.requests.append(request.url))
    page.on("requestfailed", lambda request: visited.refused.update({request.url: request.failure}))
    page.on("console", lambda message: visited.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: visited.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (visited.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.goto(place.as_uri() if isinstance(place, Path) else place)
    yield visited
    context.close()
